//! A start with empty maps: from the full lists to all maps written.

use std::time::Instant;

use lab::Lab;
use proxy_agent::datapath::Sizes;
use proxy_common::map;

use crate::{
    cluster::{self, Cluster},
    figure::{Figure, Sheet},
    plane::{Plane, checked},
    quiet::{self, median},
};

const BENCH: &str = "cold-start";
const SERVICES: u32 = 10_000;
const MANY: u32 = 100_000;
const ROUNDS: usize = 7;
const FEW_ROUNDS: usize = 3;
/// kube-proxy 1.36 in nftables mode with 10,000 Services × 10, on a machine of 2 CPUs: seconds.
const KUBE_PROXY: f64 = 36.0;

/// Figures of the bench. With `SIDESTEP_LONG=1` also at 100,000 Services.
pub(crate) fn run(sheet: &mut Sheet) -> anyhow::Result<()> {
    let seconds = median(rounds(SERVICES, ROUNDS, &Sizes::new())?);
    sheet.add(
        Figure::new(BENCH, title(SERVICES), seconds, "s")
            .against("kube-proxy nftables, elsewhere", KUBE_PROXY)
            .at_most(0.5),
    );
    if std::env::var_os("SIDESTEP_LONG").is_none_or(|value| value == "0") {
        return Ok(());
    }
    let sizes = Sizes::from([
        (map::SLOT.name, 4_194_304),
        (map::FRONTEND.name, 524_288),
        (map::BACKEND.name, 2_097_152),
    ]);
    let many = median(rounds(MANY, FEW_ROUNDS, &sizes)?);
    sheet.add(Figure::new(BENCH, title(MANY), many, "s").at_most(5.0));
    let factor = f64::from(MANY / SERVICES);
    sheet.add(
        Figure::new(
            BENCH,
            format!("{MANY} Services, a Service"),
            many * 1e6 / f64::from(MANY),
            "µs",
        )
        .against_with(
            &format!("{SERVICES} Services"),
            seconds * 1e6 / f64::from(SERVICES),
            many / (seconds * factor),
        ),
    );
    Ok(())
}

/// Seconds of each round; each has new maps.
fn rounds(services: u32, count: usize, sizes: &Sizes) -> anyhow::Result<Vec<f64>> {
    let cluster = Cluster { services };
    (0..count)
        .map(|_| {
            let lab = Lab::new("bench-cold")?;
            let node = lab.node("node")?;
            let mut plane = Plane::new(&node, sizes)?;
            let (services, slices) = cluster.lists();
            let seconds = quiet::preferred(|| {
                let start = Instant::now();
                plane.reconciler.change(services);
                plane.reconciler.change(slices);
                let report = plane.reconciler.sync();
                checked(&report).map(|()| start.elapsed().as_secs_f64())
            })?;
            drop(plane);
            lab.remove()?;
            Ok(seconds)
        })
        .collect()
}

fn title(services: u32) -> String {
    format!("{services} Services × {}", cluster::ENDPOINTS)
}
