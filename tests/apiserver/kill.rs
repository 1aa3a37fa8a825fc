//! SIGKILL at any moment, while the cluster changes and connections are made.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use fastrand::Rng;
use lab::{Host as _, Process};
use proxy_agent::{
    datapath::{Dataplane as _, Kernel, Pins},
    plan::Snapshot,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::json;

use crate::{
    admin::{Admin, Endpoint, Space, slice},
    control_plane::ADMIN,
    stage::{HTTP, PATIENCE, Stage, cluster_ip, frontend, is_long, until, web},
};

/// Services that change in every way, beside the one that has the load.
const OTHERS: u32 = 8;
/// Longest pause between two changes.
const PAUSE: Duration = Duration::from_millis(30);
const TCP: &[(&str, u16, &str)] = &[("http", HTTP, "TCP")];

pub(crate) fn an_agent_killed_at_any_moment_fails_no_connection_and_ends_with_the_maps_of_a_fresh_one(
    stage: &mut Stage,
) -> anyhow::Result<()> {
    let seed = seed()?;
    let kills = if is_long() { 50 } else { 10 };
    eprintln!("killing the agent {kills} times with SIDESTEP_SEED={seed}");
    let all = stage.endpoints(&[1, 2, 3]);
    let space = stage.admin.namespace("kill")?;
    let at = SocketAddr::new(cluster_ip(&space.create_service("steady", &web(80))?)?, 80);
    space.apply_slice(&slice("steady", "IPv4", TCP, &all))?;
    let pods = crate::stage::backends(&all, HTTP)?;
    stage.listed(
        "kill/steady",
        &[pods, vec![frontend("ClusterIP", at)]].concat(),
    )?;
    let load = stage.client.connect(at).quiet();
    let load = load.interval(Duration::from_millis(1));
    let load = load.timeout(PATIENCE).duration(60 * PATIENCE).start()?;

    let kubeconfig = stage.control.kubeconfig(ADMIN);
    let (stop, changes) = (AtomicBool::new(false), AtomicU32::new(0));
    let killed = thread::scope(|scope| {
        let churn = scope.spawn(|| churn(&kubeconfig, &all, seed, &stop, &changes));
        let killed = kill(stage, kills, seed);
        stop.store(true, Ordering::Relaxed);
        match churn.join() {
            Ok(churned) => churned.and(killed),
            Err(_) => bail!("the thread that changes the cluster panicked"),
        }
    });
    let unsynced = killed?;
    stage.start_agent()?;
    let expected = fresh(stage)?;
    let mut seen = String::new();
    until(PATIENCE, || {
        seen = maps(&stage.node.bpffs())?.normalized();
        Ok((seen == expected).then_some(()))
    })
    .with_context(|| {
        let differences = differences(&seen, &expected);
        format!("the maps differ from those of a fresh start (-): {differences}")
    })?;
    leaves_no_scratch_cgroup(stage)?;
    let report = load.stop()?;
    ensure!(
        report.summary.failed == 0 && report.summary.ok > 0,
        "connections while the agent was killed: {:?}",
        report.summary
    );
    eprintln!(
        "{kills} kills, {unsynced} of them before the first sync; {} changes; {} connections, \
         none failed; {} lines of maps are as a fresh start's",
        changes.into_inner(),
        report.summary.ok,
        expected.lines().count()
    );
    stage.admin.namespace("kill")?.clear()
}

/// Kills and starts the agent again and again; returns how often it had not synced. The last one
/// stays killed.
fn kill(stage: &mut Stage, kills: u32, seed: u64) -> anyhow::Result<u32> {
    let mut random = Rng::with_seed(seed);
    let mut unsynced = 0;
    // How long the agent takes to its first sync here and now.
    let mut start = Duration::from_secs(1);
    for number in 0..kills {
        // One with a sync behind it and one without, in turn.
        if number % 2 == 1 {
            thread::sleep(start.mul_f64(random.f64()));
        } else if let Some(agent) = &mut stage.agent {
            let begin = Instant::now();
            agent.wait_until_ready(PATIENCE)?;
            if number > 0 {
                start = begin.elapsed();
            }
            thread::sleep(Duration::from_secs_f64(random.f64()));
        }
        let log = stage.log();
        if let Some(mut agent) = stage.agent.take() {
            ensure!(agent.process().is_running(), "the agent ended by itself");
            agent.kill();
        }
        unsynced += u32::from(!log.contains("synced"));
        if number + 1 < kills {
            stage.agent = Some(stage.spawn_agent()?);
        }
    }
    Ok(unsynced)
}

/// Changes the cluster until told to stop. `steady` always has an endpoint, and all endpoints that
/// it ever has answer.
fn churn(
    kubeconfig: &Path,
    all: &[Endpoint],
    seed: u64,
    stop: &AtomicBool,
    changes: &AtomicU32,
) -> anyhow::Result<()> {
    let admin = Admin::new(kubeconfig)?;
    let space = admin.namespace("kill")?;
    let mut random = Rng::with_seed(seed ^ 1);
    let mut exists = vec![false; OTHERS as usize];
    while !stop.load(Ordering::Relaxed) {
        let some = subset(&mut random, all);
        if random.bool() && !some.is_empty() {
            space.apply_slice(&slice("steady", "IPv4", TCP, &some))?;
        }
        let number = random.usize(0..exists.len());
        exists[number] = change(
            &space,
            &format!("other-{number}"),
            exists[number],
            &some,
            &mut random,
        )?;
        changes.fetch_add(1, Ordering::Relaxed);
        thread::sleep(PAUSE.mul_f64(random.f64()));
    }
    Ok(())
}

/// Changes one Service somehow; returns whether it exists now.
fn change(
    space: &Space<'_>,
    name: &str,
    exists: bool,
    endpoints: &[Endpoint],
    random: &mut Rng,
) -> anyhow::Result<bool> {
    if !exists {
        space.create_service(name, &web(80))?;
        return Ok(true);
    }
    match random.u8(0..6) {
        0 => {
            space.delete_service(name)?;
            return Ok(false);
        }
        1 => {
            space.change_service(name, &json!({ "spec": web(random.u16(80..90)) }))?;
        }
        2 => {
            let kind = ["ClusterIP", "NodePort"][random.usize(0..2)];
            space.change_service(name, &json!({ "spec": { "type": kind } }))?;
        }
        _ => space.apply_slice(&slice(name, "IPv4", TCP, endpoints))?,
    }
    Ok(true)
}

fn subset(random: &mut Rng, all: &[Endpoint]) -> Vec<Endpoint> {
    all.iter().filter(|_| random.bool()).cloned().collect()
}

/// The maps of an agent that starts on the same node with the same cluster and no past, normalized.
fn fresh(stage: &Stage) -> anyhow::Result<String> {
    let folder = stage.node.folder().join("fresh");
    let (bpffs, cgroup) = (folder.join("bpf"), stage.node.cgroup().join("fresh"));
    fs::create_dir_all(&bpffs).context("create the folder of the second agent")?;
    fs::create_dir(&cgroup).context("create the cgroup of the second agent")?;
    mount("bpf", &bpffs, "bpf", MountFlags::NOSUID, None).context("mount a second bpffs")?;
    let result = fresh_maps(stage, &bpffs, &cgroup, &folder.join("agent.log"));
    // The links go with the bpffs, and let the cgroup go.
    let unmounted = unmount(&bpffs, UnmountFlags::DETACH).context("unmount the second bpffs");
    fs::remove_dir(&cgroup).context("remove the cgroup of the second agent")?;
    let maps = result?;
    unmounted.map(|()| maps)
}

fn fresh_maps(stage: &Stage, bpffs: &Path, cgroup: &Path, log: &Path) -> anyhow::Result<String> {
    let mut command = stage.node.command("sidestep");
    command.arg("--bpffs").arg(bpffs);
    command.args(["run", "--hostname-override", stage.node.name()]);
    command.arg("--cgroup-root").arg(cgroup);
    command.args(stage.source());
    let agent = Process::start_logged(command, "fresh", log)?;
    until(PATIENCE, || {
        let text = fs::read_to_string(log).unwrap_or_default();
        Ok(text.contains("synced").then_some(()))
    })
    .with_context(|| format!("wait for the second agent: {}", agent.stderr()))?;
    let maps = maps(bpffs)?.normalized();
    agent.kill();
    Ok(maps)
}

/// Agents that were killed during their self-test left theirs; the last one has tidied up.
fn leaves_no_scratch_cgroup(stage: &Stage) -> anyhow::Result<()> {
    let entries = fs::read_dir(stage.node.cgroup()).context("list the node's cgroups")?;
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        ensure!(!name.contains("selftest"), "cgroup {name} is left");
    }
    Ok(())
}

fn maps(bpffs: &Path) -> anyhow::Result<Snapshot> {
    let mut kernel = Kernel::open(&Pins::new(bpffs)).context("open the maps")?;
    kernel.dump().context("read the maps")
}

/// Lines that only one of them has, the first ones.
fn differences(seen: &str, expected: &str) -> String {
    let only = |a: &str, b: &str, mark: char| {
        let lines: Vec<_> = b.lines().collect();
        let own = a.lines().filter(|line| !lines.contains(line)).take(20);
        own.map(|line| format!("\n{mark} {line}"))
            .collect::<String>()
    };
    only(expected, seen, '-') + &only(seen, expected, '+')
}

/// `SIDESTEP_SEED`, else the clock.
fn seed() -> anyhow::Result<u64> {
    match std::env::var("SIDESTEP_SEED") {
        Ok(text) => text.parse().context("read SIDESTEP_SEED"),
        Err(_) => {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            Ok(u64::from(now.subsec_nanos()))
        }
    }
}
