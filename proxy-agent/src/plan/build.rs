//! Model and policy → what the maps should say.
//!
//! One Service at a time and without memory: what is desired follows from the Service, its slices
//! and the node alone.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use proxy_common::{FrontendKind, Protocol};

use super::{DesiredService, Frontend};
use crate::{
    model::{
        EndpointSlice, Family, Node, Service, ServiceKey, ServiceName, ServicePort, Store, Warning,
    },
    policy,
};

/// What one Service asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// One for each port and family, by family, then in the order of the ports. None if the Service
    /// is not there: then whatever the maps hold of it has to go.
    pub services: Vec<DesiredService>,
    /// What was skipped and why.
    pub warnings: Vec<Warning>,
}

/// What the Service of this name asks for, as the store knows it now.
pub fn desired(store: &Store, name: &ServiceName) -> Desired {
    let Some(service) = store.service(name) else {
        return Desired::default();
    };
    let mut desired = build(service, store.slices(name), store.node());
    for family in store.keeps_last_good(name) {
        desired.warnings.push(Warning::new(
            format!("Service {name}"),
            "",
            format!(
                "no usable {family} endpoint is left; the last good ones are kept, since without \
                 them nothing could reach the API server to mend it"
            ),
        ));
    }
    desired
}

/// What a Service asks for: a [`DesiredService`] per port and family that has a ClusterIP (W17).
pub fn build(service: &Service, slices: &[EndpointSlice], node: &Node) -> Desired {
    let mut desired = Desired::default();
    let ports = distinct_ports(service, &mut desired.warnings);
    for family in Family::ALL {
        let Some(cluster_ip) = policy::of_family(&service.cluster_ips, family).next() else {
            continue;
        };
        let ranges = source_ranges(service, family);
        let mut taken = HashSet::new();
        for port in &ports {
            let mut frontends = frontends(service, port, family, cluster_ip, !ranges.is_empty());
            drop_taken(
                &mut frontends,
                &mut taken,
                service,
                port,
                &mut desired.warnings,
            );
            let has_ranges = frontends.iter().any(|frontend| frontend.source_ranges);
            desired.services.push(DesiredService {
                key: ServiceKey {
                    service: service.name.clone(),
                    port: port.name.clone(),
                    protocol: port.protocol,
                    family,
                },
                frontends,
                selection: policy::select(
                    service,
                    port,
                    family,
                    slices,
                    node,
                    &mut desired.warnings,
                ),
                affinity_seconds: service.affinity_seconds.unwrap_or(0),
                scheduler: service.scheduler,
                source_ranges: if has_ranges {
                    ranges.clone()
                } else {
                    Vec::new()
                },
            });
        }
    }
    // A slice that serves several ports is met once for each.
    let mut seen = HashSet::new();
    desired
        .warnings
        .retain(|warning| seen.insert(warning.clone()));
    desired
}

/// The ports that can be told apart: by name and protocol, as slices name them.
fn distinct_ports<'a>(service: &'a Service, warnings: &mut Vec<Warning>) -> Vec<&'a ServicePort> {
    let mut ports: Vec<&ServicePort> = Vec::with_capacity(service.ports.len());
    for port in &service.ports {
        // Sources skip these with a warning. At port 0 stands the entry of the whole address.
        if port.port == 0 || port.protocol == Protocol::Any {
            continue;
        }
        let is_same =
            |other: &&ServicePort| (&other.name, other.protocol) == (&port.name, port.protocol);
        if ports.iter().any(is_same) {
            warnings.push(Warning::new(
                format!("Service {}", service.name),
                "spec.ports",
                format!(
                    "two {} ports are named \"{}\"; port {} is skipped",
                    port.protocol.name(),
                    port.name,
                    port.port
                ),
            ));
            continue;
        }
        ports.push(port);
    }
    ports
}

/// The addresses of one port in one family. Sorted by kind, address and port; at one address and
/// port only the lowest kind.
fn frontends(
    service: &Service,
    port: &ServicePort,
    family: Family,
    cluster_ip: IpAddr,
    has_ranges: bool,
) -> Vec<Frontend> {
    let frontend = |kind, addr, number| Frontend {
        kind,
        addr,
        port: number,
        local: policy::is_local(service, kind),
        // LoadBalancer addresses and no others (L1, N11, S11).
        source_ranges: has_ranges && kind == FrontendKind::Balancer,
    };
    let mut frontends = vec![frontend(FrontendKind::Cluster, cluster_ip, port.port)];
    if port.node_port != 0 {
        frontends.push(frontend(
            FrontendKind::Node,
            wildcard(family),
            port.node_port,
        ));
    }
    for (kind, addresses) in [
        (FrontendKind::Balancer, &service.balancer_ips),
        (FrontendKind::External, &service.external_ips),
    ] {
        frontends.extend(
            policy::of_family(addresses, family).map(|addr| frontend(kind, addr, port.port)),
        );
    }
    // The unspecified address is the NodePort wildcard of the maps; no other kind may stand there.
    frontends.retain(|f| f.kind == FrontendKind::Node || !f.addr.is_unspecified());
    frontends.sort_unstable();
    let mut seen = HashSet::with_capacity(frontends.len());
    frontends.retain(|f| seen.insert((f.addr, f.port)));
    frontends
}

/// Leaves out what an earlier port of the same Service answers at.
fn drop_taken(
    frontends: &mut Vec<Frontend>,
    taken: &mut HashSet<(IpAddr, u16, Protocol)>,
    service: &Service,
    port: &ServicePort,
    warnings: &mut Vec<Warning>,
) {
    frontends.retain(|f| {
        let is_free = taken.insert((f.addr, f.port, port.protocol));
        if !is_free {
            warnings.push(Warning::new(
                format!("Service {}", service.name),
                "spec.ports",
                format!(
                    "port \"{}\" asks for {} {} {} as an earlier port does; the earlier one has it",
                    port.name,
                    f.kind.name(),
                    f.port,
                    port.protocol.name()
                ),
            ));
        }
        is_free
    });
}

/// Sources that may use LoadBalancer addresses of a family; empty: all. A /0 lets everybody in, and
/// ranges of the other family say nothing about this one (L2).
fn source_ranges(service: &Service, family: Family) -> Vec<IpNet> {
    let mut ranges: Vec<_> = service
        .source_ranges
        .iter()
        .filter(|range| Family::of(range.addr()) == family)
        .map(IpNet::trunc)
        .collect();
    if ranges.iter().any(|range| range.prefix_len() == 0) {
        return Vec::new();
    }
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

/// Where a NodePort stands in the maps.
const fn wildcard(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod tests;
