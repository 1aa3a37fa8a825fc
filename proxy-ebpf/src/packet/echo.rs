//! Ping: a ClusterIP or a load-balancer VIP answers, though nobody has it. The question becomes its own answer and goes
//! back the way that it came.

use crate::{
    address::Words,
    balance::lookup::is_vip,
    packet::{
        context::{Buffer, Device},
        parse::{self, V4Header, V6Header},
        refusal::is_host,
        translate::{Difference, write_v4, write_v6},
    },
};

const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;
/// Type and code of a question and its answer, host order (RFC 792, RFC 4443 4).
const V4: (u16, u16) = (8 << 8, 0);
const V6: (u16, u16) = (128 << 8, 129 << 8);
/// TTL, hop limit.
const HOPS: u8 = 64;

/// Answers a question. `false`: it is none, or none for us, and the packet is as it was.
#[inline(never)]
pub fn answer<D: Device>(buffer: Buffer) -> bool {
    match parse::version::<D>(buffer) {
        Some(4) => answer_v4::<D>(buffer).is_some(),
        Some(6) => answer_v6::<D>(buffer).is_some(),
        _ => false,
    }
}

#[inline(always)]
fn answer_v4<D: Device>(buffer: Buffer) -> Option<()> {
    let header = buffer.at::<V4Header>(D::HEADER)?;
    // SAFETY: inside the packet.
    let (version_length, fragment, ttl, protocol, src, dst) = unsafe {
        (
            (&raw const (*header).version_length).read_volatile(),
            (&raw const (*header).fragment).read_volatile(),
            (&raw const (*header).ttl).read_volatile(),
            (&raw const (*header).protocol).read_volatile(),
            Words::v4((&raw const (*header).src).read_volatile()),
            Words::v4((&raw const (*header).dst).read_volatile()),
        )
    };
    let length = u32::from(version_length & 0xf) * 4;
    let is_fragment = u16::from_be(fragment) & 0x3fff != 0;
    if protocol != ICMP_V4 || is_fragment || length < size_of::<V4Header>() as u32 {
        return None;
    }
    turn::<D>(buffer, D::HEADER + length, V4, src, dst)?;
    let header = buffer.at::<V4Header>(D::HEADER)?;
    // SAFETY: inside the packet.
    unsafe { (&raw mut (*header).ttl).write_volatile(HOPS) };
    // It shares a word with the protocol.
    let word = |ttl: u8| u32::from(u16::from_ne_bytes([ttl, protocol]));
    let mut difference = Difference::none();
    difference.replace(word(ttl), word(HOPS));
    write_v4(buffer, D::HEADER, dst, src, difference)
}

#[inline(always)]
fn answer_v6<D: Device>(buffer: Buffer) -> Option<()> {
    let header = buffer.at::<V6Header>(D::HEADER)?;
    // SAFETY: inside the packet.
    let (next, src, dst) = unsafe {
        (
            (&raw const (*header).next).read_volatile(),
            Words::v6(parse::words(&raw const (*header).src)),
            Words::v6(parse::words(&raw const (*header).dst)),
        )
    };
    if next != ICMP_V6 {
        return None;
    }
    let icmp = D::HEADER + size_of::<V6Header>() as u32;
    turn::<D>(buffer, icmp, V6, src, dst)?;
    let header = buffer.at::<V6Header>(D::HEADER)?;
    // SAFETY: inside the packet.
    unsafe { (&raw mut (*header).hops).write_volatile(HOPS) };
    write_v6(buffer, D::HEADER, dst, src)
}

/// Makes the message at an offset an answer, if it is a question that may be answered, and turns the
/// frame round. Addresses change places, which changes no sum.
#[inline(always)]
fn turn<D: Device>(
    buffer: Buffer,
    icmp: u32,
    (question, answer): (u16, u16),
    src: Words,
    dst: Words,
) -> Option<()> {
    let at = buffer.at::<[u16; 4]>(icmp)?.cast::<u16>();
    // SAFETY: inside the packet.
    let kind = unsafe { at.read_volatile() };
    if kind != question.to_be() || !is_host(src) || !is_vip(dst) {
        return None;
    }
    let mut difference = Difference::none();
    difference.replace(question.to_be().into(), answer.to_be().into());
    let at = buffer.at::<[u16; 4]>(icmp)?.cast::<u16>();
    // SAFETY: inside the packet.
    unsafe {
        at.write_volatile(answer.to_be());
        let checksum = at.add(1);
        checksum.write_volatile(difference.apply(checksum.read_volatile()));
    }
    if D::HEADER != 0 {
        buffer.swap_addresses()?;
    }
    Some(())
}
