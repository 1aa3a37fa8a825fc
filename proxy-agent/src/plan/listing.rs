//! The maps as text, without what depends on history.

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr};

use proxy_common::{Address, BackendValue, FrontendValue, NodeAddrValue, SlotValue, addr};

use super::{Snapshot, claims::is_whole, transaction::names};

impl Snapshot {
    /// One line for each thing, sorted, without ids, slot bases and generations: the same cluster
    /// gives the same text, whatever happened before.
    ///
    /// ```text
    /// SVC   default/web:http/TCP/IPv4 scheduler=random affinity=0s has_any=1
    /// FE    default/web:http/TCP/IPv4 10.96.0.10:80 ClusterIP
    /// BE    default/web:http/TCP/IPv4 10.0.0.1:8080 active weight=1 cluster,node
    /// LIST  default/web:http/TCP/IPv4 local=[] cluster=[10.0.0.1:8080]
    /// RANGE default/web:http/TCP/IPv4 192.0.2.0/24
    /// VIP   10.96.0.10
    /// NODE  192.168.0.1 nodeport
    /// ```
    ///
    /// What belongs to a service without a name shows its id: `#7`.
    pub fn normalized(&self) -> String {
        let mut lines = Vec::new();
        let names: BTreeMap<u32, String> = self
            .names
            .iter()
            .map(|(&id, name)| (id, names(name)))
            .collect();
        let name = |id: u32| names.get(&id).cloned().unwrap_or(format!("#{id}"));
        for (&id, service) in &self.services {
            lines.push(format!(
                "SVC   {} scheduler={} affinity={}s has_any={}",
                name(id),
                service.scheduler.name(),
                service.affinity_seconds,
                service.has_any
            ));
            let run = self.slots.get(&service.base).map_or(&[][..], Vec::as_slice);
            let list = |window: proxy_common::Window| {
                let slots = run
                    .iter()
                    .skip(window.offset as usize)
                    .take(window.count as usize);
                slots
                    .map(|slot| self.slot(slot))
                    .collect::<Vec<String>>()
                    .join(" ")
            };
            lines.push(format!(
                "LIST  {} local=[{}] cluster=[{}]",
                name(id),
                list(service.local),
                list(service.cluster)
            ));
        }
        for (key, value) in &self.frontends {
            if is_whole(key) {
                lines.push(format!(
                    "VIP   {} {}",
                    addr::to_ip(&key.addr),
                    value.kind.name()
                ));
                continue;
            }
            let kind = value.kind.name();
            let flags = [
                (FrontendValue::LOCAL, "local"),
                (FrontendValue::SOURCE_RANGES, "ranges"),
            ];
            let flags = flag_names(value.flags.into(), &flags);
            let at = endpoint(&key.addr, key.port);
            lines.push(format!("FE    {} {at} {kind} {flags}", name(value.service)));
        }
        for backend in self.backends.values() {
            lines.push(format!(
                "BE    {} {} {} weight={} {}",
                name(backend.service),
                endpoint(&backend.addr, backend.port),
                backend.state.name(),
                backend.weight,
                backend_flags(backend)
            ));
        }
        for &(bits, service, source) in self.ranges.keys() {
            let family_bits = if addr::is_v4(&source) { 96 } else { 0 };
            let bits = bits.saturating_sub(32 + family_bits);
            let service = name(u32::from_be_bytes(service));
            lines.push(format!("RANGE {service} {}/{bits}", addr::to_ip(&source)));
        }
        for (address, &flags) in &self.node_addrs {
            let names = [
                (NodeAddrValue::NODE_PORT, "nodeport"),
                (NodeAddrValue::LOOPBACK, "loopback"),
            ];
            lines.push(format!(
                "NODE  {} {}",
                addr::to_ip(address),
                flag_names(flags, &names)
            ));
        }
        lines.sort();
        lines.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{}", line.trim_end());
            text
        })
    }

    /// The endpoint, or the id of a slot that contradicts the backends.
    fn slot(&self, slot: &SlotValue) -> String {
        match self.backends.get(&slot.backend) {
            Some(backend) if (backend.addr, backend.port) == (slot.addr, slot.port) => {
                endpoint(&slot.addr, slot.port).to_string()
            }
            _ => format!("#{}", slot.backend),
        }
    }
}

fn backend_flags(backend: &BackendValue) -> String {
    let names = [
        (BackendValue::IN_LOCAL, "local"),
        (BackendValue::IN_CLUSTER, "cluster"),
        (BackendValue::ON_NODE, "node"),
    ];
    flag_names(backend.flags.into(), &names)
}

fn flag_names<T: Copy + Into<u32>>(flags: u32, names: &[(T, &str)]) -> String {
    let set = names.iter().filter(|(flag, _)| flags & (*flag).into() != 0);
    set.map(|(_, name)| *name).collect::<Vec<&str>>().join(",")
}

fn endpoint(address: &Address, port: u16) -> SocketAddr {
    SocketAddr::new(addr::to_ip(address), port)
}
