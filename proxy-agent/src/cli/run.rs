//! `sidestep run`: the agent.

use std::{
    collections::BTreeSet,
    future::Future,
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use clap::{ArgAction, Args};
use ipnet::IpNet;
use proxy_common::map;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{CommonArgs, duration::GoDuration, packet_path, sentence};
use crate::{
    datapath::{self, Attachments, Features, Globals, Kernel, Pins, Sizes},
    model::{Node, Store},
    node::{
        self, interfaces, namespace,
        node_port::NodePortAddresses,
        reserved_ports::PortRange,
        sockets::{self, Reaper},
    },
    reconcile::{Inputs, Reconciler, Report, serve},
    source::{self, Event, WatchState},
    telemetry::LogFormat,
};

/// Flags of `sidestep run`. Those that kube-proxy has are named and mean the same.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Read Services and EndpointSlices from the YAML and JSON files of a folder, watched for
    /// changes, and not from an API server.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "master"])]
    pub manifests: Option<PathBuf>,
    /// How to reach the API server; without it the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of the API server, instead of the one in --kubeconfig.
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
    /// Name of this node in the cluster, instead of the host's name.
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// Cgroup (v2) whose processes are served: the root of the hierarchy on a node. Default: the
    /// first cgroup2 that is mounted.
    #[arg(long, value_name = "PATH")]
    pub cgroup_root: Option<PathBuf>,
    /// Answer NodePorts only on addresses of this node that are in one of these ranges. Default:
    /// on all.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub nodeport_addresses: Vec<IpNet>,
    /// Collect changes at least this long before they are written.
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration(Duration::from_millis(10)))]
    pub min_sync_period: GoDuration,
    /// Make a map with room for N entries, where it is not pinned yet; may be given several times.
    /// `sidestep dump` lists the maps.
    #[arg(long, value_name = "NAME=N", value_parser = map_size)]
    pub map_size: Vec<(&'static str, u32)>,
    /// Let local programs in the node's network namespace fail to bind the port of a NodePort
    /// Service.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub port_guard: bool,
    /// Translate packets of clients that are no sockets of this node.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub packet_path: bool,
    /// Ports that stand for clients whose source address has to be replaced. They are added to
    /// net.ipv4.ip_local_reserved_ports.
    #[arg(long, value_name = "FIRST-LAST", default_value = "16384-29999")]
    pub snat_ports: PortRange,
    /// Attach to interfaces by tcx links, where the kernel has them, and not by clsact filters.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub tcx: bool,
    /// Try the programs in a scratch cgroup before any process sees them.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub self_test: bool,
    /// How much to log: 0 what changes and what is wrong, 2 also the libraries, 4 details, 6
    /// everything.
    #[arg(short, long = "v", value_name = "N", default_value_t = 0)]
    pub verbosity: u8,
    /// How to write log lines.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// A sync of so many Services leaves freed memory behind that is worth giving back.
const MANY_SERVICES: usize = 1_000;

/// Serves until it is told to stop. Stopping detaches nothing.
///
/// # Errors
///
/// Why the data plane or the source could not be started.
pub fn run(args: &RunArgs, common: &CommonArgs) -> anyhow::Result<()> {
    let pins = Pins::new(&common.bpffs);
    let lock = pins.lock()?;
    let name = node_name(args.hostname_override.as_deref())?;
    let (kernel, reaper, attachments) = start_data_plane(args, &pins)?;
    let slots = kernel
        .sizes()
        .get(map::SLOT.name)
        .copied()
        .unwrap_or(map::SLOT.entries);
    let node = Node {
        name: name.as_str().into(),
        zone: None,
    };
    let mut reconciler = Reconciler::new(node, kernel, slots).context("read the pinned maps")?;
    // The kernel's own BTF was parsed to load the programs: four times what stays.
    reconciler.dataplane().release_memory();
    let mut log = SyncLog::default();
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?
        .block_on(async {
            let stop = stop_signal().context("listen for signals")?;
            if let Some(attachments) = attachments {
                packet_path::attach(attachments).await?;
                packet_path::end_flows(&pins)?;
            }
            let mut addresses = interfaces::spawn();
            // A NodePort that is served at no address yet would be refused by the node itself.
            node::first_listing(&mut addresses).await;
            let inputs = Inputs {
                events: start_source(args, &name).await?,
                addresses,
                node_ports: NodePortAddresses::new(&args.nodeport_addresses, true),
                min_sync_period: args.min_sync_period.0,
            };
            let synced = |reconciler: &mut Reconciler<Kernel>, report: &Report| {
                log.sync(reconciler.store(), report);
                if report.first || report.services >= MANY_SERVICES {
                    reconciler.dataplane().release_memory();
                }
                if let Some(reaper) = reaper
                    .as_ref()
                    .filter(|_| report.first || report.udp_backends_gone)
                {
                    reaper.request();
                }
                if report.is_clean()
                    && let Err(error) = reconciler.dataplane().stamp_sync(unix_now())
                {
                    tracing::error!(error = sentence(&error), "note the time of the sync");
                }
            };
            serve(&mut reconciler, inputs, stop, log_event, synced).await;
            anyhow::Ok(())
        })?;
    tracing::info!("stopped; what is in the maps goes on being served");
    drop(lock);
    Ok(())
}

/// The maps, what destroys sockets of dead backends, and what attaches to interfaces.
type Started = (Kernel, Option<Reaper>, Option<Attachments>);

/// Probes, tests, loads, attaches; then the maps serve what they hold.
fn start_data_plane(args: &RunArgs, pins: &Pins) -> anyhow::Result<Started> {
    let mut sizes: Sizes = args.map_size.iter().copied().collect();
    for (name, entries) in pins.check()? {
        if let Some(wanted) = sizes
            .insert(name, entries)
            .filter(|wanted| *wanted != entries)
        {
            tracing::warn!(
                map = name,
                entries,
                wanted,
                "a pinned map keeps its size; to resize it run `sidestep cleanup` first"
            );
        }
    }
    let cgroup = match &args.cgroup_root {
        Some(path) => path.clone(),
        None => datapath::cgroup_root()?,
    };
    let cookie = namespace::cookie().context("ask for the cookie of the network namespace")?;
    let features = Features::probe(cookie.is_some(), sockets::probe().is_ok());
    for feature in features
        .all()
        .into_iter()
        .filter(|feature| !feature.present)
    {
        tracing::warn!(
            feature = feature.name,
            since = feature.since,
            "degraded: {}",
            feature.without
        );
    }
    let globals = Globals {
        node_netns: cookie.unwrap_or(0),
        set_retval: features.set_retval.present,
        port_guard: args.port_guard,
        snat: args.packet_path.then_some(args.snat_ports),
    };
    if args.self_test {
        let mut client = Command::new(std::env::current_exe().context("find my own binary")?);
        client.arg("self-test-client");
        datapath::self_test(&mut client, &cgroup, globals)?;
    }
    let mut object = datapath::load(Some(pins), &sizes, globals)?;
    let mut kernel = Kernel::open(pins)?;
    kernel
        .sign(globals.node_netns, unix_now())
        .context("mark the maps as mine")?;
    datapath::attach(&mut object, pins, &cgroup)?;
    tracing::info!(pins = %pins.folder().display(), cgroup = %cgroup.display(), "attached");
    let reaper = match features.orphans.present {
        true => start_reaper(&mut object),
        false => None,
    };
    let attachments = if args.packet_path {
        packet_path::reserve(&mut kernel, args.snat_ports)?;
        let method = packet_path::method(args.tcx && features.tcx.present);
        Some(Attachments::new(&mut object, pins, method)?)
    } else {
        None
    };
    Ok((kernel, reaper, attachments))
}

/// What destroys sockets of dead backends; `None` where the kernel does not allow it.
fn start_reaper(object: &mut aya::Ebpf) -> Option<Reaper> {
    let orphans = datapath::Orphans::load(object)
        .inspect_err(|error| tracing::warn!("degraded: {}", sentence(error)))
        .ok()?;
    Reaper::spawn(move || orphans.list(), |_| {})
        .inspect_err(|error| tracing::warn!("degraded: {}", sentence(error)))
        .ok()
}

async fn start_source(args: &RunArgs, node_name: &str) -> anyhow::Result<mpsc::Receiver<Event>> {
    let settings = source::Settings {
        node_name: node_name.into(),
        external_ips: true,
    };
    let (sender, receiver) = source::channel();
    match &args.manifests {
        Some(folder) => {
            source::spawn_manifests(folder, &settings, sender)?;
        }
        None => {
            let client = source::connect(args.kubeconfig.as_deref(), args.master.as_deref());
            source::spawn_kube(client.await?, &settings, sender);
        }
    }
    Ok(receiver)
}

/// The name of this node in the cluster, as kube-proxy makes it (X1): given or the host's, trimmed
/// and in lower case.
fn node_name(given: Option<&str>) -> anyhow::Result<String> {
    let name = match given {
        Some(name) => name.to_owned(),
        None => rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
    };
    let name = name.trim().to_lowercase();
    anyhow::ensure!(
        !name.is_empty(),
        "the node has no name: give one with --hostname-override"
    );
    Ok(name)
}

/// Done when the process is asked to end.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn unix_now() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_nanos() as u64
}

fn log_event(event: Event) {
    match event {
        Event::Warning(warning) => tracing::warn!("{warning}"),
        Event::Resolved(object) => tracing::info!("{object}: all is well again"),
        Event::Watch(WatchState {
            resource,
            lost: Some(why),
        }) => {
            tracing::warn!(
                resource,
                why,
                "watch lost; what is known goes on being served"
            );
        }
        Event::Watch(WatchState {
            resource,
            lost: None,
        }) => tracing::info!(resource, "watching"),
        Event::Change(_) => {}
    }
}

/// One line per sync; what is refused is named when that begins and when it ends.
#[derive(Default)]
struct SyncLog {
    refused: BTreeSet<String>,
}

impl SyncLog {
    fn sync(&mut self, store: &Store, report: &Report) {
        for warning in &report.warnings {
            tracing::warn!("{warning}");
        }
        if let Some(error) = &report.unreadable {
            tracing::error!(
                error = sentence(error),
                "nothing is written; tried again later"
            );
        }
        let mut refused = BTreeSet::new();
        for failed in &report.failed {
            let service = failed
                .service
                .as_ref()
                .map_or("the node's addresses".into(), ToString::to_string);
            if !self.refused.contains(&service) {
                tracing::error!(
                    service,
                    error = sentence(&failed.error),
                    "refused; tried again later"
                );
            }
            refused.insert(service);
        }
        for full in &report.no_slots {
            let service = full.service.to_string();
            if !self.refused.contains(&service) {
                tracing::error!(
                    service,
                    wanted = full.wanted,
                    resting = full.resting,
                    entries = full.entries,
                    "refused: no run of slots is free; raise it with --map-size slot=N"
                );
            }
            refused.insert(service);
        }
        self.refused = refused;
        let (writes, elapsed) = (report.writes, report.elapsed);
        if report.first {
            let counts = store.counts();
            tracing::info!(
                services = counts.services,
                endpoints = counts.endpoints,
                writes,
                ?elapsed,
                "synced"
            );
        } else if writes > 0 {
            tracing::info!(changed = report.services, writes, ?elapsed, "sync");
        }
    }
}

/// `NAME=N` with the name of a map that can have another size.
fn map_size(text: &str) -> Result<(&'static str, u32), String> {
    let (name, entries) = text.split_once('=').ok_or("write NAME=N")?;
    let spec = map::ALL
        .iter()
        .find(|spec| spec.resizable && spec.name == name)
        .ok_or_else(|| {
            let names = map::ALL.iter().filter(|spec| spec.resizable);
            let names: Vec<_> = names.map(|spec| spec.name).collect();
            format!("no map {name:?} that can be resized: {}", names.join(", "))
        })?;
    match entries.parse() {
        Ok(0) | Err(_) => Err(format!("{entries:?} is no number of entries")),
        Ok(entries) => Ok((spec.name, entries)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_size_names_a_map_that_can_be_resized() {
        assert_eq!(map_size("backend=1000"), Ok(("backend", 1000)));
        assert!(map_size("backend").is_err());
        assert!(map_size("backend=0").is_err());
        assert!(map_size("backend=many").is_err());
        assert!(
            map_size("counter=10")
                .unwrap_err()
                .contains("frontend, name, slot")
        );
    }
}
