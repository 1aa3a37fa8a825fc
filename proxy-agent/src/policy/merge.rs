//! One list of endpoints out of all slices of a Service.
//!
//! kube-proxy's endpoint cache (pkg/proxy/endpointslicecache.go): slice ports match a ServicePort by
//! name and protocol, each endpoint counts once per address and port. Where kube-proxy's outcome
//! depends on the order of a Go map, ours is settled, so that every node and every restart agrees.

use std::net::IpAddr;

use crate::model::{Endpoint, EndpointSlice, Family, Node, PodId, ServicePort, Warning};

/// An endpoint at one port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merged<'a> {
    pub(super) addr: IpAddr,
    pub(super) port: u16,
    /// Runs on this node. An endpoint without a node runs nowhere in particular (W12).
    pub(super) on_node: bool,
    pub(super) endpoint: &'a Endpoint,
    slice: &'a EndpointSlice,
}

/// The endpoints of one ServicePort in one family, sorted by address, then port, each pair once.
///
/// Addresses sort by number and not by text, as kube-proxy's do: only a stable order matters, and
/// numbers need no formatting.
pub(super) fn merge<'a>(
    port: &ServicePort,
    family: Family,
    slices: &'a [EndpointSlice],
    node: &Node,
    warnings: &mut Vec<Warning>,
) -> Vec<Merged<'a>> {
    let mut all = Vec::with_capacity(slices.iter().map(|s| s.endpoints.len()).sum());
    for slice in slices.iter().filter(|slice| slice.family == family) {
        let same = |p: &&crate::model::SlicePort| {
            p.name == port.name && p.protocol == port.protocol && p.port != 0
        };
        for slice_port in slice.ports.iter().filter(same) {
            for endpoint in &slice.endpoints {
                let addr = endpoint.addr.to_canonical();
                if Family::of(addr) != family {
                    warnings.push(wrong_family(slice, endpoint));
                    continue;
                }
                all.push(Merged {
                    addr,
                    port: slice_port.port,
                    on_node: is_on(node, endpoint),
                    endpoint,
                    slice,
                });
            }
        }
    }
    all.sort_by_key(|e| (e.addr, e.port));
    let distinct = all
        .chunk_by(|a, b| (a.addr, a.port) == (b.addr, b.port))
        .count();
    if distinct == all.len() {
        return all;
    }
    all.chunk_by(|a, b| (a.addr, a.port) == (b.addr, b.port))
        .filter_map(|duplicates| settle(duplicates, warnings))
        .collect()
}

/// The one of several endpoints at one address and port that counts.
///
/// Of one pod in several slices, as while the slice controller moves it, the slice with the later
/// trigger time knows better. Of different pods, as when an address was given anew while a pod that
/// had it is still listed, the one that is not terminating wins (W13), then the ready one.
fn settle<'a>(duplicates: &[Merged<'a>], warnings: &mut Vec<Warning>) -> Option<Merged<'a>> {
    let is_outdated = |e: &Merged<'_>| {
        e.endpoint.pod != PodId::UNKNOWN
            && duplicates
                .iter()
                .any(|o| o.endpoint.pod == e.endpoint.pod && freshness(o) > freshness(e))
    };
    let mut best: Option<Merged<'a>> = None;
    for current in duplicates.iter().filter(|e| !is_outdated(e)) {
        if let Some(other) = best {
            if is_conflict(&other, current) {
                warnings.push(conflict(&other, current));
            }
            if preference(&other) >= preference(current) {
                continue;
            }
        }
        best = Some(*current);
    }
    best
}

/// Order among views of one pod.
fn freshness<'a>(e: &Merged<'a>) -> impl Ord + use<'a> {
    (e.slice.trigger_time, preference(e))
}

/// Order among different pods. The end makes it total: whatever differs, differs the same way
/// everywhere.
fn preference<'a>(e: &Merged<'a>) -> impl Ord + use<'a> {
    let Endpoint {
        ready,
        serving,
        terminating,
        ..
    } = *e.endpoint;
    let newest = (e.slice.trigger_time, serving, e.on_node);
    (!terminating, ready, newest, &e.slice.name, e.endpoint.pod)
}

/// Whether two endpoints that cannot both be right both claim to be alive.
fn is_conflict(a: &Merged<'_>, b: &Merged<'_>) -> bool {
    let (x, y) = (a.endpoint, b.endpoint);
    let differ = (x.pod, x.ready, x.serving, &x.node) != (y.pod, y.ready, y.serving, &y.node);
    !x.terminating && !y.terminating && differ
}

fn conflict(a: &Merged<'_>, b: &Merged<'_>) -> Warning {
    let (first, second) = if a.slice.name <= b.slice.name {
        (a, b)
    } else {
        (b, a)
    };
    Warning::new(
        format!("EndpointSlice {}", first.slice.name),
        "endpoints",
        format!(
            "{} port {} is also in {} and is no copy of it; a ready one counts before an unready \
             one, a later one before an older one",
            first.addr, first.port, second.slice.name
        ),
    )
}

fn wrong_family(slice: &EndpointSlice, endpoint: &Endpoint) -> Warning {
    Warning::new(
        format!("EndpointSlice {}", slice.name),
        "endpoints",
        format!(
            "{} is no {} address, which addressType promises; the endpoint is skipped",
            endpoint.addr, slice.family
        ),
    )
}

fn is_on(node: &Node, endpoint: &Endpoint) -> bool {
    !node.name.is_empty() && endpoint.node.as_ref() == Some(&node.name)
}

#[cfg(test)]
mod tests;
