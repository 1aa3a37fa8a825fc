//! Flows of the packet path: one record, under two or three keys.
//!
//! A packet of a flow is seen in three forms. The client sends to the frontend; between the two
//! hooks of a node (ingress rewrites the destination, egress the source) the stack sees the client
//! and the backend; and where the client's source address was replaced, the backend answers to that.
//! Each form that cannot be derived from a packet of another has a key.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::addr::{Address, Protocol};

/// Where a tuple is seen.
#[repr(u8)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub enum FlowStage {
    /// On arrival: client → frontend, and backend → SNAT address. As in the packet.
    Wire = 1,
    /// Between ingress and egress: client and backend, the lower end as source whatever the
    /// direction, so that requests and replies meet one record.
    Stack = 2,
}

/// Key of the `flow` map: a tuple, and where it is seen.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct FlowKey {
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
    /// Source port, host order.
    pub src_port: u16,
    /// Destination port, host order.
    pub dst_port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Where it is seen.
    pub stage: FlowStage,
    /// Zero.
    pub reserved: u16,
}

/// One end of a conversation: an address, and a port in host order.
pub type FlowEnd = (Address, u16);

impl FlowKey {
    /// Key of packets that arrive.
    pub const fn wire(src: FlowEnd, dst: FlowEnd, protocol: Protocol) -> Self {
        Self::new(src, dst, protocol, FlowStage::Wire)
    }

    /// Key of packets that leave, in both directions: `one` and `other` may be swapped.
    pub fn stack(one: FlowEnd, other: FlowEnd, protocol: Protocol) -> Self {
        let (low, high) = if one <= other {
            (one, other)
        } else {
            (other, one)
        };
        Self::new(low, high, protocol, FlowStage::Stack)
    }

    const fn new(src: FlowEnd, dst: FlowEnd, protocol: Protocol, stage: FlowStage) -> Self {
        Self {
            src: src.0,
            dst: dst.0,
            src_port: src.1,
            dst_port: dst.1,
            protocol,
            stage,
            reserved: 0,
        }
    }
}

/// Where a flow stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowState {
    /// Not answered, or a TCP handshake that the client did not complete.
    Open,
    /// Answered.
    Established,
    /// One side has sent FIN.
    HalfClosed,
    /// Both have.
    Closed,
    /// One sent RST.
    Reset,
}

/// Value of the `flow` map. Every key of a flow holds the whole record, so that each rebuilds the
/// others; what changes with packets (`last_seen`, the two `seen`) is brought together by
/// [`merge`](Self::merge).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct FlowValue {
    /// Address of the client.
    pub client: Address,
    /// Address that it used.
    pub frontend: Address,
    /// Address of the backend.
    pub backend_addr: Address,
    /// Address that the backend sees instead of the client's; zero while there is none.
    pub snat: Address,
    /// Last packet, monotonic nanoseconds, one second behind at most.
    pub last_seen: u64,
    /// Service id.
    pub service: u32,
    /// Backend id.
    pub backend: u32,
    /// Port of the client, host order.
    pub client_port: u16,
    /// Port that it used, host order.
    pub frontend_port: u16,
    /// Port of the backend, host order.
    pub backend_port: u16,
    /// Port of `snat`, host order; 0 while there is none.
    pub snat_port: u16,
    /// Port of the client between the two hooks, host order: `client_port`, unless another flow
    /// of the client has that at this backend.
    pub stack_port: u16,
    /// IANA number of the transport protocol.
    pub protocol: u8,
    /// [`SNAT`](Self::SNAT).
    pub flags: u8,
    /// What the client has sent: [`SEEN`](Self::SEEN), [`FIN`](Self::FIN), [`RST`](Self::RST),
    /// [`ACK`](Self::ACK).
    pub request_seen: u8,
    /// What the backend has sent.
    pub reply_seen: u8,
    /// Zero.
    pub reserved: u16,
}

impl FlowValue {
    /// In `flags`: the source address is replaced where a request leaves the node.
    pub const SNAT: u8 = 1;

    /// In `request_seen` and `reply_seen`: anything.
    pub const SEEN: u8 = 1;
    /// A TCP FIN.
    pub const FIN: u8 = 2;
    /// A TCP RST.
    pub const RST: u8 = 4;
    /// A TCP segment other than the first: neither SYN nor RST.
    pub const ACK: u8 = 8;

    /// Where the flow stands, by this record alone.
    #[inline(always)]
    pub const fn state(&self) -> FlowState {
        Self::state_of(self.protocol, self.request_seen, self.reply_seen)
    }

    /// Where a flow stands whose ends have sent this.
    #[inline(always)]
    pub const fn state_of(protocol: u8, request: u8, reply: u8) -> FlowState {
        let both = request & reply;
        let any = request | reply;
        if any & Self::RST != 0 {
            FlowState::Reset
        } else if both & Self::FIN != 0 {
            FlowState::Closed
        } else if any & Self::FIN != 0 {
            FlowState::HalfClosed
        } else if reply & Self::SEEN != 0
            && (protocol != Protocol::Tcp as u8 || request & Self::ACK != 0)
        {
            FlowState::Established
        } else {
            FlowState::Open
        }
    }

    /// Takes over what another record of the same flow has seen.
    pub const fn merge(&mut self, other: &Self) {
        self.request_seen |= other.request_seen;
        self.reply_seen |= other.reply_seen;
        if other.last_seen > self.last_seen {
            self.last_seen = other.last_seen;
        }
        if self.snat_port == 0 {
            self.snat = other.snat;
            self.snat_port = other.snat_port;
        }
    }

    /// Whether both are records of the same flow.
    pub fn is(&self, other: &Self) -> bool {
        self.client == other.client
            && self.client_port == other.client_port
            && self.frontend == other.frontend
            && self.frontend_port == other.frontend_port
            && self.protocol == other.protocol
            && self.backend == other.backend
            && self.stack_port == other.stack_port
    }

    /// Key of requests that arrive; `None` if the record has no protocol that we know.
    pub fn request_key(&self) -> Option<FlowKey> {
        let (client, frontend) = (
            (self.client, self.client_port),
            (self.frontend, self.frontend_port),
        );
        Some(FlowKey::wire(client, frontend, self.transport()?))
    }

    /// Key of packets that leave.
    pub fn stack_key(&self) -> Option<FlowKey> {
        let client = (self.client, self.stack_port);
        let backend = (self.backend_addr, self.backend_port);
        Some(FlowKey::stack(client, backend, self.transport()?))
    }

    /// Key of replies that arrive; `None` while or where the source address is the client's.
    pub fn reply_key(&self) -> Option<FlowKey> {
        if self.snat_port == 0 {
            return None;
        }
        let backend = (self.backend_addr, self.backend_port);
        let snat = (self.snat, self.snat_port);
        Some(FlowKey::wire(backend, snat, self.transport()?))
    }

    const fn transport(&self) -> Option<Protocol> {
        Protocol::from_number(self.protocol as u32)
    }
}

crate::pod!(FlowKey, FlowValue);

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: u8 = Protocol::Tcp as u8;

    #[test]
    fn a_tcp_flow_goes_through_its_life() {
        let state = |request, reply| FlowValue::state_of(TCP, request, reply);
        let (seen, ack, fin) = (FlowValue::SEEN, FlowValue::ACK, FlowValue::FIN);
        assert_eq!(state(seen, 0), FlowState::Open);
        assert_eq!(state(seen, seen), FlowState::Open, "half a handshake");
        assert_eq!(state(seen | ack, seen), FlowState::Established);
        assert_eq!(state(seen | ack | fin, seen | ack), FlowState::HalfClosed);
        assert_eq!(state(seen | ack, seen | ack | fin), FlowState::HalfClosed);
        assert_eq!(state(seen | fin, seen | fin), FlowState::Closed);
        assert_eq!(state(seen, seen | FlowValue::RST), FlowState::Reset);
    }

    #[test]
    fn a_udp_flow_is_established_by_its_first_reply() {
        let state = |reply| FlowValue::state_of(Protocol::Udp as u8, FlowValue::SEEN, reply);
        assert_eq!(state(0), FlowState::Open);
        assert_eq!(state(FlowValue::SEEN), FlowState::Established);
    }

    #[test]
    fn both_directions_have_the_same_key_between_the_hooks() {
        let (low, high) = (([1; 16], 9), ([2; 16], 1));
        let key = FlowKey::stack(low, high, Protocol::Tcp);
        assert_eq!(key, FlowKey::stack(high, low, Protocol::Tcp));
        assert_eq!((key.src, key.src_port), low);
        let (low, high) = (([1; 16], 1), ([1; 16], 0x100));
        let key = FlowKey::stack(high, low, Protocol::Tcp);
        assert_eq!((key.src_port, key.dst_port), (1, 0x100));
    }
}
