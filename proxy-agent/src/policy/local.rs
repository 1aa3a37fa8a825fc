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

#[cfg(test)]
mod tests {
    //! T46 to T52: kube-proxy's TestLocalReadyEndpoints (endpointschangetracker_test.go).

    use proxy_common::Protocol::Tcp;

    use super::*;
    use crate::model::{
        Endpoint, SlicePort,
        fixture::{endpoint, ip, node_in, slice, slice_port},
    };

    fn here(addr: &str) -> Endpoint {
        endpoint(addr).on("n1")
    }

    fn ports(names: &[&str]) -> Vec<SlicePort> {
        let numbered = names.iter().zip(11..);
        numbered
            .map(|(name, number)| slice_port(name, Tcp, number))
            .collect()
    }

    fn local(slices: &[EndpointSlice]) -> Vec<IpAddr> {
        local_ready(slices, &node_in("")).into_iter().collect()
    }

    #[test]
    fn t46_no_slices_have_no_local_endpoints() {
        assert_eq!(local(&[]), [] as [IpAddr; 0]);
    }

    #[test]
    fn t47_an_endpoint_of_another_node_is_not_local() {
        let slices = [slice("web-1", "web", &[endpoint("10.1.1.1").on("n2")])];
        assert_eq!(local(&slices), [] as [IpAddr; 0]);
    }

    #[test]
    fn t48_an_endpoint_of_this_node_is_local() {
        let slices = [slice("web-1", "web", &[here("10.1.1.1")])];
        assert_eq!(local(&slices), [ip("10.1.1.1")]);
    }

    #[test]
    fn t49_two_ports_of_one_address_count_once() {
        let slices = [slice("web-1", "web", &[here("10.1.1.1")]).with_ports(&ports(&["a", "b"]))];
        assert_eq!(local(&slices), [ip("10.1.1.1")]);
    }

    #[test]
    fn t50_addresses_of_several_slices_and_ports_are_counted_each_once() {
        let slices = [
            slice(
                "web-1",
                "web",
                &[here("10.1.1.1"), endpoint("10.1.1.2").on("n2")],
            )
            .with_ports(&ports(&["a"])),
            slice("web-2", "web", &[here("10.1.1.1"), here("10.1.1.3")])
                .with_ports(&ports(&["a", "b"])),
            slice("web-3", "web", &[here("fd00::1")]).of(Family::V6),
        ];
        assert_eq!(
            local(&slices),
            [ip("10.1.1.1"), ip("10.1.1.3"), ip("fd00::1")]
        );
    }

    #[test]
    fn t51_unready_endpoints_do_not_count() {
        let slices = [slice(
            "web-1",
            "web",
            &[here("10.1.1.1").unready(), here("10.1.1.2")],
        )];
        assert_eq!(local(&slices), [ip("10.1.1.2")]);
    }

    #[test]
    fn t52_terminating_endpoints_do_not_count() {
        let slices = [slice(
            "web-1",
            "web",
            &[
                here("10.1.1.1").terminating(),
                here("10.1.1.2").terminating(),
            ],
        )];
        assert_eq!(local(&slices), [] as [IpAddr; 0]);
    }
}
