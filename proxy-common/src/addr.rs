//! Addresses and protocols as they stand in map keys.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// 16 bytes in network order, IPv4 as IPv4-mapped IPv6.
pub type Address = [u8; 16];

/// The first 12 bytes of every IPv4-mapped address.
pub const V4_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// `::ffff:0.0.0.0`, the NodePort wildcard of IPv4.
pub const V4_ANY: Address = v4_mapped([0, 0, 0, 0]);

/// `::`, the NodePort wildcard of IPv6.
pub const V6_ANY: Address = [0; 16];

/// The IPv4-mapped form of four bytes in network order.
#[inline(always)]
pub const fn v4_mapped(v4: [u8; 4]) -> Address {
    [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, v4[0], v4[1], v4[2], v4[3],
    ]
}

/// Whether the address is IPv4-mapped.
#[inline(always)]
pub fn is_v4(addr: &Address) -> bool {
    addr[..12] == V4_PREFIX
}

/// The map form of an address. An IPv4-mapped IPv6 address becomes the IPv4 address it stands for.
pub fn from_ip(ip: IpAddr) -> Address {
    match ip {
        IpAddr::V4(v4) => v4_mapped(v4.octets()),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address that a map form stands for.
pub fn to_ip(addr: &Address) -> IpAddr {
    if is_v4(addr) {
        IpAddr::V4(Ipv4Addr::new(addr[12], addr[13], addr[14], addr[15]))
    } else {
        IpAddr::V6(Ipv6Addr::from(*addr))
    }
}

/// Transport protocol, by its IANA number.
#[repr(u8)]
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    IntoBytes,
    TryFromBytes,
    Immutable,
    KnownLayout,
)]
pub enum Protocol {
    /// No protocol: the entry of a whole address, with port 0.
    Any = 0,
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
    /// SCTP.
    Sctp = 132,
}

impl Protocol {
    /// The protocol of an IP header's number; `None` for all that a Service cannot have.
    #[inline(always)]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            132 => Some(Self::Sctp),
            _ => None,
        }
    }

    /// As Kubernetes writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}
