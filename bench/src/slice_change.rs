//! One EndpointSlice changes in a large cluster: from the decoded object to the published maps.

use std::time::Instant;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use lab::Lab;
use proxy_agent::{datapath::Sizes, model::Change};

use crate::{
    cluster::{self, Cluster},
    figure::{Figure, Sheet},
    plane::Plane,
    quiet,
};

const BENCH: &str = "slice-change";
const SERVICES: u32 = 10_000;
const WARM_UP: u32 = 200;
const CHANGES: u32 = 4_000;
/// kube-proxy 1.36 in nftables mode at this size, on a machine of 2 CPUs: milliseconds.
const KUBE_PROXY: f64 = 6_800.0;

/// Figures of the bench.
pub(crate) fn run(sheet: &mut Sheet) -> anyhow::Result<()> {
    let lab = Lab::new("bench-slice")?;
    let node = lab.node("node")?;
    let mut plane = Plane::new(&node, &Sizes::new())?;
    plane.fill(Cluster { services: SERVICES })?;
    let times = quiet::preferred(|| changes(&mut plane))?;
    let milliseconds = |quantile| times.value_at_quantile(quantile) as f64 / 1e6;
    let figure = |name, quantile| {
        Figure::new(
            BENCH,
            format!("{name}, {SERVICES} Services × {}", cluster::ENDPOINTS),
            milliseconds(quantile),
            "ms",
        )
        .against("kube-proxy nftables, elsewhere", KUBE_PROXY)
    };
    sheet.add(figure("p50", 0.50));
    sheet.add(figure("p99", 0.99).at_most(1.0));
    drop(plane);
    lab.remove()?;
    Ok(())
}

/// A rolling update step at a time, of one Service after the other: a new pod comes, an old one
/// goes. Nanoseconds of each.
fn changes(plane: &mut Plane) -> anyhow::Result<Histogram<u64>> {
    let mut times =
        Histogram::new_with_bounds(100, 10_000_000_000, 4).context("make a histogram")?;
    let mut fresh = SERVICES * cluster::ENDPOINTS;
    for step in 0..WARM_UP + CHANGES {
        // Every second step is of the same Service as the one before; 7919 is prime, so that
        // Services come in no order.
        let service = (step / 2) * 7919 % SERVICES;
        let mut pods = cluster::endpoints(service);
        if step % 2 == 0 {
            fresh += 1;
        } else {
            pods.remove(0);
        }
        pods.push(fresh);
        let change = Change::Slice(cluster::slice(service, &pods));
        let start = Instant::now();
        plane.reconciler.change(change);
        let report = plane.reconciler.sync();
        let elapsed = start.elapsed();
        crate::plane::checked(&report)?;
        anyhow::ensure!(report.writes > 0, "a change wrote nothing");
        if step >= WARM_UP {
            times.saturating_record(elapsed.as_nanos() as u64);
        }
    }
    Ok(times)
}
