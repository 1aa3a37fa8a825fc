//! What one run of a kernel program costs, by the kernel's own count.
//!
//! The count itself takes time, so it is on only here and only while a client works; it says more
//! about changes of the programs than about what users see.

use anyhow::Context as _;
use aya::{
    programs::loaded_programs,
    sys::{Stats, enable_stats},
};
use lab::Lab;
use proxy_agent::datapath::{Pins, Sizes, link_state};

use crate::{
    cluster::{self, Cluster},
    connect::{answer_for_pods, client::Work, work_in},
    figure::{Figure, Sheet},
    plane::Plane,
    quiet::median,
};

const BENCH: &str = "hook";
const SERVICES: u32 = 10_000;
const ROUNDS: usize = 7;
const COUNT: usize = 20_000;

/// Figures of the bench.
pub(crate) fn run(sheet: &mut Sheet) -> anyhow::Result<()> {
    let lab = Lab::new("bench-hook")?;
    let node = lab.node("node")?;
    answer_for_pods(&node)?;
    let mut plane = Plane::attached(&node, &Sizes::new())?;
    plane.fill(Cluster { services: SERVICES })?;
    for change in cluster::udp_service(SERVICES) {
        plane.reconciler.change(change);
    }
    plane.sync()?;
    let (services, count) = (SERVICES, COUNT);
    let works = [
        (
            "connect4, a Service",
            "connect4",
            Work::ConnectServices { services, count },
        ),
        (
            "connect4, not a Service",
            "connect4",
            Work::ConnectPods { services, count },
        ),
        (
            "sendmsg4, a Service",
            "sendmsg4",
            Work::Send {
                service: SERVICES,
                count,
            },
        ),
        (
            "sock_release, after a connection to a Service",
            "sock_release",
            Work::ConnectServices { services, count },
        ),
    ];
    for (name, program, work) in works {
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let before = runs(&plane.pins, program)?;
            let stats = enable_stats(Stats::RunTime).context("turn run statistics on")?;
            work_in(&node, &work)?;
            drop(stats);
            let after = runs(&plane.pins, program)?;
            anyhow::ensure!(after.count > before.count, "{program} did not run");
            rounds.push((after.nanos - before.nanos) / (after.count - before.count) as f64);
        }
        sheet.add(Figure::new(BENCH, name, median(rounds), "ns"));
    }
    drop(plane);
    lab.remove()?;
    Ok(())
}

/// How often a program ran while that was counted, and for how long.
struct Runs {
    count: u64,
    nanos: f64,
}

fn runs(pins: &Pins, program: &str) -> anyhow::Result<Runs> {
    let link = link_state(pins, program)?.with_context(|| format!("{program} is not attached"))?;
    let info = loaded_programs()
        .filter_map(Result::ok)
        .find(|info| info.id() == link.program)
        .with_context(|| format!("{program} is not loaded"))?;
    Ok(Runs {
        count: info.run_count(),
        nanos: info.run_time().as_nanos() as f64,
    })
}
