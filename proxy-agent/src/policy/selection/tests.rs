//! T1 to T32: the cases of kube-proxy's pkg/proxy/topology_test.go, by their numbers in the
//! acceptance list. This node is "n1"; endpoints go by the last number of their address. What
//! kube-proxy calls reachable is the union of the sets, which flags on one list cannot miss.

use super::*;
use crate::model::Endpoint;
use crate::model::fixture::{endpoint, node_in, service, slice};

/// Who is in the sets of policy Cluster and Local, and whether there is anybody at all.
fn sets(service: &Service, zone: &str, endpoints: &[Endpoint]) -> (Vec<u8>, Vec<u8>, bool) {
    let slices = [slice("web-1", "web", endpoints)];
    let mut warnings = Vec::new();
    let port = &service.ports[0];
    let node = node_in(zone);
    let selection = select(service, port, Family::V4, &slices, &node, &mut warnings);
    assert_eq!(warnings, []);
    let those = |member: fn(&Candidate) -> bool| {
        let members = selection.candidates.iter().filter(|c| member(c));
        members.map(|c| number(c.addr)).collect()
    };
    (those(|c| c.cluster), those(|c| c.local), selection.has_any)
}

fn number(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(v6) => v6.octets()[15],
    }
}

/// Sets of a Service that has one policy only for what this node does.
fn cluster_of(zone: &str, endpoints: &[Endpoint]) -> Vec<u8> {
    let (cluster, local, has_any) = sets(&service("web"), zone, endpoints);
    assert_eq!(local, [0u8; 0]);
    assert_eq!(has_any, !cluster.is_empty());
    cluster
}

fn check(service: &Service, zone: &str, all: &[Endpoint], cluster: &[u8], local: &[u8], any: bool) {
    let sets = sets(service, zone, all);
    assert_eq!(
        sets,
        (cluster.to_vec(), local.to_vec(), any),
        "cluster, local, has_any"
    );
}

fn ep(number: u8) -> Endpoint {
    endpoint(&format!("10.1.2.{number}"))
}

/// An endpoint hinted to one zone.
fn hinted(number: u8, zone: &str) -> Endpoint {
    ep(number).zones(&[zone])
}

fn here(number: u8) -> Endpoint {
    ep(number).on("n1")
}

fn elsewhere(number: u8) -> Endpoint {
    ep(number).on("n2")
}

/// Four endpoints hinted to a, b, c, a.
fn abca() -> Vec<Endpoint> {
    vec![
        hinted(1, "a"),
        hinted(2, "b"),
        hinted(3, "c"),
        hinted(4, "a"),
    ]
}

/// The same, of which those hinted to a and b first are on this node.
fn abca_with_two_here() -> Vec<Endpoint> {
    let mut endpoints = abca();
    endpoints[0] = hinted(1, "a").on("n1");
    endpoints[1] = hinted(2, "b").on("n1");
    endpoints
}

#[test]
fn t1_hints_leave_the_endpoints_of_this_zone() {
    assert_eq!(cluster_of("a", &abca()), [1, 4]);
}

#[test]
fn t2_external_policy_local_ignores_hints_for_the_local_set() {
    let service = service("web").with_node_ports().external_local();
    check(&service, "a", &abca_with_two_here(), &[1, 4], &[1, 2], true);
}

#[test]
fn t3_internal_policy_local_with_a_node_port_gives_the_same_sets() {
    let service = service("web").with_node_ports().internal_local();
    check(&service, "a", &abca_with_two_here(), &[1, 4], &[1, 2], true);
}

#[test]
fn t4_a_node_without_a_zone_ignores_hints() {
    assert_eq!(cluster_of("", &abca()), [1, 2, 3, 4]);
}

#[test]
fn t5_an_empty_zone_label_is_no_zone() {
    let slices = [slice("web-1", "web", &abca())];
    let service = service("web");
    let node = Node {
        zone: Some("".into()),
        ..node_in("a")
    };
    let port = &service.ports[0];
    let selection = select(&service, port, Family::V4, &slices, &node, &mut Vec::new());
    assert_eq!(selection.candidates.iter().filter(|c| c.cluster).count(), 4);
}

#[test]
fn t6_a_zone_that_no_hint_names_gets_all() {
    assert_eq!(cluster_of("d", &abca()), [1, 2, 3, 4]);
}

#[test]
fn t7_an_unready_endpoint_of_the_zone_is_left_out() {
    let mut endpoints = abca();
    endpoints[0] = hinted(1, "a").unready();
    assert_eq!(cluster_of("a", &endpoints), [4]);
}

#[test]
fn t8_a_zone_whose_endpoints_are_all_unready_gets_the_others() {
    let mut endpoints = abca();
    endpoints[0] = hinted(1, "a").unready();
    endpoints[3] = hinted(4, "a").unready();
    assert_eq!(cluster_of("a", &endpoints), [2, 3]);
}

#[test]
fn t9_one_endpoint_without_a_zone_hint_turns_zones_off() {
    let mut endpoints = abca();
    endpoints[3] = ep(4);
    assert_eq!(cluster_of("a", &endpoints), [1, 2, 3, 4]);
}

#[test]
fn t10_an_endpoint_serves_every_zone_that_it_lists() {
    let endpoints = [
        ep(1).zones(&["a", "b", "c"]),
        ep(2).zones(&["b", "c"]),
        ep(3).zones(&["b", "d"]),
        ep(4).zones(&["c"]),
    ];
    assert_eq!(cluster_of("c", &endpoints), [1, 2, 4]);
}

// T11 is about a feature gate that is locked on since Kubernetes 1.35.

#[test]
fn t12_a_hint_for_this_node_leaves_that_endpoint_alone() {
    let endpoints = [
        hinted(1, "a").nodes(&["n1"]),
        hinted(2, "b").nodes(&["n2"]),
        hinted(3, "a").nodes(&["n3"]),
    ];
    assert_eq!(cluster_of("a", &endpoints), [1]);
}

#[test]
fn t13_one_endpoint_without_a_node_hint_turns_nodes_off() {
    let endpoints = [ep(1).nodes(&["n1"]), ep(2).nodes(&["n2"]), ep(3)];
    assert_eq!(cluster_of("a", &endpoints), [1, 2, 3]);
}

#[test]
fn t14_node_hints_for_other_nodes_leave_the_zone() {
    let endpoints = [
        hinted(1, "a").nodes(&["n2"]),
        hinted(2, "b").nodes(&["n3"]),
        hinted(3, "a").nodes(&["n4"]),
    ];
    assert_eq!(cluster_of("a", &endpoints), [1, 3]);
}

#[test]
fn t15_hints_choose_the_cluster_set_and_locality_the_local_set() {
    let endpoints = [
        hinted(1, "b").on("n1"),
        hinted(2, "a").on("n2"),
        hinted(3, "a").on("n3"),
        hinted(4, "b").on("n4"),
    ];
    let service = service("web").with_node_ports().external_local();
    check(&service, "a", &endpoints, &[2, 3], &[1], true);
}

#[test]
fn t16_no_endpoints_are_no_endpoints_under_policy_local_too() {
    let service = service("web").internal_local();
    check(&service, "", &[], &[], &[], false);
}

#[test]
fn t17_internal_policy_local_with_endpoints_elsewhere_only_is_empty_but_not_nothing() {
    let service = service("web").internal_local();
    check(&service, "", &[elsewhere(1), elsewhere(2)], &[], &[], true);
}

#[test]
fn t18_internal_policy_local_with_all_endpoints_here_has_them_all() {
    let service = service("web").internal_local();
    check(&service, "", &[here(1), here(2)], &[], &[1, 2], true);
}

#[test]
fn t19_internal_policy_local_with_some_endpoints_here_has_those() {
    let service = service("web").internal_local();
    check(&service, "", &[here(1), elsewhere(2)], &[], &[1], true);
}

#[test]
fn t20_unready_endpoints_are_none() {
    assert_eq!(
        cluster_of("", &[ep(1).unready(), ep(2).unready()]),
        [0u8; 0]
    );
}

#[test]
fn t21_only_ready_endpoints_count() {
    assert_eq!(cluster_of("", &[ep(1), ep(2).unready()]), [1]);
}

#[test]
fn t22_terminating_endpoints_that_serve_are_the_last_resort() {
    assert_eq!(
        cluster_of("", &[ep(1).terminating(), ep(2).terminating()]),
        [1, 2]
    );
}

#[test]
fn t23_internal_local_and_external_cluster_use_a_set_each() {
    let service = service("web").with_node_ports().internal_local();
    check(&service, "", &[here(1), elsewhere(2)], &[1, 2], &[1], true);
}

#[test]
fn t24_internal_cluster_and_external_local_use_a_set_each() {
    let service = service("web").with_node_ports().external_local();
    check(&service, "", &[here(1), elsewhere(2)], &[1, 2], &[1], true);
}

#[test]
fn t25_both_policies_local_still_need_the_cluster_set_for_the_short_circuit() {
    let service = service("web")
        .with_node_ports()
        .internal_local()
        .external_local();
    check(&service, "", &[here(1), elsewhere(2)], &[1, 2], &[1], true);
}

#[test]
fn t26_both_policies_local_and_all_elsewhere_leave_the_local_set_empty() {
    let service = service("web")
        .with_node_ports()
        .internal_local()
        .external_local();
    check(
        &service,
        "",
        &[elsewhere(1), elsewhere(2)],
        &[1, 2],
        &[],
        true,
    );
}

#[test]
fn t27_terminating_endpoints_elsewhere_count_as_existing() {
    let service = service("web")
        .with_node_ports()
        .internal_local()
        .external_local();
    let endpoints = [elsewhere(1).terminating(), elsewhere(2).terminating()];
    check(&service, "", &endpoints, &[1, 2], &[], true);
}

#[test]
fn t28_each_set_falls_back_on_its_own() {
    let service = service("web").with_node_ports().external_local();
    let endpoints = [
        elsewhere(1),
        here(2).unready(),
        here(3).terminating(),
        elsewhere(4).terminating(),
    ];
    check(&service, "", &endpoints, &[1], &[3], true);
}

#[test]
fn t29_external_policy_of_a_service_that_nobody_outside_reaches_is_ignored() {
    let service = service("web").external_local();
    check(&service, "", &[here(1), elsewhere(2)], &[1, 2], &[], true);
}

#[test]
fn t30_internal_policy_local_alone_needs_no_cluster_set() {
    let service = service("web").internal_local();
    check(
        &service,
        "",
        &[here(1), elsewhere(2), here(3)],
        &[],
        &[1, 3],
        true,
    );
}

#[test]
fn t31_no_slices_give_an_empty_selection() {
    let service = service("web");
    let (port, node) = (&service.ports[0], node_in(""));
    let selection = select(&service, port, Family::V4, &[], &node, &mut Vec::new());
    assert_eq!(selection, Selection::default());
}

#[test]
fn t32_an_endpoint_neither_ready_serving_nor_terminating_is_nobody() {
    check(&service("web"), "", &[ep(1).unready()], &[], &[], false);
}

#[test]
fn a_terminating_endpoint_that_does_not_serve_is_never_used() {
    let gone = Endpoint {
        serving: false,
        ..here(1).terminating()
    };
    let service = service("web").with_node_ports().external_local();
    check(&service, "", &[gone], &[], &[], false);
}

#[test]
fn the_last_resort_ignores_topology() {
    let endpoints = [hinted(1, "a").terminating(), hinted(2, "b").terminating()];
    assert_eq!(cluster_of("a", &endpoints), [1, 2]);
}

#[test]
fn the_last_resort_of_this_zone_gives_way_to_ready_endpoints_of_others() {
    let endpoints = [hinted(1, "a").terminating(), hinted(2, "b")];
    assert_eq!(cluster_of("a", &endpoints), [2]);
}

#[test]
fn external_addresses_of_the_other_family_do_not_open_a_service() {
    let mut service = service("web").internal_local();
    service.external_ips = vec![crate::model::fixture::ip("2001:db8::1")];
    check(&service, "", &[here(1), elsewhere(2)], &[], &[1], true);
}

#[test]
fn serving_endpoints_outside_the_sets_stay_candidates_so_that_they_can_drain() {
    let service = service("web");
    let slices = [slice(
        "web-1",
        "web",
        &[ep(1), ep(2).terminating(), ep(3).unready()],
    )];
    let (port, node) = (&service.ports[0], node_in(""));
    let selection = select(&service, port, Family::V4, &slices, &node, &mut Vec::new());
    let seen: Vec<_> = selection
        .candidates
        .iter()
        .map(|c| (number(c.addr), c.cluster))
        .collect();
    assert_eq!(seen, [(1, true), (2, false)]);
}

#[test]
fn a_ready_endpoint_counts_even_if_it_says_that_it_does_not_serve() {
    let odd = Endpoint {
        serving: false,
        ..ep(1)
    };
    assert_eq!(cluster_of("", &[odd]), [1]);
}
