//! Slots: what windows are made of.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Address;

/// Element of the `slot` array: one endpoint in the list of one service.
///
/// It holds all that a new connection needs, so that choosing does not end in one more lookup in a
/// map that is far larger than any cache. What stands in a published run is a backend of the
/// `backend` map, and is not changed before the run has rested.
#[repr(C)]
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    IntoBytes,
    FromBytes,
    Immutable,
    KnownLayout,
)]
pub struct SlotValue {
    /// Endpoint address.
    pub addr: Address,
    /// Backend id; 0: never written.
    pub backend: u32,
    /// The service whose list this is: tells whether the run was reused under a reader.
    pub service: u32,
    /// Endpoint port, host order.
    pub port: u16,
    /// Zero; makes two slots fill one cache line.
    pub reserved: [u16; 3],
}

crate::pod!(SlotValue);
