//! What the programs tell the agent: counters, which are exact, and events, which are samples.

use core::{arch::asm, ffi::c_void, ptr::from_ref};

use aya_ebpf::{
    bindings::BPF_RB_AVAIL_DATA,
    helpers::{bpf_ktime_get_ns, bpf_ringbuf_query},
};
use proxy_common::{Counter, EventKind, EventRecord, Protocol, map};

use crate::{
    address::Endpoint,
    maps::{COUNTER, EVENT},
};

/// Log2 of the length of a slice of time, nanoseconds: 134 ms.
const SLICE_SHIFT: u32 = 27;
/// Events per slice of time, of the whole node.
const EVENTS_PER_SLICE: u64 = 16;

/// The slice of time in which the last event was sent, times 2^16, plus the number of events sent
/// in it. Read and written without a lock: a race costs or adds an event.
static mut GATE: u64 = 0;

/// Counts one up.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(value) = COUNTER.get_ptr_mut(counter as u32) {
        add(value, 1);
    }
}

/// Adds to a number in a map, atomically: programs can be preempted by others on the same CPU.
///
/// Written out since the language has no read-modify-write for this target, and since kernels
/// before 5.12 know no other such instruction than this one, which does not return the sum.
#[inline(always)]
pub fn add(value: *mut u64, by: u64) {
    // SAFETY: the verifier checks that it is an aligned number in a map.
    unsafe {
        asm!("lock *(u64 *)({value} + 0) += {by}", value = in(reg) value, by = in(reg) by);
    }
}

/// The same for a number of 32 bits.
#[inline(always)]
pub fn add_half(value: *mut u32, by: u32) {
    // SAFETY: as above.
    unsafe {
        asm!("lock *(u32 *)({value} + 0) += {by}", value = in(reg) value, by = in(reg) u64::from(by));
    }
}

/// Tells the agent that a client was refused or dropped. Events beyond 16 in 134 ms are left out,
/// and so are those that find the ring half full: a client in a loop must not keep the agent busy.
#[inline(never)]
pub fn event(kind: EventKind, destination: &Endpoint, protocol: Protocol, service: u32) {
    // SAFETY: helpers without preconditions; the pointer is that of a ring buffer map.
    let (time, waiting) = unsafe {
        (
            bpf_ktime_get_ns(),
            bpf_ringbuf_query(
                from_ref(&EVENT).cast_mut().cast::<c_void>(),
                u64::from(BPF_RB_AVAIL_DATA),
            ),
        )
    };
    if waiting > u64::from(map::EVENT.entries) / 2 {
        return;
    }
    let slice = time >> SLICE_SHIFT;
    // SAFETY: a plain number; any value that a race leaves is a valid one.
    let gate = unsafe { (&raw const GATE).read_volatile() };
    let sent = if gate >> 16 == slice {
        gate & 0xffff
    } else {
        0
    };
    if sent >= EVENTS_PER_SLICE {
        return;
    }
    // SAFETY: as above.
    unsafe { (&raw mut GATE).write_volatile(slice << 16 | (sent + 1)) };
    if let Some(mut record) = EVENT.reserve(0) {
        record.write(EventRecord {
            time,
            addr: destination.addr.bytes(),
            service,
            port: destination.port,
            protocol,
            kind,
        });
        record.submit(0);
    }
}
