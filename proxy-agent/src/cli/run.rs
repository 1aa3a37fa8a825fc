//! `sidestep run`: the agent.

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use clap::{ArgAction, Args};
use ipnet::IpNet;
use proxy_common::map;

use super::{CommonArgs, duration::GoDuration};
use crate::{
    datapath::{self, Features, Globals, Kernel, Pins, Sizes},
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

/// Serves until it is told to stop. Stopping detaches nothing.
///
/// # Errors
///
/// Why the data plane could not be started.
pub fn run(args: &RunArgs, common: &CommonArgs) -> anyhow::Result<()> {
    let pins = Pins::new(&common.bpffs);
    let _lock = pins.lock()?;
    let mut sizes: Sizes = args.map_size.iter().copied().collect();
    sizes.extend(pins.check()?);
    let cgroup = match &args.cgroup_root {
        Some(path) => path.clone(),
        None => datapath::cgroup_root()?,
    };
    let features = Features::probe(false);
    let globals = Globals {
        node_netns: 0,
        set_retval: features.set_retval.present,
        port_guard: args.port_guard,
    };
    if args.self_test {
        let mut client = Command::new(std::env::current_exe().context("find my own binary")?);
        client.arg("self-test-client");
        datapath::self_test(&mut client, &cgroup, globals)?;
    }
    let mut object = datapath::load(Some(&pins), &sizes, globals)?;
    let mut kernel = Kernel::open(&pins)?;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    kernel.sign(globals.node_netns, now.as_nanos() as u64)?;
    datapath::attach(&mut object, &pins, &cgroup)?;
    tracing::info!(pins = %pins.folder().display(), cgroup = %cgroup.display(), "serving");
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?
        .block_on(async {
            let mut terminate =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            tokio::select! {
                result = tokio::signal::ctrl_c() => result,
                _ = terminate.recv() => Ok(()),
            }
        })
        .context("wait for signals")
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
                .contains("frontend, service")
        );
    }
}
