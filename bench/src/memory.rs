//! The agent at rest: resident memory and CPU time, of the real process on generated manifests.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use lab::{Lab, RunningAgent};

use crate::{
    cluster::{self, Cluster},
    figure::{Figure, Sheet},
};

const BENCH: &str = "memory";
/// Number of Services, and the bar in MiB.
const CASES: [(u32, f64); 2] = [(100, 15.0), (10_000, 40.0)];
/// kube-proxy 1.36 in nftables mode with 10,000 Services × 10: MiB.
const KUBE_PROXY: f64 = 261.0;
const PATIENCE: Duration = Duration::from_secs(120);
/// The agent counts as settled when its memory has not changed for this long.
const SETTLED: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(5);

/// Figures of the bench.
pub(crate) fn run(sheet: &mut Sheet) -> anyhow::Result<()> {
    for (services, bar) in CASES {
        let lab = Lab::new("bench-memory")?;
        let node = lab.node("node")?;
        let manifests = node.folder().join("manifests");
        fs::create_dir(&manifests).context("make a folder of manifests")?;
        Cluster { services }
            .write(&manifests)
            .context("write manifests")?;
        let mut agent = node.agent(&manifests).spawn()?;
        wait_until_synced(&mut agent, services)?;
        let pid = agent.process().id();
        let memory = settled(pid)?;
        let title = format!("{services} Services × {}", cluster::ENDPOINTS);
        let rss = Figure::new(BENCH, format!("{title}, RSS"), memory.total(), "MiB").at_most(bar);
        sheet.add(match services {
            10_000 => rss.against("kube-proxy nftables, elsewhere", KUBE_PROXY),
            _ => rss,
        });
        let part = |name, value| Figure::new(BENCH, format!("{title}, {name}"), value, "MiB");
        sheet.add(part("of it anonymous", memory.anonymous));
        sheet.add(part("of it the binary and other files", memory.file));
        sheet.add(part("of it mapped slots", memory.shared));
        let before = cpu_time(pid)?;
        thread::sleep(IDLE);
        let idle = (cpu_time(pid)? - before).as_secs_f64() * 1e3;
        let idle = Figure::new(BENCH, format!("{title}, CPU in 5 s at rest"), idle, "ms");
        // 0.0 % of a CPU: looking at a folder of manifests every ten seconds takes some of it.
        sheet.add(idle.at_most(1.0));
        agent.stop()?;
        lab.remove()?;
    }
    Ok(())
}

/// Resident memory, in MiB.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Resident {
    anonymous: f64,
    file: f64,
    shared: f64,
}

impl Resident {
    fn total(self) -> f64 {
        self.anonymous + self.file + self.shared
    }

    /// From `/proc/PID/status`.
    fn of(status: &str) -> Option<Self> {
        let field = |name: &str| -> Option<f64> {
            let line = status.lines().find(|line| line.starts_with(name))?;
            let kib: f64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some(kib / 1024.0)
        };
        Some(Self {
            anonymous: field("RssAnon:")?,
            file: field("RssFile:")?,
            shared: field("RssShmem:")?,
        })
    }
}

fn wait_until_synced(agent: &mut RunningAgent, services: u32) -> anyhow::Result<()> {
    let wanted = format!("services={services}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = agent.log();
        if log.lines().any(|line| line.contains(&wanted)) {
            return Ok(());
        }
        anyhow::ensure!(
            agent.process().is_running() && Instant::now() < deadline,
            "the agent did not become ready; its log: {log}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn settled(pid: u32) -> anyhow::Result<Resident> {
    let deadline = Instant::now() + PATIENCE;
    let (mut last, mut since) = (resident(pid)?, Instant::now());
    while since.elapsed() < SETTLED {
        anyhow::ensure!(Instant::now() < deadline, "the agent's memory never rests");
        thread::sleep(Duration::from_millis(100));
        let now = resident(pid)?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}

fn resident(pid: u32) -> anyhow::Result<Resident> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    Resident::of(&status).with_context(|| format!("read the memory in {path}"))
}

/// CPU time of all threads, to the nanosecond (Documentation/scheduler/sched-stats.rst).
fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let folder = format!("/proc/{pid}/task");
    let mut total = Duration::ZERO;
    for thread in fs::read_dir(&folder).with_context(|| format!("list {folder}"))? {
        let path = thread?.path().join("schedstat");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let nanos = text.split(' ').next().and_then(|text| text.parse().ok());
        total += Duration::from_nanos(nanos.unwrap_or(0));
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_the_sum_of_its_three_kinds() {
        let status = "Name:\tsidestep\nVmRSS:\t   4096 kB\nRssAnon:\t   1024 kB\n\
                      RssFile:\t   2048 kB\nRssShmem:\t   1024 kB\n";
        let memory = Resident::of(status).unwrap();
        assert_eq!(memory.total(), 4.0);
        assert_eq!(memory.file, 2.0);
    }

    #[test]
    fn a_status_without_memory_is_none() {
        assert_eq!(Resident::of("Name:\tsidestep\n"), None);
    }
}
