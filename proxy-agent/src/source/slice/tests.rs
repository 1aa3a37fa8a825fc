//! EndpointSlices as the API server sends them, good and bad, and what is made of them.

use serde_json::{Value, json};

use super::*;
use crate::{
    model::PodId,
    source::{Event, decoder::Origin},
};

fn decode_as(origin: Origin, value: Value) -> (Decoded<EndpointSlice, SliceName>, Vec<Event>) {
    let slim: SlimSlice = serde_json::from_value(value).expect("never fails");
    let mut decoder = Decoder::new(origin, true);
    let decoded = decode(&mut decoder, &slim, None);
    (decoded, decoder.events)
}

/// Decodes a slice that must be served, and without a warning.
fn served(value: Value) -> EndpointSlice {
    match decode_as(Origin::Server, value) {
        (Decoded::Serve(slice), events) if events.is_empty() => slice,
        other => panic!("{other:?}"),
    }
}

fn slice(endpoints: Value) -> Value {
    json!({
        "metadata": {"name": "web-1", "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

#[test]
fn a_slice_belongs_to_the_service_that_its_label_names_w6() {
    let slice = served(slice(json!([])));
    assert_eq!(slice.service, ServiceName::new("shop", "web"));
    assert_eq!(slice.name, SliceName::new("shop", "web-1"));
}

#[test]
fn a_slice_of_a_headless_service_is_left_whatever_the_labels_value_w2() {
    for value in [json!(""), json!("true"), json!(1)] {
        let mut slice = slice(json!([]));
        slice["metadata"]["labels"]["service.kubernetes.io/headless"] = value;
        let (decoded, events) = decode_as(Origin::Server, slice);
        assert_eq!(decoded, Decoded::Leave(SliceName::new("shop", "web-1")));
        assert_eq!(events, []);
    }
}

#[test]
fn the_address_type_tells_the_family_w7() {
    let mut v6 = slice(json!([{"addresses": ["fd00::1"]}]));
    v6["addressType"] = "IPv6".into();
    assert_eq!(served(v6).family, Family::V6);
    assert_eq!(served(slice(json!([]))).family, Family::V4);
}

#[test]
fn only_the_first_address_of_an_endpoint_counts_w8() {
    let slice = served(slice(json!([{"addresses": ["10.1.0.1", "10.1.0.2", 5]}])));
    assert_eq!(slice.endpoints.len(), 1);
    assert_eq!(slice.endpoints[0].addr.to_string(), "10.1.0.1");
}

#[test]
fn a_port_without_number_serves_nothing_and_crashes_nothing_w9_t40() {
    let mut slice = slice(json!([{"addresses": ["10.1.0.1"]}]));
    slice["ports"] = json!([{"name": "http", "port": null, "protocol": "TCP"}]);
    let (decoded, events) = decode_as(Origin::Server, slice);
    let Decoded::Serve(slice) = decoded else {
        panic!("{decoded:?}");
    };
    assert_eq!(slice.ports, []);
    assert_eq!(events.len(), 1);
}

#[test]
fn an_unnamed_port_matches_an_unnamed_service_port_w9_w10() {
    let slice = served(slice(json!([])));
    assert_eq!(&*slice.ports[0].name, "");
    assert_eq!(slice.ports[0].port, 8080);
}

#[test]
fn a_manifest_may_leave_out_what_the_api_server_fills_in_w9() {
    let mut slice = slice(json!([]));
    slice["metadata"]["namespace"] = json!(null);
    slice["ports"] = json!([{"port": 8080}]);
    let (decoded, events) = decode_as(Origin::Manifest, slice);
    let Decoded::Serve(slice) = decoded else {
        panic!("{decoded:?}");
    };
    assert_eq!(events, []);
    assert_eq!(slice.name, SliceName::new("default", "web-1"));
    assert_eq!(
        (&*slice.ports[0].name, slice.ports[0].protocol.name()),
        ("", "TCP")
    );
}

#[test]
fn several_ports_are_kept_in_order_t33() {
    let mut slice = slice(json!([{"addresses": ["10.1.0.1"]}, {"addresses": ["10.1.0.2"]}]));
    slice["ports"] = json!([
        {"name": "p80", "port": 80, "protocol": "TCP"},
        {"name": "p443", "port": 443, "protocol": "TCP"},
        {"name": "p80", "port": 80, "protocol": "UDP"},
    ]);
    let slice = served(slice);
    let ports: Vec<_> = slice.ports.iter().map(|p| (&*p.name, p.port)).collect();
    assert_eq!(ports, [("p80", 80), ("p443", 443), ("p80", 80)]);
    assert_eq!(slice.endpoints.len(), 2);
}

#[test]
fn conditions_that_are_nil_are_ready_serving_and_not_terminating_w11() {
    let conditions = |value: Value| {
        let slice = served(slice(
            json!([{"addresses": ["10.1.0.1"], "conditions": value}]),
        ));
        let endpoint = &slice.endpoints[0];
        (endpoint.ready, endpoint.serving, endpoint.terminating)
    };
    assert_eq!(conditions(json!(null)), (true, true, false));
    assert_eq!(conditions(json!({})), (true, true, false));
    assert_eq!(conditions(json!({"ready": null})), (true, true, false));
    assert_eq!(conditions(json!({"ready": false})), (false, true, false));
    let all = json!({"ready": false, "serving": false, "terminating": true});
    assert_eq!(conditions(all), (false, false, true));
}

#[test]
fn a_node_name_must_not_be_empty_to_count_w12() {
    let slice = served(slice(json!([
        {"addresses": ["10.1.0.1"], "nodeName": "n1"},
        {"addresses": ["10.1.0.2"], "nodeName": ""},
        {"addresses": ["10.1.0.3"]},
    ])));
    let nodes: Vec<Option<&str>> = slice.endpoints.iter().map(|e| e.node.as_deref()).collect();
    assert_eq!(nodes, [Some("n1"), None, None]);
}

#[test]
fn a_terminating_twin_of_an_address_is_no_fault_w13_t42() {
    let terminating = json!({"addresses": ["10.1.0.1"],
        "conditions": {"ready": false, "serving": true, "terminating": true}});
    let running = json!({"addresses": ["10.1.0.1"]});
    let slice_a = served(slice(json!([terminating, running])));
    let slice_b = served(slice(json!([running, terminating])));
    assert_eq!((slice_a.endpoints.len(), slice_b.endpoints.len()), (2, 2));
}

#[test]
fn hints_are_kept_and_empty_ones_are_none() {
    let slice = served(slice(json!([
        {"addresses": ["10.1.0.1"], "hints": {"forZones": [{"name": "a"}, {"name": "b"}]}},
        {"addresses": ["10.1.0.2"], "hints": {"forNodes": [{"name": "n1"}]}},
        {"addresses": ["10.1.0.3"], "hints": {"forZones": [], "forNodes": []}},
        {"addresses": ["10.1.0.4"], "hints": {}},
        {"addresses": ["10.1.0.5"]},
    ])));
    let hints = |i: usize| slice.endpoints[i].hints.as_deref();
    assert_eq!(hints(0).map(|h| h.zones.len()), Some(2));
    assert_eq!(hints(1).map(|h| h.nodes.len()), Some(1));
    assert_eq!((hints(2), hints(3), hints(4)), (None, None, None));
}

#[test]
fn the_pod_behind_an_endpoint_is_known_by_uid_else_by_name() {
    let slice = served(slice(json!([
        {"addresses": ["10.1.0.1"], "targetRef": {"name": "web-1", "uid": "u-1"}},
        {"addresses": ["10.1.0.2"], "targetRef": {"name": "web-2"}},
        {"addresses": ["10.1.0.3"], "targetRef": {"uid": ""}},
        {"addresses": ["10.1.0.4"]},
    ])));
    let pods: Vec<PodId> = slice.endpoints.iter().map(|e| e.pod).collect();
    let expected = [
        PodId::of("u-1"),
        PodId::of("web-2"),
        PodId::UNKNOWN,
        PodId::UNKNOWN,
    ];
    assert_eq!(pods, expected);
}

#[test]
fn the_trigger_time_is_kept_in_nanoseconds_t57() {
    let time = |text: &str| {
        let mut slice = slice(json!([]));
        let annotations = json!({"endpoints.kubernetes.io/last-change-trigger-time": text});
        slice["metadata"]["annotations"] = annotations;
        served(slice).trigger_time
    };
    assert_eq!(time("1970-01-01T00:00:01.5Z"), 1_500_000_000);
    assert_eq!(time("2026-01-01T01:00:00+01:00"), 1_767_225_600_000_000_000);
    assert_eq!(served(slice(json!([]))).trigger_time, 0);
}

#[test]
fn equal_names_in_one_list_share_their_memory() {
    let slice = served(slice(json!([
        {"addresses": ["10.1.0.1"], "nodeName": "n1"},
        {"addresses": ["10.1.0.2"], "nodeName": "n1"},
    ])));
    let node = |i: usize| slice.endpoints[i].node.clone().expect("a node");
    assert!(std::sync::Arc::ptr_eq(&node(0), &node(1)));
}
