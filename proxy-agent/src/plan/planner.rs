//! The planner: what should be, against what the maps hold.
//!
//! One plan is in flight at a time: `plan` → [`Dataplane::apply`](crate::datapath::Dataplane) →
//! [`settle`](Planner::settle). The planner assumes that a plan succeeds and takes back what did
//! not. The cost of a plan is that of the services it names, never of all.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use proxy_common::{Address, Protocol, map};

use super::{
    DesiredService, Op, Transaction,
    claims::Claims,
    diff::{self, NoRun},
    draft::{Before, Draft},
    entry::{Entry, name_value},
    ids::Ids,
    sketch::Sketch,
    slots::Slots,
};
use crate::model::{Family, ServiceKey, ServiceName, Warning};

/// Turns desired services into [`Transaction`]s, and remembers what the maps hold.
#[derive(Debug)]
pub struct Planner {
    /// By service id.
    pub(super) services: HashMap<u32, Entry>,
    pub(super) ids: BTreeMap<ServiceKey, u32>,
    pub(super) claims: Claims,
    pub(super) service_ids: Ids,
    pub(super) backend_ids: Ids,
    pub(super) slots: Slots,
    pub(super) node: BTreeMap<Address, u32>,
    /// What `node` should be, as long as it is not.
    pub(super) node_wanted: Option<BTreeMap<Address, u32>>,
    /// Restored services that have no name, or a name that another one has.
    pub(super) orphans: BTreeSet<u32>,
    /// Writes that remove restored entries that belong to no service.
    pub(super) loose: Vec<(Op, Option<Op>)>,
    /// A full list was seen: what nobody wants may go.
    pub(super) pruning: bool,
    pub(super) refused: BTreeSet<ServiceKey>,
    pub(super) unnameable: BTreeSet<ServiceKey>,
    /// Something was deleted since the last refusal.
    pub(super) room: bool,
    /// What each unit of the plan in flight changed.
    pub(super) in_flight: Vec<Vec<Before>>,
}

/// What [`Planner::plan`] wants written, and what it cannot.
#[derive(Debug, Default)]
#[must_use = "the planner takes the transaction for applied"]
pub struct Plan {
    /// To be applied, then settled.
    pub transaction: Transaction,
    /// Conflicts between services, and names that do not fit.
    pub warnings: Vec<Warning>,
    /// Services that stay as they are (new ones: absent) since slots ran out.
    pub refused: Vec<SlotsFull>,
}

/// No run of slots is free for a service's new list. It comes right when there is room again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsFull {
    /// Whose list.
    pub service: ServiceKey,
    /// Its length.
    pub wanted: u32,
    /// Slots that become free when their grace period has passed.
    pub resting: u32,
    /// Size of the map.
    pub entries: u32,
}

/// What is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Service ids.
    pub services: usize,
    /// Slots in runs of services, counted with what a run is rounded up by.
    pub slots: u32,
    /// Slots of former runs that may still be read.
    pub resting: u32,
    /// Services that were refused and are to be tried again.
    pub refused: usize,
}

impl Planner {
    /// Starts with empty maps, of which `slot` has this many entries.
    pub fn new(slots: u32) -> Self {
        Self {
            services: HashMap::new(),
            ids: BTreeMap::new(),
            claims: Claims::default(),
            service_ids: Ids::new(map::SERVICE.entries),
            backend_ids: Ids::new(map::LOAD.entries),
            slots: Slots::new(slots),
            node: BTreeMap::new(),
            node_wanted: None,
            orphans: BTreeSet::new(),
            loose: Vec::new(),
            pruning: false,
            refused: BTreeSet::new(),
            unnameable: BTreeSet::new(),
            room: false,
            in_flight: Vec::new(),
        }
    }

    /// Plans changes: a service with `Some` becomes that, one with `None` goes. Of two changes of
    /// one service the last counts. Everything that an earlier plan left over is planned as well,
    /// so an empty list is a way to try that again.
    pub fn plan(&mut self, changes: Vec<(ServiceKey, Option<DesiredService>)>) -> Plan {
        self.write(changes.into_iter().collect(), false)
    }

    /// Plans changes of whole Services: each becomes these ports and families and no others.
    pub fn plan_services(&mut self, changes: Vec<(ServiceName, Vec<DesiredService>)>) -> Plan {
        let mut by_key = BTreeMap::new();
        for (name, desired) in changes {
            by_key.extend(self.known_of(&name).map(|key| (key, None)));
            by_key.extend(desired.into_iter().map(|d| (d.key.clone(), Some(d))));
        }
        self.write(by_key, false)
    }

    /// Plans the whole cluster: these services and no others. From then on, restored entries that
    /// belong to no service are removed too.
    pub fn plan_full(&mut self, desired: Vec<DesiredService>) -> Plan {
        let mut changes: BTreeMap<_, _> = self.known().map(|key| (key.clone(), None)).collect();
        let desired = desired.into_iter().map(|d| (d.key.clone(), Some(d)));
        changes.extend(desired);
        self.pruning = true;
        self.write(changes, true)
    }

    /// Ends a full plan that was made in parts: removes all services but those to keep, and
    /// restored entries that belong to no service.
    pub fn prune(&mut self, keep: impl Fn(&ServiceKey) -> bool) -> Plan {
        let gone = self.known().filter(|key| !keep(key));
        let changes = gone.map(|key| (key.clone(), None)).collect();
        self.pruning = true;
        self.write(changes, true)
    }

    /// Plans the addresses of this node, with their
    /// [`NodeAddrValue`](proxy_common::NodeAddrValue) flags: these and no others.
    pub fn node_addrs(&mut self, addrs: BTreeMap<Address, u32>) -> Plan {
        self.node_wanted = Some(addrs);
        self.write(BTreeMap::new(), false)
    }

    /// Services whose unit was refused, if room has come since: plan them again, as they are
    /// desired by then. Answers once per occasion; [`refused`](Self::refused) always answers.
    pub fn retry(&mut self) -> Vec<ServiceKey> {
        match std::mem::take(&mut self.room) {
            true => self.refused.iter().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// Services whose unit was refused and that were not planned since.
    pub fn refused(&self) -> impl ExactSizeIterator<Item = &ServiceKey> {
        self.refused.iter()
    }

    /// Whether an empty [`plan`](Self::plan) would write something: a failed unit left a frontend
    /// or an address of the node that is not as it should be.
    pub fn has_leftovers(&self) -> bool {
        let prunable = self.pruning && !(self.orphans.is_empty() && self.loose.is_empty());
        prunable || self.node_wanted.is_some() || !self.claims.unsettled.is_empty()
    }

    /// Names everything that was unpublished until now; `None` if that is nothing. When no program
    /// can read it any more ([`Dataplane::grace`](crate::datapath::Dataplane::grace), called after
    /// this), give the number to [`grace`](Self::grace).
    pub fn unpublished(&mut self) -> Option<u64> {
        self.slots.close()
    }

    /// The grace period for what [`unpublished`](Self::unpublished) named has passed: its slots
    /// may be used again.
    pub fn grace(&mut self, epoch: u64) {
        self.room |= self.slots.free_until(epoch);
    }

    /// What is in use.
    pub fn usage(&self) -> Usage {
        let resting = self.slots.resting();
        Usage {
            services: self.services.len(),
            slots: self.slots.size() - self.slots.free() - resting,
            resting,
            refused: self.refused.len(),
        }
    }

    fn known(&self) -> impl Iterator<Item = &ServiceKey> {
        self.ids.keys().chain(&self.refused)
    }

    /// Ports and families of a Service that the maps hold, or that were refused.
    fn known_of(&self, name: &ServiceName) -> impl Iterator<Item = ServiceKey> {
        let first = ServiceKey {
            service: name.clone(),
            port: "".into(),
            protocol: Protocol::Any,
            family: Family::V4,
        };
        let ids = self.ids.range(first.clone()..).map(|(key, _)| key);
        let ids = ids.take_while(|key| key.service == *name);
        let refused = self.refused.range(first..);
        let refused = refused.take_while(|key| key.service == *name);
        ids.chain(refused).cloned().collect::<Vec<_>>().into_iter()
    }

    fn write(&mut self, changes: BTreeMap<ServiceKey, Option<DesiredService>>, full: bool) -> Plan {
        self.settle_in_flight();
        let mut sketch = Sketch::default();
        if self.pruning {
            for id in std::mem::take(&mut self.orphans) {
                self.remove(id, true, &mut sketch);
            }
        }
        // What goes leaves room for what comes.
        for (key, _) in changes.iter().filter(|(_, desired)| desired.is_none()) {
            self.refused.remove(key);
            self.unnameable.remove(key);
            if let Some(id) = self.ids.remove(key) {
                self.remove(id, false, &mut sketch);
            }
        }
        for (key, desired) in changes {
            if let Some(desired) = desired {
                self.put(key, &desired, &mut sketch);
            }
        }
        if full {
            sketch.look_at(self.claims.keys());
        }
        self.publish(&mut sketch);
        self.write_node(&mut sketch);
        if self.pruning {
            for (op, undo) in std::mem::take(&mut self.loose) {
                sketch.alone(op, undo);
            }
        }
        let (plan, in_flight) = sketch.finish();
        self.in_flight = in_flight;
        plan
    }

    fn remove(&mut self, id: u32, orphan: bool, sketch: &mut Sketch) {
        let Some(entry) = self.services.remove(&id) else {
            return;
        };
        let draft = sketch.draft(id, (!orphan).then_some(&entry.key));
        diff::delete(&entry, sketch.at(draft));
        for claim in &entry.claims {
            self.claims.remove(id, claim);
            sketch.touch(draft, claim, false);
        }
        sketch.at(draft).before.push(Before {
            id,
            entry: Some(Box::new(entry)),
            orphan,
        });
    }

    fn put(&mut self, key: ServiceKey, desired: &DesiredService, sketch: &mut Sketch) {
        self.refused.remove(&key);
        if name_value(&key).is_none() {
            if !self.unnameable.contains(&key) {
                sketch.warnings.push(too_long(&key));
                self.unnameable.insert(key);
            }
            return;
        }
        let known = self.ids.get(&key).copied();
        let id = known.unwrap_or_else(|| self.service_ids.take());
        let absent = known.is_none().then(|| Entry::absent(key.clone(), id));
        let Some(old) = absent.as_ref().or_else(|| self.services.get(&id)) else {
            return;
        };
        let mut draft = Draft::new(Some(key.clone()));
        let ids = &mut self.backend_ids;
        let new = match diff::update(old, desired, ids, &mut self.slots, &mut draft) {
            Ok(new) => new,
            Err(NoRun(wanted)) => {
                if known.is_none() {
                    self.service_ids.release(id);
                }
                sketch.refused.push(SlotsFull {
                    service: key.clone(),
                    wanted,
                    resting: self.slots.resting(),
                    entries: self.slots.size(),
                });
                self.refused.insert(key);
                return;
            }
        };
        if draft.is_empty() && old.claims == new.claims {
            return;
        }
        let draft = sketch.adopt(id, draft);
        for claim in without(&old.claims, &new.claims) {
            self.claims.remove(id, claim);
            sketch.touch(draft, claim, false);
        }
        for claim in without(&new.claims, &old.claims) {
            self.claims.add(id, claim);
            sketch.touch(draft, claim, true);
        }
        self.ids.insert(key, id);
        let entry = self.services.insert(id, new).map(Box::new);
        sketch.at(draft).before.push(Before {
            id,
            entry,
            orphan: false,
        });
    }

    /// Name of a service id.
    pub(super) fn name(&self, id: u32) -> Option<&ServiceKey> {
        self.services.get(&id).map(|entry| &entry.key)
    }
}

impl fmt::Display for SlotsFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Service {}: map slot has no free run of {} for its endpoints (size {}, {} of them rest \
             after use): raise it with --map-size slot=N and restart, or remove Services",
            self.service,
            self.wanted.next_power_of_two(),
            self.entries,
            self.resting
        )
    }
}

/// Elements of one sorted list that another lacks.
fn without<'a, T: Ord>(list: &'a [T], other: &'a [T]) -> impl Iterator<Item = &'a T> {
    list.iter()
        .filter(|item| other.binary_search(item).is_err())
}

fn too_long(key: &ServiceKey) -> Warning {
    let parts = [
        ("metadata.namespace", &key.service.namespace),
        ("metadata.name", &key.service.name),
        ("spec.ports.name", &key.port),
    ];
    let max = proxy_common::NameValue::MAX;
    let (field, text) = parts
        .into_iter()
        .find(|(_, text)| text.len() > max)
        .unwrap_or(parts[1]);
    Warning::new(
        format!("Service {}", key.service),
        field,
        format!(
            "{:?} is longer than {max} bytes; the port is skipped",
            &**text
        ),
    )
}
