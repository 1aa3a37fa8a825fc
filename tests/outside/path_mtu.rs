//! A link on the way that takes smaller packets than both ends think: who sends is told so, and by
//! whom it talks to.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr},
    thread,
};

use lab::Host;

use crate::{
    cluster::{Cluster, Service, TARGET},
    talk::{PATIENCE, connect, serve},
};

const NARROW: &str = "1400";
const AMOUNT: usize = 1 << 20;

/// Runs ip(8) there; what it prints.
fn ip(host: &impl Host, arguments: &[&str]) -> String {
    let output = host.command("ip").args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn route_of(host: &impl Host, to: IpAddr) -> String {
    ip(host, &["-o", "route", "get", &to.to_string()])
}

/// Lets packets of a host to an address be small only, by the way that they go already.
fn narrow(host: &impl Host, to: IpAddr) {
    let family = if to.is_ipv4() { "-4" } else { "-6" };
    let route = route_of(host, to);
    let words: Vec<&str> = route.split_whitespace().collect();
    let after = |name| Some(words[words.iter().position(|word| *word == name)? + 1]);
    let to = to.to_string();
    let mut arguments = vec![family, "route", "replace", &to];
    if let Some(gateway) = after("via") {
        arguments.extend(["via", gateway]);
    }
    arguments.extend(["dev", after("dev").unwrap(), "mtu", "lock", NARROW]);
    ip(host, &arguments);
}

/// Sends a megabyte to a Service and reads it back.
fn echo_all(cluster: &Cluster, to: SocketAddr) {
    let (mut stream, _) = connect(&cluster.client, to, PATIENCE).unwrap();
    let mut writer = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&vec![7; AMOUNT]).unwrap());
        let mut read = vec![0; AMOUNT];
        let result = stream.read_exact(&mut read);
        result.unwrap_or_else(|error| panic!("{to}: {error}"));
    });
}

#[test]
fn a_narrow_way_to_the_pod_is_told_to_the_client_by_the_address_that_it_asked() {
    let cluster = Cluster::new("narrow-in");
    let (near, far) = (Service::new("near", 10), Service::new("far", 11));
    let here = cluster.node_a.pod("here").unwrap();
    let there = cluster.node_b.pod("there").unwrap();
    serve(&here, TARGET);
    serve(&there, TARGET);
    cluster.write(near, &[(&here, &cluster.node_a)]);
    cluster.write(far, &[(&there, &cluster.node_b)]);
    for pod in [&here, &there] {
        narrow(&cluster.node_a, pod.v4().into());
        narrow(&cluster.node_a, pod.v6().into());
    }
    let _agent = cluster.agent(&cluster.node_a, &[]);
    for service in [near, far] {
        for to in [service.node_ports(&cluster.node_a), service.balancers()].concat() {
            echo_all(&cluster, to);
            let route = route_of(&cluster.client, to.ip());
            assert!(route.contains("mtu 1400"), "{to}: {route}");
            // The next Service at the same address is to find out for itself.
            ip(&cluster.client, &["route", "flush", "cache"]);
            ip(&cluster.client, &["-6", "route", "flush", "cache"]);
        }
    }
}

#[test]
fn a_narrow_way_to_the_client_is_told_to_the_pod() {
    let cluster = Cluster::new("narrow-out");
    let (near, far) = (Service::new("near", 10), Service::new("far", 11));
    let here = cluster.node_a.pod("here").unwrap();
    let there = cluster.node_b.pod("there").unwrap();
    serve(&here, TARGET);
    serve(&there, TARGET);
    cluster.write(near, &[(&here, &cluster.node_a)]);
    cluster.write(far, &[(&there, &cluster.node_b)]);
    narrow(&cluster.node_a, cluster.client.v4().into());
    narrow(&cluster.node_a, cluster.client.v6().into());
    let _agent = cluster.agent(&cluster.node_a, &[]);
    for to in [near.balancers(), far.balancers()].concat() {
        echo_all(&cluster, to);
    }
    // Each pod knows its peer: the client itself, or the node that stands for it.
    let known = [
        route_of(&here, cluster.client.v4().into()),
        route_of(&here, cluster.client.v6().into()),
        route_of(&there, cluster.node_a.v4().into()),
        route_of(&there, cluster.node_a.v6().into()),
    ];
    for route in known {
        assert!(route.contains("mtu 1400"), "{route}");
    }
}
