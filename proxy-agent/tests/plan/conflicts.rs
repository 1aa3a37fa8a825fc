//! Several services at one address and port.

use proxy_common::FrontendKind;

use crate::cluster::*;

const VIP: &str = "192.0.2.1";

fn claimant(name: &str, kind: FrontendKind) -> proxy_agent::plan::DesiredService {
    let mut claimant = web(name, "10.96.0.1", &[1]);
    claimant.frontends = vec![frontend(kind, VIP, 80)];
    claimant
}

#[test]
fn the_winner_is_the_same_whatever_came_first() {
    let claims = [
        claimant("a", FrontendKind::External),
        claimant("b", FrontendKind::Balancer),
        claimant("c", FrontendKind::Balancer),
    ];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut cluster = Cluster::new();
        for index in order {
            let _ = cluster.set(claims[index].clone());
        }
        let owner = cluster.owner(&at(VIP, 80));
        assert_eq!(
            owner.as_deref(),
            Some("b"),
            "lowest kind, then lowest name; {order:?}"
        );
    }
}

#[test]
fn who_does_not_get_an_address_is_told_once_and_by_name() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(claimant("a", FrontendKind::External));
    let plan = cluster.set(claimant("b", FrontendKind::External));
    assert_eq!(
        plan.warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [
            "Service default/b: spec.externalIPs: 192.0.2.1:80/TCP belongs to default/a:http/TCP/IPv4 \
          already; there it is not served for default/b:http/TCP/IPv4"
        ]
    );
    let mut scaled = claimant("b", FrontendKind::External);
    scaled.selection.candidates.push(endpoint(2));
    assert!(cluster.set(scaled).warnings.is_empty());
}

#[test]
fn the_loser_takes_over_in_the_unit_that_removes_the_winner() {
    let mut cluster = Cluster::new();
    let _ = cluster.change(changes([
        claimant("a", FrontendKind::External),
        claimant("b", FrontendKind::External),
    ]));
    let plan = cluster.delete("a");
    assert_eq!(plan.transaction.units.len(), 1);
    assert_eq!(
        ops(&plan.transaction),
        [
            "put frontend 192.0.2.1:80 TCP service=2 ExternalIP flags=0",
            "delete service 1",
            "delete name 1",
            "delete backend 1",
        ]
    );
    assert_eq!(cluster.owner(&at(VIP, 80)).as_deref(), Some("b"));
    assert!(plan.warnings.is_empty());
}

#[test]
fn an_address_that_passes_to_a_new_service_is_never_without_one() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("old", "10.96.0.1", &[1]));
    let mut gaps = 0;
    let new = web("new", "10.96.0.1", &[1]);
    let plan = cluster
        .planner
        .plan(vec![(key("old"), None), (new.key.clone(), Some(new))]);
    assert_eq!(plan.transaction.units.len(), 1);
    let outcome = cluster.fake.apply_watched(&plan.transaction, |fake| {
        for port in [0, 80] {
            gaps += usize::from(!fake.holds(&at("10.96.0.1", port)));
        }
    });
    assert!(outcome.failed.is_empty() && gaps == 0);
    assert_eq!(cluster.maps().frontends.len(), 2);
}

#[test]
fn a_renamed_port_that_does_not_fit_keeps_its_old_name() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(web("old", "10.96.0.1", &[1]));
    let before = cluster.text();
    cluster
        .fake
        .set_faults(proxy_agent::datapath::fake::Faults::After(4));
    let _ = cluster.change([
        (key("old"), None),
        (key("new"), Some(web("new", "10.96.0.1", &[1]))),
    ]);
    assert_eq!(cluster.text(), before);
    assert_eq!(cluster.planner.refused().len(), 2);
    cluster.retry_all();
    assert_eq!(cluster.owner(&at("10.96.0.1", 80)).as_deref(), Some("new"));
}

#[test]
fn a_better_claim_takes_an_address_and_gives_it_back_when_its_unit_fails() {
    let mut cluster = Cluster::new();
    let _ = cluster.set(claimant("b", FrontendKind::External));
    // Backend, slots, service, name, frontend: the fifth write is the take-over.
    cluster
        .fake
        .set_faults(proxy_agent::datapath::fake::Faults::After(4));
    let _ = cluster.set(claimant("a", FrontendKind::External));
    assert_eq!(cluster.owner(&at(VIP, 80)).as_deref(), Some("b"));
    cluster.retry_all();
    assert_eq!(cluster.owner(&at(VIP, 80)).as_deref(), Some("a"));
}

#[test]
fn the_loser_is_served_when_the_unit_of_the_winner_fails() {
    let mut cluster = Cluster::new();
    cluster
        .fake
        .set_faults(proxy_agent::datapath::fake::Faults::After(0));
    let _ = cluster.change(changes([
        claimant("a", FrontendKind::External),
        claimant("b", FrontendKind::External),
    ]));
    assert_eq!(cluster.owner(&at(VIP, 80)), None);
    assert!(cluster.planner.has_leftovers());
    let plan = cluster.planner.plan(Vec::new());
    cluster.apply(&plan.transaction);
    assert_eq!(cluster.owner(&at(VIP, 80)).as_deref(), Some("b"));
    cluster.retry_all();
    assert_eq!(cluster.owner(&at(VIP, 80)).as_deref(), Some("a"));
}

#[test]
fn ports_of_a_service_share_the_whole_address_until_the_last_goes() {
    let mut cluster = Cluster::new();
    let port = |name: &str, port: u16| {
        let mut service = web("web", "10.96.0.1", &[1]);
        service.key.port = name.into();
        service.frontends[0].port = port;
        service
    };
    let (http, https) = (port("http", 80), port("https", 443));
    let plan = cluster.change(changes([http.clone(), https.clone()]));
    let puts = ops(&plan.transaction);
    let puts = puts
        .iter()
        .filter(|op| op.starts_with("put frontend 10.96.0.1:0"));
    assert_eq!(puts.count(), 2, "each unit can fail alone");
    let metrics = port("metrics", 9090);
    let plan = cluster.set(metrics.clone());
    assert!(
        !ops(&plan.transaction)
            .iter()
            .any(|op| op.contains("10.96.0.1:0"))
    );
    let gone = [http.key, metrics.key].map(|key| (key, None));
    let _ = cluster.change(gone);
    assert!(cluster.fake.holds(&at("10.96.0.1", 0)));
    let _ = cluster.change([(https.key, None)]);
    assert_eq!(cluster.text(), "");
}

#[test]
fn a_failed_unit_takes_the_whole_address_from_no_other() {
    for fault in 0..12 {
        let mut cluster = Cluster::new();
        cluster
            .fake
            .set_faults(proxy_agent::datapath::fake::Faults::After(fault));
        let mut second = web("web", "10.96.0.1", &[1]);
        second.key.port = "second".into();
        second.frontends[0].port = 443;
        let _ = cluster.change(changes([web("web", "10.96.0.1", &[1]), second]));
        let maps = cluster.maps();
        assert_eq!(maps.services.len(), 1, "one of two failed");
        assert!(
            cluster.fake.holds(&at("10.96.0.1", 0)),
            "after {fault}\n{}",
            maps.normalized()
        );
        cluster.retry_all();
        assert_eq!(cluster.maps().services.len(), 2);
    }
}

#[test]
fn the_lower_kind_counts_where_one_service_has_an_address_twice() {
    let mut cluster = Cluster::new();
    let mut both = claimant("web", FrontendKind::External);
    both.frontends
        .push(frontend(FrontendKind::Balancer, VIP, 80));
    assert!(cluster.set(both).warnings.is_empty());
    assert!(cluster.text().contains("192.0.2.1:80 LoadBalancer\n"));
}
