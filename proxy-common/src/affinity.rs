//! Client affinity: which backend a client used last.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::addr::Address;

/// What a client is known by.
#[repr(u32)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub enum AffinityScope {
    /// Its address, where packets show it.
    Address = 1,
    /// The cookie of its network namespace, at the socket, where no source address is chosen yet:
    /// the cookie's eight bytes in network order end the `client` field.
    Namespace = 2,
}

/// Key of the `affinity` map.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct AffinityKey {
    /// Service id: the record is shared by all addresses of one ServicePort, and by nothing else.
    pub service: u32,
    /// What `client` holds.
    pub scope: AffinityScope,
    /// Client address, or namespace cookie.
    pub client: Address,
}

impl AffinityKey {
    /// Key of a client known by the cookie of its network namespace.
    #[inline(always)]
    pub fn namespace(service: u32, cookie: u64) -> Self {
        let c = cookie.to_be_bytes();
        Self {
            service,
            scope: AffinityScope::Namespace,
            client: [
                0, 0, 0, 0, 0, 0, 0, 0, c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7],
            ],
        }
    }

    /// Key of a client known by its address.
    #[inline(always)]
    pub const fn address(service: u32, client: Address) -> Self {
        Self {
            service,
            scope: AffinityScope::Address,
            client,
        }
    }
}

/// Value of the `affinity` map, an LRU: an evicted record costs one new choice.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct AffinityValue {
    /// When a new connection last used the record, monotonic nanoseconds.
    pub last_used: u64,
    /// The backend; a record whose backend left the service's window counts as none.
    pub backend: u32,
    /// Zero.
    pub reserved: u32,
}

crate::pod!(AffinityKey, AffinityValue);
