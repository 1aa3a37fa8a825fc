//! Connecting to a ClusterIP, against connecting to a pod's own address.
//!
//! One process does both in turn, one connection each, to Services and pods that are drawn from all
//! of the maps, so nothing stays in a cache that would not on a busy node. Each number of Services
//! has a cgroup and maps of its own; a round goes through all of them.

pub(crate) mod client;

use anyhow::Context as _;
use lab::{Host as _, Lab, Node};
use proxy_agent::datapath::Sizes;

use self::client::{Quantiles, Round, Stage, Work};
use crate::{
    cluster::{Cluster, POD_NETWORK},
    figure::{Figure, Sheet},
    plane::Plane,
    quiet::median,
};

const BENCH: &str = "connect";
const SERVICES: [u32; 3] = [10, 1_000, 10_000];
const ROUNDS: usize = 25;
const CONNECTS: usize = 2_000;

/// Figures of the bench.
pub(crate) fn run(sheet: &mut Sheet) -> anyhow::Result<()> {
    let lab = Lab::new("bench-connect")?;
    let mut planes = Vec::new();
    let mut nodes = Vec::new();
    for services in SERVICES {
        let node = lab.node(&format!("with-{services}"))?;
        let mut plane = Plane::attached(&node, &Sizes::new())?;
        plane.fill(Cluster { services })?;
        planes.push(plane);
        nodes.push(node);
    }
    let bare = lab.node("bare")?;
    answer_for_pods(&bare)?;
    let stages = std::iter::zip(SERVICES, &nodes).map(|(services, node)| Stage {
        services,
        cgroup: node.cgroup().into(),
    });
    let work = Work::Rounds {
        stages: stages.collect(),
        bare: bare.cgroup().into(),
        rounds: ROUNDS,
        connects: CONNECTS,
    };
    let output = work_in(&bare, &work)?;
    let rounds: Vec<Round> = serde_json::from_str(&output).context("read the client's result")?;
    for (stage, services) in SERVICES.into_iter().enumerate() {
        let at = |name: &str| format!("ClusterIP, {services} Services, {name}");
        let of = |pick: fn(&Quantiles) -> f64| {
            let service = over(&rounds, |round| pick(&round.stages[stage].service));
            let pod = over(&rounds, |round| pick(&round.stages[stage].pod));
            let ratio = over(&rounds, |round| {
                pick(&round.stages[stage].service) / pick(&round.stages[stage].pod)
            });
            (service / 1e3, pod / 1e3, ratio)
        };
        for (name, pick, bar) in QUANTILES {
            let (service, pod, ratio) = of(pick);
            sheet.add(
                Figure::new(BENCH, at(name), service, "µs")
                    .against_with("pod address", pod, ratio)
                    .ratio_at_most(bar),
            );
        }
    }
    let last = SERVICES.len() - 1;
    // What more Services cost, without what more pods cost: connecting to one of 100,000 pods is
    // slower than to one of 100 also where nobody balances.
    let relative =
        |round: &Round, stage: usize| round.stages[stage].service.p50 / round.stages[stage].pod.p50;
    let flat = Figure::new(
        BENCH,
        "ClusterIP over pod address, 10000 Services against 10, p50",
        over(&rounds, |round| relative(round, last)),
        "×",
    );
    sheet.add(
        flat.against_with(
            "10 Services",
            over(&rounds, |round| relative(round, 0)),
            over(&rounds, |round| relative(round, last) / relative(round, 0)),
        )
        .ratio_at_most(1.05),
    );
    let passing = Figure::new(
        BENCH,
        "pod address, programs attached, p50",
        over(&rounds, |round| round.stages[last].pod.p50) / 1e3,
        "µs",
    );
    sheet.add(passing.against_with(
        "without programs",
        over(&rounds, |round| round.bare.p50) / 1e3,
        over(&rounds, |round| round.stages[last].pod.p50 / round.bare.p50),
    ));
    drop(planes);
    lab.remove()?;
    Ok(())
}

type Quantile = (&'static str, fn(&Quantiles) -> f64, f64);

/// Name, which one, and bar of the ratio.
const QUANTILES: [Quantile; 2] = [
    ("p50", |quantiles| quantiles.p50, 1.05),
    ("p99", |quantiles| quantiles.p99, 1.10),
];

/// Makes a node's network namespace answer for every pod there can be.
pub(crate) fn answer_for_pods(node: &Node) -> anyhow::Result<()> {
    let mut ip = node.command("ip");
    ip.args(["route", "add", "local", POD_NETWORK, "dev", "lo"]);
    let status = ip.status().context("run ip")?;
    anyhow::ensure!(status.success(), "ip route add: {status}");
    Ok(())
}

/// Runs a client in a node's cgroup and network namespace, and returns what it prints.
pub(crate) fn work_in(node: &Node, work: &Work) -> anyhow::Result<String> {
    let own = std::env::current_exe().context("find my own binary")?;
    let mut command = node.command(own);
    command.arg("--client").arg(serde_json::to_string(work)?);
    let output = command.output().context("start the client")?;
    anyhow::ensure!(
        output.status.success(),
        "the client failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("read the client's output")
}

/// The median over rounds.
fn over(rounds: &[Round], pick: impl Fn(&Round) -> f64) -> f64 {
    median(rounds.iter().map(pick).collect())
}
