//! Fragments of IP packets: what became of the first one, which alone has ports.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::{addr::Address, flow::FlowStage};

/// Key of the `fragment` map: what all fragments of a packet have in common (RFC 791 3.2, RFC 8200
/// 4.5), and where they are seen.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct FragmentKey {
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
    /// Identification, host order; that of IPv4 has 16 bits.
    pub id: u32,
    /// Number of the protocol in an IPv4 header; 0 in IPv6, whose fragments are known without.
    pub protocol: u8,
    /// Where they are seen.
    pub stage: FlowStage,
    /// Zero.
    pub reserved: u16,
}

/// Value of the `fragment` map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct FragmentValue {
    /// Identification, as in the key: elements can be reused under a reader.
    pub id: u32,
    /// What becomes of later fragments: [`WAITING`](Self::WAITING), [`SENT`](Self::SENT),
    /// [`DROPPED`](Self::DROPPED).
    pub fate: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// When the record was made, monotonic nanoseconds.
    pub time: u64,
    /// Source address that they are given.
    pub src: Address,
    /// Destination address that they are given.
    pub dst: Address,
}

impl FragmentValue {
    /// In `fate`: the first fragment has not come yet, and the others are held.
    pub const WAITING: u8 = 0;
    /// In `fate`: they go on, with these addresses.
    pub const SENT: u8 = 1;
    /// In `fate`: they are dropped, as the first one was.
    pub const DROPPED: u8 = 2;

    /// How long a record is good for, nanoseconds. Identifications come again: those of IPv4 after
    /// 65,536 packets between two hosts.
    pub const LIFETIME: u64 = 2_000_000_000;

    /// Name of a fate.
    pub const fn fate_name(fate: u8) -> &'static str {
        match fate {
            Self::WAITING => "waiting",
            Self::SENT => "sent",
            Self::DROPPED => "dropped",
            _ => "unknown",
        }
    }
}

crate::pod!(FragmentKey, FragmentValue);
