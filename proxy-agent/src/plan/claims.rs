//! Who claims which frontend, and what the map holds there.
//!
//! Several services may claim one address and port. The lowest [`FrontendKind`] wins, then the
//! lowest [`ServiceKey`], so the outcome does not depend on the order of events.

use std::collections::{BTreeSet, HashMap};

use proxy_common::{Address, FrontendKey, FrontendKind, FrontendValue, Protocol};

use crate::model::ServiceKey;

/// One service's claim on a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) key: FrontendKey,
    pub(super) kind: FrontendKind,
    pub(super) flags: u8,
}

/// The `frontend` map and all claims on it.
#[derive(Debug, Default)]
pub(super) struct Claims {
    ports: HashMap<FrontendKey, Port>,
    /// Claimants beyond the first; nearly always empty.
    rivals: HashMap<FrontendKey, Vec<FrontendValue>>,
    addresses: HashMap<Address, Whole>,
    /// Frontends whose entry may not be what it should: to be looked at by the next plan.
    pub(super) unsettled: BTreeSet<FrontendKey>,
}

/// One address and port.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    held: Option<FrontendValue>,
    /// What the map holds if this claimant wins.
    claim: Option<FrontendValue>,
}

/// One whole address.
#[derive(Clone, Copy, Debug, Default)]
struct Whole {
    held: Option<FrontendKind>,
    /// Frontends at this address, of each of [`KINDS`].
    claims: [u32; KINDS.len()],
}

/// The kinds that have addresses, the strongest first: a ClusterIP is wholly ours, a load-balancer
/// VIP is ours but for what it serves elsewhere, an external IP may be a host of its own.
const KINDS: [FrontendKind; 3] = [
    FrontendKind::Cluster,
    FrontendKind::Balancer,
    FrontendKind::External,
];

impl Whole {
    fn count(&mut self, kind: FrontendKind) -> Option<&mut u32> {
        let index = KINDS.iter().position(|&other| other == kind)?;
        self.claims.get_mut(index)
    }

    fn target(&self) -> Option<FrontendKind> {
        let mut claims = KINDS.iter().zip(&self.claims);
        claims
            .find(|(_, claims)| **claims > 0)
            .map(|(kind, _)| *kind)
    }
}

impl Claim {
    /// Its value in the map.
    pub(super) const fn value(&self, service: u32) -> FrontendValue {
        FrontendValue {
            service,
            kind: self.kind,
            flags: self.flags,
            reserved: 0,
        }
    }

    /// Whether it claims the whole address as well.
    pub(super) const fn whole_address(&self) -> Option<Address> {
        match self.kind {
            FrontendKind::Cluster | FrontendKind::Balancer | FrontendKind::External => {
                Some(self.key.addr)
            }
            // Stands at the wildcard of its family.
            FrontendKind::Node => None,
        }
    }
}

/// Value of a whole-address entry.
pub(super) const fn whole_address(kind: FrontendKind) -> FrontendValue {
    FrontendValue {
        service: 0,
        kind,
        flags: 0,
        reserved: 0,
    }
}

/// Whether this is the key of a whole address.
pub(super) const fn is_whole(key: &FrontendKey) -> bool {
    matches!(key.protocol, Protocol::Any)
}

impl Claims {
    /// A service claims a frontend.
    pub(super) fn add(&mut self, service: u32, claim: &Claim) {
        let value = claim.value(service);
        let port = self.ports.entry(claim.key).or_default();
        match port.claim {
            None => port.claim = Some(value),
            Some(_) => self.rivals.entry(claim.key).or_default().push(value),
        }
        if let Some(addr) = claim.whole_address()
            && let Some(claims) = self.addresses.entry(addr).or_default().count(claim.kind)
        {
            *claims += 1;
        }
    }

    /// A service no longer claims a frontend.
    pub(super) fn remove(&mut self, service: u32, claim: &Claim) {
        let mine = |value: &FrontendValue| value.service == service;
        if let Some(rivals) = self.rivals.get_mut(&claim.key) {
            if let Some(index) = rivals.iter().position(mine) {
                rivals.swap_remove(index);
            } else if let Some(port) = self
                .ports
                .get_mut(&claim.key)
                .filter(|_| !rivals.is_empty())
            {
                port.claim = rivals.pop();
            }
            if rivals.is_empty() {
                self.rivals.remove(&claim.key);
            }
        } else if let Some(port) = self.ports.get_mut(&claim.key) {
            port.claim = port.claim.filter(|value| !mine(value));
            self.tidy(&claim.key);
        }
        if let Some(addr) = claim.whole_address()
            && let Some(whole) = self.addresses.get_mut(&addr)
        {
            if let Some(claims) = whole.count(claim.kind) {
                *claims = claims.saturating_sub(1);
            }
            self.tidy(&FrontendKey::whole_address(addr));
        }
    }

    /// All claims on a frontend, best first.
    pub(super) fn ranked<'k>(
        &self,
        key: &FrontendKey,
        name: impl Fn(u32) -> Option<&'k ServiceKey>,
    ) -> Vec<FrontendValue> {
        let first = self.ports.get(key).and_then(|port| port.claim);
        let mut all: Vec<FrontendValue> = first.into_iter().collect();
        if let Some(rivals) = self.rivals.get(key) {
            all.extend(rivals);
            all.sort_by_key(|value| (value.kind, name(value.service)));
        }
        all
    }

    /// Whether several services claim a frontend.
    pub(super) fn is_contested(&self, key: &FrontendKey) -> bool {
        self.rivals.contains_key(key)
    }

    /// What the map should hold.
    pub(super) fn target<'k>(
        &self,
        key: &FrontendKey,
        name: impl Fn(u32) -> Option<&'k ServiceKey>,
    ) -> Option<FrontendValue> {
        if is_whole(key) {
            return self.addresses.get(&key.addr)?.target().map(whole_address);
        }
        if self.is_contested(key) {
            return self.ranked(key, name).first().copied();
        }
        self.ports.get(key)?.claim
    }

    /// What the map holds.
    pub(super) fn held(&self, key: &FrontendKey) -> Option<FrontendValue> {
        if is_whole(key) {
            return self.addresses.get(&key.addr)?.held.map(whole_address);
        }
        self.ports.get(key)?.held
    }

    /// The map holds this from now on.
    pub(super) fn hold(&mut self, key: &FrontendKey, value: Option<FrontendValue>) {
        if is_whole(key) {
            self.addresses.entry(key.addr).or_default().held = value.map(|value| value.kind);
        } else {
            self.ports.entry(*key).or_default().held = value;
        }
        self.tidy(key);
    }

    /// Whether a service claims a frontend.
    pub(super) fn claims(&self, service: u32, key: &FrontendKey) -> bool {
        let first = self.ports.get(key).and_then(|port| port.claim);
        let rivals = self.rivals.get(key).into_iter().flatten();
        first
            .iter()
            .chain(rivals)
            .any(|value| value.service == service)
    }

    /// Every frontend that is held or claimed.
    pub(super) fn keys(&self) -> impl Iterator<Item = FrontendKey> + '_ {
        let addresses = self
            .addresses
            .keys()
            .copied()
            .map(FrontendKey::whole_address);
        self.ports.keys().copied().chain(addresses)
    }

    /// Forgets a frontend that is neither held nor claimed.
    fn tidy(&mut self, key: &FrontendKey) {
        if is_whole(key) {
            if let Some(whole @ Whole { held: None, .. }) = self.addresses.get(&key.addr)
                && whole.target().is_none()
            {
                self.addresses.remove(&key.addr);
            }
        } else if let Some(Port {
            held: None,
            claim: None,
        }) = self.ports.get(key)
        {
            self.ports.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proxy_common::addr::v4_mapped;

    use super::*;

    const KEY: FrontendKey = FrontendKey::new(v4_mapped([10, 0, 0, 1]), 80, Protocol::Tcp);

    fn claim(kind: FrontendKind) -> Claim {
        Claim {
            key: KEY,
            kind,
            flags: 0,
        }
    }

    fn winner(claims: &Claims) -> Option<u32> {
        claims.target(&KEY, |_| None).map(|value| value.service)
    }

    #[test]
    fn the_lowest_kind_wins_whatever_came_first() {
        let mut claims = Claims::default();
        claims.add(1, &claim(FrontendKind::External));
        claims.add(2, &claim(FrontendKind::Cluster));
        claims.add(3, &claim(FrontendKind::Balancer));
        assert_eq!(winner(&claims), Some(2));
        claims.remove(2, &claim(FrontendKind::Cluster));
        assert_eq!(winner(&claims), Some(3));
        claims.remove(1, &claim(FrontendKind::External));
        assert_eq!(winner(&claims), Some(3));
        claims.remove(3, &claim(FrontendKind::Balancer));
        assert_eq!((winner(&claims), claims.keys().count()), (None, 0));
    }

    #[test]
    fn a_whole_address_is_of_the_strongest_kind_that_is_claimed() {
        let whole = FrontendKey::whole_address(KEY.addr);
        let mut claims = Claims::default();
        claims.add(1, &claim(FrontendKind::Cluster));
        claims.add(2, &claim(FrontendKind::Cluster));
        claims.add(3, &claim(FrontendKind::External));
        claims.remove(1, &claim(FrontendKind::Cluster));
        let kind = |claims: &Claims| claims.target(&whole, |_| None).map(|value| value.kind);
        assert_eq!(kind(&claims), Some(FrontendKind::Cluster));
        claims.remove(2, &claim(FrontendKind::Cluster));
        assert_eq!(kind(&claims), Some(FrontendKind::External));
        assert!(claims.claims(3, &KEY) && !claims.claims(1, &KEY));
        claims.remove(3, &claim(FrontendKind::External));
        assert_eq!((kind(&claims), claims.keys().count()), (None, 0));
    }
}
