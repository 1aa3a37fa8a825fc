//! Clients that connect while endpoints change, on the running kernel.
//!
//! Needs root. `SIDESTEP_LONG=1` makes ten times as many changes.

mod history;

use std::{
    collections::BTreeSet,
    env,
    io::{self, Read as _},
    net::{IpAddr, SocketAddr, TcpStream},
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};
use history::{Connected, History};
use proxy_agent::{
    datapath::{Kernel, Sizes},
    model::{
        Change, Endpoint, EndpointSlice, Family, Node, PodId, Policy, Service, ServiceName,
        ServicePort, SliceName, SlicePort,
    },
    reconcile::Reconciler,
};
use proxy_common::{Counter, Protocol, Scheduler, map};
use rustix::net::sockopt::set_socket_linger;
use sidestep_tests::{
    case::{self, Test},
    data_plane::DataPlane,
    dice::Dice,
    talk::{ip, tcp_server},
    tests,
};

tests! {
    every_connect_reaches_an_endpoint_of_its_time,
}

/// How many clients connect in a tight loop.
const CLIENTS: usize = 2;
/// Pods, of which each list has some.
const PODS: u8 = 8;
/// So few that runs of slots are used again while clients connect.
const SLOTS: u32 = 2048;
const VIP: &str = "10.96.0.10:80";

fn main() -> ExitCode {
    let set_up = || ip("link set lo up\n");
    if let Some(code) = case::run_inside(set_up, TESTS) {
        return code;
    }
    let trials = TESTS.iter().copied().map(Test::into_trial).collect();
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit_code()
}

/// Lists change all the time, and every connect reaches an endpoint that was in the list at that
/// time or, while a list was just being replaced, in the one before. None fails.
fn every_connect_reaches_an_endpoint_of_its_time() -> anyhow::Result<()> {
    let changes = match env::var_os("SIDESTEP_LONG") {
        Some(_) => 10_000,
        None => 1_000,
    };
    let pods: Vec<SocketAddr> = (1..=PODS).map(pod).collect();
    for pod in &pods {
        ip(&format!("addr add {}/32 dev lo\n", pod.ip()))?;
        tcp_server(*pod)?;
    }
    let data_plane = DataPlane::start(&Sizes::from([(map::SLOT.name, SLOTS)]))?;
    let mut cluster = Cluster::new(data_plane.open()?)?;
    let mut history = History::default();
    cluster.publish(&pods[..1], &mut history)?;

    let (connects, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failure = Mutex::new(None);
    let connected = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| client(&connects, &done, &failure)))
            .collect();
        let mut dice = Dice::new(5);
        let mut publish = || {
            for _ in 0..changes {
                let list: Vec<SocketAddr> =
                    pods.iter().copied().filter(|_| dice.once_in(3)).collect();
                let list = if list.is_empty() {
                    vec![*dice.one_of(&pods)]
                } else {
                    list
                };
                let before = connects.load(Ordering::Relaxed);
                cluster.publish(&list, &mut history)?;
                // Every list is met by clients, however quick the publisher is.
                while connects.load(Ordering::Relaxed) < before + CLIENTS {
                    if failure.lock().is_ok_and(|failure| failure.is_some()) {
                        return Ok(());
                    }
                    thread::yield_now();
                }
            }
            anyhow::Ok(())
        };
        let published = publish();
        done.store(true, Ordering::Relaxed);
        let connected: Vec<Vec<Connected>> = clients
            .into_iter()
            .map(|client| {
                client
                    .join()
                    .map_err(|_| anyhow::anyhow!("a client panicked"))
            })
            .collect::<Result<_, _>>()?;
        published.map(|()| connected.concat())
    })?;
    if let Some(error) = failure.into_inner()? {
        bail!("a connect failed: {error}");
    }
    for connected in &connected {
        history.check(connected)?;
    }
    let counters = data_plane.open()?.counters()?;
    ensure!(
        counters[&Counter::SocketBroken] == 0 && counters[&Counter::SocketRefused] == 0,
        "{counters:?}"
    );
    ensure!(
        connected.len() >= CLIENTS * changes && history.len() == changes + 1,
        "{} connects, {} lists",
        connected.len(),
        history.len()
    );
    ensure!(cluster.waits > 0, "no run of slots was used again");
    Ok(())
}

fn pod(number: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 1, 0, number]), 8080)
}

/// Connects until it is told to stop, or a connect fails.
fn client(
    connects: &AtomicUsize,
    done: &AtomicBool,
    failure: &Mutex<Option<io::Error>>,
) -> Vec<Connected> {
    let mut all = Vec::new();
    while !done.load(Ordering::Relaxed) {
        match connect() {
            Ok(connected) => all.push(connected),
            Err(error) => {
                if let Ok(mut failure) = failure.lock() {
                    *failure = Some(error);
                }
                break;
            }
        }
        connects.fetch_add(1, Ordering::Relaxed);
    }
    all
}

fn connect() -> io::Result<Connected> {
    let before = Instant::now();
    let mut stream = TcpStream::connect(VIP)?;
    let after = Instant::now();
    let mut said = [0; 32];
    let length = stream.read(&mut said)?;
    // Reset at close: no TIME_WAIT, so that ports do not run out.
    set_socket_linger(&stream, Some(std::time::Duration::ZERO))?;
    let said = String::from_utf8_lossy(&said[..length]);
    let who = said.trim().parse().map_err(io::Error::other)?;
    Ok(Connected { before, after, who })
}

/// The agent, without its loop.
struct Cluster {
    reconciler: Reconciler<Kernel>,
    /// How often slots had run out until a grace period was over.
    waits: usize,
}

impl Cluster {
    fn new(kernel: Kernel) -> anyhow::Result<Self> {
        let node = Node {
            name: "node-a".into(),
            zone: None,
        };
        let mut reconciler = Reconciler::new(node, kernel, SLOTS)?;
        let vip: SocketAddr = VIP.parse()?;
        reconciler.change(Change::Services(vec![Service {
            name: ServiceName::new("default", "web"),
            cluster_ips: vec![vip.ip()],
            external_ips: Vec::new(),
            balancer_ips: Vec::new(),
            source_ranges: Vec::new(),
            internal_policy: Policy::Cluster,
            external_policy: Policy::Cluster,
            affinity_seconds: None,
            health_check_node_port: 0,
            scheduler: Scheduler::Random,
            ports: vec![ServicePort {
                name: "http".into(),
                protocol: Protocol::Tcp,
                port: vip.port(),
                node_port: 0,
            }],
        }]));
        reconciler.change(Change::Slices(Vec::new()));
        Ok(Self {
            reconciler,
            waits: 0,
        })
    }

    /// Makes these pods the Service's, and puts that on record.
    fn publish(&mut self, pods: &[SocketAddr], history: &mut History) -> anyhow::Result<()> {
        let endpoint = |pod: &SocketAddr| Endpoint {
            addr: pod.ip(),
            ready: true,
            serving: true,
            terminating: false,
            pod: PodId::UNKNOWN,
            node: None,
            hints: None,
        };
        self.reconciler.change(Change::Slice(EndpointSlice {
            name: SliceName::new("default", "web-1"),
            service: ServiceName::new("default", "web"),
            family: Family::V4,
            ports: vec![SlicePort {
                name: "http".into(),
                protocol: Protocol::Tcp,
                port: pods.first().context("no pods")?.port(),
            }],
            endpoints: pods.iter().map(endpoint).collect(),
            trigger_time: 0,
        }));
        let begin = Instant::now();
        loop {
            let report = self.reconciler.sync();
            if report.is_clean() {
                break;
            }
            ensure!(report.failed.is_empty(), "{:?}", report.failed);
            // All slots are in use or rest; nothing was written.
            let (epoch, grace) = self.reconciler.grace().context("nothing rests")?;
            grace()?;
            self.reconciler.grace_passed(epoch);
            self.reconciler.retry(true);
            self.waits += 1;
        }
        let pods: BTreeSet<SocketAddr> = pods.iter().copied().collect();
        history.published(begin, Instant::now(), pods);
        Ok(())
    }
}
