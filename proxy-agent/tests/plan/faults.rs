//! Writes that fail, and maps that are full.

use std::collections::BTreeMap;

use proxy_agent::{
    datapath::{Fake, fake::Faults},
    plan::Planner,
};

use crate::cluster::*;

fn sized(map: &'static str, entries: u32) -> Cluster {
    Cluster::with(Fake::with_sizes([(map, entries)].into()), SLOTS)
}

#[test]
fn a_unit_that_fails_at_any_write_changes_nothing_and_comes_in_later() {
    for fault in 0.. {
        let mut cluster = Cluster::new();
        let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
        let before = cluster.maps();
        cluster.fake.set_faults(Faults::After(fault));
        let mut changed = web("web", "10.96.0.2", &[2, 3]);
        changed.source_ranges = vec!["10.0.0.0/8".parse().expect("a net")];
        let plan = cluster.set(changed.clone());
        if cluster.planner.refused().len() == 0 {
            assert_eq!(
                fault,
                plan.transaction.len() as u64,
                "every write failed once"
            );
            break;
        }
        assert_eq!(cluster.maps(), before);
        cluster.retry_all();
        let mut fresh = Cluster::new();
        let _ = fresh.set(changed);
        assert_eq!(cluster.text(), fresh.text());
        assert_eq!(cluster.maps(), cluster.planner.expected());
    }
}

#[test]
fn a_full_map_refuses_the_new_service_whole_and_takes_it_when_there_is_room() {
    for (map, entries) in [("frontend", 2), ("service", 1), ("name", 1), ("backend", 2)] {
        let mut cluster = sized(map, entries);
        let _ = cluster.set(web("a", "10.96.0.1", &[1, 2]));
        let before = cluster.maps();
        let _ = cluster.set(web("b", "10.96.0.2", &[1, 2]));
        assert_eq!(cluster.maps(), before, "map {map}");
        assert_eq!(cluster.planner.refused().collect::<Vec<_>>(), [&key("b")]);
        assert!(cluster.planner.retry().is_empty(), "there is no room yet");
        let _ = cluster.delete("a");
        let again = cluster.planner.retry();
        assert_eq!(again, [key("b")]);
        assert!(cluster.planner.retry().is_empty(), "once per occasion");
        let _ = cluster.set(web("b", "10.96.0.2", &[1, 2]));
        assert_eq!(cluster.owner(&at("10.96.0.2", 80)).as_deref(), Some("b"));
        assert_eq!(cluster.planner.refused().len(), 0);
    }
}

#[test]
fn without_slots_a_service_stays_as_it_is_until_the_grace_period_has_passed() {
    let mut cluster = Cluster::with(Fake::new(), 4);
    let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    let _ = cluster.set(web("web", "10.96.0.1", &[2, 3]));
    let epoch = cluster.planner.unpublished().expect("the first run rests");
    let before = cluster.text();
    let plan = cluster.set(web("web", "10.96.0.1", &[3, 4]));
    assert!(plan.transaction.is_empty());
    assert_eq!(
        plan.refused[0].to_string(),
        "Service default/web:http/TCP/IPv4: map slot has no free run of 2 for its endpoints (size \
         4, 2 of them rest after use): raise it with --map-size slot=N and restart, or remove \
         Services"
    );
    assert_eq!(cluster.text(), before);
    let _ = cluster.planner.retry();
    assert!(cluster.planner.retry().is_empty(), "nothing came free");
    cluster.planner.grace(epoch);
    assert_eq!(cluster.planner.retry(), [key("web")]);
    let plan = cluster.set(web("web", "10.96.0.1", &[3, 4]));
    assert!(plan.refused.is_empty());
    assert_eq!(
        ops(&plan.transaction)[1],
        "write slots 0.. service=1 3@10.0.0.3:8080 4@10.0.0.4:8080"
    );
}

#[test]
fn a_run_begins_to_rest_when_the_unit_that_replaced_it_is_settled() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("web", "10.96.0.1", &[1]));
    let changed = web("web", "10.96.0.1", &[2]);
    let plan = cluster.planner.plan(changes([changed]));
    assert_eq!(cluster.planner.unpublished(), None, "not applied yet");
    cluster.apply(&plan.transaction);
    let epoch = cluster.planner.unpublished().expect("now it rests");
    cluster.planner.grace(epoch);
    assert_eq!(cluster.planner.usage().resting, 0);
}

#[test]
fn the_run_of_a_failed_unit_rests_too_since_programs_may_have_seen_it() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("web", "10.96.0.1", &[1]));
    cluster.fake.set_faults(Faults::After(3));
    let _ = cluster.set(web("web", "10.96.0.1", &[2]));
    assert_eq!(cluster.planner.usage().resting, 1);
    let plan = cluster.set(web("web", "10.96.0.1", &[2]));
    assert_eq!(
        ops(&plan.transaction)[1],
        "write slots 2.. service=1 3@10.0.0.2:8080"
    );
    assert!(ops(&plan.transaction)[2].starts_with("put service 1"));
}

#[test]
fn an_update_that_cannot_be_written_leaves_the_old_state_and_the_others_alone() {
    let mut cluster = sized("backend", 3);
    let _ = cluster.set(web("a", "10.96.0.1", &[1, 2]));
    let _ = cluster.change(changes([
        web("a", "10.96.0.1", &[3, 4]),
        web("b", "10.96.0.2", &[5]),
    ]));
    assert_eq!(cluster.owner(&at("10.96.0.2", 80)).as_deref(), Some("b"));
    let found = cluster
        .fake
        .look_up(&at("10.96.0.1", 80))
        .expect("consistent");
    assert_eq!(
        found.iter().map(|backend| backend.id).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[test]
fn an_address_of_the_node_that_does_not_fit_is_tried_again_by_the_next_plan() {
    let mut cluster = sized("node_addr", 1);
    let addrs: BTreeMap<_, _> = [1, 2]
        .map(|n| (proxy_common::addr::v4_mapped([192, 168, 0, n]), 1))
        .into();
    let plan = cluster.planner.node_addrs(addrs.clone());
    cluster.apply(&plan.transaction);
    assert!(cluster.planner.has_leftovers());
    assert_eq!(cluster.text(), "NODE  192.168.0.1 nodeport\n");
    let last = addrs.into_iter().skip(1).collect();
    let plan = cluster.planner.node_addrs(last);
    cluster.apply(&plan.transaction);
    assert_eq!(cluster.text(), "NODE  192.168.0.2 nodeport\n");
    assert!(!cluster.planner.has_leftovers());
}

#[test]
fn after_a_torn_unit_a_resync_and_a_full_plan_put_the_maps_right() {
    for fault in 0..12 {
        let mut cluster = Cluster::new();
        let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
        cluster.fake.set_faults(Faults::AfterWithUndo(fault));
        let wanted = [
            web("new", "10.96.0.1", &[2, 3]),
            web("other", "10.96.0.9", &[1]),
        ];
        let mut plan = vec![(key("web"), None)];
        plan.extend(changes(wanted.clone()));
        let plan = cluster.planner.plan(plan);
        let outcome = proxy_agent::datapath::Dataplane::apply(&mut cluster.fake, &plan.transaction);
        let failed = outcome.failed.iter().map(|failed| failed.unit);
        cluster.planner.settle(&plan.transaction, failed);
        cluster.fake.set_faults(Faults::Never);
        let maps = cluster.maps();
        cluster.planner.resync(&maps);
        let plan = cluster.planner.plan_full(wanted.to_vec());
        cluster.apply(&plan.transaction);
        let mut fresh = Cluster::new();
        let _ = fresh.change(changes(wanted));
        assert_eq!(cluster.text(), fresh.text(), "fault {fault}");
        assert_eq!(cluster.maps(), cluster.planner.expected());
    }
}

#[test]
fn a_plan_that_nobody_settled_counts_as_applied() {
    let mut planner = Planner::new(SLOTS);
    let _ = planner.plan(changes([web("web", "10.96.0.1", &[1])]));
    let plan = planner.plan(changes([web("web", "10.96.0.1", &[2])]));
    assert!(ops(&plan.transaction)[2].starts_with("put service 1"));
}
