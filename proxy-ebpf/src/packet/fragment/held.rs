//! Fragments that came too early, whole, until the first of their packet comes.

use core::arch::asm;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    btf_maps::{LruHashMap, PerCpuArray},
    macros::btf_map,
};
use proxy_common::{Counter, FragmentKey, FragmentValue};

use super::now;
use crate::{
    packet::{
        context::{Buffer, Device},
        work::Work,
    },
    report::count,
};

/// Octets of a fragment that can be held, from its IP header on: what jumbo frames carry.
const LONGEST: u32 = 9_216;
/// Fragments of one packet that can be held: 64 KiB in fragments of IPv6's smallest MTU are 53.
const MOST: u32 = 64;
/// Fragments of all packets.
const ALL: usize = 256;

#[repr(C, align(8))]
struct HeldKey {
    packet: FragmentKey,
    index: u32,
    reserved: u32,
}

#[repr(C)]
struct HeldValue {
    /// When it came, monotonic nanoseconds.
    time: u64,
    length: u32,
    reserved: u32,
    octets: [u8; LONGEST as usize],
}

// Neither is pinned: they mean nothing to anybody else. What is held is lost with the programs.

/// Evicts the oldest, so that who sends first fragments never takes nothing from others for long.
#[btf_map(name = "held")]
static HELD: LruHashMap<HeldKey, HeldValue, ALL> = LruHashMap::new();
/// One packet while it is copied.
#[btf_map(name = "copy")]
static COPY: PerCpuArray<HeldValue, 1> = PerCpuArray::new();

/// The key of the fragment that is being looked at; not on the stack, which is short.
#[btf_map(name = "held_key")]
static KEY: PerCpuArray<HeldKey, 1> = PerCpuArray::new();

/// Keeps a fragment. `false`: it is too long, or there are too many.
#[inline(never)]
pub fn hold<D: Device>(buffer: Buffer, work: &Work) -> bool {
    let (Some(copy), Some(key)) = (COPY.get_ptr_mut(0), key(work)) else {
        return false;
    };
    if !read::<D>(buffer, copy) {
        return false;
    }
    let mut is_free = false;
    for index in 0..MOST {
        key.index = index;
        is_free = match HELD.get_ptr(&*key) {
            // SAFETY: a map value.
            Some(at) => unsafe { is_old((&raw const (*at).time).read_volatile()) },
            None => true,
        };
        if is_free {
            break;
        }
    }
    if !is_free {
        return false;
    }
    let _ = HELD.remove(&*key);
    // One of another CPU may have come first: then this one is lost.
    // SAFETY: the memory of this CPU, written above.
    HELD.insert(&*key, unsafe { &*copy }, u64::from(BPF_NOEXIST))
        .is_ok()
}

/// Takes the fragment that was kept last out again. `false`: somebody else has.
#[inline(always)]
pub fn take_back(_: &Work) -> bool {
    KEY.get_ptr(0)
        // SAFETY: the memory of this CPU, as `hold` left it.
        .is_some_and(|key| HELD.remove(unsafe { &*key }).is_ok())
}

/// Lets all that is held of a packet arrive once more, or go with it if it is dropped. The buffer is
/// written over meanwhile, and as it was afterwards.
#[inline(never)]
pub fn release<D: Device>(buffer: Buffer, work: &Work) {
    let (Some(copy), Some(key)) = (COPY.get_ptr_mut(0), key(work)) else {
        return;
    };
    // SAFETY: our own memory.
    let fate = unsafe { (&raw const work.fragment.value.fate).read_volatile() };
    let is_sent = fate == FragmentValue::SENT && read::<D>(buffer, copy);
    for index in 0..MOST {
        key.index = index;
        let Some(at) = HELD.get_ptr(&*key) else {
            continue;
        };
        // SAFETY: a map value.
        let time = unsafe { (&raw const (*at).time).read_volatile() };
        if is_sent && !is_old(time) {
            // An element that is evicted is written at once, also while it is read.
            // SAFETY: a map value.
            let is_whole = write::<D>(buffer, at)
                && unsafe { (&raw const (*at).time).read_volatile() } == time;
            if !is_whole || !buffer.arrive_again() {
                count(Counter::FragmentLost);
            }
        }
        let _ = HELD.remove(&*key);
    }
    if is_sent && !write::<D>(buffer, copy) {
        count(Counter::PacketBroken);
    }
}

/// The memory for keys of this CPU, with the packet in it.
#[inline(always)]
fn key(work: &Work) -> Option<&'static mut HeldKey> {
    let key = KEY.get_ptr_mut(0)?;
    let (from, to) = (
        (&raw const work.fragment.key).cast::<u32>(),
        key.cast::<u32>(),
    );
    for i in 0..size_of::<FragmentKey>() / size_of::<u32>() {
        // SAFETY: inside both, which are aligned to four bytes at least.
        unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
    }
    // SAFETY: a program has it to itself while it runs, and all octets are valid.
    Some(unsafe { &mut *key })
}

/// Copies a packet, from its IP header on.
#[inline(always)]
fn read<D: Device>(buffer: Buffer, to: *mut HeldValue) -> bool {
    // SAFETY: the memory of this CPU.
    unsafe {
        (&raw mut (*to).time).write_volatile(now());
        (&raw mut (*to).length).write_volatile(buffer.len().wrapping_sub(D::HEADER));
        length(to)
            .is_some_and(|length| buffer.load(D::HEADER, (&raw mut (*to).octets).cast(), length))
    }
}

/// Makes the buffer a packet that was copied.
#[inline(always)]
fn write<D: Device>(buffer: Buffer, from: *const HeldValue) -> bool {
    // SAFETY: a map value.
    unsafe {
        length(from).is_some_and(|length| buffer.cut(D::HEADER + length))
            && length(from).is_some_and(|length| {
                buffer.store(D::HEADER, (&raw const (*from).octets).cast(), length)
            })
    }
}

/// Length of a packet that was copied, if it can be one.
///
/// # Safety
///
/// `of` is readable.
#[inline(always)]
unsafe fn length(of: *const HeldValue) -> Option<u32> {
    // SAFETY: promised by the caller.
    let length = unsafe { u64::from((&raw const (*of).length).read_volatile()) };
    if length == 0 {
        return None;
    }
    let length = same(length);
    (length <= u64::from(LONGEST)).then_some(length as u32)
}

/// The same number, but not for the compiler. It would make one comparison of two, of the number
/// less one, and the verifier would learn of the number itself neither bound.
#[inline(always)]
fn same(mut number: u64) -> u64 {
    // SAFETY: a move of a register to itself.
    unsafe { asm!("{number} = {number}", number = inout(reg) number) };
    number
}

#[inline(always)]
fn is_old(time: u64) -> bool {
    now().wrapping_sub(time) >= FragmentValue::LIFETIME
}
