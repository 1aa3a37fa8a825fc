//! What a load balancer's health check of this node asks for.

use std::{collections::BTreeSet, net::IpAddr};

use super::merge::merge;
use crate::model::{EndpointSlice, Family, Node, ServicePort};

/// Addresses of a Service's ready endpoints on this node, each once however many ports it has:
/// kube-proxy's `LocalReadyEndpoints` (pkg/proxy/endpointschangetracker.go). Their number is what
/// `healthCheckNodePort` reports.
pub fn local_ready(slices: &[EndpointSlice], node: &Node) -> BTreeSet<IpAddr> {
    let ports: BTreeSet<_> = slices
        .iter()
        .flat_map(|slice| slice.ports.iter().map(|port| (&port.name, port.protocol)))
        .collect();
    let mut addresses = BTreeSet::new();
    for (name, protocol) in ports {
        let port = ServicePort {
            name: name.clone(),
            protocol,
            port: 0,
            node_port: 0,
        };
        for family in Family::ALL {
            // What is wrong with the slices is said where Services are built.
            let endpoints = merge(&port, family, slices, node, &mut Vec::new());
            addresses.extend(
                endpoints
                    .iter()
                    .filter(|e| e.on_node && e.endpoint.ready)
                    .map(|e| e.addr),
            );
        }
    }
    addresses
}
