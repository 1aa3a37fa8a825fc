//! The agent's real data plane in the process of a test: pins on a bpffs that only this process
//! sees, programs attached to its own cgroup.

use std::path::Path;

use anyhow::Context as _;
use proxy_agent::{
    datapath::{self, Features, Globals, Kernel, Lock, Pins, Sizes},
    node::namespace,
};
use proxy_common::map;
use rustix::mount::{MountFlags, mount};

use crate::case;

/// Entries of the maps that a test does not ask for otherwise. The full sizes would cost each test
/// some hundred milliseconds.
pub const ENTRIES: u32 = 1024;

/// Loaded and attached programs, and their pins.
pub struct DataPlane {
    pins: Pins,
    _lock: Lock,
    _object: aya::Ebpf,
}

impl DataPlane {
    /// Loads and attaches, as `sidestep run` does; `sizes` are those that differ from
    /// [`ENTRIES`].
    ///
    /// # Errors
    ///
    /// Outside the process of a test, and whatever hinders an agent's start.
    pub fn start(sizes: &Sizes) -> anyhow::Result<Self> {
        let bpffs = Path::new("/sys/fs/bpf");
        mount("bpf", bpffs, "bpf", MountFlags::empty(), None)
            .context("mount a bpffs of the test's own")?;
        let pins = Pins::new(bpffs);
        let lock = pins.lock()?;
        let cookie = namespace::cookie().context("ask for the network namespace's cookie")?;
        let globals = Globals {
            node_netns: cookie.unwrap_or(0),
            set_retval: Features::probe(cookie.is_some(), true).set_retval.present,
            port_guard: true,
            snat: None,
        };
        let mut object = datapath::load(Some(&pins), &all_sizes(sizes), globals)?;
        Kernel::open(&pins)?.sign(globals.node_netns, 1)?;
        datapath::attach(&mut object, &pins, &case::cgroup()?)?;
        Ok(Self {
            pins,
            _lock: lock,
            _object: object,
        })
    }

    /// The maps, opened once more.
    ///
    /// # Errors
    ///
    /// If a map cannot be opened.
    pub fn open(&self) -> anyhow::Result<Kernel> {
        Ok(Kernel::open(&self.pins)?)
    }
}

/// Every resizable map's size.
pub fn all_sizes(sizes: &Sizes) -> Sizes {
    let resizable = map::ALL.iter().filter(|spec| spec.resizable);
    let mut all: Sizes = resizable.map(|spec| (spec.name, ENTRIES)).collect();
    all.extend(sizes.iter().map(|(&name, &entries)| (name, entries)));
    all
}
