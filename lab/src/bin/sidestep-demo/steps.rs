//! The steps, in order. Each shows one thing and fails if it does not hold.

use std::{net::Ipv4Addr, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use lab::{
    Connect, Host as _, Transport,
    report::{Report, Summary},
};

use crate::{
    interrupt,
    manifests::{IDLE, NAMES, WEB},
    show::{Show, errors},
    stage::{Stage, line, run as run_command, wait_until},
};

/// Connections in a distribution: with 300, three random endpoints have 100 ± 24 each in 997 of
/// 1000 runs.
const CONNECTIONS: u32 = 300;

/// Kills of the agent under load.
const RESTARTS: usize = 3;

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
    let before = stage.client.connect(WEB.address()).run()?;
    ensure!(
        before.summary.failed == 1,
        "{} answers before there is an agent",
        WEB.address()
    );
    stage.publish_all()?;
    show.command(&format!(
        "cat {}/web.yaml",
        stage.manifests.folder().display()
    ));
    show.output(&WEB.yaml());
    let agent = stage.node.agent(stage.manifests.folder()).command();
    show.command(&line(&agent));
    stage.start_agent()?;
    stage.start_other_agent()?;
    show.holds(&format!(
        "Before, a connection to {} failed ({}). Now both nodes serve it.",
        WEB.address(),
        errors(&before.summary.errors)
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
    show.holds("All three Services are there with all their endpoints; `-o json` has the same.");
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

fn scale_up(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "Scale up",
        "A fourth pod starts and its address is written to the EndpointSlice's file.",
    );
    stage.add_replica("web-4", 0)?;
    stage.publish()?;
    let report = {
        let (client, mut report) = (&stage.client, Report::default());
        wait_until("web-4 gets connections", || {
            report = client.connect(WEB.address()).count(CONNECTIONS).run()?;
            all_answer(&report)?;
            Ok(report
                .summary
                .servers
                .get("web-4")
                .is_some_and(|&count| count > 30))
        })?;
        report
    };
    show.command(&format!(
        "sidestep-probe connect {} --count {CONNECTIONS}",
        WEB.address()
    ));
    show.distribution(&report.summary);
    spread(&report.summary, &["web-1", "web-2", "web-3", "web-4"])?;
    show.holds("It has its share, and no connection failed on the way.");
    Ok(())
}

fn scale_down(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "Scale down",
        "The client keeps 40 connections open; web-1 is then taken out of the EndpointSlice. New \
         connections avoid it, open ones are not cut.",
    );
    let mut open = stage.client.connect(WEB.address()).count(40).hold()?;
    all_answer(open.report())?;
    let on_web_1 = open
        .report()
        .summary
        .servers
        .get("web-1")
        .copied()
        .unwrap_or(0);
    let removed = stage.replicas.remove(0);
    stage.publish()?;
    let endpoint = format!("{}:{}", removed.endpoint.v4, WEB.target);
    stage.wait_for_services("web-1 leaves the maps", |table| !table.contains(&endpoint))?;
    show.command(&format!(
        "sidestep-probe connect {} --count {CONNECTIONS}",
        WEB.address()
    ));
    let report = stage
        .client
        .connect(WEB.address())
        .count(CONNECTIONS)
        .run()?;
    show.distribution(&report.summary);
    all_answer(&report)?;
    spread(&report.summary, &["web-2", "web-3", "web-4"])?;
    ensure!(
        !report.summary.servers.contains_key("web-1"),
        "web-1 still gets connections"
    );
    let again = open.ask()?;
    all_answer(&again)?;
    open.close()?;
    removed.pod.delete()?;
    let after = stage
        .client
        .connect(WEB.address())
        .count(CONNECTIONS)
        .run()?;
    all_answer(&after)?;
    show.holds(&format!(
        "web-1 gets no new connection; the {on_web_1} open ones that it had still answered. Then \
         the pod was deleted, and nobody noticed."
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
    show.output(&run_command(&mut command)?);
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

fn broken_manifest(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "A broken manifest",
        "A file with half an object is reported by name; the last good state is kept.",
    );
    let name = "web-endpoints.yaml";
    let whole = std::fs::read_to_string(stage.manifests.folder().join(name))?;
    let half = whole.split_once("endpoints:").map_or("", |(half, _)| half);
    let broken = format!("{half}endpoints: [ {{ addresses: \n");
    let already = stage.agent()?.log().matches(name).count();
    stage.manifests.write(name, &broken)?;
    let agent = stage.agent()?;
    wait_until("the agent reports the file", || {
        Ok(agent.log().matches(name).count() > already)
    })?;
    let log = agent.log();
    let said = log
        .lines()
        .rev()
        .find(|line| line.contains(name))
        .unwrap_or_default();
    show.output(said);
    let report = stage
        .client
        .connect(WEB.address())
        .count(CONNECTIONS)
        .run()?;
    all_answer(&report)?;
    stage.manifests.write(name, &whole)?;
    show.holds("The agent names the file, and every connection was answered meanwhile.");
    Ok(())
}

fn restart(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "The agent dies, under load",
        "Links and maps are pinned: the kernel goes on without the agent, and the next one takes \
         over what it finds. Connections and datagrams go on all the time.",
    );
    let long = Duration::from_secs(600);
    let streams: Connect = stage.client.connect(WEB.address()).duration(long).quiet();
    let streams = streams.start()?;
    let datagrams = stage
        .client
        .datagram(NAMES.address())
        .fresh()
        .duration(long)
        .quiet()
        .start()?;
    for round in 0..RESTARTS {
        let agent = stage.agent.take().context("the agent is not started")?;
        show.command("kill -KILL $(pidof sidestep)");
        agent.kill();
        let down = stage
            .client
            .connect(WEB.address())
            .count(CONNECTIONS)
            .run()?;
        all_answer(&down)?;
        // The cluster changes while nobody watches.
        let name = format!("web-{}", 5 + round);
        stage.add_replica(&name, round % 2)?;
        stage.publish()?;
        show.command(&line(&stage.node.agent(stage.manifests.folder()).command()));
        stage.start_agent()?;
        let client = &stage.client;
        wait_until("the new pod gets connections", || {
            let report = client.connect(WEB.address()).count(30).run()?;
            all_answer(&report)?;
            Ok(report.summary.servers.contains_key(&name))
        })?;
    }
    let (streams, datagrams) = (streams.stop()?, datagrams.stop()?);
    show.distribution(&streams.summary);
    all_answer(&streams)?;
    all_answer(&datagrams)?;
    ensure!(
        streams.summary.n > 100 && datagrams.summary.n > 100,
        "there was no load to speak of"
    );
    show.holds(&format!(
        "{RESTARTS} agents were killed and replaced; {} connections and {} datagrams, none failed, \
         and each new agent brought in the pod that started while there was none.",
        streams.summary.n, datagrams.summary.n
    ));
    Ok(())
}

fn all_answer(report: &Report) -> Result<()> {
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
fn spread(summary: &Summary, servers: &[&str]) -> Result<()> {
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
