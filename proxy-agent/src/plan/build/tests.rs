//! What a Service asks for: T58 to T65 and T77 as far as they are not about decoding
//! (kube-proxy's servicechangetracker_test.go), source ranges, policies, bad input.

use proxy_common::Protocol::{Sctp, Tcp, Udp};

use super::*;
use crate::model::{
    Change, Endpoint,
    fixture::{endpoint, ip, name, node_in, service, service_port, slice, slice_name},
};

fn of(service: &Service) -> Vec<DesiredService> {
    let desired = build(service, &[], &node_in(""));
    assert_eq!(desired.warnings, []);
    desired.services
}

/// Frontends as `kind address:port`, with `local` and `ranges` where they are set.
fn frontends(services: &[DesiredService]) -> Vec<String> {
    let all = services.iter().flat_map(|service| &service.frontends);
    all.map(|f| {
        let local = if f.local { " local" } else { "" };
        let ranges = if f.source_ranges { " ranges" } else { "" };
        let at = std::net::SocketAddr::new(f.addr, f.port);
        format!("{} {at}{local}{ranges}", f.kind.name())
    })
    .collect()
}

fn keys(services: &[DesiredService]) -> Vec<String> {
    services
        .iter()
        .map(|service| service.key.to_string())
        .collect()
}

fn warnings(service: &Service) -> Vec<String> {
    let desired = build(service, &[], &node_in(""));
    desired.warnings.iter().map(Warning::to_string).collect()
}

/// Addresses of every kind in both families.
fn dual_stack() -> Service {
    Service {
        cluster_ips: vec![ip("10.96.0.1"), ip("fd00:96::1")],
        external_ips: vec![ip("192.0.2.1"), ip("2001:db8::1")],
        balancer_ips: vec![ip("198.51.100.1"), ip("2001:db8:1::1")],
        source_ranges: vec![net("203.0.113.0/24"), net("2001:db8:2::/48")],
        ..service("web").with_node_ports()
    }
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a CIDR")
}

#[test]
fn t58_a_service_that_is_not_there_or_has_no_port_asks_for_nothing() {
    let store = Store::new(node_in(""));
    assert_eq!(desired(&store, &name("web")), Desired::default());
    let portless = Service {
        ports: Vec::new(),
        ..service("web")
    };
    assert_eq!(of(&portless), []);
}

#[test]
fn t59_each_port_is_a_service_of_its_own_with_all_addresses() {
    let mut service = service("ns/web");
    service.ports = vec![
        service_port("dns", Udp, 53),
        service_port("dns", Tcp, 53),
        service_port("m3", Sctp, 2905),
    ];
    let services = of(&service);
    assert_eq!(
        keys(&services),
        [
            "ns/web:dns/UDP/IPv4",
            "ns/web:dns/TCP/IPv4",
            "ns/web:m3/SCTP/IPv4"
        ]
    );
    assert_eq!(frontends(&services[..1]), ["ClusterIP 10.96.0.1:53"]);
}

#[test]
fn t59_a_node_port_stands_at_the_unspecified_address() {
    let services = of(&service("web").with_node_ports());
    assert_eq!(
        frontends(&services),
        ["ClusterIP 10.96.0.1:80", "NodePort 0.0.0.0:30080"]
    );
}

#[test]
fn t60_load_balancer_addresses_of_mode_vip_are_frontends() {
    let balanced = Service {
        balancer_ips: vec![ip("198.51.100.2"), ip("198.51.100.1")],
        ..service("web")
    };
    assert_eq!(
        frontends(&of(&balanced)),
        [
            "ClusterIP 10.96.0.1:80",
            "LoadBalancer 198.51.100.1:80",
            "LoadBalancer 198.51.100.2:80"
        ]
    );
}

#[test]
fn t62_a_family_without_a_cluster_ip_has_no_frontends_of_any_kind() {
    let v6_only = Service {
        cluster_ips: vec![ip("fd00:96::1")],
        ..dual_stack()
    };
    let services = of(&v6_only);
    assert_eq!(keys(&services), ["default/web/TCP/IPv6"]);
    assert!(services[0].frontends.iter().all(|f| f.addr.is_ipv6()));
}

#[test]
fn t63_t64_each_family_has_the_addresses_and_ranges_of_its_own() {
    let services = of(&dual_stack());
    assert_eq!(
        keys(&services),
        ["default/web/TCP/IPv4", "default/web/TCP/IPv6"]
    );
    assert_eq!(
        frontends(&services[..1]),
        [
            "ClusterIP 10.96.0.1:80",
            "NodePort 0.0.0.0:30080",
            "LoadBalancer 198.51.100.1:80 ranges",
            "ExternalIP 192.0.2.1:80"
        ]
    );
    assert_eq!(
        frontends(&services[1..]),
        [
            "ClusterIP [fd00:96::1]:80",
            "NodePort [::]:30080",
            "LoadBalancer [2001:db8:1::1]:80 ranges",
            "ExternalIP [2001:db8::1]:80"
        ]
    );
    assert_eq!(services[0].source_ranges, [net("203.0.113.0/24")]);
    assert_eq!(services[1].source_ranges, [net("2001:db8:2::/48")]);
}

#[test]
fn t77_the_order_of_cluster_ips_does_not_matter() {
    let mut reversed = dual_stack();
    reversed.cluster_ips.reverse();
    assert_eq!(of(&reversed), of(&dual_stack()));
}

#[test]
fn a_slash_zero_lets_everybody_in() {
    let open = Service {
        source_ranges: vec![
            net("203.0.113.0/24"),
            net("0.0.0.0/0"),
            net("2001:db8:2::/48"),
        ],
        ..dual_stack()
    };
    let services = of(&open);
    assert_eq!(services[0].source_ranges, []);
    assert!(services[0].frontends.iter().all(|f| !f.source_ranges));
    assert_eq!(services[1].source_ranges, [net("2001:db8:2::/48")]);
}

#[test]
fn ranges_of_the_other_family_only_let_everybody_in() {
    let v6_ranges = Service {
        source_ranges: vec![net("2001:db8:2::/48")],
        ..dual_stack()
    };
    let services = of(&v6_ranges);
    assert_eq!(services[0].source_ranges, []);
    assert!(services[0].frontends.iter().all(|f| !f.source_ranges));
}

#[test]
fn ranges_of_a_service_without_load_balancer_addresses_are_left_out() {
    let no_balancer = Service {
        balancer_ips: Vec::new(),
        ..dual_stack()
    };
    assert!(
        of(&no_balancer)
            .iter()
            .all(|service| service.source_ranges.is_empty())
    );
}

#[test]
fn equal_ranges_are_one_whatever_their_host_bits() {
    let twice = Service {
        source_ranges: vec![
            net("203.0.113.9/24"),
            net("203.0.113.0/24"),
            net("10.0.0.0/8"),
        ],
        ..dual_stack()
    };
    let expected = [net("10.0.0.0/8"), net("203.0.113.0/24")];
    assert_eq!(of(&twice)[0].source_ranges, expected);
}

#[test]
fn internal_policy_governs_cluster_ips_and_external_policy_the_others() {
    let v4 = |service: Service| frontends(&of(&service)[..1]);
    assert_eq!(
        v4(dual_stack().internal_local()),
        [
            "ClusterIP 10.96.0.1:80 local",
            "NodePort 0.0.0.0:30080",
            "LoadBalancer 198.51.100.1:80 ranges",
            "ExternalIP 192.0.2.1:80"
        ]
    );
    assert_eq!(
        v4(dual_stack().external_local()),
        [
            "ClusterIP 10.96.0.1:80",
            "NodePort 0.0.0.0:30080 local",
            "LoadBalancer 198.51.100.1:80 local ranges",
            "ExternalIP 192.0.2.1:80 local"
        ]
    );
}

#[test]
fn affinity_and_scheduler_are_taken_over() {
    let sticky = Service {
        affinity_seconds: Some(10_800),
        ..service("web")
    };
    assert_eq!(of(&sticky)[0].affinity_seconds, 10_800);
    assert_eq!(of(&sticky)[0].scheduler, sticky.scheduler);
    assert_eq!(of(&service("web"))[0].affinity_seconds, 0);
}

#[test]
fn at_one_address_the_lower_kind_counts() {
    let twice = Service {
        external_ips: vec![
            ip("10.96.0.1"),
            ip("198.51.100.1"),
            ip("192.0.2.1"),
            ip("192.0.2.1"),
        ],
        balancer_ips: vec![ip("198.51.100.1")],
        ..service("web")
    };
    assert_eq!(
        frontends(&of(&twice)),
        [
            "ClusterIP 10.96.0.1:80",
            "LoadBalancer 198.51.100.1:80",
            "ExternalIP 192.0.2.1:80"
        ]
    );
}

#[test]
fn an_ipv4_mapped_address_is_the_ipv4_address() {
    let mapped = Service {
        external_ips: vec![ip("::ffff:192.0.2.1")],
        ..service("web")
    };
    let expected = ["ClusterIP 10.96.0.1:80", "ExternalIP 192.0.2.1:80"];
    assert_eq!(frontends(&of(&mapped)), expected);
}

#[test]
fn the_unspecified_address_is_never_taken_for_an_address() {
    let odd = Service {
        external_ips: vec![ip("0.0.0.0")],
        balancer_ips: vec![ip("::")],
        cluster_ips: vec![ip("10.96.0.1"), ip("fd00:96::1")],
        ..service("web")
    };
    assert_eq!(
        frontends(&of(&odd)),
        ["ClusterIP 10.96.0.1:80", "ClusterIP [fd00:96::1]:80"]
    );
}

#[test]
fn two_ports_of_one_name_and_protocol_are_reported_and_the_first_is_served() {
    let mut twice = service("web");
    twice.ports = vec![service_port("a", Tcp, 80), service_port("a", Tcp, 81)];
    assert_eq!(
        warnings(&twice),
        ["Service default/web: spec.ports: two TCP ports are named \"a\"; port 81 is skipped"]
    );
    let services = build(&twice, &[], &node_in("")).services;
    assert_eq!(frontends(&services), ["ClusterIP 10.96.0.1:80"]);
}

#[test]
fn two_ports_of_one_number_are_reported_and_the_first_has_the_address() {
    let mut twice = service("web");
    twice.ports = vec![service_port("a", Tcp, 80), service_port("b", Tcp, 80)];
    twice.ports[1].node_port = 30081;
    assert_eq!(
        warnings(&twice),
        [
            "Service default/web: spec.ports: port \"b\" asks for ClusterIP 80 TCP as an earlier \
          port does; the earlier one has it"
        ]
    );
    let services = build(&twice, &[], &node_in("")).services;
    assert_eq!(
        frontends(&services),
        ["ClusterIP 10.96.0.1:80", "NodePort 0.0.0.0:30081"]
    );
}

#[test]
fn ports_without_a_number_are_not_served() {
    let mut odd = service("web");
    odd.ports = vec![
        service_port("a", Tcp, 0),
        service_port("b", Protocol::Any, 1),
    ];
    assert_eq!(of(&odd), []);
}

#[test]
fn a_warning_about_a_slice_is_given_once_however_many_ports_there_are() {
    let mut many = service("web");
    many.ports = vec![service_port("a", Tcp, 80), service_port("b", Tcp, 81)];
    let ports = ["a", "b"].map(|name| crate::model::fixture::slice_port(name, Tcp, 8080));
    let slices = [slice("web-1", "web", &[endpoint("2001:db8::1")]).with_ports(&ports)];
    assert_eq!(build(&many, &slices, &node_in("")).warnings.len(), 1);
}

#[test]
fn the_api_server_without_endpoints_keeps_its_last_ones_and_says_so() {
    let report =
        |endpoints: &[Endpoint]| Change::Slice(slice("kubernetes", "kubernetes", endpoints));
    let mut store = Store::new(node_in(""));
    store.apply(Change::Service(service("kubernetes")));
    store.apply(report(&[endpoint("192.0.2.1")]));
    let before = desired(&store, &name("kubernetes"));
    assert_eq!(before.warnings, []);
    for change in [report(&[]), Change::SliceGone(slice_name("kubernetes"))] {
        store.apply(change);
        let after = desired(&store, &name("kubernetes"));
        assert_eq!(after.services, before.services);
        assert_eq!(
            after.warnings[0].to_string(),
            "Service default/kubernetes: no usable IPv4 endpoint is left; the last good ones are \
             kept, since without them nothing could reach the API server to mend it"
        );
    }
}
