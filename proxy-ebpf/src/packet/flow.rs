//! Flows: found by a packet's tuple, made by its first packet.
//!
//! Only the agent ends flows for their age; here they end when the client starts anew.

mod key;
mod record;

use aya_ebpf::helpers::{bpf_get_prandom_u32, bpf_ktime_get_ns};
use proxy_common::{Counter, FlowState, FlowValue};

pub use self::{
    key::Key,
    record::{backend, client, copy, frontend, snat, stack_client},
};
use crate::{
    balance::load::{count_down, count_up},
    packet::{
        parse::{self, Packet},
        snat,
        work::Work,
    },
    report::count,
};

/// How often a port is looked for between the hooks, where another flow has the client's.
const PORTS: u32 = 8;
/// How far behind the time of a flow's last packet may be, nanoseconds: not every packet has to
/// write into memory that other CPUs read.
const COARSE: u64 = 1_000_000_000;

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client.
    Request,
    /// From the backend.
    Reply,
}

/// A flow that a packet belongs to.
pub struct Flow {
    /// In the map.
    at: *mut FlowValue,
    /// Which way the packet goes.
    pub direction: Direction,
    /// Service id.
    pub service: u32,
    /// Backend id.
    pub backend: u32,
    /// At egress: the source address is still to be chosen.
    pub wants_snat: bool,
    /// What this end has sent.
    seen: u8,
    last_seen: u64,
}

impl Flow {
    /// The flow of a packet that arrives.
    #[inline(always)]
    pub fn arriving(work: &mut Work) -> Option<Self> {
        let tuple = &work.packet.tuple;
        let at = work.key.wire(tuple.src, tuple.dst, tuple.protocol).find()?;
        let is_request = frontend(at).is(tuple.dst);
        let flow;
        if is_request {
            flow = Self::read(at, Direction::Request);
            work.ends.src = stack_client(at);
            work.ends.dst = backend(at);
        } else {
            flow = Self::read(at, Direction::Reply);
            work.ends.src = tuple.src;
            work.ends.dst = stack_client(at);
        }
        // The element can become another flow's while it is read. The kernel writes it from its
        // start, so that who finds the right ends there at last has read the right flow.
        let is_right = if is_request {
            client(at).is(tuple.src) && frontend(at).is(tuple.dst)
        } else {
            backend(at).is(tuple.src) && snat(at).is(tuple.dst)
        };
        is_right.then_some(flow)
    }

    /// The flow of a packet that leaves.
    #[inline(always)]
    pub fn leaving(work: &mut Work) -> Option<Self> {
        let tuple = &work.packet.tuple;
        let at = work
            .key
            .stack(tuple.src, tuple.dst, tuple.protocol)
            .find()?;
        let is_request = stack_client(at).is(tuple.src);
        let mut flow;
        if is_request {
            flow = Self::read(at, Direction::Request);
            work.ends.src = tuple.src;
            work.ends.dst = tuple.dst;
            // SAFETY: a map value.
            let flags = unsafe { (&raw const (*at).flags).read_volatile() };
            if flags & FlowValue::SNAT != 0 {
                let snat = snat(at);
                if snat.port == 0 {
                    flow.wants_snat = true;
                } else {
                    work.ends.src = snat;
                }
            }
        } else {
            flow = Self::read(at, Direction::Reply);
            work.ends.src = frontend(at);
            work.ends.dst = client(at);
        }
        let (client, backend) = (stack_client(at), backend(at));
        let is_right = if is_request {
            client.is(tuple.src) && backend.is(tuple.dst)
        } else {
            backend.is(tuple.src) && client.is(tuple.dst)
        };
        is_right.then_some(flow)
    }

    #[inline(always)]
    fn read(at: *mut FlowValue, direction: Direction) -> Self {
        // SAFETY: a map value.
        unsafe {
            let seen = match direction {
                Direction::Request => &raw const (*at).request_seen,
                Direction::Reply => &raw const (*at).reply_seen,
            };
            Self {
                at,
                direction,
                service: (&raw const (*at).service).read_volatile(),
                backend: (&raw const (*at).backend).read_volatile(),
                wants_snat: false,
                seen: seen.read_volatile(),
                last_seen: (&raw const (*at).last_seen).read_volatile(),
            }
        }
    }

    /// Notes that a packet was seen.
    #[inline(always)]
    pub fn touch(&self, packet: &Packet) {
        let seen = self.seen | shows(packet);
        let now = now();
        // SAFETY: a map value. Each octet is written by the packets of one direction; two of them
        // at once can lose a bit, which the flow then gets by its age.
        unsafe {
            let at = match self.direction {
                Direction::Request => &raw mut (*self.at).request_seen,
                Direction::Reply => &raw mut (*self.at).reply_seen,
            };
            if seen != self.seen {
                at.write_volatile(seen);
            }
            if seen != self.seen || now.wrapping_sub(self.last_seen) > COARSE {
                (&raw mut (*self.at).last_seen).write_volatile(now);
            }
        }
    }

    /// Where the flow stands.
    #[inline(always)]
    pub fn state(&self, key: &mut Key) -> FlowState {
        state(self.at, key)
    }

    /// Ends the flow of a request that arrives.
    #[inline(always)]
    pub fn end(&self, key: &mut Key) {
        end(self.at, key, false);
    }

    /// Chooses the source address of a flow whose first packet leaves. `false`: there is none.
    #[inline(always)]
    pub fn choose_snat(&self, work: &mut Work, interface: u32) -> bool {
        copy(self.at, &mut work.record);
        snat::choose(work, interface)
    }
}

/// Where a flow stands, by this record and the one that packets meet that leave.
#[inline(always)]
fn state(record: *const FlowValue, key: &mut Key) -> FlowState {
    // SAFETY: map values. Should one be another flow's by now, this one is about to be ended in any
    // case.
    unsafe {
        let mut request = (&raw const (*record).request_seen).read_volatile();
        let mut reply = (&raw const (*record).reply_seen).read_volatile();
        if let Some(at) = key.stack_of(record).find() {
            request |= (&raw const (*at).request_seen).read_volatile();
            reply |= (&raw const (*at).reply_seen).read_volatile();
        }
        FlowValue::state_of(
            (&raw const (*record).protocol).read_volatile(),
            request,
            reply,
        )
    }
}

/// Frees all keys of a flow, and takes back what it counted for. Who frees the key of requests does
/// that, so that it is done once. The record must be under the key of requests, or, with `is_reply`,
/// of replies: its own goes last, since it is read until then.
#[inline(always)]
fn end(record: *const FlowValue, key: &mut Key, is_reply: bool) {
    // SAFETY: a map value.
    let backend = unsafe { (&raw const (*record).backend).read_volatile() };
    key.stack_of(record).free();
    if !is_reply {
        key.reply_of(record).free();
    }
    if key.request_of(record).free() {
        count_down(backend);
    }
    if is_reply {
        key.reply_of(record).free();
    }
}

/// Ends the flow that has a key of replies, if it will see no more packets but those under way.
/// Whether the key is free; it is another one after this.
#[inline(always)]
pub fn end_finished(key: &mut Key) -> bool {
    let Some(at) = key.find() else {
        return true;
    };
    let is_over = matches!(state(at, key), FlowState::Closed | FlowState::Reset);
    if is_over {
        end(at, key, true);
    }
    is_over
}

/// Makes the flow of a packet that is its first, to the backend in `ends.dst`. Another CPU may be
/// doing the same for the same client: the one that gets the key of requests is right, and the other
/// takes its record over. `false`: the map is full, or other flows have every port that was tried.
#[inline(never)]
pub fn make(work: &mut Work) -> bool {
    let Work {
        packet,
        ends,
        record,
        key,
        choice,
        ..
    } = work;
    let tuple = &packet.tuple;
    *record = FlowValue {
        client: tuple.src.addr.bytes(),
        frontend: tuple.dst.addr.bytes(),
        backend_addr: ends.dst.addr.bytes(),
        snat: [0; 16],
        last_seen: now(),
        service: choice.service,
        backend: choice.backend,
        client_port: tuple.src.port,
        frontend_port: tuple.dst.port,
        backend_port: ends.dst.port,
        snat_port: 0,
        stack_port: tuple.src.port,
        protocol: tuple.protocol as u8,
        flags: if choice.snat != 0 { FlowValue::SNAT } else { 0 },
        request_seen: shows(packet),
        reply_seen: 0,
        reserved: 0,
    };
    if !reserve_stack(record, key) {
        return false;
    }
    match key.request_of(record).reserve(record) {
        Ok(()) => {
            count_up(record.backend);
            count(Counter::FlowMade);
            ends.src = stack_client(record);
            true
        }
        Err(is_there) => {
            let Some(at) = key.find().filter(|_| is_there) else {
                key.stack_of(record).free();
                return false;
            };
            ends.src = stack_client(at);
            ends.dst = backend(at);
            let is_mine = ends.src.is(stack_client(record)) && ends.dst.is(backend(record));
            if !is_mine {
                key.stack_of(record).free();
            }
            true
        }
    }
}

/// Reserves what is seen between the hooks, with another port than the client's if that is taken by
/// another flow of the client to the backend.
#[inline(always)]
fn reserve_stack(record: &mut FlowValue, key: &mut Key) -> bool {
    // A client that is its own backend, at the same port, could not be told from it.
    let mut is_taken = client(record).is(backend(record));
    for attempt in 0..PORTS {
        if is_taken {
            record.stack_port = snat::random_port();
        }
        match key.stack_of(record).reserve(record) {
            Ok(()) => return true,
            Err(false) => return false,
            Err(true) => is_taken = true,
        }
        if attempt == 0 {
            // The same client and frontend: another CPU is making it, or its key of requests was
            // lost.
            if let Some(at) = key.find()
                && client(at).is(client(record))
                && frontend(at).is(frontend(record))
            {
                copy(at, record);
                return true;
            }
            count(Counter::FlowCollided);
        }
    }
    false
}

/// A number of 32 bits that is new each time.
#[inline(always)]
pub fn random() -> u32 {
    // SAFETY: a helper without preconditions.
    unsafe { bpf_get_prandom_u32() }
}

/// What a packet says about its sender.
#[inline(always)]
pub fn shows(packet: &Packet) -> u8 {
    let mut shows = FlowValue::SEEN;
    if packet.is_tcp() {
        if packet.flags & parse::FIN != 0 {
            shows |= FlowValue::FIN;
        }
        if packet.flags & parse::RST != 0 {
            shows |= FlowValue::RST;
        } else if packet.flags & parse::SYN == 0 {
            shows |= FlowValue::ACK;
        }
    }
    shows
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: a helper without preconditions.
    unsafe { bpf_ktime_get_ns() }
}
