//! EndpointSlices and their endpoints.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
};

use proxy_common::Protocol;

use super::name::{Family, ServiceName, SliceName, Text};

/// One EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Namespace and name.
    pub name: SliceName,
    /// The Service it belongs to: label `kubernetes.io/service-name` (W6).
    pub service: ServiceName,
    /// Family of all its addresses (W7).
    pub family: Family,
    /// Ports that every endpoint of the slice has.
    pub ports: Vec<SlicePort>,
    /// Endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Annotation `endpoints.kubernetes.io/last-change-trigger-time`, Unix nanoseconds; 0: none.
    pub trigger_time: i64,
}

/// One port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Name; matches the ServicePort of that name (W10).
    pub name: Text,
    /// Protocol.
    pub protocol: Protocol,
    /// Port at the endpoint.
    pub port: u16,
}

/// One endpoint of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its first address (W8).
    pub addr: IpAddr,
    /// May get new connections; nil is true (W11).
    pub ready: bool,
    /// Answers, even if it is terminating; nil is true.
    pub serving: bool,
    /// Is being deleted; nil is false.
    pub terminating: bool,
    /// What it is: [`PodId::of`] its `targetRef`. Tells one pod that is in two slices from two pods
    /// that share an address (kubernetes/kubernetes issue 135266).
    pub pod: PodId,
    /// Node it runs on.
    pub node: Option<Text>,
    /// Hints; most endpoints have none, so they cost a pointer.
    pub hints: Option<Box<Hints>>,
}

/// Identity of the object behind an endpoint; a hash, so that it costs four bytes and no allocation.
/// Two pods with one hash would have to share an address as well to be taken for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodId(u32);

/// Topology hints of an endpoint (KEP-2433, KEP-3015).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Zones that should use it.
    pub zones: Vec<Text>,
    /// Nodes that should use it.
    pub nodes: Vec<Text>,
}

impl PodId {
    /// Endpoints without `targetRef`, as in slices made by hand.
    pub const UNKNOWN: Self = Self(0);

    /// From `targetRef.uid`, or `targetRef.name` where there is no uid.
    pub fn of(target: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        target.hash(&mut hasher);
        Self((hasher.finish() as u32).max(1))
    }
}
