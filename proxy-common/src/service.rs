//! Services: one record per ServicePort and IP family.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// How a backend is chosen among those of a window.
#[repr(u8)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub enum Scheduler {
    /// Uniformly at random, as kube-proxy's iptables and nftables modes do.
    Random = 0,
}

impl Scheduler {
    /// As annotations, configuration and `sidestep services` write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
        }
    }
}

/// A run of consecutive slots: `[offset, offset + count)` from the service's `base`.
#[repr(C)]
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    IntoBytes,
    TryFromBytes,
    Immutable,
    KnownLayout,
)]
pub struct Window {
    /// First slot, counted from `base`.
    pub offset: u32,
    /// Number of slots; 0: nobody may serve.
    pub count: u32,
}

/// Value of the `service` map; its key is the service id, a `u32` from 1.
///
/// The endpoints of a service lie in one run of slots in the order
/// `[local only | local and cluster | cluster only]`, so that the Local and the Cluster set of
/// kube-proxy (pkg/proxy/topology.go) are two overlapping windows of one list. A new list is
/// written to a fresh run, then this one record is replaced: readers see the old list or the new.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct ServiceValue {
    /// The key once more: tells whether the element was reused under a reader.
    pub id: u32,
    /// Raised at each replacement, same use.
    pub generation: u32,
    /// First slot of the run.
    pub base: u32,
    /// Endpoints for policy Local: those of this node.
    pub local: Window,
    /// Endpoints for policy Cluster, topology applied.
    pub cluster: Window,
    /// Seconds of ClientIP affinity; 0: none.
    pub affinity_seconds: u32,
    /// How to choose.
    pub scheduler: Scheduler,
    /// 1 if a usable endpoint exists anywhere in the cluster: an empty window then means drop,
    /// else it means refuse.
    pub has_any: u8,
    /// Zero.
    pub reserved: u16,
}

impl ServiceValue {
    /// Number of slots in use from `base`.
    pub const fn slots(&self) -> u32 {
        let local = self.local.offset.saturating_add(self.local.count);
        let cluster = self.cluster.offset.saturating_add(self.cluster.count);
        if local > cluster { local } else { cluster }
    }
}

crate::pod!(Window, ServiceValue);
