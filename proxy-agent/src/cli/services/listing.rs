//! From map entries to what `sidestep services` shows. Pure.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
};

use proxy_common::{
    Address, BackendState, BackendValue, FrontendKey, FrontendKind, FrontendValue, NameValue,
    Protocol, ServiceRecord, addr,
};
use serde::Serialize;

use super::Filter;
use crate::{cli::table::table, plan::Snapshot};

const COLUMNS: [&str; 8] = [
    "SERVICE",
    "ADDRESS",
    "PROTO",
    "KIND",
    "SCHEDULER",
    "WEIGHT",
    "STATE",
    "CONNECTIONS",
];

/// All Services, sorted by name.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Listing(pub(super) Vec<Service>);

/// One port of a Service, in one IP family.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Service {
    namespace: String,
    name: String,
    port: String,
    protocol: String,
    family: &'static str,
    id: u32,
    scheduler: &'static str,
    affinity_seconds: u32,
    has_endpoints: bool,
    frontends: Vec<Frontend>,
    backends: Vec<Backend>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Frontend {
    address: String,
    #[serde(skip)]
    socket: String,
    port: u16,
    kind: &'static str,
    policy: &'static str,
    source_ranges: Vec<String>,
    state: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Backend {
    id: u32,
    address: IpAddr,
    port: u16,
    weight: u16,
    state: &'static str,
    on_node: bool,
    in_local: bool,
    in_cluster: bool,
    connections: i64,
}

impl Listing {
    /// Puts together what belongs together.
    pub(super) fn new(snapshot: &Snapshot, connections: &BTreeMap<u32, i64>) -> Self {
        let mut frontends = BTreeMap::<u32, Vec<_>>::new();
        for (key, value) in &snapshot.frontends {
            if key.protocol != Protocol::Any {
                let own = frontends.entry(value.service).or_default();
                own.push((value.kind, *key, *value));
            }
        }
        let mut backends = BTreeMap::<u32, Vec<&BackendValue>>::new();
        for value in snapshot.backends.values() {
            backends.entry(value.service).or_default().push(value);
        }
        let mut ranges = BTreeMap::<u32, Vec<String>>::new();
        for (bits, service, source) in snapshot.ranges.keys() {
            let own = ranges.entry(u32::from_be_bytes(*service)).or_default();
            own.push(prefix(*bits, source));
        }
        let mut services: Vec<_> = snapshot
            .services
            .iter()
            .map(|(id, value)| {
                let mut own = frontends.remove(id).unwrap_or_default();
                own.sort_by_key(|(kind, key, _)| (*kind, *key));
                let none = Vec::new();
                let ranges = ranges.get(id).unwrap_or(&none);
                let mut service = Service::new(*id, value, snapshot.names.get(id));
                service.frontends = own
                    .iter()
                    .map(|(_, key, flags)| Frontend::new(key, flags, value, ranges))
                    .collect();
                let mut own = backends.remove(id).unwrap_or_default();
                own.sort_by_key(|value| (value.addr, value.port));
                service.backends = own
                    .iter()
                    .map(|value| {
                        let connections = connections.get(&value.id);
                        Backend::new(value, connections.copied().unwrap_or_default())
                    })
                    .collect();
                service
            })
            .collect();
        services.sort_by(|a, b| a.order().cmp(&b.order()));
        Self(services)
    }
}

impl Service {
    fn new(id: u32, value: &ServiceRecord, name: Option<&NameValue>) -> Self {
        let text = |field: fn(&NameValue) -> &[u8; 64]| {
            name.map(|name| NameValue::text(field(name)).to_owned())
                .unwrap_or_default()
        };
        let protocol = name.map(|name| match Protocol::from_number(name.protocol.into()) {
            Some(protocol) => protocol.name().to_owned(),
            None => name.protocol.to_string(),
        });
        Self {
            namespace: text(|name| &name.namespace),
            name: text(|name| &name.name),
            port: text(|name| &name.port),
            protocol: protocol.unwrap_or_default(),
            family: match name.map(|name| name.family) {
                Some(4) => "IPv4",
                Some(6) => "IPv6",
                _ => "",
            },
            id,
            scheduler: value.scheduler.name(),
            affinity_seconds: value.affinity_seconds,
            has_endpoints: value.has_any != 0,
            frontends: Vec::new(),
            backends: Vec::new(),
        }
    }

    /// Whether a filter means this one.
    pub(super) fn matches(&self, filter: &Filter) -> bool {
        filter.matches(&self.namespace, &self.name, &self.port)
    }

    fn order(&self) -> (&str, &str, &str, &str, &str, u32) {
        let Self {
            namespace,
            name,
            port,
            protocol,
            family,
            id,
            ..
        } = self;
        (namespace, name, port, protocol, family, *id)
    }

    fn title(&self) -> String {
        match (self.name.as_str(), self.port.as_str()) {
            ("", _) => format!("(id {})", self.id),
            (name, "") => format!("{}/{name}", self.namespace),
            (name, port) => format!("{}/{name}:{port}", self.namespace),
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let scheduler = match self.affinity_seconds {
            0 => self.scheduler.to_owned(),
            seconds => format!("{} affinity={seconds}s", self.scheduler),
        };
        let mut rows: Vec<Vec<String>> = self
            .frontends
            .iter()
            .map(|frontend| {
                let mut row = vec![self.title(), frontend.socket.clone(), self.protocol.clone()];
                row.extend([frontend.describe(), scheduler.clone(), String::new()]);
                row.push(frontend.state.to_owned());
                row
            })
            .collect();
        if rows.is_empty() {
            let mut row = vec![self.title(), "-".to_owned(), self.protocol.clone()];
            row.extend([String::new(), scheduler]);
            rows.push(row);
        }
        rows.extend(self.backends.iter().map(Backend::row));
        for row in &mut rows {
            row.resize(COLUMNS.len(), String::new());
        }
        rows
    }
}

impl Frontend {
    fn new(
        key: &FrontendKey,
        value: &FrontendValue,
        service: &ServiceRecord,
        ranges: &[String],
    ) -> Self {
        let local = value.flags & FrontendValue::LOCAL != 0;
        let restricted = value.flags & FrontendValue::SOURCE_RANGES != 0;
        let ip = addr::to_ip(&key.addr);
        // In-cluster clients of an external address get the cluster-wide set, so policy Local
        // leaves nobody out unless nobody serves at all.
        let window = if local && value.kind == FrontendKind::Cluster {
            service.local
        } else {
            service.cluster
        };
        Self {
            address: match value.kind {
                FrontendKind::Node => "*".to_owned(),
                _ => ip.to_string(),
            },
            socket: match (value.kind, ip) {
                (FrontendKind::Node, IpAddr::V4(_)) => format!("*:{}", key.port),
                (FrontendKind::Node, IpAddr::V6(_)) => format!("[*]:{}", key.port),
                _ => SocketAddr::new(ip, key.port).to_string(),
            },
            port: key.port,
            kind: value.kind.name(),
            policy: if local { "Local" } else { "Cluster" },
            source_ranges: if restricted {
                ranges.to_vec()
            } else {
                Vec::new()
            },
            state: match (window.count, service.has_any) {
                _ if restricted => "packet-path",
                (0, 0) => "refused",
                (0, _) => "dropped",
                _ => "serving",
            },
        }
    }

    fn describe(&self) -> String {
        let mut text = self.kind.to_owned();
        if self.policy == "Local" {
            text.push_str(" Local");
        }
        if !self.source_ranges.is_empty() {
            text.push_str(" ranges");
        }
        text
    }
}

impl Backend {
    fn new(value: &BackendValue, connections: i64) -> Self {
        let has = |flag| value.flags & flag != 0;
        Self {
            id: value.id,
            address: addr::to_ip(&value.addr),
            port: value.port,
            weight: value.weight,
            state: BackendState::name(value.state),
            on_node: has(BackendValue::ON_NODE),
            in_local: has(BackendValue::IN_LOCAL),
            in_cluster: has(BackendValue::IN_CLUSTER),
            connections,
        }
    }

    fn row(&self) -> Vec<String> {
        let address = SocketAddr::new(self.address, self.port);
        let kind = if self.on_node { "local" } else { "remote" };
        vec![
            String::new(),
            format!("-> {address}"),
            String::new(),
            kind.to_owned(),
            String::new(),
            self.weight.to_string(),
            self.state.to_owned(),
            self.connections.to_string(),
        ]
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&table(&COLUMNS, self.0.iter().flat_map(Service::rows)))
    }
}

/// A source prefix; its length counts from the first bit of the service id.
fn prefix(bits: u32, source: &Address) -> String {
    let family_bits = if addr::is_v4(source) { 96 } else { 0 };
    let length = bits.saturating_sub(32 + family_bits);
    format!("{}/{length}", addr::to_ip(source))
}

#[cfg(test)]
mod tests;
