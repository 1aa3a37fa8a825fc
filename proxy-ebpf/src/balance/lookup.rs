//! From an address to a Service: which frontend it is, if any.

use aya_ebpf::btf_maps::lpm_trie::Key;
use proxy_common::{
    FrontendKey, FrontendKind, FrontendValue, NodeAddrKey, NodeAddrValue, Protocol, RangeKey,
};

use crate::{
    address::{Endpoint, Words},
    balance::select::{self, Closed, Open},
    maps::{FRONTEND, NODE_ADDR, RANGE},
};

/// Where a client is, as far as traffic policies and source ranges are concerned.
#[derive(Clone, Copy)]
pub enum Side {
    /// A socket of this node. Its source address is not chosen yet.
    Inside,
    /// Whoever sent a packet from this address.
    Outside(Words),
}

/// What an address is to us.
pub enum Found {
    /// No Service's.
    Nothing,
    /// A Service's that only some sources may use. Only the packet path knows the source.
    Ranged,
    /// A Service's that this source may not use.
    Denied,
    /// A ClusterIP at a port that it does not have.
    UnknownPort,
    /// A Service's that nobody serves: why, and its id.
    Closed(Closed, u32),
    /// A Service's.
    Open(Open),
}

/// Looks an address up.
///
/// `is_node` says whether the client is in the node's own network namespace, where alone a loopback
/// address means the node. It is asked only when that matters.
#[inline(always)]
pub fn find(
    destination: Endpoint,
    protocol: Protocol,
    side: Side,
    is_node: impl Fn() -> bool,
) -> Found {
    // A Service is deleted frontends first. Who came before that and finds no Service looks again.
    let mut missing = 0;
    for _ in 0..2 {
        let frontend = match frontend(destination, protocol, &is_node) {
            Some(frontend) => frontend,
            None if is_cluster_ip(destination.addr) => return Found::UnknownPort,
            None => return Found::Nothing,
        };
        if frontend.flags & FrontendValue::SOURCE_RANGES != 0 {
            match side {
                Side::Inside => return Found::Ranged,
                Side::Outside(source) if !is_in_range(frontend.service, source) => {
                    return Found::Denied;
                }
                Side::Outside(_) => {}
            }
        }
        match select::open(frontend, side) {
            Ok(open) => return Found::Open(open),
            Err(Closed::Broken) => missing = frontend.service,
            Err(closed) => return Found::Closed(closed, frontend.service),
        }
    }
    Found::Closed(Closed::Broken, missing)
}

/// The frontend at an address and port: one of exactly this address, or a NodePort of the node.
#[inline(always)]
fn frontend(
    destination: Endpoint,
    protocol: Protocol,
    is_node: impl Fn() -> bool,
) -> Option<FrontendValue> {
    let any = destination.addr.unspecified();
    // The keys of NodePorts are no addresses that a client could name.
    if !destination.addr.is(any)
        && let Some(frontend) = get(destination, protocol)
    {
        return Some(frontend);
    }
    let frontend = node_port(any, destination.port, protocol)?;
    answers_node_ports(destination.addr, is_node).then_some(frontend)
}

/// The NodePort of a port in the family of `any`, whatever the address.
#[inline(always)]
pub fn node_port(any: Words, port: u16, protocol: Protocol) -> Option<FrontendValue> {
    get(Endpoint { addr: any, port }, protocol).filter(|f| f.kind as u8 == FrontendKind::Node as u8)
}

/// Whether NodePorts answer at an address.
#[inline(always)]
pub fn answers_node_ports(addr: Words, is_node: impl Fn() -> bool) -> bool {
    let addr = if addr.is_loopback() {
        addr.loopback()
    } else {
        addr
    };
    let key = NodeAddrKey { addr: addr.bytes() };
    let Some(value) = NODE_ADDR.get_ptr(&key) else {
        return false;
    };
    // SAFETY: a map value, read at once and as a whole.
    let flags = unsafe { (&raw const (*value).flags).read_volatile() };
    flags & NodeAddrValue::NODE_PORT != 0 && (flags & NodeAddrValue::LOOPBACK == 0 || is_node())
}

/// Whether a Service's source ranges have an address.
#[inline(always)]
fn is_in_range(service: u32, source: Words) -> bool {
    let key = RangeKey {
        service_be: service.to_be_bytes(),
        source: source.bytes(),
    };
    RANGE
        .get(&Key::new(8 * size_of::<RangeKey>() as u32, key))
        .is_some()
}

/// Whether an address is a ClusterIP of ours, all ports of which we answer for.
#[inline(always)]
fn is_cluster_ip(addr: Words) -> bool {
    kind(addr) == Some(FrontendKind::Cluster as u8)
}

/// Whether an address is nobody's but a Service's: no host answers at a ClusterIP or a load-balancer
/// VIP, but for what it may be on this node. An external IP may be that of a host.
#[inline(always)]
pub fn is_vip(addr: Words) -> bool {
    match kind(addr) {
        Some(kind) if kind == FrontendKind::Cluster as u8 => true,
        Some(kind) => kind == FrontendKind::Balancer as u8 && !is_node(addr),
        None => false,
    }
}

/// Whether a packet to an address may be one of a Service, or an answer to SNAT.
#[inline(always)]
pub fn is_ours(addr: Words) -> bool {
    kind(addr).is_some() || is_node(addr)
}

/// Whether it is an address of the node.
#[inline(always)]
fn is_node(addr: Words) -> bool {
    let key = NodeAddrKey { addr: addr.bytes() };
    NODE_ADDR.get_ptr(&key).is_some()
}

/// The kind of an address, whatever the port.
#[inline(always)]
fn kind(addr: Words) -> Option<u8> {
    let value = FRONTEND.get_ptr(&FrontendKey::whole_address(addr.bytes()))?;
    // SAFETY: a map value. One octet at its place; see `get` for why it is of one frontend.
    Some(unsafe { (&raw const (*value).kind).cast::<u8>().read_volatile() })
}

/// Reads one frontend.
#[inline(always)]
fn get(at: Endpoint, protocol: Protocol) -> Option<FrontendValue> {
    let value = FRONTEND.get_ptr(&FrontendKey::new(at.addr.bytes(), at.port, protocol))?;
    // SAFETY: values of hash maps are aligned to eight bytes (kernel/bpf/hashtab.c). These are just
    // eight long: one load takes all fields from the same frontend, even if it is being replaced.
    Some(unsafe { core::mem::transmute::<u64, FrontendValue>(value.cast::<u64>().read_volatile()) })
}
