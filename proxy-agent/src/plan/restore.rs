//! The mirror from the maps, and the maps from the mirror.

use std::collections::HashMap;

use proxy_common::{
    BackendValue, FrontendValue, NameValue, Protocol, RangeKey, ServiceRecord, map,
};

use super::{
    Op, Planner, Snapshot,
    claims::{Claim, Claims, is_whole, whole_address},
    entry::{Backend, Entry, Layout, Range, name_value},
    ids::Ids,
};
use crate::model::{Family, ServiceKey, ServiceName};

impl Planner {
    /// Starts with what the maps hold, of which `slot` has this many entries. What an agent before
    /// this one unpublished must have had its grace period.
    ///
    /// Services keep their ids by name, backends by endpoint. Whatever is not as this planner would
    /// have written it is put right by the plan that next names its service, and what belongs to no
    /// service is removed by the first full plan.
    pub fn restore(snapshot: &Snapshot, slots: u32) -> Self {
        let mut planner = Self::new(slots);
        planner.resync(snapshot);
        planner.service_ids = Ids::restore(used_services(snapshot), map::SERVICE.entries);
        planner.backend_ids = Ids::restore(snapshot.backends.keys().copied(), map::LOAD.entries);
        planner
    }

    /// Takes over what the maps hold, after a unit was torn or somebody else wrote them. To be
    /// followed by a full plan: who else claims a frontend is forgotten.
    pub fn resync(&mut self, snapshot: &Snapshot) {
        self.settle_in_flight();
        self.services.clear();
        self.ids.clear();
        self.orphans.clear();
        self.loose.clear();
        self.claims = Claims::default();
        self.service_ids.replace(used_services(snapshot));
        self.backend_ids.replace(snapshot.backends.keys().copied());
        let runs = snapshot
            .services
            .values()
            .map(|record| (record.base, record.slots()));
        self.slots
            .restart(&runs.filter(|&(_, slots)| slots > 0).collect::<Vec<_>>());
        if let Some(wanted) = &self.node_wanted
            && *wanted == snapshot.node_addrs
        {
            self.node_wanted = None;
        }
        self.node.clone_from(&snapshot.node_addrs);

        let mut parts = Parts::of(snapshot);
        for (&id, record) in &snapshot.services {
            let entry = self.restore_service(id, record, snapshot, &mut parts);
            for claim in &entry.claims {
                self.claims.add(id, claim);
            }
            self.services.insert(id, entry);
        }
        for (&key, &value) in &snapshot.frontends {
            self.claims.hold(&key, Some(value));
            if is_whole(&key) && value != whole_address(value.kind) {
                self.claims.hold(&key, None);
                self.claims.unsettled.insert(key);
            }
        }
        self.loose = parts.loose(snapshot);
    }

    /// What the maps should hold by now. Differs from a dump if somebody else wrote them.
    pub fn expected(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            node_addrs: self.node.clone(),
            ..Snapshot::default()
        };
        for (&id, entry) in &self.services {
            snapshot.services.insert(id, entry.record);
            snapshot.names.extend(entry.name().map(|name| (id, name)));
            let protocol = entry.key.protocol;
            let backends = entry.backends.iter().map(|b| (b.id, b.value(id, protocol)));
            snapshot.backends.extend(backends);
            if let Some(run) = entry.run {
                let slots = Layout::of(&entry.backends, id).slots;
                snapshot.slots.insert(run.base, slots);
            }
            for Range { bits, key } in &entry.ranges {
                snapshot
                    .ranges
                    .insert((*bits, key.service_be, key.source), ());
            }
        }
        let held = |key| Some((key, self.claims.held(&key)?));
        snapshot.frontends = self.claims.keys().filter_map(held).collect();
        snapshot
    }

    fn restore_service(
        &mut self,
        id: u32,
        record: &ServiceRecord,
        snapshot: &Snapshot,
        parts: &mut Parts,
    ) -> Entry {
        let backends = parts.backends.remove(&id).unwrap_or_default();
        let protocol = backends.first().map(|(_, backend)| backend.protocol);
        let name = snapshot.names.get(&id).and_then(parse_name);
        let key = match name {
            Some(key) if !self.ids.contains_key(&key) => {
                self.ids.insert(key.clone(), id);
                key
            }
            twice_or_none => {
                self.orphans.insert(id);
                twice_or_none.unwrap_or_else(|| nameless(protocol))
            }
        };
        let mut backends: Vec<Backend> = backends
            .iter()
            .map(|(backend, value)| restore_backend(*backend, value, id, key.protocol))
            .collect();
        backends.sort_by_key(|backend| (backend.endpoint(), backend.id));
        let mut claims = parts.claims.remove(&id).unwrap_or_default();
        claims.sort_unstable();
        let mut ranges = parts.ranges.remove(&id).unwrap_or_default();
        ranges.sort_unstable_by_key(Range::order);

        let slots = record.slots();
        let run = match slots {
            0 => None,
            _ => self.slots.reserve(record.base, slots),
        };
        let layout = Layout::of(&backends, id);
        let held = snapshot.slots.get(&record.base).filter(|_| slots > 0);
        let stale_slots = held.map_or(&[][..], Vec::as_slice) != layout.slots
            || run.is_none() != layout.slots.is_empty();
        Entry {
            key,
            id,
            record: *record,
            run,
            backends: backends.into(),
            claims: claims.into(),
            ranges: ranges.into(),
            absent: false,
            stale_slots,
        }
    }
}

/// The parts of services, by service id.
#[derive(Default)]
struct Parts {
    /// With their keys.
    backends: HashMap<u32, Vec<(u32, BackendValue)>>,
    claims: HashMap<u32, Vec<Claim>>,
    ranges: HashMap<u32, Vec<Range>>,
}

impl Parts {
    fn of(snapshot: &Snapshot) -> Self {
        let mut parts = Self::default();
        for (&id, value) in &snapshot.backends {
            let of_service = parts.backends.entry(value.service).or_default();
            of_service.push((id, *value));
        }
        for (&key, value) in snapshot.frontends.iter().filter(|(key, _)| !is_whole(key)) {
            let FrontendValue {
                service,
                kind,
                flags,
                ..
            } = *value;
            let claim = Claim { key, kind, flags };
            parts.claims.entry(service).or_default().push(claim);
        }
        for &(bits, service_be, source) in snapshot.ranges.keys() {
            let key = RangeKey { service_be, source };
            let service = u32::from_be_bytes(service_be);
            parts
                .ranges
                .entry(service)
                .or_default()
                .push(Range { bits, key });
        }
        parts
    }

    /// Deletes what no service has taken. Frontends are compared with their claims instead.
    fn loose(self, snapshot: &Snapshot) -> Vec<(Op, Option<Op>)> {
        let mut loose = Vec::new();
        let names = snapshot
            .names
            .iter()
            .filter(|(id, _)| !snapshot.services.contains_key(*id));
        for (&id, &name) in names {
            let undo = Op::PutName(id, Box::new(name));
            loose.push((Op::DeleteName(id), Some(undo)));
        }
        for range in self.ranges.into_values().flatten() {
            let undo = Op::PutRange(range.bits, range.key);
            loose.push((Op::DeleteRange(range.bits, range.key), Some(undo)));
        }
        for (id, value) in self.backends.into_values().flatten() {
            let undo = Op::PutBackend(BackendValue { id, ..value });
            loose.push((Op::DeleteBackend(id), Some(undo)));
        }
        loose.sort_by_key(|(op, _)| format!("{op}"));
        loose
    }
}

/// Service ids that are in use anywhere in the maps, also by what is left over.
fn used_services(snapshot: &Snapshot) -> impl Iterator<Item = u32> {
    let frontends = snapshot.frontends.values().map(|value| value.service);
    let backends = snapshot.backends.values().map(|value| value.service);
    let ids = snapshot.services.keys().chain(snapshot.names.keys());
    ids.copied()
        .chain(frontends)
        .chain(backends)
        .filter(|&id| id != 0)
}

fn restore_backend(id: u32, value: &BackendValue, service: u32, protocol: Protocol) -> Backend {
    let mut backend = Backend {
        addr: value.addr,
        port: value.port,
        flags: value.flags,
        stale: false,
        id,
        generation: value.generation,
    };
    backend.stale = backend.value(service, protocol) != *value;
    backend
}

/// `None` if the planner would not have written this.
fn parse_name(name: &NameValue) -> Option<ServiceKey> {
    let family = Family::ALL
        .into_iter()
        .find(|family| family.number() == name.family)?;
    let key = ServiceKey {
        service: ServiceName::new(
            NameValue::text(&name.namespace),
            NameValue::text(&name.name),
        ),
        port: NameValue::text(&name.port).into(),
        protocol: Protocol::from_number(name.protocol.into())?,
        family,
    };
    (name_value(&key).as_ref() == Some(name)).then_some(key)
}

fn nameless(protocol: Option<Protocol>) -> ServiceKey {
    ServiceKey {
        service: ServiceName::new("", ""),
        port: "".into(),
        protocol: protocol.unwrap_or(Protocol::Any),
        family: Family::V4,
    }
}
