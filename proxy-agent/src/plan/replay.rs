//! Transactions from their printed form.
//!
//! What an agent logged can be applied to the fake data plane again, to look at the maps between
//! any two writes.

use std::{net::SocketAddr, str::FromStr};

use ipnet::IpNet;
use proxy_common::{
    Address, BackendState, BackendValue, FrontendKey, FrontendKind, FrontendValue, NodeAddrKey,
    NodeAddrValue, Protocol, Scheduler, ServiceRecord, SlotValue, Window, addr,
};

use super::{
    Op, Transaction, Unit,
    entry::{Range, name_value},
    transaction::{NO_SERVICE, UNDO},
};
use crate::model::{Family, ServiceKey, ServiceName};

/// A line that is no part of a Transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the transaction cannot be read: {text:?}")]
pub struct ReplayError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

impl FromStr for Transaction {
    type Err = ReplayError;

    /// Reads what [`Display`](std::fmt::Display) wrote. Without the `undo` lines of its alternate
    /// form, nothing can be taken back.
    fn from_str(text: &str) -> Result<Self, ReplayError> {
        let mut units: Vec<Unit> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            read_line(line, &mut units).ok_or_else(|| ReplayError {
                line: index + 1,
                text: line.into(),
            })?;
        }
        Ok(Self { units })
    }
}

fn read_line(line: &str, units: &mut Vec<Unit>) -> Option<()> {
    let text = line.trim();
    if text.is_empty() {
        return Some(());
    }
    if !line.starts_with(' ') {
        let service = match text {
            NO_SERVICE => None,
            name => Some(read_key(name)?),
        };
        let (ops, undo) = (Vec::new(), Vec::new());
        units.push(Unit { service, ops, undo });
        return Some(());
    }
    let unit = units.last_mut()?;
    match text.strip_prefix(UNDO) {
        Some(undo) => *unit.undo.last_mut()? = Some(read_op(undo)?),
        None => {
            unit.ops.push(read_op(text)?);
            unit.undo.push(None);
        }
    }
    Some(())
}

fn read_op(text: &str) -> Option<Op> {
    let mut words = Words(text);
    let action = words.next()?;
    let op = match (action, words.next()?) {
        ("put", "backend") => Op::PutBackend(read_backend(&mut words)?),
        ("delete", "backend") => Op::DeleteBackend(words.number()?),
        ("write", "slots") => {
            let base = words.next()?.strip_suffix("..")?.parse().ok()?;
            let service = words.field("service=")?;
            let list = std::mem::take(&mut words.0).split_whitespace();
            let slots = list.map(|slot| read_slot(slot, service));
            let slots = slots.collect::<Option<_>>()?;
            Op::WriteSlots { base, slots }
        }
        ("put", "service") => Op::PutService(words.number()?, read_service(&mut words)?),
        ("delete", "service") => Op::DeleteService(words.number()?),
        ("put", "name") => {
            let id = words.number()?;
            let name = name_value(&read_key(words.next()?)?)?;
            Op::PutName(id, Box::new(name))
        }
        ("delete", "name") => Op::DeleteName(words.number()?),
        ("put", "frontend") => Op::PutFrontend(
            words.frontend()?,
            FrontendValue {
                service: words.field("service=")?,
                kind: words.one_of(&KINDS, FrontendKind::name)?,
                flags: words.field("flags=")?,
                reserved: 0,
            },
        ),
        ("delete", "frontend") => Op::DeleteFrontend(words.frontend()?),
        ("put", "range") => {
            let Range { bits, key } = words.range()?;
            Op::PutRange(bits, key)
        }
        ("delete", "range") => {
            let Range { bits, key } = words.range()?;
            Op::DeleteRange(bits, key)
        }
        ("put", "node") => {
            let key = words.node_addr()?;
            let flags = words.field("flags=")?;
            Op::PutNodeAddr(key, NodeAddrValue { flags })
        }
        ("delete", "node") => Op::DeleteNodeAddr(words.node_addr()?),
        _ => return None,
    };
    words.0.trim().is_empty().then_some(op)
}

fn read_backend(words: &mut Words<'_>) -> Option<BackendValue> {
    let (id, generation) = (words.number()?, words.field("generation=")?);
    let service = words.field("service=")?;
    let (addr, port) = words.endpoint()?;
    Some(BackendValue {
        id,
        generation,
        service,
        addr,
        port,
        protocol: words.one_of(&PROTOCOLS, Protocol::name)?,
        state: words.one_of(&STATES, BackendState::name)?,
        weight: words.field("weight=")?,
        flags: words.field("flags=")?,
        reserved: 0,
    })
}

/// `7@10.0.0.1:80`
fn read_slot(text: &str, service: u32) -> Option<SlotValue> {
    let (backend, at) = text.split_once('@')?;
    let (addr, port) = Words(at).endpoint()?;
    Some(SlotValue {
        addr,
        backend: backend.parse().ok()?,
        service,
        port,
        reserved: [0; 3],
    })
}

fn read_service(words: &mut Words<'_>) -> Option<ServiceRecord> {
    Some(ServiceRecord {
        base: words.field("base=")?,
        local: words.window("local=")?,
        cluster: words.window("cluster=")?,
        affinity_seconds: words
            .next()?
            .strip_prefix("affinity=")?
            .strip_suffix('s')?
            .parse()
            .ok()?,
        scheduler: words.one_of(&SCHEDULERS, Scheduler::name)?,
        has_any: words.field("has_any=")?,
        reserved: 0,
    })
}

/// `namespace/name:port/TCP/IPv4`
fn read_key(text: &str) -> Option<ServiceKey> {
    let (rest, family) = text.rsplit_once('/')?;
    let (rest, protocol) = rest.rsplit_once('/')?;
    let (namespace, rest) = rest.split_once('/')?;
    let (name, port) = rest.split_once(':').unwrap_or((rest, ""));
    Some(ServiceKey {
        service: ServiceName::new(namespace, name),
        port: port.into(),
        protocol: PROTOCOLS.into_iter().find(|p| p.name() == protocol)?,
        family: Family::ALL.into_iter().find(|f| f.to_string() == family)?,
    })
}

const PROTOCOLS: [Protocol; 4] = [Protocol::Any, Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
const STATES: [BackendState; 2] = [BackendState::Active, BackendState::Draining];
const SCHEDULERS: [Scheduler; 1] = [Scheduler::Random];
const KINDS: [FrontendKind; 4] = [
    FrontendKind::Cluster,
    FrontendKind::Node,
    FrontendKind::Balancer,
    FrontendKind::External,
];

/// The rest of a line.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        self.0 = rest;
        Some(word).filter(|word| !word.is_empty())
    }

    fn number(&mut self) -> Option<u32> {
        self.next()?.parse().ok()
    }

    fn field<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.next()?.strip_prefix(name)?.parse().ok()
    }

    fn window(&mut self, name: &str) -> Option<Window> {
        let (offset, count) = self.next()?.strip_prefix(name)?.split_once('+')?;
        Some(Window {
            offset: offset.parse().ok()?,
            count: count.parse().ok()?,
        })
    }

    fn one_of<T: Copy>(&mut self, all: &[T], name: impl Fn(T) -> &'static str) -> Option<T> {
        let word = self.next()?;
        all.iter().copied().find(|&one| name(one) == word)
    }

    fn endpoint(&mut self) -> Option<(Address, u16)> {
        let endpoint: SocketAddr = self.next()?.parse().ok()?;
        Some((addr::from_ip(endpoint.ip()), endpoint.port()))
    }

    fn frontend(&mut self) -> Option<FrontendKey> {
        let (addr, port) = self.endpoint()?;
        let protocol = self.one_of(&PROTOCOLS, Protocol::name)?;
        Some(FrontendKey::new(addr, port, protocol))
    }

    fn range(&mut self) -> Option<Range> {
        let service = self.field("service=")?;
        let net: IpNet = self.next()?.parse().ok()?;
        Some(Range::of(&net, service))
    }

    fn node_addr(&mut self) -> Option<NodeAddrKey> {
        let ip = (self.next()? == "address").then(|| self.next())??;
        let addr = addr::from_ip(ip.parse().ok()?);
        Some(NodeAddrKey { addr })
    }
}
