//! Services as the API server sends them, good and bad, and what is made of them.

use serde_json::{Value, json};

use super::*;
use crate::source::{Event, decoder::Origin, object::Object};

fn decode_with(decoder: &mut Decoder, value: Value) -> Decoded<Service, ServiceName> {
    let slim: SlimService = serde_json::from_value(value).expect("never fails");
    decode(decoder, &slim, None)
}

/// Decodes a Service `shop/web` with this `spec`; it must be served, and without a warning.
fn served(spec: Value, status: Value) -> Service {
    let mut decoder = Decoder::new(Origin::Server, true);
    let decoded = decode_with(&mut decoder, object(spec, status));
    assert_eq!(decoder.events, []);
    match decoded {
        Decoded::Serve(service) => service,
        other => panic!("{other:?}"),
    }
}

fn object(mut spec: Value, status: Value) -> Value {
    let ports = json!([{"port": 80, "protocol": "TCP"}]);
    spec.as_object_mut()
        .expect("an object")
        .entry("ports")
        .or_insert(ports);
    json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec, "status": status})
}

fn left(value: Value) {
    let mut decoder = Decoder::new(Origin::Server, true);
    let decoded = decode_with(&mut decoder, value);
    assert_eq!(decoded, Decoded::Leave(ServiceName::new("shop", "web")));
    assert_eq!(decoder.events, [], "an ordinary thing, no fault");
}

fn ips(list: &[std::net::IpAddr]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn headless_and_external_name_services_are_left_w5_s13_t58() {
    left(object(
        json!({"clusterIP": "None", "clusterIPs": ["None"]}),
        json!({}),
    ));
    left(object(json!({"clusterIP": ""}), json!({})));
    left(object(json!({}), json!({})));
    left(object(
        json!({"type": "ExternalName", "externalName": "example.com"}),
        json!({}),
    ));
    left(object(
        json!({"type": "ExternalName", "clusterIP": "10.0.0.1"}),
        json!({}),
    ));
}

#[test]
fn a_service_of_another_proxy_is_left_whatever_the_labels_value_w1() {
    for value in [json!("other"), json!(""), json!(5)] {
        let mut service = object(json!({"clusterIP": "10.0.0.1"}), json!({}));
        service["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": value});
        left(service);
    }
}

#[test]
fn each_port_is_served_with_its_protocol_p1_s2_t59() {
    let service = served(
        json!({"type": "NodePort", "clusterIP": "10.0.0.1", "ports": [
            {"name": "a", "port": 53, "protocol": "UDP", "nodePort": 30_053},
            {"name": "b", "port": 53, "protocol": "TCP", "nodePort": 30_053},
            {"name": "c", "port": 53, "protocol": "SCTP"},
            {"name": "d", "port": 80},
        ]}),
        json!({}),
    );
    let ports: Vec<_> = service
        .ports
        .iter()
        .map(|p| (&*p.name, p.protocol.name(), p.port, p.node_port))
        .collect();
    assert_eq!(
        ports,
        [
            ("a", "UDP", 53, 30_053),
            ("b", "TCP", 53, 30_053),
            ("c", "SCTP", 53, 0),
            ("d", "TCP", 80, 0),
        ]
    );
}

#[test]
fn a_load_balancer_without_node_ports_gets_none_s12() {
    let service = served(
        json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1",
            "allocateLoadBalancerNodePorts": false}),
        json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}),
    );
    assert_eq!(service.ports[0].node_port, 0);
    assert_eq!(ips(&service.balancer_ips), ["192.0.2.9"]);
}

#[test]
fn cluster_ips_are_found_by_family_w17_t62_t77() {
    let old_v4 = served(json!({"clusterIP": "10.0.0.1"}), json!({}));
    assert_eq!(ips(&old_v4.cluster_ips), ["10.0.0.1"]);
    let old_v6 = served(json!({"clusterIP": "fd00::1"}), json!({}));
    assert_eq!(ips(&old_v6.cluster_ips), ["fd00::1"]);
    for (families, list) in [
        (json!(["IPv4"]), json!(["10.0.0.1"])),
        (json!(["IPv6"]), json!(["fd00::1"])),
        (json!(["IPv4", "IPv6"]), json!(["10.0.0.1", "fd00::1"])),
        (json!(["IPv6", "IPv4"]), json!(["fd00::1", "10.0.0.1"])),
        (json!(null), json!(["fd00::1", "10.0.0.1"])),
    ] {
        let spec = json!({"clusterIP": list[0], "clusterIPs": list, "ipFamilies": families});
        let service = served(spec, json!({}));
        assert_eq!(json!(ips(&service.cluster_ips)), list);
    }
}

#[test]
fn addresses_with_leading_zeros_are_served_in_canonical_form_w16() {
    let service = served(
        json!({"clusterIP": "010.000.000.001", "externalIPs": ["192.000.002.001", ""],
            "loadBalancerSourceRanges": [" 010.1.0.0/16 ", "", "  "]}),
        json!({"loadBalancer": {"ingress": [{"ip": "203.000.113.001"}, {"ip": ""}]}}),
    );
    assert_eq!(ips(&service.cluster_ips), ["10.0.0.1"]);
    assert_eq!(ips(&service.external_ips), ["192.0.2.1"]);
    assert_eq!(ips(&service.balancer_ips), ["203.0.113.1"]);
    assert_eq!(service.source_ranges[0].to_string(), "10.1.0.0/16");
    assert_eq!(service.source_ranges.len(), 1);
}

#[test]
fn addresses_of_both_families_are_kept_for_the_policies_to_pick_w18_t63_t64() {
    let service = served(
        json!({"clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.1", "2001:db8::1"],
            "loadBalancerSourceRanges": ["10.0.0.0/8", "2001:db8::/32"]}),
        json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}, {"ip": "2001:db8::2"}]}}),
    );
    assert_eq!(ips(&service.external_ips), ["192.0.2.1", "2001:db8::1"]);
    assert_eq!(ips(&service.balancer_ips), ["203.0.113.1", "2001:db8::2"]);
    assert_eq!(service.source_ranges.len(), 2);
}

#[test]
fn an_address_that_is_listed_twice_counts_once() {
    let service = served(
        json!({"clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.1", "192.0.2.01"],
            "loadBalancerSourceRanges": ["10.0.0.0/8", "10.1.2.3/8"]}),
        json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}, {"ip": "203.0.113.1"}]}}),
    );
    assert_eq!(ips(&service.external_ips), ["192.0.2.1"]);
    assert_eq!(ips(&service.balancer_ips), ["203.0.113.1"]);
    assert_eq!(service.source_ranges.len(), 1);
}

#[test]
fn only_vips_of_ip_mode_vip_or_none_are_answered_s8_s9_t60() {
    let service = served(
        json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1"}),
        json!({"loadBalancer": {"ingress": [
            {"ip": "203.0.113.1"},
            {"ip": "203.0.113.2", "ipMode": "VIP"},
            {"ip": "203.0.113.3", "ipMode": "Proxy"},
            {"hostname": "lb.example.com"},
        ]}}),
    );
    assert_eq!(ips(&service.balancer_ips), ["203.0.113.1", "203.0.113.2"]);
}

#[test]
fn external_policy_counts_only_where_the_type_has_it_policy_t1() {
    let policy = |r#type: &str, external_ips: Value| {
        let spec = json!({"type": r#type, "clusterIP": "10.0.0.1",
            "externalTrafficPolicy": "Local", "externalIPs": external_ips});
        served(spec, json!({})).external_policy
    };
    assert_eq!(policy("LoadBalancer", json!([])), Policy::Local);
    assert_eq!(policy("NodePort", json!([])), Policy::Local);
    assert_eq!(policy("ClusterIP", json!(["192.0.2.1"])), Policy::Local);
    assert_eq!(policy("ClusterIP", json!([])), Policy::Cluster);
}

#[test]
fn a_health_check_port_belongs_to_local_load_balancers_t61() {
    let port = |r#type: &str, policy: &str| {
        let spec = json!({"type": r#type, "clusterIP": "10.0.0.1",
            "externalTrafficPolicy": policy, "healthCheckNodePort": 32_000});
        served(spec, json!({})).health_check_node_port
    };
    assert_eq!(port("LoadBalancer", "Local"), 32_000);
    assert_eq!(port("LoadBalancer", "Cluster"), 0);
    assert_eq!(port("NodePort", "Local"), 0);
}

#[test]
fn internal_policy_is_taken_over() {
    let spec = json!({"clusterIP": "10.0.0.1", "internalTrafficPolicy": "Local"});
    assert_eq!(served(spec, json!({})).internal_policy, Policy::Local);
    let spec = json!({"clusterIP": "10.0.0.1"});
    assert_eq!(served(spec, json!({})).internal_policy, Policy::Cluster);
}

#[test]
fn affinity_lasts_three_hours_unless_said_otherwise_a1() {
    let seconds = |affinity: Value, config: Value| {
        let spec = json!({"clusterIP": "10.0.0.1", "sessionAffinity": affinity,
            "sessionAffinityConfig": config});
        served(spec, json!({})).affinity_seconds
    };
    let config = json!({"clientIP": {"timeoutSeconds": 60}});
    assert_eq!(seconds(json!("ClientIP"), json!(null)), Some(10_800));
    assert_eq!(
        seconds(json!("ClientIP"), json!({"clientIP": {}})),
        Some(10_800)
    );
    assert_eq!(seconds(json!("ClientIP"), config.clone()), Some(60));
    assert_eq!(seconds(json!("None"), config), None);
    assert_eq!(seconds(json!(null), json!(null)), None);
}

#[test]
fn external_ips_can_be_switched_off_s10() {
    let spec = json!({"clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.1"],
        "externalTrafficPolicy": "Local"});
    let mut decoder = Decoder::new(Origin::Server, false);
    let Decoded::Serve(service) = decode_with(&mut decoder, object(spec, json!({}))) else {
        panic!("served");
    };
    assert!(service.external_ips.is_empty());
    // They still make the Service one that is reachable from outside.
    assert_eq!(service.external_policy, Policy::Local);
}

#[test]
fn a_manifest_is_in_namespace_default_unless_it_says_otherwise() {
    let mut service = object(json!({"clusterIP": "10.0.0.1"}), json!({}));
    service["metadata"] = json!({"name": "web"});
    let mut decoder = Decoder::new(Origin::Manifest, true);
    let Decoded::Serve(served) = decode_with(&mut decoder, service) else {
        panic!("served");
    };
    assert_eq!(served.name, ServiceName::new("default", "web"));
}

#[test]
fn a_manifest_without_cluster_ip_is_left_with_a_warning() {
    let mut decoder = Decoder::new(Origin::Manifest, true);
    let decoded = decode_with(&mut decoder, object(json!({}), json!({})));
    assert_eq!(decoded, Decoded::Leave(ServiceName::new("shop", "web")));
    let [Event::Warning(warning)] = &decoder.events[..] else {
        panic!("{:?}", decoder.events);
    };
    assert_eq!(warning.field, "spec.clusterIP");
    assert!(
        warning.reason.starts_with("is missing"),
        "{}",
        warning.reason
    );
}

#[test]
fn cluster_ips_alone_suffice_in_a_manifest() {
    let service = served(json!({"clusterIPs": ["10.0.0.1", "fd00::1"]}), json!({}));
    assert_eq!(ips(&service.cluster_ips), ["10.0.0.1", "fd00::1"]);
}

#[test]
fn warnings_name_the_file_that_a_manifest_is_from() {
    let slim: SlimService =
        serde_json::from_value(json!({"metadata": {"name": "web"}})).expect("never fails");
    let mut decoder = Decoder::new(Origin::Manifest, true);
    let file: Text = "web.yaml".into();
    let decoded = ServiceBody::decode(&mut decoder, &slim, Some(&file));
    assert_eq!(
        decoded,
        Decoded::Keep(Some(ServiceName::new("default", "web")))
    );
    let [Event::Warning(warning)] = &decoder.events[..] else {
        panic!("{:?}", decoder.events);
    };
    assert_eq!(warning.object, "Service default/web in web.yaml");
}
