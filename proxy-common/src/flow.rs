//! Flows of the packet path: one record, two keys.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::addr::{Address, Protocol};

/// Key of the `flow` map: a tuple as it is seen on the wire.
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
    /// Zero.
    pub reserved: [u8; 3],
}

/// Where a flow stands in its life; TCP passes through all, others stay `Open`.
#[repr(u8)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub enum FlowState {
    /// First packet seen.
    Open = 1,
    /// Answered.
    Established = 2,
    /// One side has sent FIN.
    HalfClosed = 3,
    /// Both have, or one sent RST.
    Closed = 4,
}

/// Value of the `flow` map. Both keys of a flow hold the whole record, so either rebuilds the other.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, TryFromBytes, Immutable, KnownLayout)]
pub struct FlowValue {
    /// The tuple that the client sends: client → frontend.
    pub request: FlowKey,
    /// The tuple that the backend answers with: backend → client, or backend → SNAT address.
    pub reply: FlowKey,
    /// Last packet, monotonic nanoseconds.
    pub last_seen: u64,
    /// Service id.
    pub service: u32,
    /// Generation of the service when the flow was made.
    pub generation: u32,
    /// Backend id.
    pub backend: u32,
    /// Where it stands.
    pub state: FlowState,
    /// Zero until the packet path defines flags.
    pub flags: u8,
    /// Zero.
    pub reserved: u16,
}

crate::pod!(FlowKey, FlowValue);
