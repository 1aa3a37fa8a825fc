//! The table and the JSON of `sidestep services`, from maps in memory.

use std::net::IpAddr;

use proxy_common::{Scheduler, Window};

use super::*;

fn address(text: &str) -> Address {
    addr::from_ip(text.parse::<IpAddr>().unwrap())
}

fn named(snapshot: &mut Snapshot, id: u32, name: &str, port: &str, family: u8) {
    let field = |text| NameValue::field(text).unwrap();
    let value = NameValue {
        namespace: field("default"),
        name: field(name),
        port: field(port),
        family,
        protocol: Protocol::Tcp as u8,
        reserved: 0,
    };
    snapshot.names.insert(id, value);
}

fn service(snapshot: &mut Snapshot, id: u32, local: u32, cluster: u32, has_any: u8) {
    let window = |count| Window { offset: 0, count };
    let value = ServiceRecord {
        base: 8 * id,
        local: window(local),
        cluster: window(cluster),
        affinity_seconds: 0,
        scheduler: Scheduler::Random,
        has_any,
        reserved: 0,
    };
    snapshot.services.insert(id, value);
}

fn frontend(snapshot: &mut Snapshot, id: u32, at: (Address, u16), kind: FrontendKind, flags: u8) {
    let value = FrontendValue {
        service: id,
        kind,
        flags,
        reserved: 0,
    };
    let key = FrontendKey::new(at.0, at.1, Protocol::Tcp);
    snapshot.frontends.insert(key, value);
}

fn backend(snapshot: &mut Snapshot, service: u32, id: u32, at: (&str, u16), flags: u8) {
    let draining = flags & (BackendValue::IN_LOCAL | BackendValue::IN_CLUSTER) == 0;
    let value = BackendValue {
        id,
        generation: 1,
        service,
        addr: address(at.0),
        port: at.1,
        weight: 1,
        protocol: Protocol::Tcp,
        state: if draining {
            BackendState::Draining
        } else {
            BackendState::Active
        },
        flags,
        reserved: 0,
    };
    snapshot.backends.insert(id, value);
}

/// A Service of every kind of address and in both families, one without endpoints, one with
/// endpoints only elsewhere, and one whose name is missing.
fn cluster() -> (Snapshot, BTreeMap<u32, i64>) {
    let mut s = Snapshot::default();
    named(&mut s, 1, "web", "http", 4);
    service(&mut s, 1, 1, 2, 1);
    s.services.get_mut(&1).unwrap().affinity_seconds = 10800;
    let external = FrontendValue::LOCAL;
    frontend(
        &mut s,
        1,
        (addr::V4_ANY, 30080),
        FrontendKind::Node,
        external,
    );
    frontend(
        &mut s,
        1,
        (address("10.96.0.10"), 80),
        FrontendKind::Cluster,
        0,
    );
    let flags = FrontendValue::LOCAL | FrontendValue::SOURCE_RANGES;
    frontend(
        &mut s,
        1,
        (address("192.0.2.7"), 80),
        FrontendKind::Balancer,
        flags,
    );
    s.ranges
        .insert((32 + 96 + 8, 1u32.to_be_bytes(), address("10.0.0.0")), ());
    let whole = FrontendKey::whole_address(address("10.96.0.10"));
    let own = FrontendValue {
        service: 0,
        kind: FrontendKind::Cluster,
        flags: 0,
        reserved: 0,
    };
    s.frontends.insert(whole, own);
    let here = BackendValue::IN_LOCAL | BackendValue::IN_CLUSTER | BackendValue::ON_NODE;
    backend(&mut s, 1, 12, ("10.1.0.5", 8080), BackendValue::IN_CLUSTER);
    backend(&mut s, 1, 11, ("10.1.0.4", 8080), here);
    backend(&mut s, 1, 13, ("10.1.0.6", 8080), 0);

    named(&mut s, 2, "web", "http", 6);
    service(&mut s, 2, 0, 1, 1);
    frontend(&mut s, 2, (addr::V6_ANY, 30080), FrontendKind::Node, 0);
    frontend(
        &mut s,
        2,
        (address("fd00::10"), 80),
        FrontendKind::Cluster,
        0,
    );
    backend(&mut s, 2, 21, ("fd01::4", 8080), BackendValue::IN_CLUSTER);

    named(&mut s, 3, "empty", "", 4);
    service(&mut s, 3, 0, 0, 0);
    frontend(
        &mut s,
        3,
        (address("10.96.0.11"), 80),
        FrontendKind::External,
        0,
    );

    named(&mut s, 4, "elsewhere", "", 4);
    service(&mut s, 4, 0, 1, 1);
    let internal = FrontendValue::LOCAL;
    frontend(
        &mut s,
        4,
        (address("10.96.0.12"), 80),
        FrontendKind::Cluster,
        internal,
    );
    backend(&mut s, 4, 41, ("10.1.0.9", 80), BackendValue::IN_CLUSTER);

    service(&mut s, 9, 0, 0, 0);
    (s, BTreeMap::from([(11, 3), (13, 1)]))
}

#[test]
fn the_table_shows_addresses_then_backends_of_each_service() {
    let (snapshot, connections) = cluster();
    let text = Listing::new(&snapshot, &connections).to_string();
    let expected = "\
SERVICE            ADDRESS            PROTO  KIND                       SCHEDULER               WEIGHT  STATE        CONNECTIONS
(id 9)             -                                                    random
default/elsewhere  10.96.0.12:80      TCP    ClusterIP Local            random                          dropped
                   -> 10.1.0.9:80            remote                                             1       active       0
default/empty      10.96.0.11:80      TCP    ExternalIP                 random                          refused
default/web:http   10.96.0.10:80      TCP    ClusterIP                  random affinity=10800s          serving
default/web:http   *:30080            TCP    NodePort Local             random affinity=10800s          serving
default/web:http   192.0.2.7:80       TCP    LoadBalancer Local ranges  random affinity=10800s          packet-path
                   -> 10.1.0.4:8080          local                                              1       active       3
                   -> 10.1.0.5:8080          remote                                             1       active       0
                   -> 10.1.0.6:8080          remote                                             1       draining     1
default/web:http   [fd00::10]:80      TCP    ClusterIP                  random                          serving
default/web:http   [*]:30080          TCP    NodePort                   random                          serving
                   -> [fd01::4]:8080         remote                                             1       active       0
";
    assert_eq!(text, expected);
}

#[test]
fn the_json_form_nests_addresses_and_backends() {
    let (snapshot, connections) = cluster();
    let mut listing = Listing::new(&snapshot, &connections);
    listing
        .0
        .retain(|service| service.matches(&"default/web:http".parse().unwrap()));
    listing.0.truncate(1);
    listing.0[0].frontends.remove(0);
    listing.0[0].frontends.remove(0);
    listing.0[0].backends.truncate(1);
    let expected = serde_json::json!([{
        "namespace": "default",
        "name": "web",
        "port": "http",
        "protocol": "TCP",
        "family": "IPv4",
        "id": 1,
        "scheduler": "random",
        "affinitySeconds": 10800,
        "hasEndpoints": true,
        "frontends": [{
            "address": "192.0.2.7",
            "port": 80,
            "kind": "LoadBalancer",
            "policy": "Local",
            "sourceRanges": ["10.0.0.0/8"],
            "state": "packet-path",
        }],
        "backends": [{
            "id": 11,
            "address": "10.1.0.4",
            "port": 8080,
            "weight": 1,
            "state": "active",
            "onNode": true,
            "inLocal": true,
            "inCluster": true,
            "connections": 3,
        }],
    }]);
    assert_eq!(serde_json::to_value(&listing).unwrap(), expected);
}

#[test]
fn no_service_gives_the_names_of_the_columns_alone() {
    let listing = Listing::new(&Snapshot::default(), &BTreeMap::new());
    assert_eq!(listing.to_string().lines().count(), 1);
    assert_eq!(serde_json::to_string(&listing).unwrap(), "[]");
}
