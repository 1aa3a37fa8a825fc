//! From a packet to its addresses and ports.
//!
//! What is not understood wholly is not ours: lengths that cannot be, headers that are cut short,
//! protocols other than TCP and UDP.

use proxy_common::Protocol;

use crate::{
    address::{Endpoint, Words},
    packet::context::{Buffer, Device},
};

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

/// Extension headers of IPv6 before TCP or UDP that are walked over. RFC 8504 5.3 lets hosts limit
/// their number; more than one of each kind that may occur is not sensible (RFC 8200 4.1).
const EXTENSIONS: u32 = 6;
/// Octets of a packet that are made linear: more headers than are ever seen.
pub const HEADERS: u32 = 256;
/// Bits of an offset of a header.
pub const OFFSETS: u32 = 0x3fff;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
/// Next header of an IPv6 fragment header.
pub const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

const TCP: u8 = Protocol::Tcp as u8;
const UDP: u8 = Protocol::Udp as u8;
/// Octets of a TCP header without options, and of a UDP header.
const TCP_HEADER: u32 = 20;
const UDP_HEADER: u32 = 8;

/// TCP flags, in their octet of the header.
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// Both ends of a packet's conversation.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Tuple {
    /// Where from.
    pub src: Endpoint,
    /// Where to.
    pub dst: Endpoint,
    /// TCP or UDP.
    pub protocol: Protocol,
}

/// What a packet says.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Packet {
    /// Who talks to whom.
    pub tuple: Tuple,
    /// Offset of the TCP or UDP header.
    pub transport: u32,
    /// TCP flags; 0 for UDP.
    pub flags: u8,
    /// [`WHOLE`], [`FIRST`] or [`LATER`]. The last has no ports, and no transport header.
    pub part: u8,
    /// Number of the protocol in an IPv4 header, for who looks for other fragments; 0 in IPv6.
    pub number: u8,
    /// Where the fragment belongs, in units of eight octets.
    pub offset: u16,
    /// Identification of the fragmented packet, host order.
    pub id: u32,
}

/// A packet that is no fragment.
pub const WHOLE: u8 = 0;
/// A fragment with the transport header.
pub const FIRST: u8 = 1;
/// Another fragment.
pub const LATER: u8 = 2;

impl Packet {
    /// Whether it opens a TCP connection.
    #[inline(always)]
    pub fn is_syn(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    /// Octets of its TCP header without options, or of its UDP header.
    #[inline(always)]
    pub fn transport_header(&self) -> u32 {
        if self.is_tcp() {
            TCP_HEADER
        } else {
            UDP_HEADER
        }
    }

    /// Whether it is TCP.
    #[inline(always)]
    pub fn is_tcp(&self) -> bool {
        self.tuple.protocol as u8 == TCP
    }
}

#[repr(C)]
pub struct V4Header {
    pub version_length: u8,
    service: u8,
    length: u16,
    pub id: u16,
    pub fragment: u16,
    pub ttl: u8,
    pub protocol: u8,
    pub checksum: u16,
    pub src: u32,
    pub dst: u32,
}

#[repr(C)]
pub struct V6Header {
    pub version_class: u32,
    length: u16,
    pub next: u8,
    pub hops: u8,
    pub src: [u32; 4],
    pub dst: [u32; 4],
}

#[repr(C)]
pub struct FragmentHeader {
    pub next: u8,
    reserved: u8,
    pub offset: u16,
    id: u32,
}

#[repr(C)]
struct TcpHeader {
    src: u16,
    dst: u16,
    sequence: u32,
    acknowledgement: u32,
    offset: u8,
    flags: u8,
    window: u16,
    checksum: u16,
    urgent: u16,
}

#[repr(C)]
struct UdpHeader {
    src: u16,
    dst: u16,
    length: u16,
    checksum: u16,
}

/// Reads a packet. `None`: it is none that could be a Service's.
#[inline(always)]
pub fn parse<D: Device>(buffer: Buffer, packet: &mut Packet) -> Option<()> {
    buffer.make_linear(HEADERS);
    let (protocol, transport) = match version::<D>(buffer)? {
        4 => read_v4::<D>(buffer, packet)?,
        6 => read_v6::<D>(buffer, packet)?,
        _ => return None,
    };
    // One way on from here for the verifier, whichever way it came.
    let at = &raw mut packet.transport;
    // SAFETY: our own memory.
    let transport = unsafe {
        at.write_volatile(transport);
        at.read_volatile() & OFFSETS
    };
    if packet.part == LATER {
        return Some(());
    }
    read_transport(buffer, packet, protocol, transport)
}

/// Version of the IP header.
#[inline(always)]
pub fn version<D: Device>(buffer: Buffer) -> Option<u8> {
    if D::HEADER != 0 {
        return Some(match buffer.ether_type() {
            ETH_P_IP => 4,
            ETH_P_IPV6 => 6,
            _ => 0,
        });
    }
    // On such devices the EtherType is whatever the sender made it.
    let header = buffer.at::<V4Header>(0)?;
    // SAFETY: inside the packet.
    let first = unsafe { (&raw const (*header).version_length).read_volatile() };
    Some(first >> 4)
}

// Reads are volatile and of whole fields: the compiler may neither merge nor split them, and packets
// are aligned so that they are aligned as well (NET_IP_ALIGN), which it does not know.

#[inline(always)]
fn read_v4<D: Device>(buffer: Buffer, packet: &mut Packet) -> Option<(u8, u32)> {
    let header = buffer.at::<V4Header>(D::HEADER)?;
    // SAFETY: inside the packet.
    let (version_length, length, id, fragment, protocol, src, dst) = unsafe {
        (
            (&raw const (*header).version_length).read_volatile(),
            u16::from_be((&raw const (*header).length).read_volatile()),
            u16::from_be((&raw const (*header).id).read_volatile()),
            u16::from_be((&raw const (*header).fragment).read_volatile()),
            (&raw const (*header).protocol).read_volatile(),
            (&raw const (*header).src).read_volatile(),
            (&raw const (*header).dst).read_volatile(),
        )
    };
    let header_length = u32::from(version_length & 0xf) * 4;
    let part = part(fragment & 0x1fff, fragment & 0x2000 != 0);
    if version_length >> 4 != 4
        || header_length < size_of::<V4Header>() as u32
        || !fits(
            buffer.len(),
            D::HEADER,
            u32::from(length),
            header_length,
            if part == LATER {
                0
            } else {
                transport_header(protocol)
            },
        )
    {
        return None;
    }
    (packet.part, packet.number) = (part, protocol);
    (packet.offset, packet.id) = (fragment & 0x1fff, id.into());
    let transport = D::HEADER + header_length;
    let tuple = &mut packet.tuple;
    (tuple.src.addr, tuple.dst.addr) = (Words::v4(src), Words::v4(dst));
    Some((protocol, transport))
}

#[inline(always)]
fn read_v6<D: Device>(buffer: Buffer, packet: &mut Packet) -> Option<(u8, u32)> {
    const LENGTH: u32 = size_of::<V6Header>() as u32;
    let header = buffer.at::<V6Header>(D::HEADER)?;
    // SAFETY: inside the packet.
    let (version, length, mut next, src, dst) = unsafe {
        (
            (&raw const (*header).version_class)
                .cast::<u8>()
                .read_volatile(),
            u16::from_be((&raw const (*header).length).read_volatile()),
            (&raw const (*header).next).read_volatile(),
            words(&raw const (*header).src),
            words(&raw const (*header).dst),
        )
    };
    if version >> 4 != 6 {
        return None;
    }
    packet.part = WHOLE;
    packet.number = 0;
    let mut extensions = 0;
    for _ in 0..EXTENSIONS {
        if next == FRAGMENT {
            let header = buffer.at::<FragmentHeader>(D::HEADER + LENGTH + extensions)?;
            // SAFETY: inside the packet.
            let offset = unsafe {
                next = (&raw const (*header).next).read_volatile();
                packet.id = u32::from_be((&raw const (*header).id).read_volatile());
                u16::from_be((&raw const (*header).offset).read_volatile())
            };
            extensions += size_of::<FragmentHeader>() as u32;
            packet.part = part(offset >> 3, offset & 1 != 0);
            packet.offset = offset >> 3;
            if packet.part == LATER {
                break;
            }
            continue;
        }
        if next != HOP_BY_HOP && next != ROUTING && next != DESTINATION {
            break;
        }
        let extension = buffer
            .at::<[u8; 2]>(D::HEADER + LENGTH + extensions)?
            .cast::<u8>();
        // SAFETY: both octets are inside the packet.
        unsafe {
            // Of a routing header with segments left, the address in the IP header is not the one
            // of the checksum (RFC 8200 8.1), and not yet where the packet goes.
            let is_routing = next == ROUTING;
            next = extension.read_volatile();
            extensions += (u32::from(extension.add(1).read_volatile()) + 1) * 8;
            if is_routing {
                return None;
            }
        }
    }
    // A packet of more than 64 KiB says 0 (jumbo payload, RFC 2675).
    let whole = if length == 0 {
        0
    } else {
        LENGTH + u32::from(length)
    };
    let transport = if packet.part == LATER {
        0
    } else {
        transport_header(next)
    };
    if !fits(
        buffer.len(),
        D::HEADER,
        whole,
        LENGTH + extensions,
        transport,
    ) {
        return None;
    }
    let tuple = &mut packet.tuple;
    (tuple.src.addr, tuple.dst.addr) = (Words::v6(src), Words::v6(dst));
    Some((next, D::HEADER + LENGTH + extensions))
}

/// Reads an IPv6 address of a packet.
///
/// # Safety
///
/// It is inside the packet.
#[inline(always)]
pub unsafe fn words(at: *const [u32; 4]) -> [u32; 4] {
    let at = at.cast::<u32>();
    // SAFETY: promised by the caller.
    unsafe {
        [
            at.read_volatile(),
            at.add(1).read_volatile(),
            at.add(2).read_volatile(),
            at.add(3).read_volatile(),
        ]
    }
}

/// Whether an IP packet of a length has room for a header of its transport, and is in the buffer.
/// 0 is what packets have that are larger than the field can say (BIG TCP).
#[inline(always)]
fn fits(buffer: u32, header: u32, length: u32, headers: u32, transport: u32) -> bool {
    length == 0 || (headers + transport <= length && header + length <= buffer)
}

/// Octets that a transport header has at least.
#[inline(always)]
fn transport_header(protocol: u8) -> u32 {
    if protocol == TCP {
        TCP_HEADER
    } else {
        UDP_HEADER
    }
}

/// Which part of a packet it is, by its offset and whether more of it follows.
#[inline(always)]
fn part(offset: u16, more: bool) -> u8 {
    if offset != 0 {
        LATER
    } else if more {
        FIRST
    } else {
        WHOLE
    }
}

#[inline(always)]
fn read_transport(buffer: Buffer, packet: &mut Packet, protocol: u8, transport: u32) -> Option<()> {
    let (protocol, src_port, dst_port, flags) = match protocol {
        TCP => {
            let header = buffer.at::<TcpHeader>(transport)?;
            // SAFETY: inside the packet.
            let (src, dst, offset, flags) = unsafe {
                (
                    (&raw const (*header).src).read_volatile(),
                    (&raw const (*header).dst).read_volatile(),
                    (&raw const (*header).offset).read_volatile(),
                    (&raw const (*header).flags).read_volatile(),
                )
            };
            if u32::from(offset >> 4) * 4 < TCP_HEADER {
                return None;
            }
            (Protocol::Tcp, src, dst, flags)
        }
        UDP => {
            let header = buffer.at::<UdpHeader>(transport)?;
            // SAFETY: inside the packet.
            let (src, dst) = unsafe {
                (
                    (&raw const (*header).src).read_volatile(),
                    (&raw const (*header).dst).read_volatile(),
                )
            };
            (Protocol::Udp, src, dst, 0)
        }
        _ => return None,
    };
    packet.tuple.src.port = u16::from_be(src_port);
    packet.tuple.dst.port = u16::from_be(dst_port);
    packet.tuple.protocol = protocol;
    packet.flags = flags;
    Some(())
}
