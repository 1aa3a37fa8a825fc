//! What one change writes, and in which order.

use proxy_agent::plan::Op;
use proxy_common::{BackendState, FrontendKind, NameValue};

use crate::cluster::*;

#[test]
fn a_new_service_is_written_from_its_backends_to_its_frontends() {
    let plan = Cluster::new().set(web("web", "10.96.0.1", &[1, 2]));
    assert_eq!(
        ops(&plan.transaction),
        [
            "put backend 1 generation=1 service=1 10.0.0.1:8080 TCP active weight=1 flags=2",
            "put backend 2 generation=1 service=1 10.0.0.2:8080 TCP active weight=1 flags=2",
            "write slots 0.. service=1 1@10.0.0.1:8080 2@10.0.0.2:8080",
            "put service 1 base=0 local=0+0 cluster=0+2 affinity=0s random has_any=1",
            "put name 1 default/web:http/TCP/IPv4",
            "put frontend 10.96.0.1:80 TCP service=1 ClusterIP flags=0",
            "put frontend 10.96.0.1:0 any service=0 ClusterIP flags=0",
        ]
    );
}

#[test]
fn an_endpoint_change_writes_backends_a_fresh_run_and_one_record_but_no_frontend() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    let plan = cluster.set(web("web", "10.96.0.1", &[2, 3]));
    assert_eq!(
        ops(&plan.transaction),
        [
            "put backend 3 generation=1 service=1 10.0.0.3:8080 TCP active weight=1 flags=2",
            "write slots 2.. service=1 2@10.0.0.2:8080 3@10.0.0.3:8080",
            "put service 1 base=2 local=0+0 cluster=0+2 affinity=0s random has_any=1",
            "delete backend 1",
        ]
    );
}

#[test]
fn what_is_as_desired_is_not_written() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    let again = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    assert!(again.transaction.is_empty() && again.transaction.units.is_empty());
    assert!(cluster.delete("absent").transaction.is_empty());
    assert!(cluster.planner.plan(Vec::new()).transaction.is_empty());
}

#[test]
fn a_change_that_leaves_the_slots_alone_takes_no_run() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    let mut sticky = web("web", "10.96.0.1", &[1, 2]);
    sticky.affinity_seconds = 60;
    let plan = cluster.set(sticky.clone());
    assert_eq!(
        ops(&plan.transaction),
        ["put service 1 base=0 local=0+0 cluster=0+2 affinity=60s random has_any=1"]
    );
    sticky.selection.candidates[1].on_node = true;
    let plan = cluster.set(sticky);
    let put = "put backend 2 generation=2 service=1 10.0.0.2:8080 TCP active weight=1 flags=6";
    assert_eq!(ops(&plan.transaction), [put]);
    assert_eq!(cluster.planner.unpublished(), None, "no run went to rest");
}

#[test]
fn a_backend_drains_after_the_flip_and_comes_back_before_it() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    let mut drained = web("web", "10.96.0.1", &[1, 2]);
    drained.selection.candidates[0].cluster = false;
    let plan = cluster.set(drained);
    let kinds = ops(&plan.transaction);
    assert!(kinds[0].starts_with("write slots") && kinds[1].starts_with("put service"));
    assert_eq!(
        kinds[2],
        "put backend 1 generation=2 service=1 10.0.0.1:8080 TCP draining weight=1 flags=0"
    );
    let states = cluster
        .maps()
        .backends
        .into_values()
        .map(|backend| backend.state);
    assert_eq!(
        states.collect::<Vec<_>>(),
        [BackendState::Draining, BackendState::Active]
    );
    let plan = cluster.set(web("web", "10.96.0.1", &[1, 2]));
    assert!(ops(&plan.transaction)[0].starts_with("put backend 1"));
}

#[test]
fn a_service_goes_from_its_frontends_to_its_backends_and_leaves_nothing() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("web", "10.96.0.1", &[1]));
    let plan = cluster.delete("web");
    assert_eq!(
        ops(&plan.transaction),
        [
            "delete frontend 10.96.0.1:80 TCP",
            "delete frontend 10.96.0.1:0 any",
            "delete service 1",
            "delete name 1",
            "delete backend 1",
        ]
    );
    assert_eq!(cluster.text(), "");
}

#[test]
fn generations_of_backends_rise_with_each_replacement_and_wrap() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("web", "10.96.0.1", &[1]));
    let mut maps = cluster.maps();
    for backend in maps.backends.values_mut() {
        backend.generation = u32::MAX;
    }
    cluster.planner = proxy_agent::plan::Planner::restore(&maps, SLOTS);
    let mut local = web("web", "10.96.0.1", &[1]);
    local.selection.candidates[0].local = true;
    let plan = cluster.set(local);
    let generations = plan.transaction.units[0]
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::PutBackend(value) => Some(value.generation),
            _ => None,
        });
    assert_eq!(generations.collect::<Vec<_>>(), [0]);
}

#[test]
fn node_ports_stand_at_the_wildcard_of_their_family_and_claim_no_whole_address() {
    let mut cluster = Cluster::new();
    let mut web = service("web");
    web.frontends = vec![
        frontend(FrontendKind::Node, "0.0.0.0", 30080),
        frontend(FrontendKind::Node, "::", 30080),
    ];
    let _ = cluster.set(web);
    let keys: Vec<_> = cluster.maps().frontends.into_keys().collect();
    assert_eq!(keys, [at("::", 30080), at("0.0.0.0", 30080)]);
}

#[test]
fn frontend_flags_say_policy_local_and_source_ranges() {
    let mut cluster = Cluster::new();
    let mut web = web("web", "10.96.0.1", &[1]);
    web.frontends[0].local = true;
    let mut balancer = frontend(FrontendKind::Balancer, "192.0.2.1", 80);
    balancer.source_ranges = true;
    web.frontends.push(balancer);
    web.source_ranges = ["10.0.0.0/8", "::/0"]
        .map(|net| net.parse().expect("a net"))
        .into();
    let _ = cluster.set(web.clone());
    let text = cluster.text();
    assert!(text.contains("FE    default/web:http/TCP/IPv4 10.96.0.1:80 ClusterIP local\n"));
    assert!(text.contains("FE    default/web:http/TCP/IPv4 192.0.2.1:80 LoadBalancer ranges\n"));
    assert!(text.contains("RANGE default/web:http/TCP/IPv4 10.0.0.0/8\n"));
    assert!(
        !text.contains("::/0"),
        "a range of IPv6 would let all of IPv4 in"
    );
    web.source_ranges = vec!["10.1.0.0/16".parse().expect("a net")];
    let plan = cluster.set(web);
    let changed = [
        "put range service=1 10.1.0.0/16",
        "delete range service=1 10.0.0.0/8",
    ];
    assert_eq!(ops(&plan.transaction), changed);
}

#[test]
fn a_name_that_does_not_fit_is_refused_once_by_name_and_never_cut() {
    let mut cluster = Cluster::new();
    let long = "w".repeat(NameValue::MAX + 1);
    let plan = cluster.set(web(&long, "10.96.0.1", &[1]));
    assert!(plan.transaction.is_empty());
    assert_eq!(plan.warnings[0].object, format!("Service default/{long}"));
    assert_eq!(plan.warnings[0].field, "metadata.name");
    assert!(
        cluster
            .set(web(&long, "10.96.0.1", &[1, 2]))
            .warnings
            .is_empty()
    );
    assert_eq!(
        cluster.planner.refused().len(),
        0,
        "trying again cannot help"
    );
    let fits = "w".repeat(NameValue::MAX);
    assert!(
        cluster
            .set(web(&fits, "10.96.0.1", &[1]))
            .warnings
            .is_empty()
    );
    assert_eq!(cluster.maps().services.len(), 1);
}

#[test]
fn of_two_changes_of_one_service_the_last_counts() {
    let mut cluster = Cluster::new();
    let _ = cluster.change(changes([
        web("web", "10.96.0.1", &[1]),
        web("web", "10.96.0.2", &[2]),
    ]));
    assert_eq!(
        cluster
            .fake
            .look_up(&at("10.96.0.1", 80))
            .expect("consistent"),
        []
    );
    let found = cluster
        .fake
        .look_up(&at("10.96.0.2", 80))
        .expect("consistent");
    assert_eq!(found.len(), 1);
}

#[test]
fn node_addresses_are_compared_and_each_is_a_unit() {
    let mut cluster = Cluster::new();
    let addr = |n: u8| proxy_common::addr::v4_mapped([192, 168, 0, n]);
    let plan = cluster
        .planner
        .node_addrs([(addr(1), 1), (addr(2), 1)].into());
    assert_eq!(
        (plan.transaction.units.len(), plan.transaction.len()),
        (2, 2)
    );
    cluster.apply(&plan.transaction);
    let plan = cluster
        .planner
        .node_addrs([(addr(2), 3), (addr(3), 1)].into());
    assert_eq!(
        ops(&plan.transaction),
        [
            "delete node address 192.168.0.1",
            "put node address 192.168.0.2 flags=3",
            "put node address 192.168.0.3 flags=1",
        ]
    );
    cluster.apply(&plan.transaction);
    assert_eq!(
        cluster.text(),
        "NODE  192.168.0.2 nodeport,loopback\nNODE  192.168.0.3 nodeport\n"
    );
    let same = cluster
        .planner
        .node_addrs([(addr(2), 3), (addr(3), 1)].into());
    assert!(same.transaction.is_empty());
}
