//! The outcome for one ServicePort in one family.

use std::net::IpAddr;

use super::{
    merge::{Merged, merge},
    terminating::{is_usable, members},
    topology::Topology,
    traffic::Traffic,
};
use crate::model::{EndpointSlice, Family, Node, Service, ServicePort, Warning};

/// Endpoints of one ServicePort in one family as this node may use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// All serving endpoints, and those in a set. Sorted by address, then port; no duplicates.
    pub candidates: Vec<Candidate>,
    /// A usable endpoint exists anywhere in the cluster: an empty set then means drop, else refuse.
    pub has_any: bool,
}

/// One endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Candidate {
    /// Address.
    pub addr: IpAddr,
    /// Port.
    pub port: u16,
    /// In the set of policy Local.
    pub local: bool,
    /// In the set of policy Cluster.
    pub cluster: bool,
    /// Runs on this node.
    pub on_node: bool,
}

/// Which endpoints of a ServicePort this node may use. What had to be skipped is added to
/// `warnings`; the same slices give the same outcome in whatever order they come.
pub fn select(
    service: &Service,
    port: &ServicePort,
    family: Family,
    slices: &[EndpointSlice],
    node: &Node,
    warnings: &mut Vec<Warning>,
) -> Selection {
    let endpoints = merge(port, family, slices, node, warnings);
    categorize(&endpoints, Traffic::of(service, port, family), node)
}

/// kube-proxy's `CategorizeEndpoints` (pkg/proxy/topology.go), with its three lists as flags.
fn categorize(endpoints: &[Merged<'_>], traffic: Traffic, node: &Node) -> Selection {
    let topology = Topology::of(endpoints, node);
    // The fall-back of the Cluster set reaches for anything anywhere; the Local set ignores hints.
    let in_cluster = members(endpoints, |e| topology.admits(e.endpoint, node), |_| true);
    let in_local = members(endpoints, |e| e.on_node, |e| e.on_node);

    let candidates: Vec<_> = endpoints
        .iter()
        .map(|e| {
            (
                e.endpoint.serving,
                candidate(e, traffic, &in_local, &in_cluster),
            )
        })
        .filter(|(serving, candidate)| *serving || candidate.local || candidate.cluster)
        .map(|(_, candidate)| candidate)
        .collect();
    let has_any = candidates.iter().any(|candidate| candidate.cluster)
        || (traffic.local && endpoints.iter().any(|e| is_usable(e.endpoint)));
    Selection {
        candidates,
        has_any,
    }
}

fn candidate<'a>(
    e: &Merged<'a>,
    traffic: Traffic,
    in_local: impl Fn(&Merged<'a>) -> bool,
    in_cluster: impl Fn(&Merged<'a>) -> bool,
) -> Candidate {
    Candidate {
        addr: e.addr,
        port: e.port,
        local: traffic.local && in_local(e),
        cluster: traffic.cluster && in_cluster(e),
        on_node: e.on_node,
    }
}

#[cfg(test)]
mod tests;
