//! Fragments. Only the first of a packet has ports: what becomes of it is remembered for the others,
//! which differ from it in nothing but their addresses.
//!
//! One that arrives before the first is held: its octets are kept, it is dropped, and it arrives once
//! more as soon as the first has come. Only what arrives is held; the kernel keeps the order from
//! then on. It reassembles between the hooks where it tracks connections, and takes the packet apart
//! again before egress.

mod held;

use aya_ebpf::{
    bindings::{BPF_ANY, BPF_NOEXIST},
    helpers::bpf_ktime_get_ns,
};
use proxy_common::{Counter, FlowStage, FragmentKey, FragmentValue, Protocol};

use crate::{
    address::Words,
    balance::lookup,
    maps::FRAGMENT,
    packet::{
        DROP, PASS,
        context::{Buffer, Device},
        parse::{FIRST, Packet},
        translate::{Difference, write_v4, write_v6},
        work::Work,
    },
    report::count,
};

/// The record of a fragmented packet, aligned so that it is written and compared by the word.
#[repr(C, align(8))]
pub struct Fragment {
    key: FragmentKey,
    value: FragmentValue,
}

/// Units of eight octets that a TCP header takes.
const TCP_HEADER: u16 = 3;

/// A fragment that is not the first arrives.
#[inline(never)]
pub fn arriving<D: Device>(buffer: Buffer, work: &mut Work) -> i32 {
    if !lookup::is_ours(work.packet.tuple.dst.addr) {
        return PASS;
    }
    // One that would overwrite ports or a checksum: no host sends such (RFC 1858 3).
    if work.packet.number == Protocol::Tcp as u8 && work.packet.offset < TCP_HEADER {
        count(Counter::PacketBroken);
        return DROP;
    }
    work.fragment.name(&work.packet, FlowStage::Wire);
    if !work.fragment.find() {
        if !wait(work) || !held::hold::<D>(buffer, work) {
            count(Counter::FragmentLost);
            return DROP;
        }
        count(Counter::FragmentHeld);
        // The first may have come meanwhile, and not have seen this one; or have taken it over.
        if !work.fragment.find() || !held::take_back(work) {
            return DROP;
        }
    }
    follow::<D>(buffer, work)
}

/// A fragment that is not the first leaves.
#[inline(never)]
pub fn leaving<D: Device>(buffer: Buffer, work: &mut Work) -> i32 {
    work.fragment.name(&work.packet, FlowStage::Stack);
    if work.fragment.find() {
        follow::<D>(buffer, work)
    } else {
        PASS
    }
}

/// The first fragment of a packet arrives, and is to go on with the ends in `work` or to be dropped:
/// so are those that are held. The buffer is as it was.
#[inline(never)]
pub fn arrives<D: Device>(buffer: Buffer, work: &mut Work, is_sent: bool) {
    let fate = if is_sent {
        FragmentValue::SENT
    } else {
        FragmentValue::DROPPED
    };
    if remember(work, FlowStage::Wire, fate) {
        held::release::<D>(buffer, work);
    }
}

/// The first fragment of a packet leaves with the ends in `work`.
#[inline(always)]
pub fn leaves(work: &mut Work) {
    if work.packet.part == FIRST {
        remember(work, FlowStage::Stack, FragmentValue::SENT);
    }
}

/// Remembers what becomes of a packet. Whether other fragments are held.
#[inline(never)]
fn remember(work: &mut Work, stage: FlowStage, fate: u8) -> bool {
    let fragment = &mut work.fragment;
    fragment.name(&work.packet, stage);
    let is_waited_for = fragment.is_waited_for();
    fragment.value = FragmentValue {
        id: work.packet.id,
        fate,
        reserved: [0; 3],
        time: now(),
        src: work.ends.src.addr.bytes(),
        dst: work.ends.dst.addr.bytes(),
    };
    fragment.put(BPF_ANY);
    is_waited_for
}

/// Says that a packet is waited for. `false`: the record could not be made.
#[inline(always)]
fn wait(work: &mut Work) -> bool {
    let fragment = &mut work.fragment;
    if fragment.is_waited_for() {
        return true;
    }
    fragment.value = FragmentValue {
        id: work.packet.id,
        fate: FragmentValue::WAITING,
        reserved: [0; 3],
        time: now(),
        src: [0; 16],
        dst: [0; 16],
    };
    // What is there is too old to mean this packet, unless it has just come: then it is found next.
    if FRAGMENT.get_ptr(&fragment.key).is_some_and(is_fresh) {
        return true;
    }
    let _ = FRAGMENT.remove(&fragment.key);
    fragment.put(BPF_NOEXIST);
    FRAGMENT.get_ptr(&fragment.key).is_some()
}

/// Does with a fragment what was done with the first.
#[inline(always)]
fn follow<D: Device>(buffer: Buffer, work: &Work) -> i32 {
    let value = &raw const work.fragment.value;
    // SAFETY: our own memory; addresses are aligned.
    let (fate, src, dst) = unsafe {
        (
            (&raw const (*value).fate).read_volatile(),
            Words::read(&raw const (*value).src),
            Words::read(&raw const (*value).dst),
        )
    };
    if fate == FragmentValue::DROPPED {
        return DROP;
    }
    let tuple = &work.packet.tuple;
    if src.is(tuple.src.addr) && dst.is(tuple.dst.addr) {
        return PASS;
    }
    let mut difference = Difference::none();
    difference.replace_address(tuple.src.addr, src);
    difference.replace_address(tuple.dst.addr, dst);
    let written = if tuple.src.addr.is_v4() {
        write_v4(buffer, D::HEADER, src, dst, difference)
    } else {
        write_v6(buffer, D::HEADER, src, dst).inspect(|()| {
            // No checksum of this packet makes up for it; see `translate`.
            if let Some(difference) = difference.fold() {
                buffer.add_to_sum(difference);
            }
        })
    };
    if written.is_none() {
        count(Counter::PacketBroken);
        return DROP;
    }
    PASS
}

impl Fragment {
    /// Becomes the one of a packet.
    #[inline(always)]
    fn name(&mut self, packet: &Packet, stage: FlowStage) {
        let key = &mut self.key;
        key.src = packet.tuple.src.addr.bytes();
        key.dst = packet.tuple.dst.addr.bytes();
        key.id = packet.id;
        key.protocol = packet.number;
        key.stage = stage;
        key.reserved = 0;
    }

    /// Reads the record of a packet whose first fragment has come. Whether there is one.
    #[inline(always)]
    fn find(&mut self) -> bool {
        let Some(at) = FRAGMENT.get_ptr(&self.key) else {
            return false;
        };
        let to = &raw mut self.value;
        // SAFETY: a map value and our own, which are aligned to eight bytes and have no padding.
        unsafe {
            for i in 0..size_of::<FragmentValue>() / size_of::<u64>() {
                let word = at.cast::<u64>().add(i).read_volatile();
                to.cast::<u64>().add(i).write_volatile(word);
            }
            // The element can become another packet's while it is read.
            (&raw const (*to).fate).read_volatile() != FragmentValue::WAITING
                && (&raw const (*to).id).read_volatile() == self.key.id
                && (&raw const (*at).id).read_volatile() == self.key.id
                && (&raw const (*at).time).read_volatile()
                    == (&raw const (*to).time).read_volatile()
                && is_fresh(at)
        }
    }

    /// Whether there is a record that says that the first fragment has not come.
    #[inline(always)]
    fn is_waited_for(&self) -> bool {
        FRAGMENT.get_ptr(&self.key).is_some_and(|at| {
            // SAFETY: a map value.
            let fate = unsafe { (&raw const (*at).fate).read_volatile() };
            fate == FragmentValue::WAITING && is_fresh(at)
        })
    }

    #[inline(always)]
    fn put(&self, flags: u32) {
        // If it fails, later fragments are held, and then lost.
        let _ = FRAGMENT.insert(&self.key, &self.value, u64::from(flags));
    }
}

/// Whether a record is young enough to mean the packet that is there now.
#[inline(always)]
fn is_fresh(at: *const FragmentValue) -> bool {
    // SAFETY: a map value.
    let time = unsafe { (&raw const (*at).time).read_volatile() };
    now().wrapping_sub(time) < FragmentValue::LIFETIME
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: a helper without preconditions.
    unsafe { bpf_ktime_get_ns() }
}
