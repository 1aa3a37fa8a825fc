//! Topology hints (KEP-2433, KEP-3015): prefer endpoints near this node.
//!
//! Only the hints in the slices count. `spec.trafficDistribution` and the topology-mode annotation
//! are for the slice controller, which turns them into hints.

use super::merge::Merged;
use crate::model::{Endpoint, Hints, Node, Text};

/// How close an endpoint has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// Anywhere.
    Anywhere,
    /// It must be hinted to this node's zone.
    Zone,
    /// It must be hinted to this node.
    Node,
}

impl Topology {
    /// kube-proxy's `topologyModeFromHints`: a kind of hint counts only if every ready endpoint has
    /// it, so one without turns it off, and only if it leaves this node an endpoint at all.
    pub(super) fn of(endpoints: &[Merged<'_>], node: &Node) -> Self {
        let ready = || endpoints.iter().map(|e| e.endpoint).filter(|e| e.ready);
        let governs = |kind: Self| {
            ready().all(|e| !kind.hints(e).is_empty()) && ready().any(|e| kind.admits(e, node))
        };
        [Self::Node, Self::Zone]
            .into_iter()
            .find(|&kind| governs(kind))
            .unwrap_or(Self::Anywhere)
    }

    /// Whether the endpoint is close enough to this node.
    pub(super) fn admits(self, endpoint: &Endpoint, node: &Node) -> bool {
        let here = match self {
            Self::Anywhere => return true,
            Self::Zone => node.zone.as_ref(),
            Self::Node => Some(&node.name),
        };
        here.is_some_and(|here| !here.is_empty() && self.hints(endpoint).contains(here))
    }

    fn hints(self, endpoint: &Endpoint) -> &[Text] {
        let of: fn(&Hints) -> &[Text] = match self {
            Self::Anywhere => return &[],
            Self::Zone => |hints| &hints.zones,
            Self::Node => |hints| &hints.nodes,
        };
        endpoint.hints.as_deref().map_or(&[], of)
    }
}
