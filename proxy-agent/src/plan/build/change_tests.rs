//! From changes to what is desired: T53 and T54 (kube-proxy's TestUpdateEndpointsMap), and that the
//! order in which objects are reported does not matter.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proxy_common::Protocol::Udp;

use super::*;
use crate::model::{
    Change, Endpoint, SlicePort,
    fixture::{endpoint, name, node_in, service, service_port, slice, slice_name, slice_port},
};

/// A store with Service "web" of UDP ports p11, p12, p22 and "", and some slices.
fn store(slices: &[EndpointSlice]) -> Store {
    let mut store = Store::new(node_in(""));
    let ports = ["p11", "p12", "p22", ""].into_iter().zip(1..);
    store.apply(Change::Services(vec![Service {
        ports: ports
            .map(|(name, number)| service_port(name, Udp, number))
            .collect(),
        ..service("web")
    }]));
    store.apply(Change::Slices(slices.to_vec()));
    store
}

/// Endpoints of "web" as `port address:port`: in use, and terminating but still to be served.
fn endpoints(store: &Store) -> (BTreeSet<String>, BTreeSet<String>) {
    let desired = desired(store, &name("web"));
    assert_eq!(desired.warnings, []);
    let all = desired.services.iter().flat_map(|service| {
        let candidates = service.selection.candidates.iter();
        candidates.map(|c| {
            let text = format!("{} {}:{}", service.key.port, c.addr, c.port);
            (c.cluster, text.trim_start().to_owned())
        })
    });
    let (active, draining): (Vec<_>, Vec<_>) = all.partition(|(active, _)| *active);
    let texts = |list: Vec<(bool, String)>| list.into_iter().map(|(_, text)| text).collect();
    (texts(active), texts(draining))
}

fn udp(name: &str, port: u16) -> SlicePort {
    slice_port(name, Udp, port)
}

fn web(number: u8, addrs: &[&str], ports: &[SlicePort]) -> EndpointSlice {
    let endpoints: Vec<_> = addrs.iter().map(|addr| endpoint(addr)).collect();
    slice(&format!("web-{number}"), "web", &endpoints).with_ports(ports)
}

#[test]
fn t53_reports_without_a_change_leave_everything_as_it_is() {
    let local = |addr: &str| endpoint(addr).on("n1");
    for slices in [
        vec![],
        vec![web(1, &["1.1.1.1"], &[udp("", 11)])],
        vec![web(1, &["1.1.1.1"], &[udp("p11", 11)])],
        vec![slice("web-1", "web", &[local("1.1.1.1")]).with_ports(&[udp("p11", 11)])],
        vec![
            web(1, &["1.1.1.1"], &[udp("p11", 11)]),
            web(2, &["1.1.1.2"], &[udp("p12", 12)]),
        ],
        vec![
            web(1, &["1.1.1.1"], &[udp("p11", 11), udp("p12", 12)]),
            slice("api-1", "api", &[local("2.2.2.2")]).with_ports(&[udp("p22", 22)]),
        ],
    ] {
        let mut store = store(&slices);
        let before = desired(&store, &name("web"));
        for slice in &slices {
            assert!(store.apply(Change::Slice(slice.clone())).is_empty());
        }
        assert!(store.apply(Change::Slices(slices)).is_empty());
        assert_eq!(desired(&store, &name("web")), before);
    }
}

#[test]
fn t54_the_endpoints_follow_every_change() {
    let one = || web(1, &["1.1.1.1"], &[udp("p11", 11)]);
    let two = || {
        web(
            1,
            &["1.1.1.1", "1.1.1.2"],
            &[udp("p11", 11), udp("p12", 12)],
        )
    };
    let second = || web(2, &["2.2.2.2"], &[udp("p22", 22)]);
    let terminating = || {
        let endpoints = [endpoint("1.1.1.1"), endpoint("1.1.1.2").terminating()];
        slice("web-1", "web", &endpoints).with_ports(&[udp("p11", 11)])
    };
    let put = Change::Slice;
    let gone = |text| Change::SliceGone(slice_name(text));
    let all = &[
        "p11 1.1.1.1:11",
        "p11 1.1.1.2:11",
        "p12 1.1.1.1:12",
        "p12 1.1.1.2:12",
    ][..];
    for (what, before, changes, active, draining) in [
        (
            "add a slice",
            vec![],
            vec![put(one())],
            &["p11 1.1.1.1:11"][..],
            &[][..],
        ),
        ("remove a slice", vec![one()], vec![gone("web-1")], &[], &[]),
        (
            "add an address and a port",
            vec![one()],
            vec![put(two())],
            all,
            &[],
        ),
        (
            "remove both",
            vec![two()],
            vec![put(one())],
            &["p11 1.1.1.1:11"],
            &[],
        ),
        (
            "add a second slice",
            vec![one()],
            vec![put(second())],
            &["p11 1.1.1.1:11", "p22 2.2.2.2:22"],
            &[],
        ),
        (
            "remove the second slice",
            vec![one(), second()],
            vec![gone("web-2")],
            &["p11 1.1.1.1:11"],
            &[],
        ),
        (
            "rename a port",
            vec![one()],
            vec![put(web(1, &["1.1.1.1"], &[udp("p12", 11)]))],
            &["p12 1.1.1.1:11"],
            &[],
        ),
        (
            "renumber a port",
            vec![one()],
            vec![put(web(1, &["1.1.1.1"], &[udp("p11", 22)]))],
            &["p11 1.1.1.1:22"],
            &[],
        ),
        (
            "remove one slice and add another",
            vec![two(), second()],
            vec![
                gone("web-1"),
                put(web(3, &["3.3.3.3"], &[udp("p11", 33)])),
                put(one()),
            ],
            &["p11 1.1.1.1:11", "p11 3.3.3.3:33", "p22 2.2.2.2:22"],
            &[],
        ),
        (
            "from no address to one",
            vec![web(1, &[], &[udp("", 11)])],
            vec![put(web(1, &["1.1.1.1"], &[udp("", 11)]))],
            &["1.1.1.1:11"],
            &[],
        ),
        (
            "from ready to terminating",
            vec![two()],
            vec![put(terminating())],
            &["p11 1.1.1.1:11"],
            &["p11 1.1.1.2:11"],
        ),
        (
            "from terminating to gone",
            vec![terminating()],
            vec![put(one())],
            &["p11 1.1.1.1:11"],
            &[],
        ),
    ] {
        let mut store = store(&before);
        let mut dirty = crate::model::Dirty::default();
        for change in changes {
            dirty.merge(store.apply(change));
        }
        assert_eq!(dirty.services, BTreeSet::from([name("web")]), "{what}");
        let set = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        assert_eq!(endpoints(&store), (set(active), set(draining)), "{what}");
    }
}

/// A report of one of few objects.
fn any_change() -> impl Strategy<Value = Change> {
    let service_name = (0..3u8).prop_map(|i| format!("svc-{i}"));
    let any_service = (service_name.clone(), 0..3u16, any::<[bool; 3]>()).prop_map(
        |(name, node_port, [local, sticky, two_ports])| {
            let mut service = service(&name);
            service.ports[0].node_port = node_port;
            service.affinity_seconds = sticky.then_some(10);
            if local {
                service = service.internal_local();
            }
            if two_ports {
                service.ports.push(service_port("b", Udp, 53));
            }
            service
        },
    );
    let any_endpoint = (0..3u8, 0..4u8).prop_map(|(addr, state)| -> Endpoint {
        let endpoint = endpoint(&format!("10.0.0.{addr}")).pod(&state.to_string());
        match state {
            0 => endpoint.on("n1"),
            1 => endpoint.terminating(),
            2 => endpoint.unready(),
            _ => endpoint.zones(&["a"]),
        }
    });
    let any_slice = (
        0..4u8,
        service_name.clone(),
        prop::collection::vec(any_endpoint, 0..3),
        0..3i64,
    )
        .prop_map(|(i, service, endpoints, time)| {
            slice(&format!("slice-{i}"), &service, &endpoints).triggered_at(time)
        });
    prop_oneof![
        3 => any_service.prop_map(Change::Service),
        1 => service_name.prop_map(|text| Change::ServiceGone(name(&text))),
        5 => any_slice.prop_map(Change::Slice),
        1 => (0..4u8).prop_map(|i| Change::SliceGone(slice_name(&format!("slice-{i}")))),
        1 => (0..3u8).prop_map(|i| Change::Node(node_in(["", "a", "b"][usize::from(i)]))),
    ]
}

/// Which object a change is about: reports of one object keep their order.
fn subject(change: &Change) -> String {
    match change {
        Change::Service(service) => format!("service {}", service.name),
        Change::ServiceGone(name) => format!("service {name}"),
        Change::Slice(slice) => format!("slice {}", slice.name),
        Change::SliceGone(name) => format!("slice {name}"),
        Change::Services(_) | Change::Slices(_) | Change::Node(_) => "node".to_owned(),
    }
}

/// The same changes in another order: a permutation of the subjects, then each one's in turn.
fn reordered(changes: &[Change], order: &[usize]) -> Vec<Change> {
    let mut queues: std::collections::BTreeMap<String, std::collections::VecDeque<Change>> =
        Default::default();
    for change in changes {
        queues
            .entry(subject(change))
            .or_default()
            .push_back(change.clone());
    }
    let subjects: Vec<_> = order.iter().map(|&i| subject(&changes[i])).collect();
    let next = |subject: &String| queues.get_mut(subject)?.pop_front();
    subjects.iter().filter_map(next).collect()
}

fn everything(store: &Store) -> Vec<Desired> {
    (0..3)
        .map(|i| desired(store, &name(&format!("svc-{i}"))))
        .collect()
}

proptest! {
    #[test]
    fn any_order_of_reports_of_different_objects_desires_the_same(
        (changes, order) in prop::collection::vec(any_change(), 0..24).prop_flat_map(|changes| {
            let order = Just((0..changes.len()).collect::<Vec<_>>()).prop_shuffle();
            (Just(changes), order)
        })
    ) {
        let other = reordered(&changes, &order);
        prop_assert_eq!(changes.len(), other.len());
        let apply = |changes: Vec<Change>| {
            let mut store = Store::new(node_in(""));
            for change in changes {
                store.apply(change);
            }
            store
        };
        let (a, b) = (apply(changes), apply(other));
        prop_assert_eq!(everything(&a), everything(&b));
        prop_assert_eq!(a.counts(), b.counts());
        prop_assert_eq!(a.node(), b.node());
    }

    #[test]
    fn what_is_not_dirty_desires_what_it_did(changes in prop::collection::vec(any_change(), 0..24)) {
        let mut store = Store::new(node_in(""));
        for change in changes {
            let before = everything(&store);
            let dirty = store.apply(change);
            for (i, (before, after)) in before.iter().zip(everything(&store)).enumerate() {
                if !dirty.all && !dirty.services.contains(&name(&format!("svc-{i}"))) {
                    prop_assert_eq!(before, &after);
                }
            }
        }
    }

    #[test]
    fn full_lists_lead_to_what_the_single_reports_led_to(
        changes in prop::collection::vec(any_change(), 0..24)
    ) {
        let mut store = Store::new(node_in(""));
        for change in changes {
            store.apply(change);
        }
        let mut fresh = Store::new(store.node().clone());
        fresh.apply(Change::Services(store.services().cloned().collect()));
        let names = (0..3).map(|i| name(&format!("svc-{i}")));
        let slices = names.flat_map(|name| store.slices(&name).to_vec()).collect();
        fresh.apply(Change::Slices(slices));
        prop_assert_eq!(everything(&store), everything(&fresh));
        prop_assert_eq!(store.counts(), fresh.counts());
        // And an empty cluster wants nothing.
        fresh.apply(Change::Services(Vec::new()));
        fresh.apply(Change::Slices(Vec::new()));
        prop_assert!(everything(&fresh).iter().all(|desired| desired == &Desired::default()));
    }
}
