//! What a program on another CPU sees between any two writes.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::subsequence};
use proxy_common::FrontendKey;

use crate::cluster::*;

/// Endpoints by frontend, as a program finds them.
fn lists(
    fake: &proxy_agent::datapath::Fake,
    keys: &[FrontendKey],
) -> BTreeMap<FrontendKey, Vec<u8>> {
    let list = |key: &FrontendKey| {
        let found = fake.look_up(key).expect("nothing on the way is missing");
        (*key, found.iter().map(|backend| backend.addr[15]).collect())
    };
    keys.iter().map(list).collect()
}

fn endpoints() -> impl Strategy<Value = Vec<u8>> {
    subsequence((1..9).collect::<Vec<u8>>(), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_reader_sees_the_old_list_or_the_new_one_whole(
        steps in prop::collection::vec((0_u8..3, endpoints(), 0_u64..20), 1..12),
    ) {
        let ips = ["10.96.0.1", "10.96.0.2", "10.96.0.3"];
        let names = ["a", "b", "c"];
        let keys = ips.map(|ip| at(ip, 80));
        let mut cluster = Cluster::with(proxy_agent::datapath::Fake::new(), 64);
        for (service, endpoints, fault) in steps {
            let service = usize::from(service);
            let before = lists(&cluster.fake, &keys);
            let new = web(names[service], ips[service], &endpoints);
            // One Service changes, another passes its address on to a new one.
            let plan = cluster.planner.plan(changes([new]));
            let mut after = before.clone();
            after.insert(keys[service], endpoints);
            cluster.fake.set_faults(proxy_agent::datapath::fake::Faults::After(fault));
            let mut torn = Vec::new();
            let outcome = cluster.fake.apply_watched(&plan.transaction, |fake| {
                for (key, list) in lists(fake, &keys) {
                    if list != before[&key] && list != after[&key] {
                        torn.push((key, list));
                    }
                }
            });
            prop_assert_eq!(torn, Vec::new());
            let failed = outcome.failed.iter().map(|failed| failed.unit);
            cluster.planner.settle(&plan.transaction, failed);
            if let Some(epoch) = cluster.planner.unpublished() {
                cluster.planner.grace(epoch);
            }
        }
    }

    #[test]
    fn slots_that_rest_are_not_written_before_their_grace_period(
        steps in prop::collection::vec((0_u8..3, endpoints(), any::<bool>()), 1..40),
    ) {
        let ips = ["10.96.0.1", "10.96.0.2", "10.96.0.3"];
        let names = ["a", "b", "c"];
        let mut cluster = Cluster::with(proxy_agent::datapath::Fake::new(), 32);
        // Slots that programs may still read.
        let mut resting: Vec<(u32, u32)> = Vec::new();
        for (service, endpoints, pass) in steps {
            let service = usize::from(service);
            let new = web(names[service], ips[service], &endpoints);
            let before = cluster.maps();
            let plan = cluster.planner.plan(changes([new]));
            for op in plan.transaction.units.iter().flat_map(|unit| &unit.ops) {
                if let proxy_agent::plan::Op::WriteSlots { base, slots } = op {
                    let end = base + slots.len() as u32;
                    let used = before.services.values().map(|s| (s.base, s.base + s.slots()));
                    for (start, stop) in resting.iter().copied().chain(used) {
                        prop_assert!(end <= start || stop <= *base, "{op} in {start}..{stop}");
                    }
                }
            }
            cluster.apply(&plan.transaction);
            let now: Vec<u32> = cluster.maps().services.values().map(|s| s.base).collect();
            let gone = before.services.values().filter(|s| s.slots() > 0 && !now.contains(&s.base));
            resting.extend(gone.map(|s| (s.base, s.base + s.slots())));
            if pass && let Some(epoch) = cluster.planner.unpublished() {
                cluster.planner.grace(epoch);
                resting.clear();
            }
        }
    }
}
