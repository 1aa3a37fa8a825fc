//! Do the maps contradict themselves?

use std::collections::{BTreeMap, BTreeSet};

use proxy_common::{BackendState, BackendValue, FrontendValue, SlotValue, addr};

use super::{Snapshot, claims::is_whole};

impl Snapshot {
    /// What the maps contradict themselves in, a sentence each. Empty after every Transaction, also
    /// one of which units failed, unless a unit was torn.
    pub fn check(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.check_frontends(&mut faults);
        self.check_services(&mut faults);
        self.check_backends(&mut faults);
        self.check_runs(&mut faults);
        for id in self
            .names
            .keys()
            .filter(|id| !self.services.contains_key(id))
        {
            faults.push(format!("name {id} belongs to no service"));
        }
        for (_, service, _) in self.ranges.keys() {
            let id = u32::from_be_bytes(*service);
            if !self.services.contains_key(&id) {
                faults.push(format!(
                    "a source range belongs to service {id}, which is not there"
                ));
            }
        }
        faults
    }

    fn check_frontends(&self, faults: &mut Vec<String>) {
        for (key, &FrontendValue { service, .. }) in &self.frontends {
            let at = std::net::SocketAddr::new(addr::to_ip(&key.addr), key.port);
            if is_whole(key) != (service == 0) {
                faults.push(format!("frontend {at} has service {service}"));
            } else if service != 0 && !self.services.contains_key(&service) {
                faults.push(format!(
                    "frontend {at} points to service {service}, which is not there"
                ));
            }
        }
    }

    fn check_services(&self, faults: &mut Vec<String>) {
        let mut names = BTreeSet::new();
        let mut backends: BTreeMap<u32, Vec<&BackendValue>> = BTreeMap::new();
        for backend in self.backends.values() {
            backends.entry(backend.service).or_default().push(backend);
        }
        for (&id, service) in &self.services {
            match self.names.get(&id) {
                None => faults.push(format!("service {id} has no name")),
                Some(n) => {
                    let name = (n.namespace, n.name, n.port, n.family, n.protocol);
                    if !names.insert(name) {
                        faults.push(format!("service {id} has the name of another one"));
                    }
                }
            }
            let run = self.slots.get(&service.base).map_or(&[][..], Vec::as_slice);
            let windows = [
                ("local", service.local, BackendValue::IN_LOCAL),
                ("cluster", service.cluster, BackendValue::IN_CLUSTER),
            ];
            for (name, window, flag) in windows {
                let (start, count) = (window.offset as usize, window.count as usize);
                let Some(slots) = run.get(start..start + count).filter(|_| count > 0) else {
                    if count > 0 {
                        faults.push(format!("window {name} of service {id} is outside its run"));
                    }
                    continue;
                };
                let all = backends.get(&id).into_iter().flatten();
                let members = all.filter(|backend| backend.flags & flag != 0);
                let members: BTreeSet<SlotValue> = members.map(slot).collect();
                if slots.len() != members.len() || !slots.iter().all(|s| members.contains(s)) {
                    faults.push(format!(
                        "window {name} of service {id} has slots {slots:?}, but backends {members:?}"
                    ));
                }
            }
        }
    }

    fn check_backends(&self, faults: &mut Vec<String>) {
        let mut endpoints = BTreeSet::new();
        for (&id, backend) in &self.backends {
            if backend.id != id {
                faults.push(format!("backend {id} says that it is {}", backend.id));
            }
            if !self.services.contains_key(&backend.service) {
                faults.push(format!(
                    "backend {id} belongs to service {}, which is not there",
                    backend.service
                ));
            }
            if !endpoints.insert((backend.service, backend.addr, backend.port)) {
                faults.push(format!("backend {id} has the endpoint of another one"));
            }
            let in_window =
                backend.flags & (BackendValue::IN_LOCAL | BackendValue::IN_CLUSTER) != 0;
            if in_window != (backend.state == BackendState::Active) {
                faults.push(format!(
                    "backend {id} is {}, flags {}",
                    backend.state.name(),
                    backend.flags
                ));
            }
        }
    }

    fn check_runs(&self, faults: &mut Vec<String>) {
        let mut runs: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (&id, service) in self
            .services
            .iter()
            .filter(|(_, service)| service.slots() > 0)
        {
            let length = service.slots().next_power_of_two();
            if !service.base.is_multiple_of(length) {
                faults.push(format!(
                    "run {} of service {id} is not aligned to {length}",
                    service.base
                ));
            }
            if let Some((_, other)) = runs.insert(service.base, (length, id)) {
                faults.push(format!("services {other} and {id} have the same run"));
            }
        }
        for ((base, (length, id)), (next, (_, other))) in runs.iter().zip(runs.iter().skip(1)) {
            if base + length > *next {
                faults.push(format!("the runs of services {id} and {other} overlap"));
            }
        }
    }
}

/// How a backend stands in the lists of its service.
fn slot(backend: &&BackendValue) -> SlotValue {
    SlotValue {
        addr: backend.addr,
        backend: backend.id,
        service: backend.service,
        port: backend.port,
        reserved: [0; 3],
    }
}
