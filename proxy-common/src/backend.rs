//! Backends: the endpoints that slots point to.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::addr::{Address, Protocol};

/// What a backend may be used for.
#[repr(u8)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub enum BackendState {
    /// In a window of its service: new connections come here.
    Active = 1,
    /// Serving, but in no window (terminating, or not preferred here): keeps what it has.
    Draining = 2,
}

impl BackendState {
    /// As `sidestep services` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
        }
    }
}

/// Value of the `backend` map; its key is the backend id, a `u32` from 1.
///
/// A backend belongs to one service: the same pod behind two ServicePorts is two backends, each
/// with its own connection count (docs/decisions/0001). An id that is absent from the map is dead.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct BackendValue {
    /// The key once more: tells whether the element was reused under a reader.
    pub id: u32,
    /// Raised at each replacement, same use.
    pub generation: u32,
    /// The service that this backend serves.
    pub service: u32,
    /// Endpoint address, of the same family as the service's frontends.
    pub addr: Address,
    /// Endpoint port, host order.
    pub port: u16,
    /// Relative weight; 1 unless configured.
    pub weight: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// What it may be used for.
    pub state: BackendState,
    /// [`IN_LOCAL`](Self::IN_LOCAL), [`IN_CLUSTER`](Self::IN_CLUSTER),
    /// [`ON_NODE`](Self::ON_NODE).
    pub flags: u8,
    /// Zero.
    pub reserved: u8,
}

impl BackendValue {
    /// In the window of policy Local.
    pub const IN_LOCAL: u8 = 1;
    /// In the window of policy Cluster.
    pub const IN_CLUSTER: u8 = 2;
    /// Runs on this node.
    pub const ON_NODE: u8 = 4;
}

crate::pod!(BackendValue);
