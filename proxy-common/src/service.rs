//! Services: one record per ServicePort and IP family.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::map;

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

/// What the `service` map says of one service.
///
/// The endpoints of a service lie in one run of slots in the order
/// `[local only | local and cluster | cluster only]`, so that the Local and the Cluster set of
/// kube-proxy (pkg/proxy/topology.go) are two overlapping windows of one list. A new list is
/// written to a fresh run, then this one record is replaced: readers see the old list or the new.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct ServiceRecord {
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

impl ServiceRecord {
    /// Number of slots in use from `base`.
    pub const fn slots(&self) -> u32 {
        let local = self.local.offset.saturating_add(self.local.count);
        let cluster = self.cluster.offset.saturating_add(self.cluster.count);
        if local > cluster { local } else { cluster }
    }
}

/// Element of the `service` array, at [`index`](Self::index) of its service.
///
/// A sequence latch (`raw_write_seqcount_latch`, include/linux/seqlock.h): the agent writes the
/// record that does not hold and then raises `sequence`, so that readers always have one that is
/// whole. Who copied it reads `sequence` once more, and looks again if it has moved.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct ServiceValue {
    /// Service id, from 1; 0: nobody's element. Written last when a service comes, first when it
    /// goes.
    pub id: u32,
    /// Raised with each new record. Its lowest bit says which one holds.
    pub sequence: u32,
    /// The one that holds and another, older or being written.
    pub records: [ServiceRecord; 2],
}

impl ServiceValue {
    /// Where a service stands. Services whose ids share an element cannot be served together; the
    /// agent hands out ids that do not.
    #[inline(always)]
    pub const fn index(service: u32) -> u32 {
        service % map::SERVICE.entries
    }

    /// Index of the record that holds.
    #[inline(always)]
    pub const fn latch(sequence: u32) -> usize {
        (sequence & 1) as usize
    }

    /// The record that holds; `None` in nobody's element.
    pub const fn record(&self) -> Option<&ServiceRecord> {
        match self.id {
            0 => None,
            _ => Some(&self.records[Self::latch(self.sequence)]),
        }
    }
}

crate::pod!(Window, ServiceRecord, ServiceValue);
