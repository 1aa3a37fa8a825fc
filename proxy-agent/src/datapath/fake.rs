//! A data plane in memory.
//!
//! For tests, also of other crates: it has map sizes as the kernel has, fails on demand, and shows
//! the maps between any two writes. It holds no connections: `load` and `affinity` are not here.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use proxy_common::{
    FrontendKey, SlotValue,
    map::{self, MapSpec},
};

use super::{Dataplane, Error, Failed, Grace, Outcome, Sizes};
use crate::plan::{Op, Snapshot, Transaction, Unit};

/// Maps in memory.
#[derive(Debug, Default)]
pub struct Fake {
    /// Everything but slots.
    maps: Snapshot,
    slots: Vec<SlotValue>,
    sizes: Sizes,
    faults: Faults,
    writes: u64,
    graces: Arc<AtomicU64>,
}

/// Which writes fail, with an IO error and without any effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Faults {
    /// None.
    #[default]
    Never,
    /// The write after this many that succeed, counted from when the faults were set; once.
    After(u64),
    /// As many of a hundred, the same ones for the same seed and writes. Undo never fails.
    Percent {
        /// How many of a hundred.
        percent: u8,
        /// Which ones.
        seed: u64,
    },
    /// As [`After`](Self::After), and every write of the undo: the unit is torn.
    AfterWithUndo(u64),
}

impl Fake {
    /// Empty maps of the default sizes.
    pub fn new() -> Self {
        Self::with_sizes(Sizes::new())
    }

    /// Empty maps, of which these have another size than the default.
    pub fn with_sizes(sizes: Sizes) -> Self {
        Self {
            sizes,
            ..Self::default()
        }
    }

    /// Sets which writes fail from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        self.writes = 0;
    }

    /// How many grace periods were waited for.
    pub fn graces(&self) -> u64 {
        self.graces.load(Ordering::Relaxed)
    }

    /// Applies a Transaction and shows the maps after each write, as a program on another CPU could
    /// see them.
    pub fn apply_watched(
        &mut self,
        transaction: &Transaction,
        mut watch: impl FnMut(&Self),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for (index, unit) in transaction.units.iter().enumerate() {
            if let Err((error, torn)) = self.apply_unit(unit, &mut watch) {
                outcome.failed.push(Failed {
                    unit: index,
                    service: unit.service.clone(),
                    error,
                    torn,
                });
            }
        }
        outcome
    }

    /// Replaces everything: maps as another agent may have left them. Runs of slots that do not fit
    /// are left out.
    pub fn fill(&mut self, snapshot: &Snapshot) {
        self.maps = Snapshot {
            slots: BTreeMap::new(),
            ..snapshot.clone()
        };
        self.slots.clear();
        for (&base, slots) in &snapshot.slots {
            let slots = slots.clone();
            let _ = self.write(&Op::WriteSlots { base, slots });
        }
    }

    /// Whether there is such a frontend.
    pub fn holds(&self, key: &FrontendKey) -> bool {
        self.maps.frontends.contains_key(key)
    }

    /// What a program finds at a frontend: the backends of its service's Cluster window, by
    /// following service and slots.
    ///
    /// # Errors
    ///
    /// What is missing, if the maps contradict themselves.
    pub fn look_up(&self, key: &FrontendKey) -> Result<Vec<proxy_common::BackendValue>, String> {
        let Some(frontend) = self.maps.frontends.get(key) else {
            return Ok(Vec::new());
        };
        let id = frontend.service;
        let service = self
            .maps
            .services
            .get(&id)
            .ok_or(format!("no service {id}"))?;
        let start = service.base + service.cluster.offset;
        (start..start + service.cluster.count)
            .map(|slot| {
                let SlotValue {
                    backend, service, ..
                } = *self
                    .slots
                    .get(slot as usize)
                    .ok_or(format!("no slot {slot}"))?;
                if service != id {
                    return Err(format!("slot {slot} is of service {service}, not {id}"));
                }
                let value = self.maps.backends.get(&backend);
                value
                    .copied()
                    .ok_or(format!("no backend {backend} of slot {slot}"))
            })
            .collect()
    }

    /// Size of a map.
    fn size(&self, spec: &MapSpec) -> u32 {
        self.sizes.get(spec.name).copied().unwrap_or(spec.entries)
    }

    fn apply_unit(
        &mut self,
        unit: &Unit,
        watch: &mut impl FnMut(&Self),
    ) -> Result<(), (Error, bool)> {
        for (done, op) in unit.ops.iter().enumerate() {
            if let Err(error) = self.faulty_write(op) {
                let mut torn = false;
                for op in unit.undo[..done].iter().rev().flatten() {
                    torn |= self.undo(op).is_err();
                    watch(self);
                }
                return Err((error, torn));
            }
            watch(self);
        }
        Ok(())
    }

    fn faulty_write(&mut self, op: &Op) -> Result<(), Error> {
        self.writes += 1;
        let fails = match self.faults {
            Faults::Never => false,
            Faults::After(done) | Faults::AfterWithUndo(done) => self.writes == done + 1,
            Faults::Percent { percent, seed } => {
                let hasher = BuildHasherDefault::<DefaultHasher>::default();
                hasher.hash_one((seed, self.writes)) % 100 < u64::from(percent)
            }
        };
        if fails {
            Err(fault(op))
        } else {
            self.write(op)
        }
    }

    fn undo(&mut self, op: &Op) -> Result<(), Error> {
        match self.faults {
            Faults::AfterWithUndo(_) => Err(fault(op)),
            _ => self.write(op),
        }
    }

    fn write(&mut self, op: &Op) -> Result<(), Error> {
        let entries = self.size(spec(op));
        let full = Error::Full {
            map: spec(op).name,
            entries,
        };
        let maps = &mut self.maps;
        let room = match op {
            Op::PutBackend(value) => put(&mut maps.backends, value.id, *value, entries),
            Op::PutService(id, record) => put(&mut maps.services, *id, *record, entries),
            Op::PutName(id, value) => put(&mut maps.names, *id, **value, entries),
            Op::PutFrontend(key, value) => put(&mut maps.frontends, *key, *value, entries),
            Op::PutRange(bits, key) => put(
                &mut maps.ranges,
                (*bits, key.service_be, key.source),
                (),
                entries,
            ),
            Op::PutNodeAddr(key, value) => {
                put(&mut maps.node_addrs, key.addr, value.flags, entries)
            }
            Op::DeleteBackend(id) => delete(&mut maps.backends, id),
            Op::DeleteService(id) => delete(&mut maps.services, id),
            Op::DeleteName(id) => delete(&mut maps.names, id),
            Op::DeleteFrontend(key) => delete(&mut maps.frontends, key),
            Op::DeleteRange(bits, key) => {
                delete(&mut maps.ranges, &(*bits, key.service_be, key.source))
            }
            Op::DeleteNodeAddr(key) => delete(&mut maps.node_addrs, &key.addr),
            Op::WriteSlots { base, slots } => {
                let (start, end) = (*base as usize, *base as usize + slots.len());
                let fits = end <= entries as usize;
                if fits {
                    self.slots
                        .resize(end.max(self.slots.len()), SlotValue::default());
                    self.slots[start..end].copy_from_slice(slots);
                }
                fits
            }
        };
        if room { Ok(()) } else { Err(full) }
    }
}

impl Dataplane for Fake {
    fn apply(&mut self, transaction: &Transaction) -> Outcome {
        self.apply_watched(transaction, |_| {})
    }

    fn dump(&mut self) -> Result<Snapshot, Error> {
        let mut snapshot = self.maps.clone();
        for service in snapshot
            .services
            .values()
            .filter(|service| service.slots() > 0)
        {
            let end = service.base.saturating_add(service.slots());
            let run = service.base..end.min(self.size(&map::SLOT));
            let slot = |index: u32| self.slots.get(index as usize).copied().unwrap_or_default();
            snapshot.slots.insert(service.base, run.map(slot).collect());
        }
        Ok(snapshot)
    }

    /// Nobody reads these maps: returns at once, and counts.
    fn grace(&self) -> Grace {
        let graces = Arc::clone(&self.graces);
        Box::new(move || {
            graces.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }
}

/// Inserts or replaces; whether there was room.
fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: V, entries: u32) -> bool {
    let room = map.len() < entries as usize || map.contains_key(&key);
    if room {
        map.insert(key, value);
    }
    room
}

/// Deletes; what is not there is no error, as with the kernel's.
fn delete<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K) -> bool {
    map.remove(key);
    true
}

/// The map that a write goes to.
const fn spec(op: &Op) -> &'static MapSpec {
    match op {
        Op::PutBackend(_) | Op::DeleteBackend(_) => &map::BACKEND,
        Op::WriteSlots { .. } => &map::SLOT,
        Op::PutService(..) | Op::DeleteService(_) => &map::SERVICE,
        Op::PutName(..) | Op::DeleteName(_) => &map::NAME,
        Op::PutFrontend(..) | Op::DeleteFrontend(_) => &map::FRONTEND,
        Op::PutRange(..) | Op::DeleteRange(..) => &map::RANGE,
        Op::PutNodeAddr(..) | Op::DeleteNodeAddr(_) => &map::NODE_ADDR,
    }
}

fn fault(op: &Op) -> Error {
    Error::Map {
        what: "write to",
        map: spec(op).name,
        source: io::Error::other("injected fault"),
    }
}

#[cfg(test)]
mod tests {
    use proxy_common::{FrontendKind, FrontendValue, Protocol, addr::v4_mapped};

    use super::*;

    fn frontend(last: u8) -> FrontendKey {
        FrontendKey::new(v4_mapped([10, 96, 0, last]), 80, Protocol::Tcp)
    }

    fn put_all(count: u8) -> Transaction {
        let value = FrontendValue {
            service: 1,
            kind: FrontendKind::Cluster,
            flags: 0,
            reserved: 0,
        };
        let ops = (0..count)
            .map(|n| Op::PutFrontend(frontend(n), value))
            .collect();
        let undo = (0..count)
            .map(|n| Some(Op::DeleteFrontend(frontend(n))))
            .collect();
        let service = None;
        Transaction {
            units: vec![Unit { service, ops, undo }],
        }
    }

    #[test]
    fn a_unit_that_does_not_fit_leaves_nothing_behind_and_names_the_map() {
        let mut fake = Fake::with_sizes(Sizes::from([("frontend", 2)]));
        let outcome = fake.apply(&put_all(3));
        assert!(outcome.failed[0].error.is_full() && !outcome.failed[0].torn);
        assert!(
            outcome.failed[0]
                .error
                .to_string()
                .contains("map frontend is full at 2")
        );
        assert_eq!(fake.dump().expect("reads"), Snapshot::default());
        assert!(fake.apply(&put_all(2)).failed.is_empty());
        assert!(
            fake.apply(&put_all(2)).failed.is_empty(),
            "replacing needs no room"
        );
    }

    #[test]
    fn an_injected_fault_fails_one_write_and_a_failing_undo_tears_the_unit() {
        let mut fake = Fake::new();
        fake.set_faults(Faults::After(1));
        assert!(!fake.apply(&put_all(2)).failed[0].torn);
        assert_eq!(fake.dump().expect("reads"), Snapshot::default());
        assert!(fake.apply(&put_all(1)).failed.is_empty(), "only once");
        fake.set_faults(Faults::AfterWithUndo(2));
        assert!(fake.apply(&put_all(3)).failed[0].torn);
        assert_eq!(fake.dump().expect("reads").frontends.len(), 2);
    }

    #[test]
    fn a_rate_of_faults_is_kept_and_repeats_with_its_seed() {
        let failed = |seed| {
            let mut fake = Fake::new();
            fake.set_faults(Faults::Percent { percent: 10, seed });
            let fails = |_| !fake.apply(&put_all(1)).failed.is_empty();
            (0..1000).map(fails).collect::<Vec<bool>>()
        };
        let count = failed(1).into_iter().filter(|&fails| fails).count();
        assert!((60..140).contains(&count), "{count} of 1000");
        assert_eq!(failed(7), failed(7));
        assert_ne!(failed(7), failed(8));
    }

    #[test]
    fn graces_are_counted_when_they_are_over() {
        let fake = Fake::new();
        let grace = fake.grace();
        assert_eq!(fake.graces(), 0);
        grace().expect("never fails");
        assert_eq!(fake.graces(), 1);
    }
}
