//! Every fault that a Service can have, a row each.

use serde_json::{Value, json};

use super::ServiceBody;
use crate::{
    model::{Policy, Service},
    source::fault::{Row, Then, check},
};

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "resourceVersion": "5",
            "labels": {}, "annotations": {"sidestep.io/scheduler": "random"},
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"],
            "ipFamilies": ["IPv4", "IPv6"],
            "externalIPs": ["192.0.2.1", "2001:db8::1"],
            "loadBalancerSourceRanges": ["198.51.100.0/24", "2001:db8:1::/48"],
            "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 32000,
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080},
                {"name": "dns", "protocol": "UDP", "port": 53, "nodePort": 30053},
            ],
        },
        "status": {"loadBalancer": {"ingress": [
            {"ip": "203.0.113.1", "ipMode": "VIP"}, {"ip": "203.0.113.2"},
        ]}},
    })
}

fn rows() -> Vec<Row<Service>> {
    vec![
        // The object.
        (
            "",
            json!("x"),
            "",
            r#"is "x", not an object; it is skipped"#,
            Then::Nameless,
        ),
        (
            "/metadata",
            json!([]),
            "metadata",
            "is no object; the object is skipped",
            Then::Nameless,
        ),
        (
            "/metadata/name",
            json!(5),
            "metadata.name",
            "is 5, not a string; the object is skipped",
            Then::Nameless,
        ),
        (
            "/metadata/name",
            json!(""),
            "metadata.name",
            "is missing; the object is skipped",
            Then::Nameless,
        ),
        (
            "/metadata/name",
            json!("x".repeat(64)),
            "metadata.name",
            concat!(
                r#""xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"…"#,
                " is longer than 63 bytes; the object is skipped"
            ),
            Then::Nameless,
        ),
        (
            "/metadata/name",
            json!("a/b"),
            "metadata.name",
            r#""a/b" is no name; the object is skipped"#,
            Then::Nameless,
        ),
        (
            "/metadata/namespace",
            json!(true),
            "metadata.namespace",
            "is true, not a string; the object is skipped",
            Then::Nameless,
        ),
        (
            "/metadata/namespace",
            json!("sh\u{0}p"),
            "metadata.namespace",
            r#""sh\0p" is no name; the object is skipped"#,
            Then::Nameless,
        ),
        (
            "/metadata/annotations/sidestep.io~1scheduler",
            json!("fastest"),
            "metadata.annotations[sidestep.io/scheduler]",
            r#""fastest" is not a scheduler of this version (random); random is used"#,
            Then::Serve(|_| {}),
        ),
        (
            "/metadata/annotations/sidestep.io~1scheduler",
            json!(1),
            "metadata.annotations[sidestep.io/scheduler]",
            "is 1, not a string; random is used",
            Then::Serve(|_| {}),
        ),
        (
            "/spec",
            json!("x"),
            "spec",
            r#"is "x", not an object; the Service keeps its last good state"#,
            Then::Keep,
        ),
        (
            "/spec",
            Value::Null,
            "spec",
            "is missing; the Service keeps its last good state",
            Then::Keep,
        ),
        (
            "/spec/type",
            json!("Magic"),
            "spec.type",
            r#""Magic" is not a type of Services; it is served as ClusterIP"#,
            Then::Serve(|s| s.health_check_node_port = 0),
        ),
        (
            "/spec/type",
            json!(7),
            "spec.type",
            "is 7, not a string; it is served as ClusterIP",
            Then::Serve(|s| s.health_check_node_port = 0),
        ),
        // Addresses.
        (
            "/spec/clusterIP",
            json!(10),
            "spec.clusterIP",
            "is 10, not a string; spec.clusterIPs counts",
            Then::Serve(|_| {}),
        ),
        (
            "/spec/clusterIPs",
            json!("10.0.0.1"),
            "spec.clusterIPs",
            r#"is "10.0.0.1", not a list; it is ignored"#,
            Then::Serve(|s| s.cluster_ips.truncate(1)),
        ),
        (
            "/spec/clusterIPs/1",
            json!("10.0.0.256"),
            "spec.clusterIPs[1]",
            r#""10.0.0.256" is no IP address; the address is skipped"#,
            Then::Serve(|s| s.cluster_ips.truncate(1)),
        ),
        (
            "/spec/clusterIPs/1",
            json!({}),
            "spec.clusterIPs[1]",
            "is an object, not a string; the address is skipped",
            Then::Serve(|s| s.cluster_ips.truncate(1)),
        ),
        (
            "/spec/clusterIPs/1",
            Value::Null,
            "spec.clusterIPs[1]",
            "is null; the address is skipped",
            Then::Serve(|s| s.cluster_ips.truncate(1)),
        ),
        (
            "/spec/clusterIPs/1",
            json!("10.0.0.2"),
            "spec.clusterIPs[1]",
            "10.0.0.2 is not IPv6, which spec.ipFamilies[1] says; the address is skipped",
            Then::Serve(|s| s.cluster_ips.truncate(1)),
        ),
        (
            "/spec/clusterIPs/1",
            json!("::"),
            "spec.clusterIPs[1]",
            ":: is the unspecified address; the address is skipped",
            Then::Serve(|s| s.cluster_ips.truncate(1)),
        ),
        (
            "/spec/clusterIPs",
            json!(["10.0.0.x"]),
            "spec.clusterIPs[0]",
            r#""10.0.0.x" is no IP address; the address is skipped"#,
            Then::Keep,
        ),
        (
            "/spec/ipFamilies",
            json!(["IPv4"]),
            "spec.clusterIPs[1]",
            "fd00::1 is not in spec.ipFamilies, which has 1; the address is skipped",
            Then::Serve(|s| s.cluster_ips.truncate(1)),
        ),
        (
            "/spec/ipFamilies/1",
            json!("IPv5"),
            "spec.ipFamilies[1]",
            r#""IPv5" is not IPv4 or IPv6; it is ignored"#,
            Then::Serve(|_| {}),
        ),
        (
            "/spec/externalIPs/0",
            json!("127.0.0.1"),
            "spec.externalIPs[0]",
            "127.0.0.1 is a loopback address; the address is skipped",
            Then::Serve(|s| {
                s.external_ips.remove(0);
            }),
        ),
        (
            "/spec/externalIPs/0",
            json!("224.0.0.1"),
            "spec.externalIPs[0]",
            "224.0.0.1 is a multicast or broadcast address; the address is skipped",
            Then::Serve(|s| {
                s.external_ips.remove(0);
            }),
        ),
        (
            "/spec/externalIPs/1",
            json!("example.com"),
            "spec.externalIPs[1]",
            r#""example.com" is no IP address; the address is skipped"#,
            Then::Serve(|s| s.external_ips.truncate(1)),
        ),
        (
            "/spec/externalIPs",
            json!("192.0.2.1"),
            "spec.externalIPs",
            r#"is "192.0.2.1", not a list; it is ignored"#,
            Then::Serve(|s| s.external_ips.clear()),
        ),
        (
            "/spec/loadBalancerSourceRanges/0",
            json!("198.51.100.0/33"),
            "spec.loadBalancerSourceRanges[0]",
            r#""198.51.100.0/33" is no range; the range is skipped"#,
            Then::Serve(|s| {
                s.source_ranges.remove(0);
            }),
        ),
        (
            "/spec/loadBalancerSourceRanges/0",
            json!(8),
            "spec.loadBalancerSourceRanges[0]",
            "is 8, not a string; the range is skipped",
            Then::Serve(|s| {
                s.source_ranges.remove(0);
            }),
        ),
        (
            "/status",
            json!([]),
            "status",
            "is a list, not an object; it is ignored",
            Then::Serve(|s| s.balancer_ips.clear()),
        ),
        (
            "/status/loadBalancer",
            json!(0),
            "status.loadBalancer",
            "is 0, not an object; it is ignored",
            Then::Serve(|s| s.balancer_ips.clear()),
        ),
        (
            "/status/loadBalancer/ingress/0/ip",
            json!("lb.example"),
            "status.loadBalancer.ingress[0].ip",
            r#""lb.example" is no IP address; the address is skipped"#,
            Then::Serve(|s| {
                s.balancer_ips.remove(0);
            }),
        ),
        (
            "/status/loadBalancer/ingress/0/ipMode",
            json!("Tunnel"),
            "status.loadBalancer.ingress[0].ipMode",
            r#""Tunnel" is not VIP or Proxy; the address is skipped"#,
            Then::Serve(|s| {
                s.balancer_ips.remove(0);
            }),
        ),
        // Policies.
        (
            "/spec/internalTrafficPolicy",
            json!("Nearby"),
            "spec.internalTrafficPolicy",
            r#""Nearby" is not Cluster or Local; it counts as Cluster"#,
            Then::Serve(|s| s.internal_policy = Policy::Cluster),
        ),
        (
            "/spec/externalTrafficPolicy",
            json!("local"),
            "spec.externalTrafficPolicy",
            r#""local" is not Cluster or Local; it counts as Cluster"#,
            Then::Serve(|s| {
                s.external_policy = Policy::Cluster;
                s.health_check_node_port = 0;
            }),
        ),
        (
            "/spec/healthCheckNodePort",
            json!(-1),
            "spec.healthCheckNodePort",
            "-1 is no port (1 to 65535); the node answers no health checks for it",
            Then::Serve(|s| s.health_check_node_port = 0),
        ),
        (
            "/spec/sessionAffinity",
            json!("Cookie"),
            "spec.sessionAffinity",
            r#""Cookie" is not ClientIP or None; there is no affinity"#,
            Then::Serve(|s| s.affinity_seconds = None),
        ),
        (
            "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
            json!(0),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            "0 is not in 1 to 86400; 10800 seconds are used",
            Then::Serve(|s| s.affinity_seconds = Some(10_800)),
        ),
        (
            "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
            json!(86_401),
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            "86401 is not in 1 to 86400; 10800 seconds are used",
            Then::Serve(|s| s.affinity_seconds = Some(10_800)),
        ),
        (
            "/spec/sessionAffinityConfig",
            json!("1h"),
            "spec.sessionAffinityConfig",
            r#"is "1h", not an object; 10800 seconds are used"#,
            Then::Serve(|s| s.affinity_seconds = Some(10_800)),
        ),
        // Ports.
        (
            "/spec/ports",
            json!({}),
            "spec.ports",
            "is an object, not a list; \
            the Service keeps its last good state",
            Then::Keep,
        ),
        (
            "/spec/ports",
            json!([]),
            "spec.ports",
            "is empty; nothing is served at the Service's addresses",
            Then::Serve(|s| s.ports.clear()),
        ),
        (
            "/spec/ports/0",
            json!(80),
            "spec.ports[0]",
            "is 80, not an object; the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/spec/ports/0/port",
            json!(70_000),
            "spec.ports[0].port",
            "70000 is no port (1 to 65535); the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/spec/ports/0/port",
            json!(0),
            "spec.ports[0].port",
            "0 is no port (1 to 65535); the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/spec/ports/0/port",
            json!("http"),
            "spec.ports[0].port",
            r#"is "http", not a number; the port is skipped"#,
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/spec/ports/0/port",
            Value::Null,
            "spec.ports[0].port",
            "is missing; the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/spec/ports/0/port",
            json!(80.5),
            "spec.ports[0].port",
            "is 80.5, not a number; the port is skipped",
            Then::Serve(|s| {
                s.ports.remove(0);
            }),
        ),
        (
            "/spec/ports/0/nodePort",
            json!(65_536),
            "spec.ports[0].nodePort",
            "65536 is no port (1 to 65535); the port gets no NodePort",
            Then::Serve(|s| s.ports[0].node_port = 0),
        ),
        (
            "/spec/ports/0/nodePort",
            json!([]),
            "spec.ports[0].nodePort",
            "is a list, not a number; the port gets no NodePort",
            Then::Serve(|s| s.ports[0].node_port = 0),
        ),
        (
            "/spec/ports/1/protocol",
            json!("QUIC"),
            "spec.ports[1].protocol",
            r#""QUIC" is not TCP, UDP or SCTP; the port is skipped"#,
            Then::Serve(|s| s.ports.truncate(1)),
        ),
        (
            "/spec/ports/1/name",
            json!("n".repeat(64)),
            "spec.ports[1].name",
            concat!(
                r#""nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"…"#,
                " is longer than 63 bytes; the port is skipped"
            ),
            Then::Serve(|s| s.ports.truncate(1)),
        ),
        (
            "/spec/ports/1",
            json!({"name": "http", "port": 81}),
            "spec.ports[1].name",
            r#""http" is the name of an earlier TCP port; the port is skipped"#,
            Then::Serve(|s| s.ports.truncate(1)),
        ),
        (
            "/spec/ports/1",
            json!({"name": "web", "port": 80}),
            "spec.ports[1].port",
            "80/TCP is an earlier port already; the port is skipped",
            Then::Serve(|s| s.ports.truncate(1)),
        ),
        (
            "/spec/ports/1",
            json!({"name": "web", "port": 81, "nodePort": 30_080}),
            "spec.ports[1].nodePort",
            "30080/TCP is an earlier port's already; the port gets no NodePort",
            Then::Serve(|s| {
                s.ports[1] = s.ports[0].clone();
                s.ports[1].name = "web".into();
                s.ports[1].port = 81;
                s.ports[1].node_port = 0;
            }),
        ),
        (
            "/spec/clusterIPs",
            json!(["127.0.0.1"]),
            "spec.clusterIPs[0]",
            "127.0.0.1 is a loopback address; the address is skipped",
            Then::Keep,
        ),
        (
            "/spec",
            json!(false),
            "spec",
            "is false, not an object; the Service keeps its last good state",
            Then::Keep,
        ),
    ]
}

#[test]
fn a_fault_in_a_service_gives_one_warning_and_costs_nothing_else() {
    let rows = rows();
    assert!(rows.len() >= 40, "{} rows", rows.len());
    for row in rows {
        check::<ServiceBody>(service, row);
    }
}
