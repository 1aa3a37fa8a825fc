//! What a program works on: one packet, in memory of the CPU that it runs on.
//!
//! The stack of a program, 512 octets with all functions that are under way, has no room for a flow,
//! its key and the ends of a packet at once. And what the verifier reads from a map it knows nothing
//! about: it does not follow each way through the headers on its own.
//!
//! Programs at tc run with softirqs off (net/core/dev.c, `__dev_queue_xmit`,
//! `__netif_receive_skb_core`), so that no second one comes in between on the same CPU.

use aya_ebpf::{btf_maps::PerCpuArray, macros::btf_map};
use proxy_common::FlowValue;

use crate::{
    address::Endpoint,
    packet::{error::Error, flow::Key, fragment::Fragment, parse::Packet},
};

/// Not pinned: it means nothing to anybody else, and nothing after the run.
#[btf_map(name = "work")]
static WORK: PerCpuArray<Work, 1> = PerCpuArray::new();

/// One packet, and what is to become of it.
#[repr(C, align(8))]
pub struct Work {
    /// As it is.
    pub packet: Packet,
    /// Ends that it is to have beyond this hook.
    pub ends: Ends,
    /// The ICMP error that it is.
    pub error: Error,
    /// A flow that is being made or changed.
    pub record: FlowValue,
    /// The key that is being looked at.
    pub key: Key,
    /// What becomes of a fragmented packet.
    pub fragment: Fragment,
    /// What becomes of it.
    pub verdict: i32,
    /// The Service and the backend that were chosen; 0: none.
    pub choice: Choice,
}

/// Where from and where to.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Ends {
    /// Source.
    pub src: Endpoint,
    /// Destination.
    pub dst: Endpoint,
}

/// What a new flow is to be.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Choice {
    /// Service id.
    pub service: u32,
    /// Backend id.
    pub backend: u32,
    /// 1: the source address is to be replaced.
    pub snat: u32,
}

/// The memory of this CPU. `None` cannot be, but for the verifier.
#[inline(always)]
pub fn work() -> Option<&'static mut Work> {
    // SAFETY: a program has it to itself while it runs. All octets are valid for all fields, but for
    // the protocol, which is written before it is read.
    WORK.get_ptr_mut(0).map(|work| unsafe { &mut *work })
}
