//! Refusals: a packet becomes the ICMP error about itself and goes back the way that it came, from
//! the address that the client used.
//!
//! Port unreachable (RFC 792, type 3 code 3; RFC 4443 3.1, type 1 code 4) is what a host without a
//! listener says of UDP. TCP takes it for a refusal too while it connects (RFC 5461 4.1).

use aya_ebpf::helpers::bpf_ktime_get_ns;
use proxy_common::Counter;

use crate::{
    address::Words,
    packet::{
        DROP,
        context::{Buffer, Device},
        parse::{self, OFFSETS, Packet},
    },
    report::count,
};

/// Octets of the headers that are put before what is quoted: IP and ICMP.
const V4_HEADERS: u32 = 28;
const V6_HEADERS: u32 = 48;
/// Octets of the ICMP header.
const ICMP: u32 = 8;
const ICMP_V4: u32 = 1;
const ICMP_V6: u32 = 58;
/// TTL, hop limit.
const HOPS: u32 = 64;

/// Words that are quoted at most: packets with more headers get no answer.
const QUOTED: u32 = 48;

/// Log2 of the length of a slice of time, nanoseconds: 134 ms.
const SLICE_SHIFT: u32 = 27;
/// Answers per slice of time, of the whole node: some 950 in a second. The kernel gives 1,000
/// (net.ipv4.icmp_msgs_per_sec).
const PER_SLICE: u64 = 128;

/// The slice of time of the last answer, times 2^16, plus the answers in it. Read and written
/// without a lock: a race costs or adds an answer.
static mut GATE: u64 = 0;

/// Answers a packet. The verdict: it is dropped if there can be no answer.
#[inline(never)]
pub fn send<D: Device>(buffer: Buffer, packet: &Packet) -> i32 {
    let tuple = &packet.tuple;
    if !is_host(tuple.src.addr) {
        return DROP;
    }
    if !may_send() {
        count(Counter::RefusalLimited);
        return DROP;
    }
    // All that tells the sender which of its sockets it is about. Of TCP the whole header, since
    // the kernel cuts no packet before a checksum that a device is still to write.
    let end = (packet.transport & OFFSETS) + packet.transport_header();
    let quoted = end - D::HEADER;
    let is_v4 = tuple.src.addr.is_v4();
    let headers = if is_v4 { V4_HEADERS } else { V6_HEADERS };
    if quoted > QUOTED * 4 || !buffer.cut(end) || !buffer.make_room(headers) {
        count(Counter::PacketBroken);
        return DROP;
    }
    buffer.make_linear(parse::HEADERS);
    let (from, to) = (tuple.dst.addr.words(), tuple.src.addr.words());
    let is_written = if is_v4 {
        write_v4::<D>(buffer, from, to, quoted)
    } else {
        write_v6::<D>(buffer, from, to, quoted)
    };
    if is_written.is_none() || (D::HEADER != 0 && buffer.swap_addresses().is_none()) {
        count(Counter::PacketBroken);
        return DROP;
    }
    buffer.send_back()
}

/// Whether an address can be answered: RFC 1122 3.2.2 forbids errors about packets from others.
#[inline(always)]
pub fn is_host(addr: Words) -> bool {
    let first = if addr.is_v4() {
        addr.words()[3].to_ne_bytes()[0]
    } else {
        addr.words()[0].to_ne_bytes()[0]
    };
    let is_group = if addr.is_v4() {
        first >= 224
    } else {
        first == 0xff
    };
    !is_group && !addr.is_loopback()
}

#[inline(always)]
fn may_send() -> bool {
    // SAFETY: a helper without preconditions; the number is a plain one, and any value that a race
    // leaves is valid.
    unsafe {
        let slice = bpf_ktime_get_ns() >> SLICE_SHIFT;
        let gate = (&raw const GATE).read_volatile();
        let sent = if gate >> 16 == slice {
            gate & 0xffff
        } else {
            0
        };
        if sent >= PER_SLICE {
            return false;
        }
        (&raw mut GATE).write_volatile(slice << 16 | (sent + 1));
    }
    true
}

#[inline(always)]
fn write_v4<D: Device>(buffer: Buffer, from: [u32; 4], to: [u32; 4], quoted: u32) -> Option<()> {
    let mut sum = sum::<D>(buffer, V4_HEADERS, quoted)?;
    let header = buffer.at::<[u32; 7]>(D::HEADER)?.cast::<u32>();
    let ip = [
        // Internetwork control (RFC 1812 4.3.2.5).
        (0x45c0_0000 | (V4_HEADERS + quoted)).to_be(),
        // Do not fragment; no part of anything, so that it needs no id (RFC 6864 4.1).
        0x4000_u32.to_be(),
        (HOPS << 24 | ICMP_V4 << 16).to_be(),
        from[3],
        to[3],
    ];
    let icmp = (3_u32 << 24 | 3 << 16).to_be();
    let mut ip_sum = 0;
    // SAFETY: inside the packet; see `parse` for the alignment.
    unsafe {
        for (i, word) in ip.into_iter().enumerate() {
            header.add(i).write_volatile(word);
            ip_sum += u64::from(word);
        }
        header.add(5).write_volatile(icmp);
        header.add(6).write_volatile(0);
        sum += u64::from(icmp);
        let halves = header.cast::<u16>();
        halves.add(5).write_volatile(checksum(ip_sum));
        halves.add(11).write_volatile(checksum(sum));
    }
    Some(())
}

#[inline(always)]
fn write_v6<D: Device>(buffer: Buffer, from: [u32; 4], to: [u32; 4], quoted: u32) -> Option<()> {
    let mut sum = sum::<D>(buffer, V6_HEADERS, quoted)?;
    let header = buffer.at::<[u32; 12]>(D::HEADER)?.cast::<u32>();
    let length = ICMP + quoted;
    let icmp = (1_u32 << 24 | 4 << 16).to_be();
    // SAFETY: inside the packet; see `parse` for the alignment.
    unsafe {
        header.write_volatile(0x6000_0000_u32.to_be());
        header
            .add(1)
            .write_volatile((length << 16 | ICMP_V6 << 8 | HOPS).to_be());
        for i in 0..4 {
            header.add(2 + i).write_volatile(from[i]);
            header.add(6 + i).write_volatile(to[i]);
            sum += u64::from(from[i]) + u64::from(to[i]);
        }
        header.add(10).write_volatile(icmp);
        header.add(11).write_volatile(0);
        // The pseudo header (RFC 8200 8.1).
        sum += u64::from(icmp) + u64::from(length.to_be()) + u64::from(ICMP_V6.to_be());
        header.cast::<u16>().add(21).write_volatile(checksum(sum));
    }
    Some(())
}

/// Adds up what is quoted, `length` octets after the new headers.
#[inline(always)]
fn sum<D: Device>(buffer: Buffer, headers: u32, length: u32) -> Option<u64> {
    let mut sum = 0;
    for i in 0..QUOTED {
        if i * 4 >= length {
            break;
        }
        let word = buffer.at::<u32>(D::HEADER + headers + i * 4)?;
        // SAFETY: inside the packet.
        sum += u64::from(unsafe { word.read_volatile() });
    }
    Some(sum)
}

/// The checksum of what words in the order of the packet add up to (RFC 1071).
#[inline(always)]
fn checksum(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}
