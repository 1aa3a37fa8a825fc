//! `sidestep status`: is this node served, by what, and what is degraded?

mod interface;
mod link;
mod report;

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    io::Write,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::Context as _;
use clap::Args;
use proxy_common::{Counter, SettingValue};
use rustix::thread::{CapabilitySet, capabilities};

use self::{
    interface::Interface,
    link::{Link, LinkStatus},
    report::{Map, Report},
};
use super::{CommonArgs, Exit, Output};
use crate::{
    datapath::{self, DumpError, Features, Kernel, PROGRAMS, Pins, StartError},
    node::{namespace, sockets},
};

/// Most folders that are looked at to find a cgroup by its number.
const FOLDERS: usize = 20_000;

/// Flags of `sidestep status`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exits with 3 if something does not serve as it should: no agent runs (what is in the maps keeps
serving, but no longer follows the cluster), it was never in sync, a program is not attached, its
cgroup is gone, or maps are missing or of another version. Kernel features that are missing are
listed with what that means, and are no failure.

Examples:
  sidestep status
  sidestep status -o json | jq -r '.problems[]'")]
pub struct StatusArgs {
    /// Where to look for the cgroups that programs are attached to. Default: the first cgroup2
    /// that is mounted.
    #[arg(long, value_name = "PATH")]
    pub cgroup_root: Option<PathBuf>,
}

/// Prints the state of the node.
pub(super) fn run(
    args: &StatusArgs,
    common: &CommonArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    may_use_bpf()?;
    let pins = Pins::new(&common.bpffs);
    let mut report = Report::new(pins.folder(), pins.is_locked());
    match inspect(&pins) {
        Ok((setting, maps, counters)) => {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            report.set_setting(setting.as_ref(), now.as_nanos() as u64);
            report.maps = maps;
            report.set_counters(&counters);
        }
        // Pins of another version: what else there is to say is said all the same.
        Err(error @ StartError::Mismatch { .. }) => report.foreign(&error),
        Err(error @ StartError::Schema { .. }) => report.foreign(&error),
        Err(error) => return Err(error.into()),
    }
    let mut cgroups = Cgroups::new(args.cgroup_root.clone());
    for program in &PROGRAMS {
        let state = datapath::link_state(&pins, program.name)?;
        report.links.push(Link {
            program: program.name,
            role: program.role,
            status: match state {
                None => LinkStatus::Missing,
                Some(state) if state.cgroup == 0 => LinkStatus::Defunct {
                    link: state.id,
                    program_id: state.program,
                },
                Some(state) => LinkStatus::Attached {
                    link: state.id,
                    program_id: state.program,
                    cgroup: state.cgroup,
                    path: cgroups.find(state.cgroup),
                },
            },
        });
    }
    report.interfaces = datapath::device_links(&pins)?
        .iter()
        .map(Interface::of)
        .collect();
    let cookie = namespace::cookie().context("ask for the network namespace's cookie")?;
    let features = Features::probe(cookie.is_some(), sockets::probe().is_ok());
    report.set_features(&features.all());
    report.judge();
    match common.output {
        Output::Table => write!(out, "{report}")?,
        Output::Json => super::json(out, &report)?,
    }
    Ok(if report.problems.is_empty() {
        Exit::Success
    } else {
        Exit::Degraded
    })
}

/// Without rights every answer would be that there is nothing.
fn may_use_bpf() -> anyhow::Result<()> {
    let own = capabilities(None).context("ask for my own capabilities")?;
    let enough = CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
    if own.effective.intersects(enough) {
        Ok(())
    } else {
        Err(StartError::NoRights.into())
    }
}

type Inspected = (Option<SettingValue>, Vec<Map>, BTreeMap<Counter, u64>);

fn inspect(pins: &Pins) -> Result<Inspected, StartError> {
    pins.check()?;
    let setting = pins.setting()?;
    let usage = datapath::usage(pins).map_err(|error| match error {
        DumpError::Open(error) => error,
        error => StartError::Io {
            what: "read maps in",
            path: pins.folder().into(),
            source: std::io::Error::other(error),
        },
    })?;
    let maps = usage.iter().map(Map::from).collect();
    let counters = if pins.is_complete() {
        let counters = Kernel::open(pins)?.counters();
        counters.map_err(|error| StartError::Io {
            what: "read counters in",
            path: pins.folder().into(),
            source: std::io::Error::other(error),
        })?
    } else {
        BTreeMap::new()
    };
    Ok((setting, maps, counters))
}

/// Finds cgroup folders by their inode. All links have the same one as a rule, so each is searched
/// for once.
struct Cgroups {
    root: Option<PathBuf>,
    found: BTreeMap<u64, Option<PathBuf>>,
}

impl Cgroups {
    fn new(root: Option<PathBuf>) -> Self {
        Self {
            root: root.or_else(|| datapath::cgroup_root().ok()),
            found: BTreeMap::new(),
        }
    }

    fn find(&mut self, inode: u64) -> Option<PathBuf> {
        let Self { root, found } = self;
        let root = root.as_deref()?;
        found
            .entry(inode)
            .or_insert_with(|| search(root, inode))
            .clone()
    }
}

/// Breadth first: a node's cgroup is the root or close to it.
fn search(root: &Path, inode: u64) -> Option<PathBuf> {
    let mut folders = VecDeque::from([root.to_path_buf()]);
    let mut seen = 0;
    while let Some(folder) = folders.pop_front() {
        seen += 1;
        if seen > FOLDERS {
            return None;
        }
        // A folder that vanishes meanwhile is not the one.
        if fs::metadata(&folder).is_ok_and(|metadata| metadata.ino() == inode) {
            return Some(folder);
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_found_by_its_inode_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("kubepods/pod-1");
        fs::create_dir_all(&folder).unwrap();
        let inode = fs::metadata(&folder).unwrap().ino();
        let mut cgroups = Cgroups::new(Some(root.path().into()));
        assert_eq!(cgroups.find(inode), Some(folder.clone()));
        fs::remove_dir(&folder).unwrap();
        assert_eq!(search(root.path(), inode), None);
    }
}
