//! The process that connects: it lives in a node's network namespace and goes from cgroup to
//! cgroup, since which programs a socket meets follows from where its process was when it was made.

use std::{
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::{cluster, quiet};

/// What the process is to do.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Work {
    /// Rounds of connections, in each cgroup in turn.
    Rounds {
        stages: Vec<Stage>,
        /// A cgroup without programs.
        bare: PathBuf,
        rounds: usize,
        /// Connections of each kind in one stage of one round.
        connects: usize,
    },
    /// So many connections to Services.
    ConnectServices { services: u32, count: usize },
    /// So many connections to pods.
    ConnectPods { services: u32, count: usize },
    /// So many datagrams to one Service, from a few unconnected sockets.
    Send { service: u32, count: usize },
}

/// A cgroup with programs, whose maps hold this many Services.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Stage {
    pub(crate) services: u32,
    pub(crate) cgroup: PathBuf,
}

/// One round, in nanoseconds.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Round {
    /// For each stage.
    pub(crate) stages: Vec<Pair>,
    /// To pods, without programs.
    pub(crate) bare: Quantiles,
}

/// Connections that were made in turn.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Pair {
    pub(crate) service: Quantiles,
    pub(crate) pod: Quantiles,
}

/// Of the connections of one round, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// Does the work and prints its result as JSON.
///
/// # Errors
///
/// If the work cannot be read, or a connection fails.
pub(crate) fn run(work: &str) -> anyhow::Result<()> {
    let work = serde_json::from_str(work).context("read the work")?;
    let mut client = Client::new()?;
    quiet::prefer_this_thread();
    match work {
        Work::Rounds {
            stages,
            bare,
            rounds,
            connects,
        } => {
            // One round to warm up.
            client.round(&stages, &bare, connects)?;
            let rounds = (0..rounds)
                .map(|_| client.round(&stages, &bare, connects))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let mut out = io::stdout().lock();
            serde_json::to_writer(&mut out, &rounds)?;
            writeln!(out)?;
        }
        Work::ConnectServices { services, count } => {
            for _ in 0..count {
                client.connect_service(services)?;
            }
        }
        Work::ConnectPods { services, count } => {
            for _ in 0..count {
                client.connect_pod(services)?;
            }
        }
        Work::Send { service, count } => send(service, count)?,
    }
    Ok(())
}

/// Client and server in one thread: the kernel finishes the handshake over loopback within
/// `connect`, so nobody has to be woken, and what is measured is the path alone.
struct Client {
    listener: TcpListener,
    state: u64,
}

impl Client {
    fn new() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, cluster::POD_PORT))
            .context("listen for all pods")?;
        Ok(Self {
            listener,
            state: 0x9e37_79b9_7f4a_7c15,
        })
    }

    fn round(&mut self, stages: &[Stage], bare: &Path, connects: usize) -> anyhow::Result<Round> {
        let mut pairs = Vec::with_capacity(stages.len());
        for Stage { services, cgroup } in stages {
            enter(cgroup)?;
            let (mut service, mut pod) = (histogram()?, histogram()?);
            for _ in 0..connects {
                service.saturating_record(nanos(self.connect_service(*services)?));
                pod.saturating_record(nanos(self.connect_pod(*services)?));
            }
            pairs.push(Pair {
                service: quantiles(&service),
                pod: quantiles(&pod),
            });
        }
        enter(bare)?;
        let most = stages.last().map_or(1, |stage| stage.services);
        let mut without = histogram()?;
        for _ in 0..connects {
            without.saturating_record(nanos(self.connect_pod(most)?));
        }
        Ok(Round {
            stages: pairs,
            bare: quantiles(&without),
        })
    }

    fn connect_service(&mut self, services: u32) -> anyhow::Result<Duration> {
        let number = self.below(services);
        self.connect(cluster::service_address(number))
    }

    fn connect_pod(&mut self, services: u32) -> anyhow::Result<Duration> {
        let number = self.below(services * cluster::ENDPOINTS);
        self.connect(cluster::pod_address(number))
    }

    /// The time of `connect` and `accept`. Both ends are closed at once and by a reset, so that no
    /// port stays in TIME_WAIT.
    fn connect(&self, to: SocketAddrV4) -> anyhow::Result<Duration> {
        let address = SockAddr::from(to);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).context("make a socket")?;
        socket
            .set_linger(Some(Duration::ZERO))
            .context("set SO_LINGER")?;
        let start = Instant::now();
        socket
            .connect(&address)
            .with_context(|| format!("connect to {to}"))?;
        let accepted = self.listener.accept().context("accept")?;
        let elapsed = start.elapsed();
        drop(socket);
        drop(accepted);
        Ok(elapsed)
    }

    /// A number below `end`, by xorshift64: targets must not come in the order of the maps.
    fn below(&mut self, end: u32) -> u32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (((self.state >> 32) * u64::from(end)) >> 32) as u32
    }
}

fn send(service: u32, count: usize) -> anyhow::Result<()> {
    let to = cluster::service_address(service);
    let sockets = (0..8)
        .map(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
        .collect::<io::Result<Vec<_>>>()
        .context("make sockets")?;
    for socket in sockets.iter().cycle().take(count) {
        socket
            .send_to(b"x", to)
            .with_context(|| format!("send to {to}"))?;
    }
    Ok(())
}

fn enter(cgroup: &Path) -> anyhow::Result<()> {
    // "0" is the writing process (Documentation/admin-guide/cgroup-v2.rst).
    fs::write(cgroup.join("cgroup.procs"), "0")
        .with_context(|| format!("enter {}", cgroup.display()))
}

fn histogram() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(100, 1_000_000_000, 4).context("make a histogram")
}

fn quantiles(histogram: &Histogram<u64>) -> Quantiles {
    Quantiles {
        p50: histogram.value_at_quantile(0.50) as f64,
        p99: histogram.value_at_quantile(0.99) as f64,
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
