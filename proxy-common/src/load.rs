//! How busy each backend is.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::map;

/// Element of the `load` array, at [`index`](Self::index) of its backend.
///
/// The agent gives the element to a backend before anybody can choose it; the programs count. It
/// sees to it that no two backends share an element as long as there are fewer than elements;
/// beyond, a backend without an element is not counted.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct LoadValue {
    /// Whose element this is; 0: nobody's.
    pub backend: u32,
    /// Connected datagram sockets, flows, and TCP sockets that have no element in `connection`.
    pub connections: i32,
}

impl LoadValue {
    /// Where a backend is counted.
    #[inline(always)]
    pub const fn index(backend: u32) -> u32 {
        backend % map::LOAD.entries
    }
}

crate::pod!(LoadValue);
