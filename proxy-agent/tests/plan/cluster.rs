//! Desired services in short form, and a planner with a fake that are driven together.

use std::collections::BTreeMap;

use proxy_agent::{
    datapath::{Dataplane, Fake},
    model::{Family, ServiceKey, ServiceName},
    plan::{DesiredService, Frontend, Plan, Planner, Snapshot, Transaction},
    policy::{Candidate, Selection},
};
use proxy_common::{FrontendKey, FrontendKind, Protocol, Scheduler, addr};

/// Slots of the map in most tests.
pub(crate) const SLOTS: u32 = 1024;

pub(crate) fn key(name: &str) -> ServiceKey {
    ServiceKey {
        service: ServiceName::new("default", name),
        port: "http".into(),
        protocol: Protocol::Tcp,
        family: Family::V4,
    }
}

/// `default/NAME:http/TCP/IPv4` without frontends and endpoints.
pub(crate) fn service(name: &str) -> DesiredService {
    DesiredService {
        key: key(name),
        frontends: Vec::new(),
        selection: Selection::default(),
        affinity_seconds: 0,
        scheduler: Scheduler::Random,
        source_ranges: Vec::new(),
    }
}

/// The same with a ClusterIP, port 80, and endpoints 10.0.0.N:8080 in the Cluster set.
pub(crate) fn web(name: &str, cluster_ip: &str, endpoints: &[u8]) -> DesiredService {
    let mut web = service(name);
    web.frontends = vec![frontend(FrontendKind::Cluster, cluster_ip, 80)];
    web.selection.candidates = endpoints.iter().map(|&n| endpoint(n)).collect();
    web.selection.has_any = !endpoints.is_empty();
    web
}

pub(crate) fn frontend(kind: FrontendKind, addr: &str, port: u16) -> Frontend {
    Frontend {
        kind,
        addr: addr.parse().expect("an address"),
        port,
        local: false,
        source_ranges: false,
    }
}

/// 10.0.0.N:8080, in the Cluster set.
pub(crate) fn endpoint(n: u8) -> Candidate {
    Candidate {
        addr: [10, 0, 0, n].into(),
        port: 8080,
        local: false,
        cluster: true,
        on_node: false,
    }
}

pub(crate) fn at(addr: &str, port: u16) -> FrontendKey {
    let addr = addr::from_ip(addr.parse().expect("an address"));
    match port {
        0 => FrontendKey::whole_address(addr),
        _ => FrontendKey::new(addr, port, Protocol::Tcp),
    }
}

/// Changes that make these services so.
pub(crate) fn changes(
    services: impl IntoIterator<Item = DesiredService>,
) -> Vec<(ServiceKey, Option<DesiredService>)> {
    services
        .into_iter()
        .map(|d| (d.key.clone(), Some(d)))
        .collect()
}

/// A planner, the maps, and what is desired.
pub(crate) struct Cluster {
    pub(crate) planner: Planner,
    pub(crate) fake: Fake,
    pub(crate) desired: BTreeMap<ServiceKey, DesiredService>,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with(Fake::new(), SLOTS)
    }

    pub(crate) fn with(fake: Fake, slots: u32) -> Self {
        Self {
            planner: Planner::new(slots),
            fake,
            desired: BTreeMap::new(),
        }
    }

    /// Makes a service so.
    pub(crate) fn set(&mut self, service: DesiredService) -> Plan {
        self.change([(service.key.clone(), Some(service))])
    }

    /// Takes a service away.
    pub(crate) fn delete(&mut self, name: &str) -> Plan {
        self.change([(key(name), None)])
    }

    pub(crate) fn change(
        &mut self,
        changes: impl IntoIterator<Item = (ServiceKey, Option<DesiredService>)>,
    ) -> Plan {
        let changes: Vec<_> = changes.into_iter().collect();
        for (key, desired) in &changes {
            match desired {
                Some(desired) => self.desired.insert(key.clone(), desired.clone()),
                None => self.desired.remove(key),
            };
        }
        let plan = self.planner.plan(changes);
        self.apply(&plan.transaction);
        plan
    }

    /// Applies and settles; the maps never contradict themselves or the mirror.
    pub(crate) fn apply(&mut self, transaction: &Transaction) {
        let outcome = self.fake.apply(transaction);
        let failed = outcome.failed.iter().map(|failed| failed.unit);
        self.planner.settle(transaction, failed);
        let maps = self.maps();
        assert_eq!(maps.check(), Vec::<String>::new(), "after\n{transaction}");
    }

    /// Plans refused services and leftovers again until there are none; faults are off by then.
    pub(crate) fn retry_all(&mut self) {
        for _ in 0..20 {
            if let Some(epoch) = self.planner.unpublished() {
                self.planner.grace(epoch);
            }
            if self.planner.refused().len() == 0 && !self.planner.has_leftovers() {
                return;
            }
            let again = self.planner.refused().cloned().collect::<Vec<_>>();
            let again = again.into_iter().map(|key| {
                let desired = self.desired.get(&key).cloned();
                (key, desired)
            });
            let plan = self.planner.plan(again.collect());
            self.apply(&plan.transaction);
        }
        panic!(
            "still refused: {:?}",
            self.planner.refused().collect::<Vec<_>>()
        );
    }

    pub(crate) fn maps(&mut self) -> Snapshot {
        self.fake.dump().expect("the fake can be read")
    }

    pub(crate) fn text(&mut self) -> String {
        self.maps().normalized()
    }

    /// Name of the service that a frontend points to.
    pub(crate) fn owner(&mut self, key: &FrontendKey) -> Option<String> {
        let maps = self.maps();
        let id = maps.frontends.get(key)?.service;
        let name = maps.names.get(&id).expect("the service has a name");
        Some(proxy_common::NameValue::text(&name.name).to_owned())
    }

    /// Service id of a name.
    pub(crate) fn id(&mut self, name: &str) -> u32 {
        let maps = self.maps();
        let is = |n: &proxy_common::NameValue| proxy_common::NameValue::text(&n.name) == name;
        let found = maps.names.iter().find(|(_, value)| is(value));
        *found.expect("a service of that name").0
    }
}

/// The writes of a Transaction as text, a line each.
pub(crate) fn ops(transaction: &Transaction) -> Vec<String> {
    let ops = transaction.units.iter().flat_map(|unit| &unit.ops);
    ops.map(ToString::to_string).collect()
}
