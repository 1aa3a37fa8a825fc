//! Load-balancer source ranges.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Address;

/// Data of the `range` trie's keys: the service id, then the source address. A prefix length counts
/// from the first bit of the service id, so a source prefix of `n` bits is stored with `32 + n`,
/// `n` counted in the IPv4-mapped form (an IPv4 /8 has 32 + 96 + 8).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct RangeKey {
    /// Service id, in network order since the trie compares from the first byte.
    pub service_be: [u8; 4],
    /// Source prefix.
    pub source: Address,
}

crate::pod!(RangeKey);
