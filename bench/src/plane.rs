//! Maps and programs of a lab node, filled by the agent's own library in this process.

use lab::{Host as _, Node};
use proxy_agent::{
    datapath::{self, Features, Globals, Kernel, Lock, Pins, Sizes},
    node::namespace,
    reconcile::{Reconciler, Report},
};
use proxy_common::map;

use crate::cluster::{self, Cluster};

/// A node's maps, with what fills them.
pub(crate) struct Plane {
    pub(crate) pins: Pins,
    pub(crate) reconciler: Reconciler<Kernel>,
    _lock: Lock,
}

impl Plane {
    /// Makes the maps of a node, empty, and loads the programs. Attaches nothing.
    pub(crate) fn new(node: &Node, sizes: &Sizes) -> anyhow::Result<Self> {
        Self::with(node, sizes, false)
    }

    /// The same, with the programs attached to the node's cgroup.
    pub(crate) fn attached(node: &Node, sizes: &Sizes) -> anyhow::Result<Self> {
        Self::with(node, sizes, true)
    }

    fn with(node: &Node, sizes: &Sizes, attach: bool) -> anyhow::Result<Self> {
        let pins = Pins::new(&node.bpffs());
        let lock = pins.lock()?;
        let cookie = node.enter(namespace::cookie)??;
        let globals = Globals {
            node_netns: cookie.unwrap_or(0),
            set_retval: Features::probe(cookie.is_some(), true).set_retval.present,
            snat: None,
            port_guard: true,
        };
        let mut object = datapath::load(Some(&pins), sizes, globals)?;
        let kernel = Kernel::open(&pins)?;
        if attach {
            datapath::attach(&mut object, &pins, node.cgroup())?;
        }
        let slots = sizes
            .get(map::SLOT.name)
            .copied()
            .unwrap_or(map::SLOT.entries);
        let reconciler = Reconciler::new(cluster::node(), kernel, slots)?;
        Ok(Self {
            pins,
            reconciler,
            _lock: lock,
        })
    }

    /// Writes a whole cluster into empty maps.
    pub(crate) fn fill(&mut self, cluster: Cluster) -> anyhow::Result<Report> {
        let (services, slices) = cluster.lists();
        self.reconciler.change(services);
        self.reconciler.change(slices);
        self.sync()
    }

    /// Writes what is due. Everything must find room.
    pub(crate) fn sync(&mut self) -> anyhow::Result<Report> {
        let report = self.reconciler.sync();
        checked(&report)?;
        Ok(report)
    }
}

/// An error unless everything was written.
pub(crate) fn checked(report: &Report) -> anyhow::Result<()> {
    if let Some(full) = report.no_slots.first() {
        anyhow::bail!("{full}");
    }
    match report.failed.first() {
        Some(failed) => anyhow::bail!("a unit was refused: {}", failed.error),
        None => Ok(()),
    }
}
