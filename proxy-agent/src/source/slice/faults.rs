//! Every fault that an EndpointSlice can have, a row each.

use serde_json::{Value, json};

use super::SliceBody;
use crate::{
    model::{EndpointSlice, Family},
    source::{
        decoder::{Decoded, Decoder, Origin},
        fault::{Row, Then, check},
        object::Object,
        slim::Slim,
    },
};

fn slice() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "web-x1", "namespace": "shop", "resourceVersion": "6",
            "labels": {"kubernetes.io/service-name": "web"},
            "annotations":
                {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05.5Z"},
        },
        "addressType": "IPv4",
        "ports": [
            {"name": "http", "protocol": "TCP", "port": 8080},
            {"name": "dns", "protocol": "UDP", "port": 5353},
        ],
        "endpoints": [
            {
                "addresses": ["10.1.0.1"],
                "conditions": {"ready": true, "serving": true, "terminating": false},
                "nodeName": "node-1", "zone": "a",
                "hints": {"forZones": [{"name": "a"}], "forNodes": [{"name": "node-1"}]},
                "targetRef": {"kind": "Pod", "name": "web-1", "uid": "u-1"},
            },
            {"addresses": ["10.1.0.2"], "conditions": {}, "nodeName": "node-2"},
        ],
    })
}

fn rows() -> Vec<Row<EndpointSlice>> {
    const LABEL: &str = "metadata.labels[kubernetes.io/service-name]";
    const TIME: &str = "metadata.annotations[endpoints.kubernetes.io/last-change-trigger-time]";
    vec![
        (
            "",
            json!(null),
            "",
            "is null, not an object; it is skipped",
            Then::Nameless,
        ),
        (
            "/metadata/name",
            json!({}),
            "metadata.name",
            "is an object, not a string; the object is skipped",
            Then::Nameless,
        ),
        // W6
        (
            "/metadata/labels",
            json!({}),
            LABEL,
            "is missing; the slice is skipped",
            Then::Leave,
        ),
        (
            "/metadata/labels/kubernetes.io~1service-name",
            json!(""),
            LABEL,
            "is missing; the slice is skipped",
            Then::Leave,
        ),
        (
            "/metadata/labels/kubernetes.io~1service-name",
            json!(1),
            LABEL,
            "is 1, not a string; the slice is skipped",
            Then::Leave,
        ),
        (
            "/metadata/labels/kubernetes.io~1service-name",
            json!("w".repeat(64)),
            LABEL,
            concat!(
                r#""wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww"…"#,
                " is longer than 63 bytes; the slice is skipped"
            ),
            Then::Leave,
        ),
        // W7, T55
        (
            "/addressType",
            json!("FQDN"),
            "addressType",
            r#""FQDN" is not IPv4 or IPv6; the slice is skipped"#,
            Then::Leave,
        ),
        (
            "/addressType",
            Value::Null,
            "addressType",
            "is missing; the slice keeps its last good state",
            Then::Keep,
        ),
        (
            "/addressType",
            json!(4),
            "addressType",
            "is 4, not a string; the slice keeps its last good state",
            Then::Keep,
        ),
        // Ports, W9
        (
            "/ports",
            json!(8080),
            "ports",
            "is 8080, not a list; the slice keeps its last good state",
            Then::Keep,
        ),
        (
            "/ports",
            Value::Null,
            "ports",
            "is empty; the endpoints serve nothing",
            Then::Serve(|s| s.ports.clear()),
        ),
        (
            "/ports/0/name",
            Value::Null,
            "ports[0].name",
            "is missing; the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/ports/0/port",
            Value::Null,
            "ports[0].port",
            "is missing; the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/ports/0/port",
            json!(0),
            "ports[0].port",
            "0 is no port (1 to 65535); the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/ports/0/port",
            json!(65_536),
            "ports[0].port",
            "65536 is no port (1 to 65535); the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/ports/0/port",
            json!("8080"),
            "ports[0].port",
            r#"is "8080", not a number; the port is skipped"#,
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/ports/0/protocol",
            json!("ICMP"),
            "ports[0].protocol",
            r#""ICMP" is not TCP, UDP or SCTP; the port is skipped"#,
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/ports/1",
            json!({"name": "http", "port": 1, "protocol": "TCP"}),
            "ports[1].name",
            r#""http" is the name of an earlier TCP port; the port is skipped"#,
            Then::Serve(|s| s.ports.truncate(1)),
        ),
        (
            "/ports/1",
            Value::Null,
            "ports[1]",
            "is null; the port is skipped",
            Then::Serve(|s| s.ports.truncate(1)),
        ),
        // Endpoints, W8
        (
            "/endpoints",
            json!("10.1.0.1"),
            "endpoints",
            r#"is "10.1.0.1", not a list; the slice keeps its last good state"#,
            Then::Keep,
        ),
        (
            "/endpoints/1",
            json!("10.1.0.2"),
            "endpoints[1]",
            r#"is "10.1.0.2", not an object; the endpoint is skipped"#,
            Then::Serve(|s| s.endpoints.truncate(1)),
        ),
        (
            "/endpoints/1/addresses",
            json!([]),
            "endpoints[1].addresses",
            "is empty; the endpoint is skipped",
            Then::Serve(|s| s.endpoints.truncate(1)),
        ),
        (
            "/endpoints/1/addresses",
            json!("10.1.0.2"),
            "endpoints[1].addresses",
            r#"is "10.1.0.2", not a list; the endpoint is skipped"#,
            Then::Serve(|s| s.endpoints.truncate(1)),
        ),
        (
            "/endpoints/1/addresses/0",
            json!(10),
            "endpoints[1].addresses[0]",
            "is 10, not a string; the endpoint is skipped",
            Then::Serve(|s| s.endpoints.truncate(1)),
        ),
        (
            "/endpoints/1/addresses/0",
            json!("pod-2"),
            "endpoints[1].addresses[0]",
            r#""pod-2" is no IP address; the endpoint is skipped"#,
            Then::Serve(|s| s.endpoints.truncate(1)),
        ),
        (
            "/endpoints/1/addresses/0",
            json!("fd00::2"),
            "endpoints[1].addresses[0]",
            "fd00::2 is not IPv4, the slice's addressType; the endpoint is skipped",
            Then::Serve(|s| s.endpoints.truncate(1)),
        ),
        (
            "/endpoints/1/addresses/0",
            json!("0.0.0.0"),
            "endpoints[1].addresses[0]",
            "0.0.0.0 is the unspecified address; the endpoint is skipped",
            Then::Serve(|s| s.endpoints.truncate(1)),
        ),
        (
            "/endpoints/1/addresses/0",
            json!("10.1.0.1"),
            "endpoints[1].addresses[0]",
            "10.1.0.1 is an earlier endpoint's already; it is served once",
            Then::Serve(|s| s.endpoints[1].addr = s.endpoints[0].addr),
        ),
        (
            "/endpoints/1/conditions",
            json!("ready"),
            "endpoints[1].conditions",
            r#"is "ready", not an object; it is ignored"#,
            Then::Serve(|_| {}),
        ),
        (
            "/endpoints/1/conditions",
            json!({"ready": "yes"}),
            "endpoints[1].conditions.ready",
            r#"is "yes", not true or false; it counts as true"#,
            Then::Serve(|_| {}),
        ),
        (
            "/endpoints/1/conditions",
            json!({"terminating": 0}),
            "endpoints[1].conditions.terminating",
            "is 0, not true or false; it counts as false",
            Then::Serve(|_| {}),
        ),
        (
            "/endpoints/1/nodeName",
            json!(2),
            "endpoints[1].nodeName",
            "is 2, not a string; it counts as on no node",
            Then::Serve(|s| s.endpoints[1].node = None),
        ),
        (
            "/endpoints/0/hints",
            json!(["a"]),
            "endpoints[0].hints",
            "is a list, not an object; they are ignored",
            Then::Serve(|s| s.endpoints[0].hints = None),
        ),
        (
            "/endpoints/0/hints/forZones/0",
            json!("a"),
            "endpoints[0].hints.forZones[0]",
            r#"is "a", not an object; the hint is skipped"#,
            Then::Serve(|s| s.endpoints[0].hints.as_mut().expect("hints").zones.clear()),
        ),
        (
            "/endpoints/0/hints/forNodes/0/name",
            Value::Null,
            "endpoints[0].hints.forNodes[0].name",
            "is missing; the hint is skipped",
            Then::Serve(|s| s.endpoints[0].hints.as_mut().expect("hints").nodes.clear()),
        ),
        (
            "/metadata/annotations/endpoints.kubernetes.io~1last-change-trigger-time",
            json!("yesterday"),
            TIME,
            r#""yesterday" is no time; it is ignored"#,
            Then::Serve(|s| s.trigger_time = 0),
        ),
    ]
}

#[test]
fn a_fault_in_an_endpoint_slice_gives_one_warning_and_costs_nothing_else() {
    let rows = rows();
    assert!(rows.len() >= 30, "{} rows", rows.len());
    for row in rows {
        check::<SliceBody>(slice, row);
    }
}

#[test]
fn an_ipv4_address_in_an_ipv6_slice_is_skipped() {
    let mut value = slice();
    value["addressType"] = "IPv6".into();
    value["endpoints"][1]["addresses"] = json!(["fd00::2"]);
    let slim: Slim<SliceBody> = serde_json::from_value(value).expect("never fails");
    let mut decoder = Decoder::new(Origin::Server, true);
    let Decoded::Serve(slice) = SliceBody::decode(&mut decoder, &slim, None) else {
        panic!("served");
    };
    assert_eq!(slice.family, Family::V6);
    assert_eq!(slice.endpoints.len(), 1);
    assert_eq!(decoder.events.len(), 1);
}
