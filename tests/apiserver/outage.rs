//! The control plane goes away and comes back.

use std::{net::SocketAddr, thread, time::Duration};

use anyhow::{Context as _, ensure};
use lab::Host as _;

use crate::{
    admin::slice,
    stage::{HTTP, PATIENCE, Stage, backends, cluster_ip, frontend, is_long, until, web},
};

const TCP: &[(&str, u16, &str)] = &[("http", HTTP, "TCP")];

/// How long the control plane is away, on top of the time that it takes to start.
fn absence() -> Duration {
    Duration::from_secs(if is_long() { 20 } else { 5 })
}

pub(crate) fn services_are_served_while_etcd_and_the_api_server_are_down_and_followed_after(
    stage: &mut Stage,
) -> anyhow::Result<()> {
    let (at, lines) = served(stage, "outage", &[1, 2])?;
    let load = stage.client.connect(at).quiet();
    let load = load.interval(Duration::from_millis(2));
    let load = load.timeout(PATIENCE).duration(10 * PATIENCE).start()?;

    stage.control.stop();
    until(PATIENCE, || {
        Ok(stage.log().contains("watch lost").then_some(()))
    })
    .context("the agent does not notice the outage")?;
    thread::sleep(absence());
    stage.listed("outage/web", &lines)?;
    stage.answers(at, &[1, 2])?;
    stage.resume()?;
    // Whatever the agent has from the new server's first lists, nothing may be lost by them.
    stage.listed("outage/web", &lines)?;

    let space = stage.admin.namespace("outage")?;
    let endpoints = stage.endpoints(&[2, 3]);
    space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
    let late = cluster_ip(&space.create_service("late", &web(80))?)?;
    let late = SocketAddr::new(late, 80);
    space.apply_slice(&slice("late", "IPv4", TCP, &stage.endpoints(&[1])))?;
    let mut changed = backends(&endpoints, HTTP)?;
    changed.push(frontend("ClusterIP", at));
    stage.listed("outage/web", &changed)?;
    stage.answers(at, &[2, 3])?;
    let mut added = backends(&stage.endpoints(&[1]), HTTP)?;
    added.push(frontend("ClusterIP", late));
    stage.listed("outage/late", &added)?;
    stage.answers(late, &[1])?;

    let report = load.stop()?;
    ensure!(
        report.summary.failed == 0 && report.summary.ok > 0,
        "connections during the outage: {:?}",
        report.summary
    );
    eprintln!("{} connections during the outage", report.summary.ok);
    stage.admin.namespace("outage")?.clear()
}

pub(crate) fn an_agent_that_starts_during_an_outage_serves_what_was_known(
    stage: &mut Stage,
) -> anyhow::Result<()> {
    let (at, lines) = served(stage, "restart", &[1, 3])?;
    stage.control.stop();
    if let Some(agent) = stage.agent.take() {
        agent.kill();
    }
    stage.answers(at, &[1, 3])?;
    stage.agent = Some(stage.spawn_agent()?);
    until(PATIENCE, || {
        Ok(stage.log().contains("watch lost").then_some(()))
    })
    .context("the agent does not try to reach the API server")?;
    ensure!(
        !stage.log().contains("synced"),
        "the agent has synced with nobody"
    );
    stage.listed("restart/web", &lines)?;
    stage.answers(at, &[1, 3])?;

    stage.resume()?;
    let space = stage.admin.namespace("restart")?;
    let endpoints = stage.endpoints(&[2]);
    space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
    let mut changed = backends(&endpoints, HTTP)?;
    changed.push(frontend("ClusterIP", at));
    stage.listed("restart/web", &changed)?;
    stage.answers(at, &[2])?;
    space.clear()
}

/// A Service `web` that is served, with how it is listed.
fn served(
    stage: &Stage,
    namespace: &str,
    pods: &[usize],
) -> anyhow::Result<(SocketAddr, Vec<String>)> {
    let space = stage.admin.namespace(namespace)?;
    let at = SocketAddr::new(cluster_ip(&space.create_service("web", &web(80))?)?, 80);
    let endpoints = stage.endpoints(pods);
    space.apply_slice(&slice("web", "IPv4", TCP, &endpoints))?;
    let mut lines = backends(&endpoints, HTTP)?;
    lines.push(frontend("ClusterIP", at));
    stage.listed(&format!("{namespace}/web"), &lines)?;
    stage.answers(at, pods)?;
    Ok((at, lines))
}
