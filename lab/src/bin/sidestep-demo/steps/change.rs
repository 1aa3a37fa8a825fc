//! Steps in which something changes: endpoints, manifests, the agent itself.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab::{Host as _, report::Report};

use super::{CONNECTIONS, all_answer, spread};
use crate::{
    manifests::{NAMES, WEB},
    show::Show,
    stage::{Stage, wait_until},
};

/// Kills of the agent under load.
const RESTARTS: usize = 3;

pub(crate) fn scale_up(show: &mut Show, stage: &mut Stage) -> Result<()> {
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

pub(crate) fn scale_down(show: &mut Show, stage: &mut Stage) -> Result<()> {
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

pub(crate) fn broken_manifest(show: &mut Show, stage: &mut Stage) -> Result<()> {
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

pub(crate) fn restart(show: &mut Show, stage: &mut Stage) -> Result<()> {
    show.step(
        "The agent dies, under load",
        "Links and maps are pinned: the kernel goes on without the agent, and the next one takes \
         over what it finds. Connections and datagrams go on all the time.",
    );
    let long = Duration::from_secs(600);
    let streams = stage.client.connect(WEB.address()).duration(long).quiet();
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
        show.command(&format!("kill -KILL {}", agent.id()));
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
        show.command("sidestep … run …");
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
