//! What the maps hold about one service id.
//!
//! The mirror is kept small: names, slots and record fields that follow from the rest are computed.

use ipnet::IpNet;
use proxy_common::{
    Address, BackendState, BackendValue, FrontendKey, FrontendValue, NameValue, Protocol, RangeKey,
    ServiceRecord, SlotValue, Window, addr,
};

use super::{Frontend, claims::Claim, slots::Run};
use crate::{
    model::{Family, ServiceKey},
    policy::Candidate,
};

/// One service id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: ServiceKey,
    pub(super) id: u32,
    pub(super) record: ServiceRecord,
    /// Where its slots are; `None` without slots, or if the record points to what cannot be.
    pub(super) run: Option<Run>,
    /// By address and port.
    pub(super) backends: Box<[Backend]>,
    /// Wanted frontends, by key; whether it has them, `Claims` knows.
    pub(super) claims: Box<[Claim]>,
    /// Sorted.
    pub(super) ranges: Box<[Range]>,
    /// The maps hold nothing of it yet.
    pub(super) absent: bool,
    /// The slots are not what we would have written.
    pub(super) stale_slots: bool,
}

/// One backend, 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backend {
    pub(super) addr: Address,
    pub(super) port: u16,
    pub(super) flags: u8,
    /// What was restored is not what we would have written.
    pub(super) stale: bool,
    pub(super) id: u32,
    pub(super) generation: u32,
}

/// Prefix length and key in the `range` map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) bits: u32,
    pub(super) key: RangeKey,
}

/// A service's list of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) slots: Vec<SlotValue>,
    pub(super) local: Window,
    pub(super) cluster: Window,
}

impl Backend {
    const IN_WINDOW: u8 = BackendValue::IN_LOCAL | BackendValue::IN_CLUSTER;

    /// What tells backends of a service apart.
    pub(super) const fn endpoint(&self) -> (Address, u16) {
        (self.addr, self.port)
    }

    /// Whether slots point to it.
    pub(super) const fn is_active(&self) -> bool {
        self.flags & Self::IN_WINDOW != 0
    }

    /// Its value in the map.
    pub(super) const fn value(&self, service: u32, protocol: Protocol) -> BackendValue {
        BackendValue {
            id: self.id,
            generation: self.generation,
            service,
            addr: self.addr,
            port: self.port,
            weight: 1,
            protocol,
            state: if self.is_active() {
                BackendState::Active
            } else {
                BackendState::Draining
            },
            flags: self.flags,
            reserved: 0,
        }
    }

    /// Its value in a slot.
    const fn slot(&self, service: u32) -> SlotValue {
        SlotValue {
            addr: self.addr,
            backend: self.id,
            service,
            port: self.port,
            reserved: [0; 3],
        }
    }

    /// Backends without ids, by address and port, each once. Policy sorts by `IpAddr`, which within
    /// a family is the order of the map form.
    pub(super) fn wanted(candidates: &[Candidate]) -> Vec<Self> {
        let mut backends: Vec<Self> = candidates.iter().map(Self::of).collect();
        if !backends.is_sorted_by_key(Self::endpoint) {
            backends.sort_by_key(Self::endpoint);
        }
        backends.dedup_by_key(|backend| backend.endpoint());
        backends
    }

    fn of(candidate: &Candidate) -> Self {
        Self {
            addr: addr::from_ip(candidate.addr),
            port: candidate.port,
            flags: flag(candidate.local, BackendValue::IN_LOCAL)
                | flag(candidate.cluster, BackendValue::IN_CLUSTER)
                | flag(candidate.on_node, BackendValue::ON_NODE),
            stale: false,
            id: 0,
            generation: 1,
        }
    }
}

impl Layout {
    /// `[local only | local and cluster | cluster only]`, each by address and port.
    pub(super) fn of(backends: &[Backend], service: u32) -> Self {
        let part = |flags: u8| {
            let is = move |b: &&Backend| b.flags & Backend::IN_WINDOW == flags;
            backends.iter().filter(is).map(|b| b.slot(service))
        };
        let mut slots = Vec::with_capacity(backends.iter().filter(|b| b.is_active()).count());
        slots.extend(part(BackendValue::IN_LOCAL));
        let cluster_start = slots.len() as u32;
        slots.extend(part(Backend::IN_WINDOW));
        let local_end = slots.len() as u32;
        slots.extend(part(BackendValue::IN_CLUSTER));
        let end = slots.len() as u32;
        let window = |start: u32, end: u32| match end - start {
            0 => Window::default(),
            count => Window {
                offset: start,
                count,
            },
        };
        Self {
            slots,
            local: window(0, local_end),
            cluster: window(cluster_start, end),
        }
    }
}

impl Entry {
    /// A service of which the maps hold nothing yet.
    pub(super) fn absent(key: ServiceKey, id: u32) -> Self {
        Self {
            key,
            id,
            record: ServiceRecord {
                base: 0,
                local: Window::default(),
                cluster: Window::default(),
                affinity_seconds: 0,
                scheduler: proxy_common::Scheduler::Random,
                has_any: 0,
                reserved: 0,
            },
            run: None,
            backends: Box::default(),
            claims: Box::default(),
            ranges: Box::default(),
            absent: true,
            stale_slots: false,
        }
    }

    /// Its value in the `name` map; `None` if a name is too long for it.
    pub(super) fn name(&self) -> Option<NameValue> {
        name_value(&self.key)
    }
}

/// The names of a service as its `name` entry holds them; `None` if one is too long.
pub(super) fn name_value(key: &ServiceKey) -> Option<NameValue> {
    Some(NameValue {
        namespace: NameValue::field(&key.service.namespace)?,
        name: NameValue::field(&key.service.name)?,
        port: NameValue::field(&key.port)?,
        family: key.family.number(),
        protocol: key.protocol as u8,
        reserved: 0,
    })
}

/// Claims by key, each once: the lowest kind counts.
pub(super) fn wanted_claims(frontends: &[Frontend], protocol: Protocol) -> Box<[Claim]> {
    let claim = |frontend: &Frontend| Claim {
        key: FrontendKey::new(addr::from_ip(frontend.addr), frontend.port, protocol),
        kind: frontend.kind,
        flags: flag(frontend.source_ranges, FrontendValue::SOURCE_RANGES)
            | flag(frontend.local, FrontendValue::LOCAL),
    };
    let mut claims: Vec<Claim> = frontends.iter().map(claim).collect();
    claims.sort_unstable();
    claims.dedup_by_key(|claim| claim.key);
    claims.into()
}

impl Range {
    /// Ranges of the service's own family, sorted: `::/0` must not let IPv4 clients in.
    pub(super) fn wanted(nets: &[IpNet], family: Family, service: u32) -> Box<[Self]> {
        let own = nets.iter().filter(|net| Family::of(net.addr()) == family);
        let mut ranges: Vec<Self> = own.map(|net| Self::of(net, service)).collect();
        ranges.sort_unstable_by_key(Self::order);
        ranges.dedup();
        ranges.into()
    }

    /// Order of ranges within a service.
    pub(super) const fn order(&self) -> (Address, u32) {
        (self.key.source, self.bits)
    }

    /// A range of one service.
    pub(super) fn of(net: &IpNet, service: u32) -> Self {
        let mapped = match net {
            IpNet::V4(_) => 96,
            IpNet::V6(_) => 0,
        };
        Self {
            bits: 32 + mapped + u32::from(net.prefix_len()),
            key: RangeKey {
                service_be: service.to_be_bytes(),
                source: addr::from_ip(net.network()),
            },
        }
    }
}

const fn flag(is: bool, flag: u8) -> u8 {
    if is { flag } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(last: u8, flags: u8) -> Backend {
        Backend {
            addr: addr::v4_mapped([10, 0, 0, last]),
            port: 80,
            flags,
            stale: false,
            id: u32::from(last),
            generation: 1,
        }
    }

    #[test]
    fn slots_are_local_only_then_both_then_cluster_only_each_by_address() {
        let (local, cluster) = (BackendValue::IN_LOCAL, BackendValue::IN_CLUSTER);
        let layout = Layout::of(
            &[
                backend(1, cluster),
                backend(2, local | cluster),
                backend(3, 0),
                backend(4, local),
                backend(5, local | cluster | BackendValue::ON_NODE),
            ],
            7,
        );
        let order: Vec<_> = layout
            .slots
            .iter()
            .map(|s| (s.backend, s.addr[15]))
            .collect();
        assert_eq!(order, [(4, 4), (2, 2), (5, 5), (1, 1)]);
        assert!(
            layout
                .slots
                .iter()
                .all(|slot| (slot.service, slot.port) == (7, 80))
        );
        assert_eq!(
            layout.local,
            Window {
                offset: 0,
                count: 3
            }
        );
        assert_eq!(
            layout.cluster,
            Window {
                offset: 1,
                count: 3
            }
        );
    }

    #[test]
    fn an_empty_window_stands_at_offset_zero() {
        let layout = Layout::of(&[backend(1, BackendValue::IN_LOCAL)], 7);
        assert_eq!(layout.cluster, Window::default());
        assert_eq!(Layout::of(&[backend(1, 0)], 7), Layout::default());
    }

    #[test]
    fn the_mirror_spends_28_bytes_on_a_backend() {
        assert_eq!(size_of::<Backend>(), 28);
    }
}
