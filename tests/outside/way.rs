//! Which way a client's packets go, and whom the server sees.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use lab::Host as _;

use crate::{
    cluster::{Cluster, Service, TARGET},
    talk::{Answer, IMPATIENCE, PATIENCE, ask, connect, datagrams, serve},
};

/// Asks by both protocols.
fn answers(cluster: &Cluster, to: SocketAddr) -> [io::Result<Answer>; 2] {
    let tcp = connect(&cluster.client, to, PATIENCE).map(|(_, answer)| answer);
    let udp = ask(&datagrams(&cluster.client, to, PATIENCE));
    [tcp, udp]
}

fn all_addresses(service: Service, cluster: &Cluster) -> Vec<SocketAddr> {
    [
        service.node_ports(&cluster.node_a),
        service.cluster_ips(),
        service.balancers(),
        service.externals(),
    ]
    .concat()
}

/// What is shown with links is shown with filters too.
fn clients_reach_pods(name: &str, flags: &[&str]) {
    let cluster = Cluster::new(name);
    let near = Service::new("near", 10);
    let far = Service::new("far", 11);
    let _agent = cluster.agent(&cluster.node_a, flags);
    // Their interfaces come when the agent is there already.
    let here = cluster.node_a.pod("here").unwrap();
    let there = cluster.node_b.pod("there").unwrap();
    serve(&here, TARGET);
    serve(&there, TARGET);
    cluster.write(near, &[(&here, &cluster.node_a)]);
    cluster.write(far, &[(&there, &cluster.node_b)]);
    cluster.wait_for(near.node_ports(&cluster.node_a)[0], "here");
    cluster.wait_for(far.node_ports(&cluster.node_a)[0], "there");
    for to in all_addresses(near, &cluster) {
        for answer in answers(&cluster, to) {
            let answer = answer.unwrap_or_else(|error| panic!("{to}: {error}"));
            assert_eq!(answer.server, "here", "{to}");
            let (seen, own) = (answer.seen, answer.own);
            assert_eq!(seen.port(), own.port(), "{to}");
            let client: IpAddr = match to {
                SocketAddr::V4(_) => cluster.client.v4().into(),
                SocketAddr::V6(_) => cluster.client.v6().into(),
            };
            assert_eq!(seen.ip(), client, "{to}: the source address is lost");
        }
    }
    for to in all_addresses(far, &cluster) {
        for answer in answers(&cluster, to) {
            let answer = answer.unwrap_or_else(|error| panic!("{to}: {error}"));
            assert_eq!(answer.server, "there", "{to}");
            let node: IpAddr = match to {
                SocketAddr::V4(_) => cluster.node_a.v4().into(),
                SocketAddr::V6(_) => cluster.node_a.v6().into(),
            };
            assert_eq!(answer.seen.ip(), node, "{to}: replies would not come back");
        }
    }
}

#[test]
fn clients_reach_a_pod_here_as_themselves_and_a_pod_elsewhere_as_the_node() {
    clients_reach_pods("way", &[]);
}

#[test]
fn without_tcx_links_filters_of_a_clsact_qdisc_do_the_same() {
    clients_reach_pods("clsact", &["--tcx=false"]);
}

#[test]
fn with_policy_local_the_node_with_a_pod_answers_and_the_other_is_silent() {
    let cluster = Cluster::new("local");
    let here = cluster.node_a.pod("here").unwrap();
    serve(&here, TARGET);
    let service = Service::new("web", 10).local();
    cluster.write(service, &[(&here, &cluster.node_a)]);
    let _agents = [
        cluster.agent(&cluster.node_a, &[]),
        cluster.agent(&cluster.node_b, &[]),
    ];
    for to in service.node_ports(&cluster.node_a) {
        for answer in answers(&cluster, to) {
            let answer = answer.unwrap();
            assert_eq!(answer.seen.port(), answer.own.port(), "{to}");
        }
    }
    for to in service.node_ports(&cluster.node_b) {
        let error = connect(&cluster.client, to, IMPATIENCE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{to}: {error}");
        let error = ask(&datagrams(&cluster.client, to, IMPATIENCE)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{to}: {error}");
    }
    // The node itself and its pods are no outside clients.
    let to = service.node_ports(&cluster.node_b)[0];
    let report = cluster.node_b.connect(to).run().unwrap();
    assert_eq!(report.summary.failed, 0, "{report:?}");
}

#[test]
fn a_service_that_nobody_serves_is_refused_at_every_address() {
    let cluster = Cluster::new("refused");
    let service = Service::new("web", 10);
    cluster.write(service, &[]);
    let _agent = cluster.agent(&cluster.node_a, &[]);
    for to in all_addresses(service, &cluster) {
        for answer in answers(&cluster, to) {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{to}");
        }
    }
}

#[test]
fn a_client_with_a_fixed_port_follows_a_backend_that_changes() {
    let cluster = Cluster::new("follow");
    let service = Service::new("web", 10);
    let here = cluster.node_a.pod("here").unwrap();
    let there = cluster.node_b.pod("there").unwrap();
    serve(&here, TARGET);
    serve(&there, TARGET);
    cluster.write(service, &[(&here, &cluster.node_a)]);
    let _agent = cluster.agent(&cluster.node_a, &[]);
    for to in service.balancers() {
        cluster.write(service, &[(&here, &cluster.node_a)]);
        cluster.wait_for(to, "here");
        let socket = datagrams(&cluster.client, to, PATIENCE);
        assert_eq!(ask(&socket).unwrap().server, "here");
        cluster.write(service, &[(&there, &cluster.node_b)]);
        let start = std::time::Instant::now();
        // As long as the old one is there, it may answer.
        while ask(&socket).unwrap().server != "there" {
            assert!(start.elapsed() < PATIENCE, "{to}: it sticks to the old one");
        }
    }
}

#[test]
fn ten_thousand_short_connections_of_one_client_all_succeed() {
    let cluster = Cluster::new("many");
    let service = Service::new("web", 10);
    let there = cluster.node_b.pod("there").unwrap();
    cluster.write(service, &[(&there, &cluster.node_b)]);
    let _server = there.serve().tcp(TARGET).start().unwrap();
    // Fewer ports for SNAT than connections.
    let _agent = cluster.agent(&cluster.node_a, &["--snat-ports=20000-22999"]);
    let to = service.node_ports(&cluster.node_a)[0];
    let report = cluster
        .client
        .connect(to)
        .count(10_000)
        .interval(std::time::Duration::ZERO)
        .quiet()
        .run()
        .unwrap();
    assert_eq!(report.summary.ok, 10_000, "{:?}", report.summary);
}
