//! Events: records of the `event` ring buffer.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::addr::{Address, Protocol};

/// What happened.
#[repr(u8)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub enum EventKind {
    /// A client was refused: no usable endpoint anywhere, or a port that the address does not have.
    Refused = 1,
    /// A client was dropped: policy Local and no endpoint on this node.
    Dropped = 2,
}

/// One record of the `event` ring buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, TryFromBytes, Immutable, KnownLayout)]
pub struct EventRecord {
    /// Monotonic nanoseconds.
    pub time: u64,
    /// Address that the client used.
    pub addr: Address,
    /// Service id; 0: none.
    pub service: u32,
    /// Port that the client used, host order.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// What happened.
    pub kind: EventKind,
}
