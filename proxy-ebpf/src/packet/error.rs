//! ICMP errors about packets that were translated: path MTU discovery, traceroute, hosts that are
//! gone.
//!
//! An error quotes the packet that it is about, as that was on the wire. Its flow is found by what
//! would answer the quoted packet, since that goes the way of the error. Then both are translated:
//! what is quoted, with its ends exchanged, so that who gets it knows a packet of its own in it; and
//! the error, so that it comes from the address that its receiver talks to (RFC 5508 4.2, as
//! net/netfilter/nf_nat_proto.c `nf_nat_icmp_reply_translation`).

use proxy_common::Protocol;

use crate::{
    address::{Endpoint, Words},
    packet::{
        PASS,
        context::{Buffer, Device},
        flow::Flow,
        parse::{self, FragmentHeader, OFFSETS, V4Header, V6Header},
        translate::{Difference, write_v4, write_v6},
        work::Work,
    },
};

const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;
/// Octets of an ICMP header, before what is quoted.
const ICMP: u32 = 8;

/// Offsets of checksums in the headers of ICMP, TCP and UDP.
const ICMP_CHECKSUM: u32 = 2;
const TCP_CHECKSUM: u32 = 16;
const UDP_CHECKSUM: u32 = 6;

/// An error.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Error {
    /// Who says it.
    from: Words,
    /// To whom.
    to: Words,
    /// Who is to say it beyond this hook.
    new_from: Words,
    /// And to whom.
    new_to: Words,
    /// Offset of the ICMP header; the quoted IP header follows it.
    icmp: u32,
    /// Keeps the size a multiple of eight.
    reserved: u32,
}

/// What is neither TCP nor UDP arrives.
#[inline(never)]
pub fn ingress<D: Device>(buffer: Buffer, work: &mut Work) -> i32 {
    if read::<D>(buffer, work).is_none() || Flow::arriving(work).is_none() {
        return PASS;
    }
    work.error.new_from = work.error.from;
    work.error.new_to = work.ends.dst.addr;
    rewrite::<D>(buffer, work);
    PASS
}

/// What is neither TCP nor UDP leaves.
#[inline(never)]
pub fn egress<D: Device>(buffer: Buffer, work: &mut Work) -> i32 {
    if read::<D>(buffer, work).is_none() || Flow::leaving(work).is_none() {
        return PASS;
    }
    let (old, new) = (work.packet.tuple.src.addr, work.ends.src.addr);
    work.error.new_from = if old.is(new) { work.error.from } else { new };
    work.error.new_to = work.ends.dst.addr;
    rewrite::<D>(buffer, work);
    PASS
}

/// Reads an error. The packet's tuple is then that of what would answer the quoted packet.
#[inline(always)]
fn read<D: Device>(buffer: Buffer, work: &mut Work) -> Option<()> {
    let icmp = match parse::version::<D>(buffer)? {
        4 => read_v4::<D>(buffer, &mut work.error)?,
        6 => read_v6::<D>(buffer, &mut work.error)?,
        _ => return None,
    };
    work.error.icmp = icmp;
    let quoted = (icmp & OFFSETS) + ICMP;
    let (protocol, transport) = if work.error.from.is_v4() {
        let header = buffer.at::<V4Header>(quoted)?;
        // SAFETY: inside the packet.
        let (version_length, fragment, protocol, src, dst) = unsafe {
            (
                (&raw const (*header).version_length).read_volatile(),
                u16::from_be((&raw const (*header).fragment).read_volatile()),
                (&raw const (*header).protocol).read_volatile(),
                (&raw const (*header).src).read_volatile(),
                (&raw const (*header).dst).read_volatile(),
            )
        };
        // Only a first fragment has ports.
        if version_length >> 4 != 4 || version_length & 0xf < 5 || fragment & 0x1fff != 0 {
            return None;
        }
        (work.packet.tuple.dst.addr, work.packet.tuple.src.addr) = (Words::v4(src), Words::v4(dst));
        (protocol, quoted + u32::from(version_length & 0xf) * 4)
    } else {
        let header = buffer.at::<V6Header>(quoted)?;
        // SAFETY: inside the packet.
        let (version, next, src, dst) = unsafe {
            (
                (&raw const (*header).version_class)
                    .cast::<u8>()
                    .read_volatile(),
                (&raw const (*header).next).read_volatile(),
                parse::words(&raw const (*header).src),
                parse::words(&raw const (*header).dst),
            )
        };
        if version >> 4 != 6 {
            return None;
        }
        (work.packet.tuple.dst.addr, work.packet.tuple.src.addr) = (Words::v6(src), Words::v6(dst));
        let after = quoted + size_of::<V6Header>() as u32;
        if next == parse::FRAGMENT {
            let header = buffer.at::<FragmentHeader>(after)?;
            // SAFETY: inside the packet.
            let (next, offset) = unsafe {
                (
                    (&raw const (*header).next).read_volatile(),
                    u16::from_be((&raw const (*header).offset).read_volatile()),
                )
            };
            if offset >> 3 != 0 {
                return None;
            }
            (next, after + size_of::<FragmentHeader>() as u32)
        } else {
            (next, after)
        }
    };
    // It is for who sent the quoted packet.
    if !work.error.to.is(work.packet.tuple.dst.addr) {
        return None;
    }
    work.packet.tuple.protocol = if protocol == Protocol::Tcp as u8 {
        Protocol::Tcp
    } else if protocol == Protocol::Udp as u8 {
        Protocol::Udp
    } else {
        return None;
    };
    work.packet.transport = transport;
    let ports = buffer.at::<[u16; 2]>(transport & OFFSETS)?.cast::<u16>();
    // SAFETY: both are inside the packet.
    unsafe {
        work.packet.tuple.dst.port = u16::from_be(ports.read_volatile());
        work.packet.tuple.src.port = u16::from_be(ports.add(1).read_volatile());
    }
    Some(())
}

#[inline(always)]
fn read_v4<D: Device>(buffer: Buffer, error: &mut Error) -> Option<u32> {
    let header = buffer.at::<V4Header>(D::HEADER)?;
    // SAFETY: inside the packet.
    let (version_length, fragment, protocol) = unsafe {
        error.from = Words::v4((&raw const (*header).src).read_volatile());
        error.to = Words::v4((&raw const (*header).dst).read_volatile());
        (
            (&raw const (*header).version_length).read_volatile(),
            u16::from_be((&raw const (*header).fragment).read_volatile()),
            (&raw const (*header).protocol).read_volatile(),
        )
    };
    let length = u32::from(version_length & 0xf) * 4;
    if protocol != ICMP_V4 || fragment & 0x3fff != 0 || length < size_of::<V4Header>() as u32 {
        return None;
    }
    let icmp = D::HEADER + length;
    // With its code: the verifier does not follow the check of a single octet.
    let kind = buffer.at::<[u8; 2]>(icmp)?.cast::<u8>();
    // SAFETY: inside the packet.
    let kind = unsafe { kind.read_volatile() };
    // Unreachable, time exceeded, parameter problem (RFC 792).
    matches!(kind, 3 | 11 | 12).then_some(icmp)
}

#[inline(always)]
fn read_v6<D: Device>(buffer: Buffer, error: &mut Error) -> Option<u32> {
    let header = buffer.at::<V6Header>(D::HEADER)?;
    // SAFETY: inside the packet.
    let next = unsafe {
        error.from = Words::v6(parse::words(&raw const (*header).src));
        error.to = Words::v6(parse::words(&raw const (*header).dst));
        (&raw const (*header).next).read_volatile()
    };
    if next != ICMP_V6 {
        return None;
    }
    let icmp = D::HEADER + size_of::<V6Header>() as u32;
    let kind = buffer.at::<[u8; 2]>(icmp)?.cast::<u8>();
    // SAFETY: inside the packet.
    let kind = unsafe { kind.read_volatile() };
    // Unreachable, too big, time exceeded, parameter problem (RFC 4443).
    matches!(kind, 1..=4).then_some(icmp)
}

/// Writes the new ends. Everything that is changed inside the error is made up for in its checksum,
/// so that the sum over the whole packet stays as it is.
#[inline(never)]
fn rewrite<D: Device>(buffer: Buffer, work: &Work) -> Option<()> {
    let error = &work.error;
    let (tuple, ends) = (&work.packet.tuple, &work.ends);
    // The quoted packet went the other way.
    let (src, dst): (Endpoint, Endpoint) = (ends.dst, ends.src);
    let is_v4 = error.from.is_v4();
    let mut addresses = Difference::none();
    addresses.replace_address(tuple.dst.addr, src.addr);
    addresses.replace_address(tuple.src.addr, dst.addr);
    let mut inside = Difference::none();
    inside.replace(
        u32::from(tuple.dst.port.to_be()) + u32::from(tuple.src.port.to_be()),
        u32::from(src.port.to_be()) + u32::from(dst.port.to_be()),
    );
    let mut whole = inside;
    whole.add(addresses);

    let transport = work.packet.transport & OFFSETS;
    let ports = buffer.at::<[u16; 2]>(transport)?.cast::<u16>();
    // SAFETY: both are inside the packet.
    unsafe {
        ports.write_volatile(src.port.to_be());
        ports.add(1).write_volatile(dst.port.to_be());
    }
    let is_udp = matches!(tuple.protocol, Protocol::Udp);
    let checksum = if is_udp { UDP_CHECKSUM } else { TCP_CHECKSUM };
    // Of TCP the error may quote less.
    if let Some(at) = buffer.at::<u16>(transport + checksum) {
        // SAFETY: inside the packet.
        let old = unsafe { at.read_volatile() };
        // A UDP checksum of 0 means that there is none, and stays so.
        if !is_udp || old != 0 {
            let mut new = whole.apply(old);
            if is_udp && new == 0 {
                new = 0xffff;
            }
            // SAFETY: as above.
            unsafe { at.write_volatile(new) };
            inside.replace(old.into(), new.into());
        }
    }

    let mut outer = Difference::none();
    outer.replace_address(error.from, error.new_from);
    outer.replace_address(error.to, error.new_to);
    let icmp = error.icmp & OFFSETS;
    let quoted = icmp + ICMP;
    if is_v4 {
        // The checksum of the quoted IP header makes up for its addresses.
        write_v4(buffer, quoted, src.addr, dst.addr, addresses)?;
        write_v4(buffer, D::HEADER, error.new_from, error.new_to, outer)?;
    } else {
        write_v6(buffer, quoted, src.addr, dst.addr)?;
        write_v6(buffer, D::HEADER, error.new_from, error.new_to)?;
        // The checksum of ICMPv6 covers the addresses of its packet too (RFC 4443 2.3).
        inside.add(addresses);
        inside.add(outer);
    }
    let at = buffer.at::<u16>(icmp + ICMP_CHECKSUM)?;
    // SAFETY: inside the packet.
    unsafe { at.write_volatile(inside.apply(at.read_volatile())) };
    Some(())
}
