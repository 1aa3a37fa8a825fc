//! The real data plane: the pinned maps of the kernel.

use std::collections::BTreeMap;

use proxy_common::{Counter, LoadValue, RangeKey, SCHEMA, SettingValue, SlotValue, map};

use super::{
    Dataplane, Error, Failed, Grace, Outcome,
    maps::{Maps, Origin},
    pins::Pins,
    start::StartError,
    sys,
    table::failure,
};
use crate::{
    node::reserved_ports::PortRange,
    plan::{Op, Snapshot, Transaction, Unit},
};

/// The maps of the kernel, open for reading and writing.
pub struct Kernel {
    maps: Maps,
}

impl Kernel {
    /// Opens the pinned maps. Works with and without a running agent; only the holder of the
    /// [`Lock`](super::Lock) may write.
    ///
    /// # Errors
    ///
    /// [`StartError::NoPins`], a mismatch of shapes or schema, or why a map cannot be opened.
    pub fn open(pins: &Pins) -> Result<Self, StartError> {
        // First, since it tells pins that may not be seen from pins that are not there.
        pins.check()?;
        if !pins.is_complete() {
            return Err(StartError::NoPins {
                path: pins.folder().into(),
            });
        }
        Ok(Self {
            maps: Maps::open(Origin::Pins(pins))?,
        })
    }

    /// Takes the maps of an object that was loaded without pins.
    pub(super) fn unpinned(object: &mut aya::Ebpf) -> Result<Self, StartError> {
        Ok(Self {
            maps: Maps::open(Origin::Object(object))?,
        })
    }

    /// The one record of the `setting` map.
    ///
    /// # Errors
    ///
    /// If the map cannot be read.
    pub fn setting(&self) -> Result<SettingValue, Error> {
        self.maps
            .setting
            .get(&0, 0)
            .map_err(|error| failure("read", map::SETTING.name, 1, error))
    }

    /// Marks the maps as ours, since `now` in nanoseconds since the Unix epoch. When they were last
    /// in sync stays on record.
    ///
    /// # Errors
    ///
    /// If the `setting` map cannot be read or written.
    pub fn sign(&mut self, node_netns: u64, now: u64) -> Result<(), Error> {
        let value = SettingValue {
            schema: SCHEMA,
            agent: std::process::id(),
            node_netns,
            started: now,
            ..self.setting()?
        };
        self.set(value)
    }

    /// Records which ports SNAT uses, and whether they are to be given back.
    ///
    /// # Errors
    ///
    /// If the `setting` map cannot be read or written.
    pub fn sign_snat(&mut self, ports: PortRange, reserved: bool) -> Result<(), Error> {
        let value = SettingValue {
            snat_first: ports.first,
            snat_last: ports.last,
            snat_reserved: reserved.into(),
            ..self.setting()?
        };
        self.set(value)
    }

    /// Records that all maps are as they should be, at `now` in nanoseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// If the `setting` map cannot be read or written.
    pub fn stamp_sync(&mut self, now: u64) -> Result<(), Error> {
        let value = SettingValue {
            last_sync: now,
            ..self.setting()?
        };
        self.set(value)
    }

    /// Connections by backend id: connected sockets and flows.
    ///
    /// # Errors
    ///
    /// If the `load` or `connection` map cannot be read.
    pub fn connections(&mut self) -> Result<BTreeMap<u32, i64>, Error> {
        let load = &mut self.maps.load;
        let mut connections = BTreeMap::new();
        for index in 0..load.entries() {
            let value = load.read(index)?;
            if value.backend != 0 {
                connections.insert(value.backend, value.connections.into());
            }
        }
        load.unmap();
        self.maps.connection.each(|_: u32, value| {
            if value.cookie != 0 && value.connected.backend != 0 {
                *connections.entry(value.connected.backend).or_default() += 1;
            }
        })?;
        Ok(connections)
    }

    /// All counters, summed over the CPUs.
    ///
    /// # Errors
    ///
    /// If the `counter` map cannot be read.
    pub fn counters(&self) -> Result<BTreeMap<Counter, u64>, Error> {
        Counter::ALL
            .iter()
            .map(|&counter| {
                let values = self
                    .maps
                    .counter
                    .get(&(counter as u32), 0)
                    .map_err(|error| failure("read", map::COUNTER.name, 0, error))?;
                Ok((counter, values.iter().sum()))
            })
            .collect()
    }

    /// Whether a backend is in the maps: not dead.
    ///
    /// # Errors
    ///
    /// If the `backend` map cannot be read.
    pub fn has_backend(&self, id: u32) -> Result<bool, Error> {
        Ok(self.maps.backend.get(&id)?.is_some())
    }

    /// Clients with a live affinity record.
    ///
    /// # Errors
    ///
    /// If the `affinity` map cannot be read.
    pub fn affinities(&self) -> Result<usize, Error> {
        let mut count = 0;
        self.maps.affinity.each(|_, _| count += 1)?;
        Ok(count)
    }

    /// Sizes of the maps that can fill up, by name.
    pub fn sizes(&self) -> BTreeMap<&'static str, u32> {
        let maps = &self.maps;
        BTreeMap::from([
            (map::FRONTEND.name, maps.frontend.entries()),
            (map::SERVICE.name, maps.service.entries()),
            (map::BACKEND.name, maps.backend.entries()),
            (map::SLOT.name, maps.slot.entries()),
            (map::LOAD.name, maps.load.entries()),
            (map::RANGE.name, maps.range.entries()),
            (map::NODE_ADDR.name, maps.node_addr.entries()),
        ])
    }

    /// Gives memory back that only work on many Services needs: arrays that are mapped, and what the
    /// allocator keeps.
    pub fn release_memory(&mut self) {
        self.maps.service.unmap();
        self.maps.slot.unmap();
        self.maps.load.unmap();
        sys::release_freed_memory();
    }

    fn set(&mut self, value: SettingValue) -> Result<(), Error> {
        self.maps
            .setting
            .set(0, value, 0)
            .map_err(|error| failure("write to", map::SETTING.name, 1, error))
    }

    fn write(&mut self, op: &Op) -> Result<(), Error> {
        let maps = &mut self.maps;
        match op {
            Op::PutBackend(value) => {
                maps.backend.put(&value.id, value)?;
                count_connections(maps, value.id);
                Ok(())
            }
            Op::DeleteBackend(id) => {
                maps.backend.delete(id)?;
                end_count(maps, *id);
                Ok(())
            }
            Op::WriteSlots { base, slots } => (*base..)
                .zip(slots)
                .try_for_each(|(index, slot)| maps.slot.write(index, slot)),
            Op::PutService(id, record) => maps.service.put(*id, record),
            Op::DeleteService(id) => maps.service.delete(*id),
            Op::PutName(id, value) => maps.name.put(id, value),
            Op::DeleteName(id) => maps.name.delete(id),
            Op::PutFrontend(key, value) => maps.frontend.put(key, value),
            Op::DeleteFrontend(key) => maps.frontend.delete(key),
            Op::PutRange(bits, key) => maps.range.put(*bits, *key),
            Op::DeleteRange(bits, key) => maps.range.delete(*bits, *key),
            Op::PutNodeAddr(key, value) => maps.node_addr.put(key, value),
            Op::DeleteNodeAddr(key) => maps.node_addr.delete(key),
        }
    }

    fn apply_unit(&mut self, unit: &Unit) -> Result<(), (Error, bool)> {
        for (done, op) in unit.ops.iter().enumerate() {
            if let Err(error) = self.write(op) {
                let undo = unit.undo[..done].iter().rev().flatten();
                let torn = undo.map(|op| self.write(op)).filter(Result::is_err).count() > 0;
                return Err((error, torn));
            }
        }
        Ok(())
    }
}

impl Dataplane for Kernel {
    fn apply(&mut self, transaction: &Transaction) -> Outcome {
        let mut outcome = Outcome::default();
        for (index, unit) in transaction.units.iter().enumerate() {
            if let Err((error, torn)) = self.apply_unit(unit) {
                let service = unit.service.clone();
                outcome.failed.push(Failed {
                    unit: index,
                    service,
                    error,
                    torn,
                });
            }
        }
        outcome
    }

    fn dump(&mut self) -> Result<Snapshot, Error> {
        let maps = &mut self.maps;
        let mut snapshot = Snapshot::default();
        maps.frontend.each(|key, value| {
            snapshot.frontends.insert(key, value);
        })?;
        maps.service.each(|_, value| {
            let record = value.record().map(|record| (value.id, *record));
            snapshot.services.extend(record);
        })?;
        maps.name.each(|key, value| {
            snapshot.names.insert(key, value);
        })?;
        maps.backend.each(|key, value| {
            snapshot.backends.insert(key, value);
        })?;
        maps.node_addr.each(|key, value| {
            snapshot.node_addrs.insert(key.addr, value.flags);
        })?;
        maps.range.each(|bits, RangeKey { service_be, source }| {
            snapshot.ranges.insert((bits, service_be, source), ());
        })?;
        for service in snapshot.services.values() {
            // A damaged record may point beyond the array; what is there is all that programs see.
            let end = service.base.saturating_add(service.slots());
            let run = (service.base..end.min(maps.slot.entries()))
                .map(|index| maps.slot.read(index))
                .collect::<Result<Vec<SlotValue>, _>>()?;
            if !run.is_empty() {
                snapshot.slots.insert(service.base, run);
            }
        }
        Ok(snapshot)
    }

    fn grace(&self) -> Grace {
        Box::new(super::grace::wait)
    }
}

/// Gives a backend its element in `load`, unless a living one has it: then it is not counted, which
/// only shows.
fn count_connections(maps: &mut Maps, backend: u32) {
    let claimed = maps.load.read(LoadValue::index(backend)).and_then(|now| {
        let free =
            now.backend == 0 || now.backend != backend && maps.backend.get(&now.backend)?.is_none();
        let value = LoadValue {
            backend,
            ..LoadValue::default()
        };
        match free {
            true => maps.load.write(LoadValue::index(backend), &value),
            false => Ok(()),
        }
    });
    if let Err(error) = claimed {
        tracing::debug!(%error, backend, "connections are not counted");
    }
}

/// Frees the element of a backend. If it stays, the next backend that wants it finds its owner dead.
fn end_count(maps: &mut Maps, backend: u32) {
    let freed =
        maps.load
            .read(LoadValue::index(backend))
            .and_then(|now| match now.backend == backend {
                true => maps
                    .load
                    .write(LoadValue::index(backend), &LoadValue::default()),
                false => Ok(()),
            });
    if let Err(error) = freed {
        tracing::debug!(%error, backend, "connection count left behind");
    }
}
