//! Plays a scenario on a data plane: manifests in by the folder source, maps out.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    net::IpAddr,
    rc::Rc,
};

use anyhow::{Context as _, bail, ensure};
use proxy_agent::{
    datapath::{Dataplane, Error, Fake, Grace, Kernel, Outcome as Applied, fake::Faults},
    model::{Change, Node, Warning},
    node::node_port::NodePortAddresses,
    plan::{Snapshot, Transaction},
    reconcile::{Reconciler, Report},
    source::{Event, ManifestReader, Settings},
};
use proxy_common::map;
use sidestep_tests::{data_plane::all_sizes, dice::Dice};
use tempfile::TempDir;

use crate::script::{Command, Connect, Outcome, Script};

/// The node that the scenarios are seen from.
const NODE: &str = "node-a";
/// Its addresses, unless a scenario says otherwise.
const ADDRESSES: [&str; 4] = ["127.0.0.1", "::1", "192.168.0.2", "2001:db8::1"];
/// How often what was refused is tried again before that counts as final.
const PATIENCE: usize = 100;

/// Maps that may fail on demand.
pub(crate) trait Maps: Dataplane {
    /// Sets which writes fail from now on.
    fn set_faults(&mut self, _: Faults) {}
}

impl Maps for Kernel {}

impl Maps for Fake {
    fn set_faults(&mut self, faults: Faults) {
        Fake::set_faults(self, faults);
    }
}

/// The clients of a scenario.
pub(crate) trait Clients {
    /// The maps have changed.
    fn see(&mut self, maps: &Snapshot) -> anyhow::Result<()>;
    /// The addresses of the node.
    fn node_addresses(&mut self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()>;
    /// Tries, and compares with what is expected.
    fn connect(&mut self, connect: &Connect) -> anyhow::Result<()>;
    /// Opens a connection, or a UDP socket that sends, and keeps it.
    fn open(&mut self, name: &str, connect: &Connect) -> anyhow::Result<()>;
    /// Uses it again.
    fn ask(&mut self, name: &str, outcome: &Outcome) -> anyhow::Result<()>;
}

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nothing.
    AsWritten,
    /// The order of events of different objects, each synced alone, with one in ten writes failing.
    Shuffled {
        /// How.
        seed: u64,
    },
}

/// One run of a scenario.
pub(crate) struct Player<'a, D, C> {
    script: &'a Script,
    order: Order,
    dice: Dice,
    folder: TempDir,
    reader: ManifestReader,
    maps: Shared<D>,
    reconciler: Reconciler<Shared<D>>,
    clients: C,
    addresses: BTreeSet<IpAddr>,
    listed: bool,
    due: bool,
    warnings: BTreeSet<String>,
    /// Services that were refused and warned of.
    refused: BTreeSet<String>,
    writes: usize,
    updates: Option<BTreeMap<String, String>>,
}

impl<'a, D: Maps, C: Clients> Player<'a, D, C> {
    /// Starts on empty maps.
    pub(crate) fn new(
        script: &'a Script,
        order: Order,
        maps: D,
        clients: C,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let maps = Shared(Rc::new(RefCell::new(maps)));
        let addresses = ADDRESSES.map(str::parse).into_iter();
        let mut player = Self {
            script,
            order,
            dice: Dice::new(match order {
                Order::AsWritten => 0,
                Order::Shuffled { seed } => seed,
            }),
            reader: reader(&folder)?,
            folder,
            reconciler: reconciler(script, &maps)?,
            maps,
            clients,
            addresses: addresses.collect::<Result<_, _>>()?,
            listed: false,
            due: true,
            warnings: BTreeSet::new(),
            refused: BTreeSet::new(),
            writes: 0,
            updates: None,
        };
        player.clients.node_addresses(&player.addresses)?;
        player.tell_addresses();
        if let Order::Shuffled { seed } = order {
            let faults = Faults::Percent { percent: 10, seed };
            player.maps.0.borrow_mut().set_faults(faults);
        }
        Ok(player)
    }

    /// Takes what the maps hold for what they should, and returns it in the end.
    pub(crate) fn updating(mut self) -> Self {
        self.updates = Some(BTreeMap::new());
        self
    }

    /// Plays all commands, then deletes everything: the maps must be empty.
    pub(crate) fn play(mut self) -> anyhow::Result<BTreeMap<String, String>> {
        let script = self.script;
        for (number, command) in &script.commands {
            self.command(command)
                .with_context(|| format!("{}.txt:{number}: {command:?}", script.name))?;
        }
        self.sync().context("after the last command")?;
        self.expect_no_warnings()?;
        for entry in fs::read_dir(self.folder.path())? {
            fs::remove_file(entry?.path())?;
        }
        self.due = true;
        self.addresses.clear();
        self.tell_addresses();
        self.sync().context("delete everything")?;
        let left = self.snapshot()?;
        ensure!(
            left == Snapshot::default(),
            "after everything was deleted there is left\n{}{left:?}",
            left.normalized()
        );
        Ok(self.updates.unwrap_or_default())
    }

    fn command(&mut self, command: &Command) -> anyhow::Result<()> {
        match command {
            Command::Apply { section, file } => {
                self.expect_no_warnings()?;
                let text = self.script.section(section)?;
                fs::write(self.folder.path().join(file), text)?;
                self.due = true;
            }
            Command::Delete(file) => {
                self.expect_no_warnings()?;
                fs::remove_file(self.folder.path().join(file))?;
                self.due = true;
            }
            Command::Zone(zone) => {
                let zone = zone.as_ref().map_or(String::new(), |zone| {
                    format!("topology.kubernetes.io/zone: {zone}")
                });
                let node = format!(
                    "{{apiVersion: v1, kind: Node, metadata: {{name: {NODE}, labels: {{{zone}}}}}}}"
                );
                fs::write(self.folder.path().join("node.yaml"), node)?;
                self.due = true;
            }
            Command::Addresses(addresses) => {
                self.addresses = addresses.iter().copied().collect();
                self.clients.node_addresses(&self.addresses)?;
                self.tell_addresses();
                self.due = true;
            }
            Command::Restart => {
                self.sync()?;
                self.reader = reader(&self.folder)?;
                self.reconciler = reconciler(self.script, &self.maps)?;
                self.tell_addresses();
                self.listed = false;
                self.due = true;
            }
            Command::Maps(section) => {
                self.sync()?;
                self.compare(section)?;
            }
            Command::Warns(text) => {
                self.sync()?;
                let count = self.warnings.len();
                self.warnings.retain(|warning| !warning.contains(text));
                // With another order there are other moments at which something is wrong.
                ensure!(
                    count > self.warnings.len() || self.order != Order::AsWritten,
                    "no such warning, but {:#?}",
                    self.warnings
                );
            }
            Command::Writes(count) => {
                self.sync()?;
                ensure!(
                    self.writes == *count || self.order != Order::AsWritten,
                    "{} writes",
                    self.writes
                );
            }
            Command::Connect(connect) => {
                self.sync()?;
                self.clients.connect(connect)?;
            }
            Command::Open { name, connect } => {
                self.sync()?;
                self.clients.open(name, connect)?;
            }
            Command::Ask { name, outcome } => {
                self.sync()?;
                self.clients.ask(name, outcome)?;
            }
        }
        Ok(())
    }

    fn compare(&mut self, section: &str) -> anyhow::Result<()> {
        let says = self
            .script
            .commands
            .iter()
            .any(|(_, command)| matches!(command, Command::Addresses(_)));
        let text = self.snapshot()?.normalized();
        let lines = text
            .lines()
            .filter(|line| says || !line.starts_with("NODE "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        if let Some(updates) = &mut self.updates {
            updates.insert(section.into(), text);
            return Ok(());
        }
        let expected = self.script.section(section)?;
        ensure!(
            text == expected,
            "the maps hold other things than expected:\n{}",
            difference(expected, &text)
        );
        Ok(())
    }

    /// Reads the folder and brings the maps up to it.
    fn sync(&mut self) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.due) {
            return Ok(());
        }
        self.writes = 0;
        let mut changes = Vec::new();
        for event in self.reader.read() {
            match event {
                Event::Change(change) => changes.push(change),
                Event::Warning(warning) => self.warn(&warning),
                Event::Resolved(_) | Event::Watch(_) => {}
            }
        }
        match self.order {
            Order::AsWritten => changes.drain(..).for_each(|c| self.reconciler.change(c)),
            Order::Shuffled { .. } => {
                for change in shuffled(&mut self.dice, changes, !self.listed) {
                    self.reconciler.change(change);
                    self.step()?;
                }
            }
        }
        self.listed = true;
        self.settle()?;
        if !self.reconciler.has_refused() {
            self.refused.clear();
        }
        let maps = self.snapshot()?;
        self.clients.see(&maps)
    }

    /// Syncs once, and again as long as that made room for something.
    fn step(&mut self) -> anyhow::Result<()> {
        for _ in 0..PATIENCE {
            if !self.reconciler.is_pending() {
                return Ok(());
            }
            let report = self.reconciler.sync();
            self.take(report);
            self.reconciler.retry(false);
            let faults = self.snapshot()?.check();
            ensure!(
                faults.is_empty(),
                "the maps contradict themselves: {faults:#?}"
            );
        }
        bail!("the agent never came to rest");
    }

    /// Syncs until everything stands in the maps that can.
    fn settle(&mut self) -> anyhow::Result<()> {
        self.step()?;
        let Order::Shuffled { seed } = self.order else {
            if self.reconciler.has_refused()
                && let Some((epoch, grace)) = self.reconciler.grace()
            {
                grace()?;
                self.reconciler.grace_passed(epoch);
                self.reconciler.retry(false);
                self.step()?;
            }
            return Ok(());
        };
        for round in 0..2 * PATIENCE {
            if !self.reconciler.has_refused() {
                let faults = Faults::Percent { percent: 10, seed };
                self.maps.0.borrow_mut().set_faults(faults);
                return Ok(());
            }
            if round == PATIENCE {
                self.maps.0.borrow_mut().set_faults(Faults::Never);
            }
            self.reconciler.retry(true);
            let report = self.reconciler.sync();
            self.take(report);
        }
        bail!("something is refused for ever");
    }

    fn take(&mut self, report: Report) {
        self.writes += report.writes;
        for warning in &report.warnings {
            self.warn(warning);
        }
        for full in report.no_slots {
            self.refuse(full.service.to_string(), full.to_string());
        }
        for failed in report.failed {
            let is_fault = failed.error.to_string().contains("injected");
            if let Some(service) = failed.service.filter(|_| !is_fault) {
                self.refuse(
                    service.to_string(),
                    format!("Service {service}: {}", failed.error),
                );
            }
        }
    }

    /// As the agent's log: a Service that is refused is named once.
    fn refuse(&mut self, service: String, why: String) {
        if self.refused.insert(service) {
            self.warnings.insert(why);
        }
    }

    fn warn(&mut self, warning: &Warning) {
        self.warnings.insert(warning.to_string());
    }

    fn expect_no_warnings(&mut self) -> anyhow::Result<()> {
        let warnings = std::mem::take(&mut self.warnings);
        ensure!(
            warnings.is_empty() || self.order != Order::AsWritten,
            "unexpected: {warnings:#?}"
        );
        Ok(())
    }

    fn snapshot(&self) -> anyhow::Result<Snapshot> {
        Ok(self.maps.0.borrow_mut().dump()?)
    }

    fn tell_addresses(&mut self) {
        let settings = &self.script.settings;
        let node_ports = NodePortAddresses::new(&settings.node_ports, !settings.no_localhost);
        self.reconciler
            .addresses(node_ports.entries(&self.addresses));
    }
}

fn reader(folder: &TempDir) -> anyhow::Result<ManifestReader> {
    let settings = Settings {
        node_name: NODE.into(),
        external_ips: true,
    };
    Ok(ManifestReader::new(folder.path(), &settings)?)
}

fn reconciler<D: Dataplane>(
    script: &Script,
    maps: &Shared<D>,
) -> anyhow::Result<Reconciler<Shared<D>>> {
    let node = Node {
        name: NODE.into(),
        zone: None,
    };
    let slots = all_sizes(&script.settings.sizes)[map::SLOT.name];
    Ok(Reconciler::new(node, Shared(Rc::clone(&maps.0)), slots)?)
}

/// Events in another order, those of one object in theirs. Full lists become empty ones, and then
/// single objects.
fn shuffled(dice: &mut Dice, changes: Vec<Change>, first: bool) -> Vec<Change> {
    let mut order = Vec::new();
    if first {
        order.extend([Change::Services(Vec::new()), Change::Slices(Vec::new())]);
    }
    let mut objects: BTreeMap<String, VecDeque<Change>> = BTreeMap::new();
    for change in changes {
        let singles = match change {
            Change::Services(list) => list.into_iter().map(Change::Service).collect(),
            Change::Slices(list) => list.into_iter().map(Change::Slice).collect(),
            other => vec![other],
        };
        for single in singles {
            let object = match &single {
                Change::Service(service) => format!("Service {}", service.name),
                Change::ServiceGone(name) => format!("Service {name}"),
                Change::Slice(slice) => format!("Slice {}", slice.name),
                Change::SliceGone(name) => format!("Slice {name}"),
                _ => "Node".into(),
            };
            objects.entry(object).or_default().push_back(single);
        }
    }
    while !objects.is_empty() {
        let names: Vec<String> = objects.keys().cloned().collect();
        let name = dice.one_of(&names);
        match objects.get_mut(name).and_then(VecDeque::pop_front) {
            Some(change) => order.push(change),
            None => drop(objects.remove(name)),
        }
    }
    order
}

/// Lines that one text has and the other has not.
fn difference(expected: &str, found: &str) -> String {
    let lines = |text: &str, other: &str, sign: char| -> String {
        let other: BTreeSet<&str> = other.lines().collect();
        let lines = text.lines().filter(|line| !other.contains(line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    lines(expected, found, '-') + &lines(found, expected, '+')
}

/// Maps that outlive the agent.
pub(crate) struct Shared<D>(Rc<RefCell<D>>);

impl<D: Dataplane> Dataplane for Shared<D> {
    fn apply(&mut self, transaction: &Transaction) -> Applied {
        self.0.borrow_mut().apply(transaction)
    }

    fn dump(&mut self) -> Result<Snapshot, Error> {
        self.0.borrow_mut().dump()
    }

    fn grace(&self) -> Grace {
        self.0.borrow().grace()
    }
}
