//! What the programs do with the maps, as a pure function of a Snapshot.
//!
//! Written from the contract (`proxy-common`), not from the programs: where both agree on all
//! scenarios, both say what was meant.

use std::{collections::BTreeSet, net::SocketAddr};

use proxy_agent::plan::Snapshot;
use proxy_common::{
    FrontendKey, FrontendKind, FrontendValue, NodeAddrValue, Protocol, SlotValue, Window, addr,
};

use crate::script::{Client, Outcome};

/// What becomes of a client's connection.
pub(crate) fn connect(
    maps: &Snapshot,
    from: Client,
    to: SocketAddr,
    protocol: Protocol,
) -> Result<Outcome, String> {
    let address = addr::from_ip(to.ip());
    let Some(frontend) = frontend(maps, from, to, protocol) else {
        let whole = FrontendKey::whole_address(address);
        return Ok(match maps.frontends.get(&whole).map(|value| value.kind) {
            Some(FrontendKind::Cluster) => Outcome::Refused,
            _ => Outcome::Untouched,
        });
    };
    if frontend.flags & FrontendValue::SOURCE_RANGES != 0 {
        return Ok(Outcome::Untouched);
    }
    let id = frontend.service;
    let service = maps.services.get(&id).ok_or(format!("no service {id}"))?;
    let is_local =
        frontend.kind == FrontendKind::Cluster && frontend.flags & FrontendValue::LOCAL != 0;
    let window = if is_local {
        service.local
    } else {
        service.cluster
    };
    let backends = backends(maps, service.base, window)?;
    Ok(match (backends.is_empty(), service.has_any) {
        (true, 0) => Outcome::Refused,
        (true, _) => Outcome::Dropped,
        (false, _) if service.affinity_seconds > 0 => Outcome::Sticky(backends),
        (false, _) => Outcome::Spread(backends),
    })
}

/// Whether an endpoint is in the maps, for new connections or for those that it has.
pub(crate) fn is_alive(maps: &Snapshot, at: SocketAddr, protocol: Protocol) -> bool {
    let ip = addr::from_ip(at.ip());
    let is =
        |b: &&proxy_common::BackendValue| (b.addr, b.port, b.protocol) == (ip, at.port(), protocol);
    maps.backends.values().any(|backend| is(&backend))
}

fn frontend(
    maps: &Snapshot,
    from: Client,
    to: SocketAddr,
    protocol: Protocol,
) -> Option<FrontendValue> {
    let address = addr::from_ip(to.ip());
    let exact = FrontendKey::new(address, to.port(), protocol);
    if !to.ip().is_unspecified()
        && let Some(found) = maps.frontends.get(&exact)
    {
        return Some(*found);
    }
    let any = if addr::is_v4(&address) {
        addr::V4_ANY
    } else {
        addr::V6_ANY
    };
    let node_port = FrontendKey::new(any, to.port(), protocol);
    let found = maps.frontends.get(&node_port)?;
    let flags = *maps.node_addrs.get(&address)?;
    let is_mine = flags & NodeAddrValue::LOOPBACK == 0 || from == Client::Node;
    (flags & NodeAddrValue::NODE_PORT != 0 && is_mine).then_some(*found)
}

fn backends(maps: &Snapshot, base: u32, window: Window) -> Result<BTreeSet<SocketAddr>, String> {
    let run = maps.slots.get(&base).map_or(&[][..], Vec::as_slice);
    let (start, count) = (window.offset as usize, window.count as usize);
    if count == 0 {
        return Ok(BTreeSet::new());
    }
    let slots = run
        .get(start..start + count)
        .ok_or(format!("no run of {count} at {base}"))?;
    let at = |slot: &SlotValue| -> Result<SocketAddr, String> {
        let id = slot.backend;
        maps.backends.get(&id).ok_or(format!("no backend {id}"))?;
        Ok(SocketAddr::new(addr::to_ip(&slot.addr), slot.port))
    };
    slots.iter().map(at).collect()
}
