//! Ordered writes, grouped so that each group is all or nothing.

use std::fmt;

use proxy_common::{
    BackendValue, FrontendKey, FrontendValue, NameValue, NodeAddrKey, NodeAddrValue, Protocol,
    RangeKey, ServiceRecord, SlotValue, addr,
};

use crate::model::ServiceKey;

/// One map write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Insert or replace a backend; the key is `value.id`.
    PutBackend(BackendValue),
    /// Delete a backend and its connection count.
    DeleteBackend(u32),
    /// Write consecutive slots from `base`. The run is not published yet, so nobody reads it.
    WriteSlots {
        /// First slot.
        base: u32,
        /// Part of the list of one service.
        slots: Vec<SlotValue>,
    },
    /// Insert or replace the record of a service: the flip.
    PutService(u32, ServiceRecord),
    /// Delete a service record.
    DeleteService(u32),
    /// Insert or replace the names of a service id.
    PutName(u32, Box<NameValue>),
    /// Delete the names of a service id.
    DeleteName(u32),
    /// Insert or replace a frontend.
    PutFrontend(FrontendKey, FrontendValue),
    /// Delete a frontend.
    DeleteFrontend(FrontendKey),
    /// Allow a source: prefix length in bits of the whole key, and the key.
    PutRange(u32, RangeKey),
    /// Forbid it again.
    DeleteRange(u32, RangeKey),
    /// Insert or replace an address of this node.
    PutNodeAddr(NodeAddrKey, NodeAddrValue),
    /// Delete an address of this node.
    DeleteNodeAddr(NodeAddrKey),
}

/// Writes that belong together: all are done, or none is.
///
/// The data plane applies `ops` in order. If one fails it applies `undo` of those that were done,
/// last first; deletes and replacements of what exists need no room, so that succeeds on full maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What this is about; where an address passes from one service to another, both go together
    /// and this is the first of them. `None` for the node's own addresses, and for leftovers that
    /// belong to no service.
    pub service: Option<ServiceKey>,
    /// Writes in order.
    pub ops: Vec<Op>,
    /// For each op the write that takes it back; `None` where nothing has to be.
    pub undo: Vec<Option<Op>>,
}

/// First line of a unit that belongs to no service.
pub(super) const NO_SERVICE: &str = "no service";

/// First word of the line after a write that says how to take it back.
pub(super) const UNDO: &str = "undo";

/// Everything that one sync writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Units in order; they do not depend on each other's success.
    pub units: Vec<Unit>,
}

impl Transaction {
    /// Number of writes.
    pub fn len(&self) -> usize {
        self.units.iter().map(|unit| unit.ops.len()).sum()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.units.iter().all(|unit| unit.ops.is_empty())
    }
}

impl fmt::Display for Transaction {
    /// One line per unit, then one per write, in order. The alternate form (`{:#}`) adds the write
    /// that takes each back; from that, [`FromStr`](std::str::FromStr) makes the same Transaction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for unit in &self.units {
            match &unit.service {
                Some(key) => writeln!(f, "{key}")?,
                None => writeln!(f, "{NO_SERVICE}")?,
            }
            for (op, undo) in unit.ops.iter().zip(&unit.undo) {
                writeln!(f, "  {op}")?;
                if let Some(undo) = undo.as_ref().filter(|_| f.alternate()) {
                    writeln!(f, "    {UNDO} {undo}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PutBackend(b) => write!(
                f,
                "put backend {} generation={} service={} {} {} {} weight={} flags={}",
                b.id,
                b.generation,
                b.service,
                endpoint(&b.addr, b.port),
                b.protocol.name(),
                b.state.name(),
                b.weight,
                b.flags
            ),
            Self::DeleteBackend(id) => write!(f, "delete backend {id}"),
            Self::WriteSlots { base, slots } => {
                let service = slots.first().map_or(0, |slot| slot.service);
                write!(f, "write slots {base}.. service={service}")?;
                slots.iter().try_for_each(|slot| {
                    let at = endpoint(&slot.addr, slot.port);
                    write!(f, " {}@{at}", slot.backend)
                })
            }
            Self::PutService(id, s) => write!(
                f,
                "put service {id} base={} local={}+{} cluster={}+{} affinity={}s {} has_any={}",
                s.base,
                s.local.offset,
                s.local.count,
                s.cluster.offset,
                s.cluster.count,
                s.affinity_seconds,
                s.scheduler.name(),
                s.has_any
            ),
            Self::DeleteService(id) => write!(f, "delete service {id}"),
            Self::PutName(id, name) => write!(f, "put name {id} {}", names(name)),
            Self::DeleteName(id) => write!(f, "delete name {id}"),
            Self::PutFrontend(k, v) => write!(
                f,
                "put frontend {} {} service={} {} flags={}",
                endpoint(&k.addr, k.port),
                k.protocol.name(),
                v.service,
                v.kind.name(),
                v.flags
            ),
            Self::DeleteFrontend(k) => {
                write!(
                    f,
                    "delete frontend {} {}",
                    endpoint(&k.addr, k.port),
                    k.protocol.name()
                )
            }
            Self::PutRange(bits, k) => write!(f, "put range {}", range(*bits, k)),
            Self::DeleteRange(bits, k) => write!(f, "delete range {}", range(*bits, k)),
            Self::PutNodeAddr(k, v) => {
                write!(
                    f,
                    "put node address {} flags={}",
                    addr::to_ip(&k.addr),
                    v.flags
                )
            }
            Self::DeleteNodeAddr(k) => write!(f, "delete node address {}", addr::to_ip(&k.addr)),
        }
    }
}

/// As [`ServiceKey`] prints itself.
pub(super) fn names(name: &NameValue) -> String {
    let protocol = Protocol::from_number(name.protocol.into()).map_or("any", Protocol::name);
    let [namespace, service, port] = [&name.namespace, &name.name, &name.port].map(NameValue::text);
    let colon = if port.is_empty() { "" } else { ":" };
    format!(
        "{namespace}/{service}{colon}{port}/{protocol}/IPv{}",
        name.family
    )
}

fn endpoint(address: &proxy_common::Address, port: u16) -> std::net::SocketAddr {
    std::net::SocketAddr::new(addr::to_ip(address), port)
}

fn range(bits: u32, key: &RangeKey) -> String {
    let (family_bits, ip) = if addr::is_v4(&key.source) {
        (96, addr::to_ip(&key.source))
    } else {
        (0, addr::to_ip(&key.source))
    };
    format!(
        "service={} {ip}/{}",
        u32::from_be_bytes(key.service_be),
        bits.saturating_sub(32 + family_bits)
    )
}
