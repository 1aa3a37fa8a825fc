//! Transactions as text, and back.

use proxy_agent::{
    datapath::{Dataplane, Fake},
    model::Family,
    plan::Transaction,
};
use proxy_common::{FrontendKind, Protocol};

use crate::cluster::*;

/// Transactions with every kind of write in them.
fn recorded() -> (Cluster, Vec<Transaction>) {
    let mut cluster = Cluster::new();
    let mut log = Vec::new();
    let mut ranged = web("web", "10.96.0.1", &[1, 2]);
    ranged.key.port = "".into();
    ranged.source_ranges = vec!["10.0.0.0/8".parse().expect("a net")];
    ranged.affinity_seconds = 10800;
    let mut six = service("six");
    six.key.family = Family::V6;
    six.key.protocol = Protocol::Udp;
    six.frontends = vec![frontend(FrontendKind::Node, "::", 30053)];
    six.source_ranges = vec!["2001:db8::/32".parse().expect("a net")];
    log.push(
        cluster
            .change(changes([ranged.clone(), six.clone()]))
            .transaction,
    );
    ranged.source_ranges.clear();
    ranged.selection.candidates[0].cluster = false;
    log.push(cluster.set(ranged).transaction);
    let addr = proxy_common::addr::v4_mapped([192, 168, 0, 1]);
    for addrs in [vec![(addr, 1)], vec![]] {
        let plan = cluster.planner.node_addrs(addrs.into_iter().collect());
        cluster.apply(&plan.transaction);
        log.push(plan.transaction);
    }
    log.push(cluster.change([(six.key, None)]).transaction);
    (cluster, log)
}

#[test]
fn a_recorded_transaction_is_read_back_as_it_was() {
    for transaction in recorded().1 {
        let text = format!("{transaction:#}");
        assert_eq!(
            text.parse::<Transaction>().as_ref(),
            Ok(&transaction),
            "{text}"
        );
    }
}

#[test]
fn a_replay_on_the_fake_gives_the_same_maps() {
    let (mut cluster, log) = recorded();
    let mut replay = Fake::new();
    for transaction in log {
        let text = transaction.to_string();
        let read: Transaction = text.parse().expect("readable");
        assert!(replay.apply(&read).failed.is_empty());
    }
    assert_eq!(replay.dump().expect("reads"), cluster.maps());
}

#[test]
fn a_line_that_cannot_be_read_is_named() {
    let error = "default/web:http/TCP/IPv4\n  delete backend x\n".parse::<Transaction>();
    let text = error.expect_err("x is no id").to_string();
    assert_eq!(
        text,
        "line 2 of the transaction cannot be read: \"  delete backend x\""
    );
    for bad in [
        "  delete name 1",
        "web",
        "no service\n  delete name 1 2",
        "no service\n  fly",
    ] {
        assert!(bad.parse::<Transaction>().is_err(), "{bad}");
    }
}
