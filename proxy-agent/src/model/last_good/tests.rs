//! The memory of `default/kubernetes`.

use crate::model::fixture::{endpoint, ip, name, node_in, service, slice, slice_name};
use crate::model::{Change, Endpoint, EndpointSlice, Family, ServiceName, Store};

fn kubernetes() -> ServiceName {
    name("default/kubernetes")
}

fn store_with(endpoints: &[Endpoint]) -> Store {
    let mut store = Store::new(node_in(""));
    store.apply(Change::Service(service("default/kubernetes")));
    store.apply(Change::Slice(slice("kubernetes", "kubernetes", endpoints)));
    store
}

fn addresses(store: &Store, service: &ServiceName) -> Vec<String> {
    let endpoints = store.slices(service).iter().flat_map(|s| &s.endpoints);
    endpoints.map(|e| e.addr.to_string()).collect()
}

#[test]
fn the_api_server_keeps_its_last_backends_when_its_slice_becomes_empty() {
    let mut store = store_with(&[endpoint("192.0.2.1")]);
    store.apply(Change::Slice(slice("kubernetes", "kubernetes", &[])));
    assert_eq!(addresses(&store, &kubernetes()), ["192.0.2.1"]);
    assert_eq!(store.keeps_last_good(&kubernetes()), [Family::V4]);
}

#[test]
fn it_keeps_them_when_its_slice_is_deleted_or_missing_from_a_full_list() {
    let gone = Change::SliceGone(slice_name("kubernetes"));
    for change in [gone, Change::Slices(Vec::new())] {
        let mut store = store_with(&[endpoint("192.0.2.1")]);
        store.apply(change);
        assert_eq!(addresses(&store, &kubernetes()), ["192.0.2.1"]);
    }
}

#[test]
fn it_keeps_them_when_all_become_unready() {
    let mut store = store_with(&[endpoint("192.0.2.1")]);
    let unready = [endpoint("192.0.2.1").unready()];
    store.apply(Change::Slice(slice("kubernetes", "kubernetes", &unready)));
    assert!(store.slices(&kubernetes())[0].endpoints[0].ready);
}

#[test]
fn new_backends_replace_the_kept_ones() {
    let mut store = store_with(&[endpoint("192.0.2.1")]);
    store.apply(Change::SliceGone(slice_name("kubernetes")));
    let new = [endpoint("192.0.2.2")];
    store.apply(Change::Slice(slice("kubernetes", "kubernetes", &new)));
    assert_eq!(addresses(&store, &kubernetes()), ["192.0.2.2"]);
    assert_eq!(store.keeps_last_good(&kubernetes()), []);
}

#[test]
fn one_backend_of_several_goes_at_once() {
    let mut store = store_with(&[endpoint("192.0.2.1"), endpoint("192.0.2.2")]);
    let rest = [endpoint("192.0.2.2")];
    store.apply(Change::Slice(slice("kubernetes", "kubernetes", &rest)));
    assert_eq!(addresses(&store, &kubernetes()), ["192.0.2.2"]);
}

#[test]
fn a_terminating_backend_that_serves_is_usable_and_not_replaced() {
    let mut store = store_with(&[endpoint("192.0.2.1")]);
    let last = [endpoint("192.0.2.2").terminating()];
    store.apply(Change::Slice(slice("kubernetes", "kubernetes", &last)));
    assert_eq!(addresses(&store, &kubernetes()), ["192.0.2.2"]);
}

#[test]
fn each_family_is_kept_on_its_own() {
    let v6 = |endpoints: &[Endpoint]| -> EndpointSlice {
        slice("kubernetes-v6", "kubernetes", endpoints).of(Family::V6)
    };
    let mut store = store_with(&[endpoint("192.0.2.1")]);
    store.apply(Change::Slice(v6(&[endpoint("2001:db8::1")])));
    store.apply(Change::Slice(v6(&[])));
    let new = [endpoint("192.0.2.2")];
    store.apply(Change::Slice(slice("kubernetes", "kubernetes", &new)));
    assert_eq!(
        addresses(&store, &kubernetes()),
        ["192.0.2.2", "2001:db8::1"]
    );
    assert_eq!(
        store.slices(&kubernetes())[1].endpoints[0].addr,
        ip("2001:db8::1")
    );
    assert_eq!(store.keeps_last_good(&kubernetes()), [Family::V6]);
}

#[test]
fn no_other_service_keeps_anything() {
    for other in ["kubernetes", "web"] {
        let namespace = if other == "web" {
            "default"
        } else {
            "kube-system"
        };
        let of = |endpoints: &[Endpoint]| {
            Change::Slice(slice(&format!("{namespace}/{other}-1"), other, endpoints))
        };
        let mut store = Store::new(node_in(""));
        store.apply(of(&[endpoint("192.0.2.1")]));
        store.apply(of(&[]));
        let service = ServiceName::new(namespace, other);
        assert_eq!(addresses(&store, &service), [""; 0]);
        assert_eq!(store.keeps_last_good(&service), []);
    }
}

#[test]
fn a_cluster_that_never_had_an_api_endpoint_keeps_none() {
    let store = store_with(&[]);
    assert_eq!(addresses(&store, &kubernetes()), [""; 0]);
    assert_eq!(store.keeps_last_good(&kubernetes()), []);
}
