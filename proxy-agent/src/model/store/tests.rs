//! What the store touches and keeps: T43 to T45, T55 to T57, T66 and T71 of the acceptance list
//! (kube-proxy's endpointslicecache_test.go, endpointschangetracker_test.go,
//! servicechangetracker_test.go and config tests), then what goes beyond.

use proxy_common::Protocol::{Tcp, Udp};

use super::*;
use crate::model::fixture::{
    endpoint, name, node_in, service, service_port, slice, slice_name, slice_port,
};
use crate::model::{Endpoint, Policy};

fn store() -> Store {
    Store::new(node_in("a"))
}

/// A store that has seen some reports.
fn after(changes: impl IntoIterator<Item = Change>) -> Store {
    let mut store = store();
    for change in changes {
        store.apply(change);
    }
    store
}

/// The Services that a report touches.
fn touched(store: &mut Store, change: Change) -> Vec<String> {
    let dirty = store.apply(change);
    assert!(!dirty.all);
    dirty.services.iter().map(ServiceName::to_string).collect()
}

fn web() -> ServiceName {
    name("web")
}

fn two() -> Vec<Endpoint> {
    vec![endpoint("10.0.1.1"), endpoint("10.0.1.2")]
}

fn web_1() -> EndpointSlice {
    slice("web-1", "web", &two()).with_ports(&[slice_port("a", Tcp, 1), slice_port("b", Tcp, 2)])
}

const WEB: [&str; 1] = ["default/web"];
const NOTHING: [&str; 0] = [];

#[test]
fn t43_an_equal_slice_touches_nothing() {
    let mut store = after([Change::Slice(web_1())]);
    assert_eq!(touched(&mut store, Change::Slice(web_1())), NOTHING);
}

#[test]
fn t43_ports_in_another_order_removed_or_added_touch_the_service() {
    let [a, b, c] = [("a", 1), ("b", 2), ("c", 3)].map(|(name, port)| slice_port(name, Tcp, port));
    for ports in [vec![b.clone(), a.clone()], vec![a.clone()], vec![a, b, c]] {
        let mut store = after([Change::Slice(web_1())]);
        let change = Change::Slice(web_1().with_ports(&ports));
        assert_eq!(touched(&mut store, change), WEB);
    }
}

#[test]
fn t43_endpoints_in_another_order_or_added_touch_the_service() {
    let mut swapped = two();
    swapped.reverse();
    let mut more = two();
    more.push(endpoint("10.0.1.3"));
    for endpoints in [swapped, more] {
        let mut store = after([Change::Slice(web_1())]);
        let change = Change::Slice(EndpointSlice {
            endpoints,
            ..web_1()
        });
        assert_eq!(touched(&mut store, change), WEB);
    }
}

#[test]
fn t44_nothing_is_left_when_the_last_slice_goes() {
    for others in [
        vec![],
        vec!["one/web-1"],
        vec!["default/api-1"],
        vec!["default/web-2"],
    ] {
        let mut names = vec!["default/web-1"];
        names.extend(&others);
        let slices = names.iter().map(|&text| {
            let service = if text.contains("api") { "api" } else { "web" };
            Change::Slice(slice(text, service, &two()))
        });
        let mut store = after(slices);
        for (gone, &text) in names.iter().enumerate() {
            assert_eq!(store.counts().slices, names.len() - gone);
            assert!(!store.entries.is_empty());
            store.apply(Change::SliceGone(slice_name(text)));
        }
        assert!(
            store.entries.is_empty() && store.owner.is_empty(),
            "{store:?}"
        );
    }
}

#[test]
fn t44_a_service_stays_while_one_slice_of_it_does() {
    let slices = ["web-1", "web-2"].map(|text| Change::Slice(slice(text, "web", &two())));
    let mut store = after(slices);
    store.apply(Change::SliceGone(slice_name("web-1")));
    assert_eq!(store.slices(&web()), [slice("web-2", "web", &two())]);
}

#[test]
fn t45_what_is_kept_equals_what_was_reported() {
    let mut store = store();
    store.apply(Change::Slice(web_1()));
    store.apply(Change::Service(service("web")));
    store.apply(Change::Slice(slice("web-2", "web", &[])));
    assert_eq!(store.slices(&web()), [web_1(), slice("web-2", "web", &[])]);
    assert_eq!(store.service(&web()), Some(&service("web")));
}

#[test]
fn t55_a_report_touches_the_service_only_if_it_changes_something() {
    let of = |endpoints: Vec<Endpoint>| slice("web-1", "web", &endpoints);
    let unready: Vec<_> = two().into_iter().map(Endpoint::unready).collect();
    let some = vec![endpoint("10.0.1.1"), endpoint("10.0.1.2").unready()];
    let terminating = vec![endpoint("10.0.1.1"), endpoint("10.0.1.2").terminating()];
    let none = slice("web-1", "web", &two()).with_ports(&[]);
    let put = |slice: &EndpointSlice| Change::Slice(slice.clone());
    let gone = |text| Change::SliceGone(slice_name(text));
    for (what, before, change, expected) in [
        ("a new slice", None, put(&web_1()), &WEB[..]),
        ("an identical slice", Some(web_1()), put(&web_1()), &[]),
        (
            "an overlapping slice",
            Some(web_1()),
            put(&slice("web-2", "web", &two())),
            &WEB,
        ),
        ("fewer ports", Some(web_1()), put(&none), &WEB),
        (
            "removal of a known slice",
            Some(web_1()),
            gone("web-1"),
            &WEB,
        ),
        (
            "removal of an unknown slice",
            Some(web_1()),
            gone("web-9"),
            &[],
        ),
        (
            "all become unready",
            Some(of(two())),
            put(&of(unready.clone())),
            &WEB,
        ),
        ("all become ready", Some(of(unready)), put(&of(two())), &WEB),
        (
            "some become ready",
            Some(of(some.clone())),
            put(&of(two())),
            &WEB,
        ),
        (
            "some become terminating",
            Some(of(some)),
            put(&of(terminating)),
            &WEB,
        ),
    ] {
        let mut store = after(before.map(Change::Slice));
        assert_eq!(touched(&mut store, change), expected, "{what}");
    }
}

#[test]
fn t56_changes_are_told_once() {
    let mut store = store();
    assert!(store.apply(Change::Slices(Vec::new())).is_empty());
    assert_eq!(touched(&mut store, Change::Slice(web_1())), WEB);
    let fewer = web_1().with_ports(&[slice_port("a", Tcp, 1)]);
    assert_eq!(touched(&mut store, Change::Slice(fewer.clone())), WEB);
    assert_eq!(touched(&mut store, Change::Slice(fewer.clone())), NOTHING);
    assert_eq!(store.slices(&web()), [fewer]);
}

/// Trigger times by Service after some reports, each a slice's name and time; 0: none, -1: gone.
fn triggers(reports: &[(&str, i64)]) -> Vec<(String, i64)> {
    let mut store = store();
    let mut dirty = Dirty::default();
    for &(text, time) in reports {
        let change = if time < 0 {
            Change::SliceGone(slice_name(text))
        } else {
            let service = text.split_once('-').map_or(text, |(service, _)| service);
            // Another port each time, so that the slices differ.
            let ports = [slice_port(
                "",
                Udp,
                store.counts().slices as u16 + time as u16,
            )];
            Change::Slice(
                slice(text, service, &two())
                    .with_ports(&ports)
                    .triggered_at(time),
            )
        };
        dirty.merge(store.apply(change));
    }
    let times = dirty.trigger_times(5);
    times
        .map(|(name, time)| (name.name.to_string(), time))
        .collect()
}

#[test]
fn t57_trigger_times_are_collected_until_a_slice_goes() {
    let web =
        |times: &[i64]| -> Vec<_> { times.iter().map(|&time| ("web".to_owned(), time)).collect() };
    assert_eq!(triggers(&[("web-1", 10)]), web(&[10]));
    assert_eq!(triggers(&[("web-1", 10), ("web-1", 11)]), web(&[10, 11]));
    let two_services = [("api".to_owned(), 11), ("web".to_owned(), 10)];
    assert_eq!(triggers(&[("web-1", 10), ("api-1", 11)]), two_services);
    assert_eq!(triggers(&[("web-1", 0)]), [], "no annotation");
    assert_eq!(
        triggers(&[("web-1", 5)]),
        [],
        "from before the process started"
    );
    assert_eq!(triggers(&[("web-1", 10), ("web-1", -1)]), []);
    assert_eq!(
        triggers(&[("web-1", 10), ("web-1", -1), ("web-1", 12)]),
        web(&[12])
    );
    assert_eq!(triggers(&[("web-1", -1)]), []);
}

#[test]
fn t66_a_service_added_and_deleted_at_once_leaves_nothing() {
    let mut store = store();
    let mut dirty = store.apply(Change::Service(service("web")));
    dirty.merge(store.apply(Change::ServiceGone(web())));
    assert!(store.service(&web()).is_none());
    assert!(store.entries.is_empty());
    assert!(
        dirty.services.contains(&web()),
        "a plan may have been made in between"
    );
}

#[test]
fn t71_only_the_nodes_zone_makes_everything_dirty() {
    let mut store = Store::new(node_in(""));
    assert!(store.apply(Change::Node(node_in(""))).is_empty());
    assert!(store.apply(Change::Node(node_in("a"))).all);
    assert!(store.apply(Change::Node(node_in("a"))).is_empty());
    assert!(store.apply(Change::Node(node_in("b"))).all);
    assert_eq!(store.node(), &node_in("b"));
}

#[test]
fn t71_an_empty_zone_label_is_as_none() {
    let empty = Node {
        zone: Some("".into()),
        ..node_in("")
    };
    let mut store = Store::new(node_in(""));
    assert!(store.apply(Change::Node(empty.clone())).is_empty());
    assert_eq!(Store::new(empty).node().zone, None);
}

#[test]
fn a_change_of_a_service_touches_it_and_an_equal_one_does_not() {
    let mut store = after([Change::Service(service("web"))]);
    assert_eq!(
        touched(&mut store, Change::Service(service("web"))),
        NOTHING
    );
    let mut changed = service("web");
    changed.external_policy = Policy::Local;
    assert_eq!(touched(&mut store, Change::Service(changed.clone())), WEB);
    changed.ports.push(service_port("dns", Udp, 53));
    assert_eq!(touched(&mut store, Change::Service(changed)), WEB);
    assert_eq!(
        touched(&mut store, Change::ServiceGone(name("other"))),
        NOTHING
    );
}

#[test]
fn a_full_list_replaces_and_touches_what_it_lacks() {
    let mut store = after(["web", "api", "db"].map(|text| Change::Service(service(text))));
    let mut db = service("db");
    db.affinity_seconds = Some(10);
    let list = Change::Services(vec![service("web"), db, service("new")]);
    let expected = ["default/api", "default/db", "default/new"];
    assert_eq!(touched(&mut store, list.clone()), expected);
    assert_eq!(touched(&mut store, list), NOTHING);
    assert_eq!(store.services().count(), 3);
}

#[test]
fn a_full_list_of_slices_replaces_and_touches_what_it_lacks() {
    let of = |text, service| slice(text, service, &two());
    let list = vec![of("web-1", "web"), of("web-2", "web"), of("api-1", "api")];
    let mut store = after([Change::Slices(list.clone())]);
    assert_eq!(touched(&mut store, Change::Slices(list)), NOTHING);
    let fewer = Change::Slices(vec![of("web-1", "web"), of("api-1", "api")]);
    assert_eq!(touched(&mut store, fewer), WEB);
    assert_eq!(store.slices(&web()).len(), 1);
}

#[test]
fn a_slice_that_moves_touches_both_services() {
    let mut store = after([Change::Slice(slice("x-1", "web", &two()))]);
    let moved = Change::Slice(slice("x-1", "api", &two()));
    assert_eq!(touched(&mut store, moved), ["default/api", "default/web"]);
    assert_eq!(store.slices(&web()), []);
    assert_eq!(store.slices(&name("api")).len(), 1);
    assert_eq!(
        touched(&mut store, Change::SliceGone(slice_name("x-1"))),
        ["default/api"]
    );
}

#[test]
fn the_store_is_complete_once_both_lists_were_seen() {
    let mut store = after([Change::Service(service("web")), Change::Slice(web_1())]);
    assert!(!store.is_complete());
    store.apply(Change::Slices(Vec::new()));
    assert!(!store.is_complete());
    store.apply(Change::Services(Vec::new()));
    assert!(store.is_complete());
}

#[test]
fn slices_without_a_service_are_kept_and_named() {
    let mut store = after([Change::Slice(web_1())]);
    assert_eq!(store.orphans().collect::<Vec<_>>(), [&web_1()]);
    store.apply(Change::Service(service("web")));
    assert_eq!(store.orphans().count(), 0);
    assert_eq!(
        store.counts(),
        Counts {
            services: 1,
            service_ports: 1,
            slices: 1,
            endpoints: 2
        }
    );
}
