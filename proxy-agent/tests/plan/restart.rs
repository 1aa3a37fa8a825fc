//! Starting over maps that another agent wrote.

use proxy_agent::plan::{Planner, Snapshot};
use proxy_common::{
    BackendValue, FrontendKey, FrontendKind, FrontendValue, Protocol, RangeKey, addr::v4_mapped,
};

use crate::cluster::*;

fn services() -> Vec<proxy_agent::plan::DesiredService> {
    let mut ranged = web("ranged", "10.96.0.3", &[1]);
    ranged
        .frontends
        .push(frontend(FrontendKind::Balancer, "192.0.2.1", 80));
    ranged.frontends[1].source_ranges = true;
    ranged.source_ranges = vec!["10.0.0.0/8".parse().expect("a net")];
    let mut local = web("local", "10.96.0.2", &[1, 2, 3]);
    local.selection.candidates[1].local = true;
    local.selection.candidates[2].cluster = false;
    vec![web("web", "10.96.0.1", &[1, 2]), local, ranged]
}

fn restarted() -> Cluster {
    let mut cluster = Cluster::new();
    let _ = cluster.change(changes(services()));
    let maps = cluster.maps();
    cluster.planner = Planner::restore(&maps, SLOTS);
    cluster
}

#[test]
fn a_restart_over_an_unchanged_cluster_writes_nothing() {
    let mut cluster = restarted();
    assert_eq!(cluster.planner.expected(), cluster.maps());
    assert!(cluster.planner.plan_full(services()).transaction.is_empty());
}

#[test]
fn services_and_backends_keep_their_ids_and_new_ones_are_new() {
    let mut cluster = restarted();
    let before = cluster.id("web");
    let highest = *cluster.maps().backends.keys().max().expect("some");
    let _ = cluster.set(web("web", "10.96.0.1", &[2, 3]));
    assert_eq!(cluster.id("web"), before);
    let found = cluster
        .fake
        .look_up(&at("10.96.0.1", 80))
        .expect("consistent");
    assert_eq!(found[0].generation, 1, "10.0.0.2 was not written again");
    assert!(found[1].id > highest);
}

#[test]
fn nothing_is_removed_before_the_first_full_plan() {
    let mut cluster = restarted();
    let before = cluster.maps();
    let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    assert_eq!(cluster.maps(), before);
    let plan = cluster
        .planner
        .plan_full(vec![web("web", "10.96.0.1", &[1, 2])]);
    cluster.apply(&plan.transaction);
    assert_eq!(cluster.maps().services.len(), 1);
}

#[test]
fn a_full_plan_in_parts_ends_with_a_prune() {
    let mut cluster = restarted();
    let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    let _ = cluster.set(web("new", "10.96.0.4", &[1]));
    let keep = [key("web"), key("new")];
    let plan = cluster.planner.prune(|key| keep.contains(key));
    cluster.apply(&plan.transaction);
    let mut fresh = Cluster::new();
    let parts = [
        web("web", "10.96.0.1", &[1, 2]),
        web("new", "10.96.0.4", &[1]),
    ];
    let _ = fresh.change(changes(parts));
    assert_eq!(cluster.text(), fresh.text());
}

#[test]
fn a_whole_service_change_removes_the_ports_that_it_lacks() {
    let mut cluster = Cluster::new();
    let mut second = web("web", "10.96.0.1", &[1]);
    second.key.port = "second".into();
    second.frontends[0].port = 443;
    let other = web("web-2", "10.96.0.2", &[1]);
    let _ = cluster.change(changes([
        web("web", "10.96.0.1", &[1]),
        second.clone(),
        other,
    ]));
    let changes = vec![(second.key.service.clone(), vec![second])];
    let plan = cluster.planner.plan_services(changes);
    cluster.apply(&plan.transaction);
    let text = cluster.text();
    assert!(!text.contains("web:http") && text.contains("web:second"));
    assert!(
        text.contains("web-2:http"),
        "a name that only begins alike is left alone"
    );
}

#[test]
fn what_belongs_to_no_service_goes_with_the_first_full_plan() {
    let mut cluster = restarted();
    let maps = cluster.maps();
    let key = FrontendKey::new(v4_mapped([10, 96, 0, 77]), 80, Protocol::Tcp);
    let kind = FrontendKind::Cluster;
    let lost = |service| FrontendValue {
        service,
        kind,
        flags: 0,
        reserved: 0,
    };
    let backend = *maps.backends.values().next().expect("some");
    let web = cluster.id("web");
    let mut leftovers = maps.clone();
    leftovers.frontends.insert(key, lost(77));
    leftovers
        .frontends
        .insert(FrontendKey::whole_address(key.addr), lost(0));
    leftovers.backends.insert(
        88,
        BackendValue {
            id: 88,
            service: 77,
            ..backend
        },
    );
    leftovers.names.insert(99, maps.names[&web]);
    leftovers
        .ranges
        .insert((64, 77_u32.to_be_bytes(), key.addr), ());
    // A service without a name, and one whose name another one has.
    let value = maps.services[&web];
    let nothing = proxy_common::ServiceRecord {
        base: 0,
        local: Default::default(),
        cluster: Default::default(),
        ..value
    };
    leftovers.services.insert(66, nothing);
    leftovers.services.insert(67, nothing);
    leftovers.names.insert(67, maps.names[&web]);
    leftovers
        .frontends
        .insert(FrontendKey::new(key.addr, 81, Protocol::Tcp), lost(67));
    cluster.fake.fill(&leftovers);
    assert!(!cluster.maps().check().is_empty());

    cluster.planner = Planner::restore(&leftovers, SLOTS);
    assert!(
        cluster
            .planner
            .plan(changes(services()))
            .transaction
            .is_empty()
    );
    let plan = cluster.planner.plan_full(services());
    cluster.apply(&plan.transaction);
    assert_eq!(cluster.maps(), maps);
    assert!(!cluster.planner.has_leftovers());
}

#[test]
fn leftovers_whose_removal_fails_are_removed_by_the_next_plan() {
    let mut cluster = restarted();
    let maps = cluster.maps();
    let mut leftovers = maps.clone();
    let backend = *maps.backends.values().next().expect("some");
    leftovers.backends.insert(
        88,
        BackendValue {
            id: 88,
            service: 77,
            ..backend
        },
    );
    cluster.fake.fill(&leftovers);
    cluster.planner = Planner::restore(&leftovers, SLOTS);
    cluster
        .fake
        .set_faults(proxy_agent::datapath::fake::Faults::After(0));
    let plan = cluster.planner.plan_full(services());
    let outcome = proxy_agent::datapath::Dataplane::apply(&mut cluster.fake, &plan.transaction);
    cluster.planner.settle(
        &plan.transaction,
        outcome.failed.iter().map(|failed| failed.unit),
    );
    assert!(cluster.planner.has_leftovers());
    let plan = cluster.planner.plan(Vec::new());
    cluster.apply(&plan.transaction);
    assert_eq!(cluster.maps(), maps);
}

#[test]
fn whatever_the_maps_hold_a_full_plan_puts_it_right() {
    type Damage = fn(&mut Snapshot);
    let damages: [(&str, Damage); 10] = [
        ("a weight", |maps| {
            maps.backends.values_mut().for_each(|b| b.weight = 7)
        }),
        ("states", |maps| {
            let draining = proxy_common::BackendState::Draining;
            maps.backends.values_mut().for_each(|b| b.state = draining);
        }),
        ("an id in a value", |maps| {
            maps.backends.values_mut().for_each(|b| b.id = 5)
        }),
        ("slots", |maps| {
            maps.slots
                .values_mut()
                .flatten()
                .for_each(|slot| slot.backend = 1)
        }),
        ("bases", |maps| {
            maps.services.values_mut().for_each(|s| s.base += 1)
        }),
        ("windows", |maps| {
            maps.services
                .values_mut()
                .for_each(|s| s.local.count = u32::MAX)
        }),
        ("no slots at all", |maps| {
            maps.services.values_mut().for_each(|s| {
                (s.local, s.cluster) = Default::default();
            })
        }),
        ("backends", |maps| maps.backends.clear()),
        ("frontends", |maps| {
            maps.frontends.values_mut().for_each(|f| f.service = 1)
        }),
        ("an endpoint twice", |maps| {
            let (_, first) = maps.backends.pop_first().expect("some");
            for id in [first.id, 1000] {
                maps.backends.insert(id, BackendValue { id, ..first });
            }
        }),
    ];
    let mut fresh = Cluster::new();
    let _ = fresh.change(changes(services()));
    for (what, damage) in damages {
        let mut cluster = Cluster::new();
        let _ = cluster.change(changes(services()));
        let mut maps = cluster.maps();
        damage(&mut maps);
        cluster.fake.fill(&maps);
        cluster.planner = Planner::restore(&maps, SLOTS);
        let plan = cluster.planner.plan_full(services());
        cluster.apply(&plan.transaction);
        assert_eq!(cluster.text(), fresh.text(), "{what}");
        assert_eq!(cluster.maps(), cluster.planner.expected(), "{what}");
    }
}

#[test]
fn a_source_range_that_nobody_wants_any_more_goes() {
    let mut cluster = restarted();
    let mut maps = cluster.maps();
    let service_be = cluster.id("ranged").to_be_bytes();
    let key = RangeKey {
        service_be,
        source: v4_mapped([172, 16, 0, 0]),
    };
    maps.ranges
        .insert((32 + 96 + 12, key.service_be, key.source), ());
    cluster.fake.fill(&maps);
    cluster.planner = Planner::restore(&maps, SLOTS);
    let plan = cluster.planner.plan_full(services());
    let delete = format!(
        "delete range service={} 172.16.0.0/12",
        cluster.id("ranged")
    );
    assert_eq!(ops(&plan.transaction), [delete]);
}
