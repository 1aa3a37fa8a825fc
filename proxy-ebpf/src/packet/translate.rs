//! Rewriting: addresses, ports, and every checksum that covers them.
//!
//! Checksums are changed by what the change adds to them (RFC 1624), so that a packet that was
//! damaged stays so, and its payload is not read.

use aya_ebpf::bindings::{BPF_F_MARK_MANGLED_0, BPF_F_PSEUDO_HDR};

use crate::{
    address::Words,
    packet::{
        context::{Buffer, Device},
        parse::{OFFSETS, Packet, V4Header, V6Header},
        work::Ends,
    },
};

/// Offsets of the checksums in the headers of TCP (RFC 9293) and UDP (RFC 768).
const TCP_CHECKSUM: u32 = 16;
const UDP_CHECKSUM: u32 = 6;

/// Gives a packet these ends. `false`: it could not be done, and the packet may be damaged.
#[inline(never)]
pub fn rewrite<D: Device>(buffer: Buffer, packet: &Packet, ends: &Ends) -> bool {
    let tuple = &packet.tuple;
    let (src, dst) = (ends.src, ends.dst);
    let transport = packet.transport & OFFSETS;
    let mut addresses = Difference::none();
    addresses.replace_address(tuple.src.addr, src.addr);
    addresses.replace_address(tuple.dst.addr, dst.addr);
    let mut ports = Difference::none();
    ports.replace(
        u32::from(tuple.src.port.to_be()) + u32::from(tuple.dst.port.to_be()),
        u32::from(src.port.to_be()) + u32::from(dst.port.to_be()),
    );
    let Some(at) = buffer.at::<[u16; 2]>(transport) else {
        return false;
    };
    let at = at.cast::<u16>();
    // SAFETY: both ports are inside the packet.
    unsafe {
        at.write_volatile(src.port.to_be());
        at.add(1).write_volatile(dst.port.to_be());
    }
    let is_v4 = tuple.src.addr.is_v4();
    let written = if is_v4 {
        write_v4(buffer, D::HEADER, src.addr, dst.addr, addresses)
    } else {
        write_v6(buffer, D::HEADER, src.addr, dst.addr)
    };
    if written.is_none() {
        return false;
    }
    // A UDP checksum of 0 means that there is none, and stays so.
    let (checksum, flags) = if packet.is_tcp() {
        (TCP_CHECKSUM, 0)
    } else {
        (UDP_CHECKSUM, u64::from(BPF_F_MARK_MANGLED_0))
    };
    let checksum = transport + checksum;
    // Two calls: where the device is to compute the sum (CHECKSUM_PARTIAL) the field holds that of
    // the addresses alone, which the flag says this is about.
    if let Some(difference) = addresses.fold() {
        let flags = flags | u64::from(BPF_F_PSEUDO_HDR);
        if !buffer.add_to_checksum(checksum, difference, flags) {
            return false;
        }
        // The helper takes the difference out of the sum over the whole packet too
        // (CHECKSUM_COMPLETE). In IPv4 the checksum of the header has to be thought of as a part of
        // it; IPv6 has none, so that what the addresses add the transport's checksum takes away
        // (net/core/utils.c, `inet_proto_csum_replace_by_diff`; BPF_F_IPV6 of 6.16 does this).
        if !is_v4 {
            buffer.add_to_sum(difference);
        }
    }
    match ports.fold() {
        Some(difference) => buffer.add_to_checksum(checksum, difference, flags),
        None => true,
    }
}

/// Writes the addresses of an IPv4 header, and its checksum.
#[inline(always)]
pub fn write_v4(
    buffer: Buffer,
    offset: u32,
    src: Words,
    dst: Words,
    addresses: Difference,
) -> Option<()> {
    let header = buffer.at::<V4Header>(offset)?;
    // SAFETY: inside the packet.
    unsafe {
        (&raw mut (*header).src).write_volatile(src.words()[3]);
        (&raw mut (*header).dst).write_volatile(dst.words()[3]);
        let at = &raw mut (*header).checksum;
        at.write_volatile(addresses.apply(at.read_volatile()));
    }
    Some(())
}

/// Writes the addresses of an IPv6 header.
#[inline(always)]
pub fn write_v6(buffer: Buffer, offset: u32, src: Words, dst: Words) -> Option<()> {
    let header = buffer.at::<V6Header>(offset)?;
    let (src, dst) = (src.words(), dst.words());
    // SAFETY: inside the packet.
    unsafe {
        let at = (&raw mut (*header).src).cast::<u32>();
        at.write_volatile(src[0]);
        at.add(1).write_volatile(src[1]);
        at.add(2).write_volatile(src[2]);
        at.add(3).write_volatile(src[3]);
        let at = (&raw mut (*header).dst).cast::<u32>();
        at.write_volatile(dst[0]);
        at.add(1).write_volatile(dst[1]);
        at.add(2).write_volatile(dst[2]);
        at.add(3).write_volatile(dst[3]);
    }
    Some(())
}

/// What a change adds to a one's complement sum. Sums are the same in either byte order (RFC 1071),
/// so that all is computed in the one of the packet.
#[derive(Clone, Copy)]
pub struct Difference(u64);

impl Difference {
    /// Nothing is changed.
    #[inline(always)]
    pub fn none() -> Self {
        Self(0)
    }

    /// Another change as well.
    #[inline(always)]
    pub fn add(&mut self, other: Self) {
        self.0 += other.0;
    }

    /// One word, or half of one, becomes another.
    #[inline(always)]
    pub fn replace(&mut self, old: u32, new: u32) {
        // What stays the same adds nothing, and not the other zero.
        if old != new {
            self.0 += u64::from(!old) + u64::from(new);
        }
    }

    /// An address becomes another.
    #[inline(always)]
    pub fn replace_address(&mut self, old: Words, new: Words) {
        let (old, new) = (old.words(), new.words());
        self.replace(old[0], new[0]);
        self.replace(old[1], new[1]);
        self.replace(old[2], new[2]);
        self.replace(old[3], new[3]);
    }

    /// In 32 bits; `None` if there is none.
    #[inline(always)]
    pub fn fold(self) -> Option<u32> {
        if self.0 == 0 {
            return None;
        }
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        Some((sum + (sum >> 32)) as u32)
    }

    /// A checksum after the change.
    #[inline(always)]
    pub fn apply(self, checksum: u16) -> u16 {
        let Some(difference) = self.fold() else {
            return checksum;
        };
        let mut sum = u32::from(!checksum) + (difference & 0xffff) + (difference >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        !(sum as u16)
    }
}
