//! Frontends: the addresses and ports at which Services answer.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::addr::{Address, Protocol};

/// Key of the `frontend` map. Three shapes:
///
/// - address, port, protocol: a ClusterIP, load-balancer VIP or external IP;
/// - [`V4_ANY`](crate::addr::V4_ANY) or [`V6_ANY`](crate::addr::V6_ANY), port, protocol: a
///   NodePort, valid on the addresses in `node_addr`;
/// - address, port 0, [`Protocol::Any`]: the address is one of ours, of this kind; unknown ports of
///   ClusterIPs are refused.
#[repr(C)]
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
pub struct FrontendKey {
    /// Service address.
    pub addr: Address,
    /// Service port, host order.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Zero, so that equal keys have equal bytes.
    pub reserved: u8,
}

impl FrontendKey {
    /// Key of one port at one address.
    #[inline(always)]
    pub const fn new(addr: Address, port: u16, protocol: Protocol) -> Self {
        Self {
            addr,
            port,
            protocol,
            reserved: 0,
        }
    }

    /// Key of the entry that says "this address is ours".
    #[inline(always)]
    pub const fn whole_address(addr: Address) -> Self {
        Self::new(addr, 0, Protocol::Any)
    }
}

/// What kind of address a frontend is. It decides which traffic policy and window apply.
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
pub enum FrontendKind {
    /// `spec.clusterIPs`; internalTrafficPolicy.
    Cluster = 1,
    /// `nodePort` on the node's own addresses; externalTrafficPolicy.
    Node = 2,
    /// `status.loadBalancer.ingress` with ipMode VIP; externalTrafficPolicy.
    Balancer = 3,
    /// `spec.externalIPs`; externalTrafficPolicy.
    External = 4,
}

impl FrontendKind {
    /// As `sidestep services` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => "ClusterIP",
            Self::Node => "NodePort",
            Self::Balancer => "LoadBalancer",
            Self::External => "ExternalIP",
        }
    }
}

/// Value of the `frontend` map.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct FrontendValue {
    /// Key of the `service` map; 0 in a whole-address entry.
    pub service: u32,
    /// Kind of this address.
    pub kind: FrontendKind,
    /// [`SOURCE_RANGES`](Self::SOURCE_RANGES), [`LOCAL`](Self::LOCAL).
    pub flags: u8,
    /// Zero.
    pub reserved: u16,
}

impl FrontendValue {
    /// Only sources in the `range` map may use this address. Sockets leave it to the packet path,
    /// which knows the source.
    pub const SOURCE_RANGES: u8 = 1;
    /// The traffic policy of this kind is Local: clients from outside, or for a ClusterIP all
    /// clients, get the local window.
    pub const LOCAL: u8 = 2;
}

crate::pod!(FrontendKey, FrontendValue);
