//! T33 to T42: the cases of kube-proxy's pkg/proxy/endpointslicecache_test.go that are about one
//! list out of many slices, and what is settled here beyond it.

use proptest::prelude::*;
use proxy_common::Protocol::{Tcp, Udp};

use super::*;
use crate::model::fixture::{
    endpoint, ip, node_in, service_port, slice, slice_port as slice_port_of,
};
use crate::model::{Change, SlicePort, Store};

fn slice_port(name: &str, port: u16) -> SlicePort {
    slice_port_of(name, Tcp, port)
}

/// The merged list of a TCP port, as address:port.
fn list(name: &str, slices: &[EndpointSlice]) -> Vec<String> {
    merged(name, slices).iter().map(text).collect()
}

fn merged<'a>(name: &str, slices: &'a [EndpointSlice]) -> Vec<Merged<'a>> {
    let mut warnings = Vec::new();
    let port = service_port(name, Tcp, 1);
    let list = merge(&port, Family::V4, slices, &node_in(""), &mut warnings);
    assert_eq!(warnings, []);
    list
}

fn text(e: &Merged<'_>) -> String {
    format!("{}:{}", e.addr, e.port)
}

/// Endpoints 10.0.`net`.1 to `count`.
fn endpoints(net: u8, count: u8) -> Vec<Endpoint> {
    (1..=count)
        .map(|i| endpoint(&format!("10.0.{net}.{i}")))
        .collect()
}

/// What a Service has after its slices were reported in turn.
fn after(reports: &[EndpointSlice]) -> Store {
    let mut store = Store::new(node_in(""));
    for report in reports {
        store.apply(Change::Slice(report.clone()));
    }
    store
}

#[test]
fn t33_every_endpoint_serves_every_port_and_is_local_by_its_node() {
    let endpoints = [
        endpoint("10.0.1.1").on("n1"),
        endpoint("10.0.1.2").on("n2"),
        endpoint("10.0.1.3").on("n1"),
    ];
    let slices = [slice("web-1", "web", &endpoints)
        .with_ports(&[slice_port("http", 80), slice_port("https", 443)])];
    assert_eq!(
        list("http", &slices),
        ["10.0.1.1:80", "10.0.1.2:80", "10.0.1.3:80"]
    );
    assert_eq!(
        list("https", &slices),
        ["10.0.1.1:443", "10.0.1.2:443", "10.0.1.3:443"]
    );
    let local: Vec<_> = merged("http", &slices).iter().map(|e| e.on_node).collect();
    assert_eq!(local, [true, false, true]);
}

#[test]
fn t33_an_endpoint_without_a_node_is_local_nowhere() {
    let slices = [slice(
        "web-1",
        "web",
        &[endpoint("10.0.1.1"), endpoint("10.0.1.2").on("")],
    )];
    let nameless = Node {
        name: "".into(),
        zone: None,
    };
    let port = service_port("", Tcp, 1);
    let list = merge(&port, Family::V4, &slices, &nameless, &mut Vec::new());
    assert!(list.iter().all(|e| !e.on_node), "{list:?}");
}

#[test]
fn t34_slices_of_one_port_are_one_list() {
    let slices = [
        slice("web-1", "web", &endpoints(1, 3)),
        slice("web-2", "web", &endpoints(2, 3)),
    ];
    assert_eq!(
        list("", &slices),
        [
            "10.0.1.1:80",
            "10.0.1.2:80",
            "10.0.1.3:80",
            "10.0.2.1:80",
            "10.0.2.2:80",
            "10.0.2.3:80"
        ]
    );
}

#[test]
fn t35_a_slice_that_comes_again_is_replaced() {
    let store = after(&[
        slice("web-1", "web", &endpoints(1, 3)),
        slice("web-1", "web", &endpoints(1, 4)),
    ]);
    let slices = store.slices(&crate::model::fixture::name("web"));
    assert_eq!(
        list("", slices),
        ["10.0.1.1:80", "10.0.1.2:80", "10.0.1.3:80", "10.0.1.4:80"]
    );
}

/// Ten endpoints, of which every `unready`th is not ready and every `terminating`th terminates.
fn ten(unready: u8, terminating: u8) -> EndpointSlice {
    let is_every = |i: u8, n: u8| n != 0 && i.is_multiple_of(n);
    let mut endpoints = endpoints(1, 10);
    for (e, i) in endpoints.iter_mut().zip(1..) {
        if is_every(i, terminating) {
            *e = e.clone().terminating();
        }
        if is_every(i, unready) {
            *e = e.clone().unready();
        }
    }
    slice("web-1", "web", &endpoints)
}

/// Last numbers of the endpoints for which something holds.
fn those(slices: &[EndpointSlice], holds: fn(&Endpoint) -> bool) -> Vec<u8> {
    let list = merged("", slices);
    assert_eq!(list.len(), 10, "unready endpoints are still listed");
    list.iter()
        .zip(1..)
        .filter(|(e, _)| holds(e.endpoint))
        .map(|(_, i)| i)
        .collect()
}

#[test]
fn t36_readiness_follows_the_last_report() {
    let store = after(&[ten(3, 0), ten(6, 0)]);
    let slices = store.slices(&crate::model::fixture::name("web"));
    assert_eq!(those(slices, |e| !e.ready), [6]);
}

#[test]
fn t37_termination_follows_the_last_report() {
    let store = after(&[ten(3, 5), ten(6, 5)]);
    let slices = store.slices(&crate::model::fixture::name("web"));
    assert_eq!(those(slices, |e| e.terminating && e.serving), [5, 10]);
    assert_eq!(those(slices, |e| !e.ready && !e.terminating), [6]);
}

#[test]
fn t38_unready_endpoints_are_still_listed() {
    let store = after(&[ten(1, 0), ten(1, 0)]);
    let slices = store.slices(&crate::model::fixture::name("web"));
    assert_eq!(those(slices, |e| e.ready), [0u8; 0]);
}

#[test]
fn t39_slices_of_other_services_and_namespaces_stay_out() {
    let store = after(&[
        slice("one/web-1", "web", &endpoints(1, 1)),
        slice("one/api-1", "api", &endpoints(2, 1)),
        slice("two/web-1", "web", &endpoints(3, 1)),
    ]);
    let slices = store.slices(&crate::model::fixture::name("one/web"));
    assert_eq!(list("", slices), ["10.0.1.1:80"]);
}

#[test]
fn t40_a_port_without_a_number_gives_nothing() {
    let slices = [slice("web-1", "web", &endpoints(1, 3)).with_ports(&[slice_port("", 0)])];
    assert_eq!(list("", &slices), [""; 0]);
}

#[test]
fn t41_one_address_at_two_ports_is_two_endpoints() {
    let slices = [
        slice("web-1", "web", &endpoints(1, 2)),
        slice("web-2", "web", &endpoints(1, 2)).with_ports(&[slice_port("", 8080)]),
    ];
    assert_eq!(
        list("", &slices),
        [
            "10.0.1.1:80",
            "10.0.1.1:8080",
            "10.0.1.2:80",
            "10.0.1.2:8080"
        ]
    );
}

#[test]
fn t42_of_two_pods_at_one_address_the_one_that_is_not_terminating_counts() {
    let old = slice(
        "web-1",
        "web",
        &[endpoint("10.0.1.1").pod("old").terminating()],
    );
    let new = slice("web-2", "web", &[endpoint("10.0.1.1").pod("new")]);
    for slices in [[old.clone(), new.clone()], [new.clone(), old.clone()]] {
        let list = merged("", &slices);
        assert_eq!(list.len(), 1);
        assert!(!list[0].endpoint.terminating);
    }
    // Not even a later report of the terminating one changes that.
    let slices = [old.triggered_at(9), new.triggered_at(1)];
    assert!(!merged("", &slices)[0].endpoint.terminating);
}

#[test]
fn one_pod_in_two_slices_is_as_the_later_trigger_time_says() {
    let stale = slice("web-2", "web", &[endpoint("10.0.1.1").pod("a")]).triggered_at(1);
    let fresh = slice(
        "web-1",
        "web",
        &[endpoint("10.0.1.1").pod("a").terminating()],
    );
    let slices = [stale, fresh.triggered_at(2)];
    assert!(merged("", &slices)[0].endpoint.terminating);
}

#[test]
fn a_stale_view_of_a_pod_does_not_beat_another_pod() {
    let slices = [
        slice("web-1", "web", &[endpoint("10.0.1.1").pod("a")]).triggered_at(1),
        slice(
            "web-2",
            "web",
            &[endpoint("10.0.1.1").pod("a").terminating()],
        )
        .triggered_at(3),
        slice("web-3", "web", &[endpoint("10.0.1.1").pod("b").on("n1")]).triggered_at(2),
    ];
    let list = merged("", &slices);
    assert_eq!(list[0].endpoint.pod, PodId::of("b"));
}

#[test]
fn two_live_pods_at_one_address_are_reported_and_the_ready_one_counts() {
    let slices = [
        slice("web-1", "web", &[endpoint("10.0.1.1").pod("a").unready()]).triggered_at(2),
        slice("web-2", "web", &[endpoint("10.0.1.1").pod("b")]).triggered_at(1),
    ];
    let mut warnings = Vec::new();
    let port = service_port("", Tcp, 1);
    let list = merge(&port, Family::V4, &slices, &node_in(""), &mut warnings);
    assert!(list[0].endpoint.ready);
    assert_eq!(
        warnings.iter().map(Warning::to_string).collect::<Vec<_>>(),
        [
            "EndpointSlice default/web-1: endpoints: 10.0.1.1 port 80 is also in default/web-2 \
             and is no copy of it; a ready one counts before an unready one, a later one before \
             an older one"
        ]
    );
}

#[test]
fn copies_of_an_endpoint_are_no_conflict() {
    let slices = [
        slice("web-1", "web", &endpoints(1, 1)),
        slice("web-2", "web", &endpoints(1, 1)),
    ];
    assert_eq!(list("", &slices), ["10.0.1.1:80"]);
}

#[test]
fn ports_match_by_name_and_protocol() {
    let udp = slice("web-1", "web", &endpoints(1, 1)).with_ports(&[slice_port_of("dns", Udp, 53)]);
    let tcp = slice("web-2", "web", &endpoints(2, 1)).with_ports(&[slice_port("dns", 5353)]);
    let slices = [udp, tcp];
    assert_eq!(list("dns", &slices), ["10.0.2.1:5353"]);
    assert_eq!(list("", &slices), [""; 0]);
}

#[test]
fn an_address_of_another_family_than_its_slice_is_reported_and_skipped() {
    let endpoints = [
        endpoint("10.0.1.1"),
        endpoint("2001:db8::1"),
        endpoint("::ffff:10.0.1.2"),
    ];
    let slices = [slice("web-1", "web", &endpoints)];
    let mut warnings = Vec::new();
    let port = service_port("", Tcp, 1);
    let list = merge(&port, Family::V4, &slices, &node_in(""), &mut warnings);
    let addrs: Vec<_> = list.iter().map(|e| e.addr).collect();
    assert_eq!(addrs, [ip("10.0.1.1"), ip("10.0.1.2")]);
    assert_eq!(
        warnings[0].to_string(),
        "EndpointSlice default/web-1: endpoints: 2001:db8::1 is no IPv4 address, which \
         addressType promises; the endpoint is skipped"
    );
}

#[test]
fn addresses_sort_by_number() {
    let slices = [slice(
        "web-1",
        "web",
        &[endpoint("10.0.1.10"), endpoint("10.0.1.9")],
    )];
    assert_eq!(list("", &slices), ["10.0.1.9:80", "10.0.1.10:80"]);
}

/// One of few endpoints at one of few addresses, so that they collide.
fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    (0..2u8, 0..3u8, 0..2u8, any::<[bool; 3]>()).prop_map(
        |(addr, pod, node, [ready, serving, terminating])| Endpoint {
            pod: [PodId::UNKNOWN, PodId::of("a"), PodId::of("b")][usize::from(pod)],
            ready,
            serving,
            terminating,
            ..endpoint(&format!("10.0.1.{addr}")).on(&format!("n{node}"))
        },
    )
}

fn any_slices() -> impl Strategy<Value = Vec<EndpointSlice>> {
    let any_slice = (prop::collection::vec(any_endpoint(), 0..4), 0..3i64);
    prop::collection::vec(any_slice, 0..5).prop_map(|slices| {
        let numbered = slices.iter().enumerate();
        numbered
            .map(|(i, (e, time))| slice(&format!("web-{i}"), "web", e).triggered_at(*time))
            .collect()
    })
}

proptest! {
    #[test]
    fn the_order_of_slices_does_not_matter(
        (slices, shuffled) in any_slices()
            .prop_flat_map(|slices| (Just(slices.clone()), Just(slices).prop_shuffle()))
    ) {
        let port = service_port("", Tcp, 1);
        let node = node_in("");
        let outcome = |slices: &[EndpointSlice]| {
            merge(&port, Family::V4, slices, &node, &mut Vec::new())
                .iter()
                .map(|e| (e.addr, e.port, e.on_node, e.slice.name.clone(), e.endpoint.clone()))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(outcome(&slices), outcome(&shuffled));
    }
}
