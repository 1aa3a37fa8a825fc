//! Which objects are the agent's.

use std::net::SocketAddr;

use lab::Host as _;
use serde_json::json;

use crate::{
    admin::slice,
    stage::{HTTP, Stage, backends, cluster_ip, frontend, web},
};

const TCP: &[(&str, u16, &str)] = &[("http", HTTP, "TCP")];

pub(crate) fn a_service_of_another_proxy_is_left_alone_until_its_label_is_removed(
    stage: &mut Stage,
) -> anyhow::Result<()> {
    let space = stage.admin.namespace("label")?;
    let created = space.create_service("web", &web(80))?;
    let at = SocketAddr::new(cluster_ip(&created)?, 80);
    let endpoints = stage.endpoints(&[1, 2]);
    space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
    let mut lines = backends(&endpoints, HTTP)?;
    lines.push(frontend("ClusterIP", at));
    stage.listed("label/web", &lines)?;
    stage.answers(at, &[1, 2])?;

    let label = |value| json!({ "metadata": { "labels": { "service.kubernetes.io/service-proxy-name": value } } });
    space.change_service("web", &label(Some("another")))?;
    stage.listed("label/web", &[])?;
    stage.untouched(at)?;

    space.change_service("web", &label(None))?;
    stage.listed("label/web", &lines)?;
    stage.answers(at, &[1, 2])?;
    space.clear()
}

pub(crate) fn what_is_headless_is_not_served(stage: &mut Stage) -> anyhow::Result<()> {
    let space = stage.admin.namespace("headless")?;
    let headless = |mut slice: serde_json::Value| {
        slice["metadata"]["labels"]["service.kubernetes.io/headless"] = json!("");
        slice
    };
    let mut spec = web(80);
    spec["clusterIP"] = json!("None");
    space.create_service("pods", &spec)?;
    let others = stage.endpoints(&[3]);
    space.apply_slice(&headless(slice("pods", "IPv4", TCP, &others)))?;

    let created = space.create_service("web", &web(80))?;
    let at = SocketAddr::new(cluster_ip(&created)?, 80);
    let mut stray = headless(slice("web", "IPv4", TCP, &others));
    stray["metadata"]["name"] = json!("stray");
    space.apply_slice(&stray)?;

    // Each watch keeps the order: when these are there, the ones before have been seen too.
    let endpoints = stage.endpoints(&[1, 2]);
    space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
    let mut lines = backends(&endpoints, HTTP)?;
    lines.push(frontend("ClusterIP", at));
    stage.listed("headless/web", &lines)?;
    stage.listed("headless/pods", &[])?;
    stage.answers(at, &[1, 2])?;

    // Without the label the slice is like any other.
    stray["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "web" });
    space.apply_slice(&stray)?;
    lines.extend(backends(&others, HTTP)?);
    stage.listed("headless/web", &lines)?;
    stage.answers(at, &[1, 2, 3])?;
    space.clear()
}

pub(crate) fn the_api_servers_own_service_is_served(stage: &mut Stage) -> anyhow::Result<()> {
    let at: SocketAddr = "10.96.0.1:443".parse()?;
    let server = stage.control_address();
    let lines = [frontend("ClusterIP", at), format!("-> {server} active")];
    stage.listed("default/kubernetes", &lines)?;
    // The server waits for a TLS handshake: that it takes the connection is all that can be seen.
    let patience = std::time::Duration::from_millis(500);
    let report = stage.client.connect(at).timeout(patience).run()?;
    let connected = report.attempts.iter().all(|attempt| attempt.sent);
    anyhow::ensure!(connected, "connection to {at}: {report:?}");
    Ok(())
}
