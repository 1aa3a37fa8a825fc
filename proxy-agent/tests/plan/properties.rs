//! Any order of events, with faults: the same maps in the end.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, sample::subsequence};
use proxy_agent::{
    datapath::fake::Faults,
    plan::{DesiredService, Op, Planner},
};
use proxy_common::FrontendKind;

use crate::cluster::*;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A service whose addresses others may claim as well.
fn desired() -> impl Strategy<Value = DesiredService> {
    let kind = prop::sample::select(vec![
        FrontendKind::Cluster,
        FrontendKind::Node,
        FrontendKind::Balancer,
        FrontendKind::External,
    ]);
    let claim = (kind, 1_u8..4, 80_u16..82, any::<bool>()).prop_map(|(kind, addr, port, local)| {
        let addr = match kind {
            FrontendKind::Node => "0.0.0.0".to_owned(),
            _ => format!("10.96.0.{addr}"),
        };
        let mut frontend = frontend(kind, &addr, port);
        frontend.local = local;
        frontend
    });
    let endpoints = subsequence((1..9).collect::<Vec<u8>>(), 0..8)
        .prop_flat_map(|list| (prop::collection::vec(0_u8..4, list.len()), Just(list)))
        .prop_map(|(sets, list)| {
            let pairs = list.into_iter().zip(sets);
            pairs
                .map(|(n, sets)| {
                    let mut endpoint = endpoint(n);
                    endpoint.local = sets & 1 != 0;
                    endpoint.cluster = sets & 2 != 0;
                    endpoint
                })
                .collect::<Vec<_>>()
        });
    let claims = prop::collection::vec(claim, 0..4);
    (0..NAMES.len(), claims, endpoints, 0_u32..2).prop_map(
        |(name, claims, candidates, affinity)| {
            let mut service = service(NAMES[name]);
            service.frontends = claims;
            service.selection.has_any = !candidates.is_empty();
            service.selection.candidates = candidates;
            service.affinity_seconds = affinity * 60;
            if affinity == 1 {
                service.source_ranges = vec!["10.0.0.0/8".parse().expect("a net")];
            }
            service
        },
    )
}

#[derive(Clone, Debug)]
enum Event {
    Set(Vec<DesiredService>),
    Delete(usize),
    Restart,
    Grace,
    Retry,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => prop::collection::vec(desired(), 1..4).prop_map(Event::Set),
        4 => (0..NAMES.len()).prop_map(Event::Delete),
        1 => Just(Event::Restart),
        2 => Just(Event::Grace),
        2 => Just(Event::Retry),
    ]
}

/// Ids that a Transaction puts for the first time.
fn new_ids(cluster: &mut Cluster, plan: &proxy_agent::plan::Plan) -> Vec<String> {
    let maps = cluster.maps();
    let ops = plan
        .transaction
        .units
        .iter()
        .flat_map(|unit| unit.ops.iter().zip(&unit.undo));
    ops.filter_map(|pair| match pair {
        (Op::PutBackend(value), Some(Op::DeleteBackend(_))) => {
            assert!(
                !maps.backends.contains_key(&value.id),
                "backend {} is in use",
                value.id
            );
            Some(format!("backend {}", value.id))
        }
        (Op::PutService(id, _), Some(Op::DeleteService(_))) => {
            assert!(!maps.services.contains_key(id), "service {id} is in use");
            Some(format!("service {id}"))
        }
        _ => None,
    })
    .collect()
}

fn run(cluster: &mut Cluster, event: Event) {
    let changes = match event {
        Event::Set(services) => changes(services),
        Event::Delete(name) => vec![(key(NAMES[name]), None)],
        Event::Restart => {
            let maps = cluster.maps();
            cluster.planner = Planner::restore(&maps, SLOTS);
            let desired = cluster.desired.values().cloned().collect();
            let plan = cluster.planner.plan_full(desired);
            return cluster.apply(&plan.transaction);
        }
        Event::Grace => {
            let epoch = cluster.planner.unpublished();
            return epoch
                .into_iter()
                .for_each(|epoch| cluster.planner.grace(epoch));
        }
        Event::Retry => {
            let refused: Vec<_> = cluster.planner.refused().cloned().collect();
            let desired = |key| (cluster.desired.get(&key).cloned(), key);
            refused
                .into_iter()
                .map(desired)
                .map(|(desired, key)| (key, desired))
                .collect()
        }
    };
    for (key, desired) in &changes {
        match desired {
            Some(desired) => cluster.desired.insert(key.clone(), desired.clone()),
            None => cluster.desired.remove(key),
        };
    }
    let plan = cluster.planner.plan(changes);
    let ids = new_ids(cluster, &plan);
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "an id twice in one plan");
    cluster.apply(&plan.transaction);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_happened_the_maps_are_those_of_a_fresh_start(
        events in prop::collection::vec(event(), 1..30),
        seed in any::<u64>(),
        percent in prop::sample::select(vec![0_u8, 10]),
    ) {
        let mut cluster = Cluster::new();
        cluster.fake.set_faults(Faults::Percent { percent, seed });
        for event in events {
            run(&mut cluster, event);
        }
        cluster.fake.set_faults(Faults::Never);
        cluster.retry_all();
        prop_assert_eq!(cluster.maps(), cluster.planner.expected());

        let mut fresh = Cluster::new();
        let desired = cluster.desired.values().cloned().collect::<Vec<_>>();
        let _ = fresh.change(changes(desired.clone()));
        prop_assert_eq!(cluster.text(), fresh.text());
        let again = cluster.planner.plan_full(desired);
        prop_assert_eq!(again.transaction.to_string(), "", "and nothing is left to do");

        let gone: BTreeMap<_, _> = cluster.desired.keys().map(|key| (key.clone(), None)).collect();
        let _ = cluster.change(gone);
        prop_assert_eq!(cluster.text(), "");
        cluster.retry_all();
        let usage = cluster.planner.usage();
        prop_assert_eq!(usage, proxy_agent::plan::Usage::default(), "no slot is lost");
    }
}
