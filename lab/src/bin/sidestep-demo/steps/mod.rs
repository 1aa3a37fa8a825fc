//! The steps, in order. Each shows one thing and fails if it does not hold.

mod change;

use std::{net::Ipv4Addr, process::Command};

use anyhow::{Context as _, Result, ensure};
use lab::{
    Host as _, Transport,
    report::{Report, Summary},
};

use change::{broken_manifest, restart, scale_down, scale_up};

use crate::{
    interrupt,
    manifests::{IDLE, NAMES, WEB},
    show::{Show, errors},
    stage::{Stage, line, run as run_command},
};

/// Connections in a distribution: with 300, three random endpoints have 100 ± 24 each in 997 of
/// 1000 runs.
const CONNECTIONS: u32 = 300;

/// Runs all of them.
pub(crate) fn run(show: &mut Show, stage: &mut Stage) -> Result<()> {
    let steps = [
        start,
        balance,
        datagrams,
        table,
        node_port,
        scale_up,
        scale_down,
        named_fields,
        refuse,
        broken_manifest,
        restart,
    ];
    for step in steps {
        step(show, stage)?;
        interrupt::check()?;
    }
    Ok(())
}

fn start(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "The agent",
        "It reads Services and EndpointSlices from a folder here, from the API server on a real \
         node, writes them into pinned BPF maps, and attaches programs to the node's cgroup.",
    );
    let before = stage.unserved()?;
    stage.publish_all()?;
    show.command(&format!(
        "cat {}/web.yaml",
        stage.manifests.folder().display()
    ));
    show.output(&WEB.yaml());
    show.command(&line(&stage.node.agent(stage.manifests.folder()).command()));
    stage.start_agent()?;
    stage.start_other_agent()?;
    show.holds(&format!(
        "Before, a connection to {} failed ({}). Now both nodes serve it.",
        WEB.address(),
        before
    ));
    Ok(())
}

fn balance(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "Connections through a ClusterIP",
        "The pod \"client\" connects to the Service's address. The kernel chooses an endpoint \
         inside connect(), so that no packet is ever translated.",
    );
    for address in [WEB.address(), WEB.address6()] {
        show.command(&format!(
            "sidestep-probe connect {address} --count {CONNECTIONS}"
        ));
        let report = stage.client.connect(address).count(CONNECTIONS).run()?;
        show.distribution(&report.summary);
        all_answer(&report)?;
        spread(&report.summary, &["web-1", "web-2", "web-3"])?;
        let peers = report
            .attempts
            .iter()
            .filter(|attempt| attempt.peer == Some(address));
        ensure!(
            peers.count() == report.attempts.len(),
            "getpeername is not the Service's address"
        );
    }
    show.holds(
        "Every connection was answered, all three pods had their share, over IPv4 and IPv6, and \
         the client's getpeername() says the Service's address.",
    );
    Ok(())
}

fn datagrams(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "Datagrams",
        "UDP sockets that never connect get their answers from the address they asked.",
    );
    let address = NAMES.address();
    show.command(&format!(
        "sidestep-probe datagram {address} --fresh --count {CONNECTIONS}"
    ));
    let report = stage
        .client
        .datagram(address)
        .fresh()
        .count(CONNECTIONS)
        .run()?;
    show.distribution(&report.summary);
    all_answer(&report)?;
    spread(&report.summary, &["web-1", "web-2", "web-3"])?;
    let from = report
        .attempts
        .iter()
        .filter(|attempt| attempt.from == Some(address));
    ensure!(
        from.count() == report.attempts.len(),
        "recvfrom is not the Service's address"
    );
    let one = stage.client.datagram(address).count(100).run()?;
    all_answer(&one)?;
    ensure!(
        one.summary.servers.len() == 1,
        "one socket was moved: {:?}",
        one.summary.servers
    );
    show.holds(&format!(
        "recvfrom() says {address} each time; and 100 datagrams of one socket all went to one pod."
    ));
    Ok(())
}

fn table(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "What is in the kernel",
        "The command reads the pinned maps, and so works when the agent is down.",
    );
    show.command(&line(&stage.node.sidestep(["services"])));
    let table = stage.sidestep(&["services"])?;
    show.output(&table);
    for replica in &stage.replicas {
        let endpoint = format!("{}:{}", replica.endpoint.v4, WEB.target);
        ensure!(table.contains(&endpoint), "{endpoint} is not in the table");
    }
    let json = stage.sidestep(&["services", "--output", "json"])?;
    serde_json::from_str::<serde_json::Value>(&json).context("services -o json is no JSON")?;
    show.command(&line(&stage.node.sidestep(["status"])));
    show.beginning(&stage.sidestep(&["status"])?, 12);
    show.holds(
        "All three Services are there with all their endpoints, and `status` has nothing to \
         complain about.",
    );
    Ok(())
}

fn node_port(show: &mut Show, stage: &mut Stage) -> Result<()> {
    let port = WEB.node_port.context("web has a NodePort")?;
    show.step(
        "A NodePort",
        "It answers on the node's addresses, for pods and for the node itself, there on \
         127.0.0.1 too; and no program on the node can take the port by accident.",
    );
    let node = stage.node.v4();
    show.command(&format!("sidestep-probe connect {node}:{port} --count 30"));
    let report = stage.client.connect((node, port)).count(30).run()?;
    show.distribution(&report.summary);
    all_answer(&report)?;
    all_answer(
        &stage
            .node
            .connect((Ipv4Addr::LOCALHOST, port))
            .count(30)
            .run()?,
    )?;
    let bound = stage
        .node
        .bind(Transport::Tcp, (Ipv4Addr::UNSPECIFIED, port))
        .run()?;
    ensure!(
        bound.error.as_deref() == Some("EADDRINUSE"),
        "bind of port {port}: {bound:?}"
    );
    show.holds(&format!(
        "{node}:{port} and, on the node, 127.0.0.1:{port} are answered; bind() of {port} there \
         fails with EADDRINUSE."
    ));
    Ok(())
}

fn named_fields(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "The maps, for bpftool",
        "Every map carries its types, so that a stock bpftool prints names and not bytes.",
    );
    let pin = stage.node.pins().join("frontend");
    let mut command = Command::new("bpftool");
    command.args(["map", "dump", "pinned"]).arg(&pin);
    show.command(&line(&command));
    show.beginning(&run_command(&mut command)?, 15);
    let mut command = Command::new("bpftool");
    command.args(["--json", "map", "dump", "pinned"]).arg(&pin);
    let entries: serde_json::Value = serde_json::from_str(&run_command(&mut command)?)?;
    let entries = entries.as_array().context("bpftool printed no list")?;
    let web = entries
        .iter()
        .find(|entry| entry["formatted"]["key"]["port"] == WEB.port);
    ensure!(web.is_some(), "no entry has a field `port` of {}", WEB.port);
    show.holds(&format!(
        "{} entries with named fields; port 80 reads as 80.",
        entries.len()
    ));
    Ok(())
}

fn refuse(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "Refused, and at once",
        "A Service without endpoints, and a port that the Service does not have.",
    );
    for (address, why) in [
        (IDLE.address(), "demo/idle has no endpoint"),
        ((WEB.v4, 81).into(), "demo/web has no port 81"),
    ] {
        show.command(&format!("sidestep-probe connect {address}"));
        let report = stage.client.connect(address).run()?;
        let error = report.refused_with().unwrap_or("an answer");
        show.output(&format!("{error}: {why}"));
        ensure!(
            error == "ECONNREFUSED",
            "{address} gives {error}, not ECONNREFUSED"
        );
    }
    show.holds("connect() fails with ECONNREFUSED, before any packet is sent.");
    Ok(())
}

pub(crate) fn all_answer(report: &Report) -> Result<()> {
    let Summary {
        n,
        failed,
        errors: ref by_error,
        ..
    } = report.summary;
    ensure!(n > 0, "nothing was tried");
    ensure!(
        failed == 0,
        "{failed} of {n} attempts failed: {}",
        errors(by_error)
    );
    Ok(())
}

/// Each of these, and nobody else, answered at least half as often as an equal share.
pub(crate) fn spread(summary: &Summary, servers: &[&str]) -> Result<()> {
    let least = summary.ok / servers.len() as u64 / 2;
    let fair = servers
        .iter()
        .all(|&name| summary.servers.get(name).is_some_and(|&n| n >= least));
    ensure!(
        fair && summary.servers.len() == servers.len(),
        "expected all of {servers:?} at least {least} times, got {:?}",
        summary.servers
    );
    Ok(())
}
