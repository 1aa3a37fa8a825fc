//! One step: from what changed to what is written.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Instant,
};

use proxy_common::{Address, Protocol};

use super::Report;
use crate::{
    datapath::{Dataplane, Error, Grace},
    model::{Change, Dirty, Node, ServiceName, Store, Warning},
    plan::{DesiredService, Op, Plan, Planner, Transaction, Unit, desired},
};

/// Services that are planned at a time into empty maps, so that the writes of a large cluster never
/// stand in memory all at once.
const PART: usize = 500;

/// The cluster, the plan and the maps, kept in step.
pub struct Reconciler<D> {
    store: Store,
    planner: Planner,
    dataplane: D,
    dirty: Dirty,
    warned: HashMap<ServiceName, HashSet<Warning>>,
    addresses: Option<BTreeMap<Address, u32>>,
    /// The first full plan was applied.
    started: bool,
    /// A failed unit could not be taken back: the planner no longer knows what the maps hold.
    torn: bool,
}

impl<D: Dataplane> Reconciler<D> {
    /// Starts with what the maps hold; nothing is written before both full lists have come.
    ///
    /// `slots` is the size of map `slot`.
    ///
    /// # Errors
    ///
    /// If the maps cannot be read.
    pub fn new(node: Node, mut dataplane: D, slots: u32) -> Result<Self, Error> {
        let planner = Planner::restore(&dataplane.dump()?, slots);
        Ok(Self {
            store: Store::new(node),
            planner,
            dataplane,
            dirty: Dirty::default(),
            warned: HashMap::new(),
            addresses: None,
            started: false,
            torn: false,
        })
    }

    /// Takes in a change of the cluster.
    pub fn change(&mut self, change: Change) {
        let dirty = self.store.apply(change);
        self.dirty.merge(dirty);
    }

    /// Takes in the addresses of this node, with their
    /// [`NodeAddrValue`](proxy_common::NodeAddrValue) flags.
    pub fn addresses(&mut self, addresses: BTreeMap<Address, u32>) {
        self.addresses = Some(addresses);
    }

    /// Whether [`sync`](Self::sync) has something to do that was not tried yet: not while a failed
    /// unit has to be taken back, which is for the next retry.
    pub fn is_pending(&self) -> bool {
        let cluster = !self.dirty.is_empty() || !self.started;
        !self.torn && (self.addresses.is_some() || (self.store.is_complete() && cluster))
    }

    /// Marks for the next sync whatever was refused. With `all`, also what was refused for want of
    /// room that has not come.
    pub fn retry(&mut self, all: bool) {
        let keys = match all {
            true => self.planner.refused().cloned().collect(),
            false => self.planner.retry(),
        };
        self.dirty
            .services
            .extend(keys.into_iter().map(|key| key.service));
    }

    /// Whether something has to be tried again.
    pub fn has_refused(&self) -> bool {
        self.torn || self.planner.refused().len() > 0 || self.planner.has_leftovers()
    }

    /// Writes what is due.
    pub fn sync(&mut self) -> Report {
        let start = Instant::now();
        let mut report = Report::default();
        if self.torn {
            report.unreadable = self.mend().err();
        }
        if let Some(addresses) = self.addresses.take() {
            let plan = self.planner.node_addrs(addresses);
            self.write(plan, &mut report);
        }
        if self.store.is_complete() && !self.torn {
            self.sync_services(&mut report);
        }
        report.elapsed = start.elapsed();
        report
    }

    /// Names what was unpublished until now, with the wait after which
    /// [`grace_passed`](Self::grace_passed) may be told; `None` if that is nothing.
    pub fn grace(&mut self) -> Option<(u64, Grace)> {
        let epoch = self.planner.unpublished()?;
        Some((epoch, self.dataplane.grace()))
    }

    /// The wait for an epoch is over.
    pub fn grace_passed(&mut self, epoch: u64) {
        self.planner.grace(epoch);
    }

    /// The cluster as it is known.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// What is in use.
    pub fn usage(&self) -> crate::plan::Usage {
        self.planner.usage()
    }

    /// The maps.
    pub fn dataplane(&mut self) -> &mut D {
        &mut self.dataplane
    }

    fn sync_services(&mut self, report: &mut Report) {
        let full = !self.started;
        let dirty = std::mem::take(&mut self.dirty);
        let names: BTreeSet<ServiceName> = if full || dirty.all {
            let all = self.store.services().map(|service| service.name.clone());
            all.chain(dirty.services).collect()
        } else {
            dirty.services
        };
        report.services = names.len();
        let names: Vec<ServiceName> = names.into_iter().collect();
        if full && self.planner.usage().services == 0 {
            // Nothing is there that could stand in the way of what comes.
            for part in names.chunks(PART) {
                let changes = self.desired(part, report);
                let plan = self.planner.plan_services(changes);
                self.write(plan, report);
            }
            let plan = self.planner.prune(|_| true);
            self.write(plan, report);
        } else {
            let changes = self.desired(&names, report);
            let plan = if full {
                let services = changes.into_iter().flat_map(|(_, services)| services);
                self.planner.plan_full(services.collect())
            } else {
                self.planner.plan_services(changes)
            };
            self.write(plan, report);
        }
        report.first = full;
        self.started = true;
    }

    /// What these Services are to become.
    fn desired(
        &mut self,
        names: &[ServiceName],
        report: &mut Report,
    ) -> Vec<(ServiceName, Vec<DesiredService>)> {
        let look_at = |name: &ServiceName| {
            let desired = desired(&self.store, name);
            self.note_warnings(name, desired.warnings, report);
            (name.clone(), desired.services)
        };
        names.iter().map(look_at).collect()
    }

    fn note_warnings(&mut self, name: &ServiceName, warnings: Vec<Warning>, report: &mut Report) {
        if warnings.is_empty() {
            self.warned.remove(name);
            return;
        }
        let known = self.warned.entry(name.clone()).or_default();
        let now: HashSet<_> = warnings.iter().cloned().collect();
        report.warnings.extend(
            warnings
                .into_iter()
                .filter(|warning| !known.contains(warning)),
        );
        *known = now;
    }

    fn write(&mut self, plan: Plan, report: &mut Report) {
        let Plan {
            transaction,
            warnings,
            refused,
        } = plan;
        report.warnings.extend(warnings);
        report.no_slots.extend(refused);
        report.writes += transaction.len();
        let outcome = self.dataplane.apply(&transaction);
        let failed = outcome.failed.iter().map(|failed| failed.unit);
        self.planner.settle(&transaction, failed);
        self.torn |= outcome.failed.iter().any(|failed| failed.torn);
        report.udp_backends_gone |= udp_backends_gone(&transaction);
        report.failed.extend(outcome.failed);
    }

    /// Reads back what the maps hold, after a failed unit could not be taken back.
    fn mend(&mut self) -> Result<(), Error> {
        let snapshot = self.dataplane.dump()?;
        self.planner.resync(&snapshot);
        self.torn = false;
        self.started = false;
        Ok(())
    }
}

/// Whether UDP backends were deleted, or such of unknown protocol.
fn udp_backends_gone(transaction: &Transaction) -> bool {
    let is_udp = |unit: &Unit| {
        unit.service
            .as_ref()
            .is_none_or(|key| key.protocol == Protocol::Udp)
    };
    let deletes = |unit: &Unit| unit.ops.iter().any(|op| matches!(op, Op::DeleteBackend(_)));
    transaction
        .units
        .iter()
        .any(|unit| is_udp(unit) && deletes(unit))
}
