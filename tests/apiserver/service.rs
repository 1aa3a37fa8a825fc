//! Services from creation to deletion.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, ensure};
use lab::Host as _;
use serde_json::json;

use crate::{
    admin::slice,
    stage::{DNS, HTTP, Stage, backends, cluster_ip, frontend, node_port, web},
};

/// What a load balancer reports in these tests: nothing in the lab has it.
const BALANCER: &str = "192.0.2.10";
const TCP: &[(&str, u16, &str)] = &[("http", HTTP, "TCP")];

pub(crate) fn a_created_service_answers_on_tcp_and_udp(stage: &mut Stage) -> anyhow::Result<()> {
    let space = stage.admin.namespace("created")?;
    let spec = json!({ "ports": [
        { "name": "http", "port": 80, "protocol": "TCP", "targetPort": HTTP },
        { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": DNS },
    ] });
    let ip = cluster_ip(&space.create_service("web", &spec)?)?;
    let (http, dns) = (SocketAddr::new(ip, 80), SocketAddr::new(ip, 53));
    let frontends = vec![frontend("ClusterIP", http), frontend("ClusterIP", dns)];
    stage.listed("created/web", &frontends)?;
    stage.refuses(http)?;

    let endpoints = stage.endpoints(&[1, 2]);
    let ports = [("http", HTTP, "TCP"), ("dns", DNS, "UDP")];
    space.apply_slice(&slice("web", "IPv4", &ports, &endpoints))?;
    let both = [backends(&endpoints, HTTP)?, backends(&endpoints, DNS)?];
    stage.listed("created/web", &[frontends, both.concat()].concat())?;
    stage.answers(http, &[1, 2])?;
    let report = stage.client.datagram(dns).fresh().count(40).run()?;
    let servers: Vec<_> = report.summary.servers.keys().collect();
    ensure!(
        report.summary.failed == 0 && servers == ["web-1", "web-2"],
        "datagrams to {dns}: {:?}",
        report.summary
    );
    space.clear()
}

pub(crate) fn scaling_changes_who_answers(stage: &mut Stage) -> anyhow::Result<()> {
    let space = stage.admin.namespace("scaled")?;
    let ip = cluster_ip(&space.create_service("web", &web(80))?)?;
    let at = SocketAddr::new(ip, 80);
    let sets: [&[usize]; 7] = [&[1], &[1, 2, 3], &[2, 3], &[3], &[], &[1, 2], &[3]];
    for set in sets {
        let endpoints = stage.endpoints(set);
        space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
        let mut lines = backends(&endpoints, HTTP)?;
        lines.push(frontend("ClusterIP", at));
        stage.listed("scaled/web", &lines)?;
        match set {
            [] => stage.refuses(at)?,
            set => stage.answers(at, set)?,
        }
    }

    // A pod that is not ready yet, or no longer, gets no connections.
    let mut endpoints = stage.endpoints(&[1, 2, 3]);
    endpoints[1].ready = false;
    space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
    endpoints.remove(1);
    let mut lines = backends(&endpoints, HTTP)?;
    lines.push(frontend("ClusterIP", at));
    stage.listed("scaled/web", &lines)?;
    stage.answers(at, &[1, 3])?;
    space.clear()
}

pub(crate) fn a_service_changes_its_port_and_its_type(stage: &mut Stage) -> anyhow::Result<()> {
    let space = stage.admin.namespace("changed")?;
    let ip = cluster_ip(&space.create_service("web", &web(80))?)?;
    let endpoints = stage.endpoints(&[1, 2]);
    space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
    let pods = backends(&endpoints, HTTP)?;
    let listed = |frontends: &[String]| {
        stage.listed("changed/web", &[pods.clone(), frontends.to_vec()].concat())
    };
    let old = SocketAddr::new(ip, 80);
    listed(&[frontend("ClusterIP", old)])?;
    stage.answers(old, &[1, 2])?;

    space.change_service("web", &json!({ "spec": web(8000) }))?;
    let cluster = SocketAddr::new(ip, 8000);
    listed(&[frontend("ClusterIP", cluster)])?;
    stage.answers(cluster, &[1, 2])?;
    stage.refuses(old)?;

    let changed = space.change_service("web", &json!({ "spec": { "type": "NodePort" } }))?;
    let port = node_port(&changed)?;
    let on_node = SocketAddr::new(stage.node.v4().into(), port);
    let node_line = format!("NodePort *:{port}");
    listed(&[frontend("ClusterIP", cluster), node_line.clone()])?;
    stage.answers(cluster, &[1, 2])?;
    stage.answers(on_node, &[1, 2])?;
    let localhost = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let report = stage.node.connect(localhost).count(10).run()?;
    ensure!(report.summary.ok == 10, "{localhost}: {:?}", report.summary);

    space.change_service("web", &json!({ "spec": { "type": "LoadBalancer" } }))?;
    space.set_ingress("web", &[BALANCER])?;
    let balancer = SocketAddr::new(BALANCER.parse()?, 8000);
    listed(&[
        frontend("ClusterIP", cluster),
        node_line,
        frontend("LoadBalancer", balancer),
    ])?;
    for at in [cluster, on_node, balancer] {
        stage.answers(at, &[1, 2])?;
    }

    // As the API server has it: the NodePort goes with the type.
    space.change_service("web", &json!({ "spec": { "type": "ClusterIP" } }))?;
    listed(&[frontend("ClusterIP", cluster)])?;
    stage.answers(cluster, &[1, 2])?;
    // Nothing listens there, and the node's own stack says so.
    stage.refuses(on_node)?;
    stage.untouched(balancer)?;
    space.clear()
}

pub(crate) fn a_deleted_service_is_left_to_the_network(stage: &mut Stage) -> anyhow::Result<()> {
    let space = stage.admin.namespace("deleted")?;
    let created = space.create_service("web", &web(80))?;
    let at = SocketAddr::new(cluster_ip(&created)?, 80);
    let endpoints = stage.endpoints(&[1, 3]);
    space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
    let mut lines = backends(&endpoints, HTTP)?;
    lines.push(frontend("ClusterIP", at));
    stage.listed("deleted/web", &lines)?;
    stage.answers(at, &[1, 3])?;

    space.delete_service("web")?;
    stage.listed("deleted/web", &[])?;
    stage.untouched(at)?;
    let text = stage.node.sidestep(["dump", "frontend"]).output();
    let text = String::from_utf8(text.context("start sidestep dump")?.stdout)?;
    let address = format!("address={} ", at.ip());
    ensure!(!text.contains(&address), "{} is still owned", at.ip());

    // Its slices are there still; a new Service of that name has them at once, at its own address.
    let again = cluster_ip(&space.create_service("web", &web(81))?)?;
    let again = SocketAddr::new(again, 81);
    let mut lines = backends(&endpoints, HTTP)?;
    lines.push(frontend("ClusterIP", again));
    stage.listed("deleted/web", &lines)?;
    stage.answers(again, &[1, 3])?;

    space.delete_slice("web-ipv4")?;
    stage.listed("deleted/web", &[frontend("ClusterIP", again)])?;
    stage.refuses(again)?;
    space.clear()
}
