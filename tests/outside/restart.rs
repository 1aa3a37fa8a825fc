//! The agent goes and comes, and what it leaves behind.

use std::{fs, io, net::SocketAddr, time::Duration};

use lab::{Host as _, Node};

use crate::{
    cluster::{Cluster, Service, TARGET},
    talk::{IMPATIENCE, connect},
};

/// The list of reserved ports of a node.
fn reserved(node: &Node) -> String {
    node.enter(|| fs::read_to_string("/proc/sys/net/ipv4/ip_local_reserved_ports"))
        .unwrap()
        .unwrap()
        .trim()
        .to_owned()
}

/// Names of the links' pins that belong to interfaces.
fn links(node: &Node) -> Vec<String> {
    let entries = fs::read_dir(node.pins().join("links"))
        .into_iter()
        .flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("tc_")).collect();
    names.sort();
    names
}

#[test]
fn no_connection_and_no_datagram_is_lost_while_the_agent_is_killed_and_started() {
    let cluster = Cluster::new("restart");
    let (near, far) = (Service::new("near", 10), Service::new("far", 11));
    let here = cluster.node_a.pod("here").unwrap();
    let there = cluster.node_b.pod("there").unwrap();
    let _servers = [
        here.serve().tcp(TARGET).udp(TARGET).start().unwrap(),
        there.serve().tcp(TARGET).udp(TARGET).start().unwrap(),
    ];
    cluster.write(near, &[(&here, &cluster.node_a)]);
    cluster.write(far, &[(&there, &cluster.node_b)]);
    let mut agent = cluster.agent(&cluster.node_a, &[]);
    let before = links(&cluster.node_a);
    assert!(before.len() >= 4, "{before:?}");
    let long = Duration::from_secs(600);
    let to: Vec<SocketAddr> = [
        near.node_ports(&cluster.node_a),
        far.node_ports(&cluster.node_a),
    ]
    .concat();
    let client = &cluster.client;
    let connecting: Vec<_> = to
        .iter()
        .map(|&to| client.connect(to).duration(long).quiet().start().unwrap())
        .collect();
    let sending: Vec<_> = to
        .iter()
        .map(|&to| client.datagram(to).duration(long).quiet().start().unwrap())
        .collect();
    let mut held: Vec<_> = to
        .iter()
        .map(|&to| client.connect(to).count(10).hold().unwrap())
        .collect();
    for round in 0..4 {
        if round % 2 == 0 {
            agent.kill();
        } else {
            agent.stop().unwrap();
        }
        agent = cluster.agent(&cluster.node_a, &[]);
    }
    for running in connecting.into_iter().chain(sending) {
        let report = running.stop().unwrap();
        assert_eq!(report.summary.failed, 0, "{:?}", report.summary);
        assert!(report.summary.ok > 100, "{:?}", report.summary);
    }
    for held in &mut held {
        let report = held.ask().unwrap();
        assert_eq!(report.summary.ok, 10, "{:?}", report.summary);
    }
    assert_eq!(links(&cluster.node_a), before);
}

/// The same for links and for filters.
fn cleanup_takes_everything_away(name: &str, flags: &[&str]) {
    let cluster = Cluster::new(name);
    let service = Service::new("web", 10);
    let here = cluster.node_a.pod("here").unwrap();
    let _server = here.serve().tcp(TARGET).start().unwrap();
    cluster.write(service, &[(&here, &cluster.node_a)]);
    cluster
        .node_a
        .enter(|| {
            fs::write(
                "/proc/sys/net/ipv4/ip_local_reserved_ports",
                "8080,9000-9010",
            )
        })
        .unwrap()
        .unwrap();
    let before = reserved(&cluster.node_a);
    let flags = [flags, &["--snat-ports=20000-20999"]].concat();
    let agent = cluster.agent(&cluster.node_a, &flags);
    let to = service.node_ports(&cluster.node_a)[0];
    let report = cluster.client.connect(to).run().unwrap();
    assert_eq!(report.summary.ok, 1, "{:?}", report.summary);
    assert_eq!(reserved(&cluster.node_a), "8080,9000-9010,20000-20999");
    agent.stop().unwrap();
    let report = cluster.client.connect(to).run().unwrap();
    assert_eq!(report.summary.ok, 1, "stopping detaches nothing");
    // Again: it must know its own ports.
    cluster.agent(&cluster.node_a, &flags).stop().unwrap();
    let output = cluster.node_a.sidestep(["cleanup"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(reserved(&cluster.node_a), before);
    let error = connect(&cluster.client, to, IMPATIENCE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
    assert!(!cluster.node_a.pins().exists());
    let output = cluster.node_a.sidestep(["cleanup"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn cleanup_takes_links_maps_and_reserved_ports_away() {
    cleanup_takes_everything_away("cleanup", &[]);
}

#[test]
fn cleanup_takes_filters_away() {
    cleanup_takes_everything_away("filters", &["--tcx=false"]);
}

#[test]
fn without_the_packet_path_nothing_is_attached_to_interfaces() {
    let cluster = Cluster::new("without");
    let before = reserved(&cluster.node_a);
    let _agent = cluster.agent(&cluster.node_a, &["--packet-path=false"]);
    assert_eq!(links(&cluster.node_a), Vec::<String>::new());
    assert_eq!(reserved(&cluster.node_a), before);
}

#[test]
fn links_of_interfaces_that_are_gone_go_too() {
    let cluster = Cluster::new("gone");
    let _agent = cluster.agent(&cluster.node_a, &[]);
    let before = links(&cluster.node_a);
    let pod = cluster.node_a.pod("short").unwrap();
    let until = |what: &dyn Fn(&[String]) -> bool| {
        let start = std::time::Instant::now();
        while !what(&links(&cluster.node_a)) {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&|links| links.len() == before.len() + 2);
    let status = cluster.node_a.sidestep(["status"]).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    for hook in ["tc_ingress", "tc_egress"] {
        let is_shown = status.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(pod.device())
                && words.next() == Some(hook)
                && words.next() == Some("attached")
        });
        assert!(is_shown, "{hook} of {}:\n{status}", pod.device());
    }
    pod.delete().unwrap();
    until(&|links| links == before);
}
