//! A plan in the making: drafts, and which of them must become one unit.
//!
//! When an address passes from a service that gives it up to another, one write does it, so the
//! address is never without a service; and the two go together, so the address is never left with a
//! service that is gone.

use std::collections::{BTreeMap, HashMap};

use proxy_common::{
    Address, FrontendKey, FrontendKind, FrontendValue, NodeAddrKey, NodeAddrValue, addr,
};

use super::{
    Op, Plan, Planner, SlotsFull, Transaction,
    claims::{Claim, is_whole},
    draft::{Before, Draft, Stage},
};
use crate::model::{ServiceKey, Warning};

/// All drafts of one plan.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    drafts: Vec<Draft>,
    /// Draft that a draft is joined to; itself if none. Points to a lower index.
    joined: Vec<usize>,
    by_service: HashMap<u32, usize>,
    /// Frontends whose claims changed.
    touched: Vec<FrontendKey>,
    /// Addresses at which drafts added (true) or removed Cluster frontends.
    addresses: BTreeMap<Address, Vec<(usize, bool)>>,
    /// Frontends to compare besides.
    checked: Vec<FrontendKey>,
    pub(super) warnings: Vec<Warning>,
    pub(super) refused: Vec<SlotsFull>,
}

impl Sketch {
    /// The draft of a service.
    pub(super) fn draft(&mut self, service: u32, key: Option<&ServiceKey>) -> usize {
        match self.by_service.get(&service) {
            Some(&index) => index,
            None => self.adopt(service, Draft::new(key.cloned())),
        }
    }

    /// Takes a service's draft in.
    pub(super) fn adopt(&mut self, service: u32, draft: Draft) -> usize {
        let index = self.push(draft);
        self.by_service.insert(service, index);
        index
    }

    /// A draft to write to.
    pub(super) fn at(&mut self, index: usize) -> &mut Draft {
        &mut self.drafts[index]
    }

    /// A write that is a unit by itself.
    pub(super) fn alone(&mut self, op: Op, undo: impl Into<Option<Op>>) {
        let mut draft = Draft::default();
        draft.write(Stage::BackendsGo, op, undo);
        self.push(draft);
    }

    /// A draft has added or removed a claim.
    pub(super) fn touch(&mut self, draft: usize, claim: &Claim, added: bool) {
        self.touched.push(claim.key);
        if let Some(addr) = claim.whole_address() {
            self.addresses.entry(addr).or_default().push((draft, added));
        }
    }

    /// Frontends to compare although no claim changed.
    pub(super) fn look_at(&mut self, keys: impl IntoIterator<Item = FrontendKey>) {
        self.checked.extend(keys);
    }

    /// The plan, and what the mirror was before each unit.
    pub(super) fn finish(mut self) -> (Plan, Vec<Vec<Before>>) {
        for index in (0..self.drafts.len()).rev() {
            let into = self.joined[index];
            if into != index {
                let draft = std::mem::take(&mut self.drafts[index]);
                self.drafts[into].absorb(draft);
            }
        }
        let drafts = self.drafts.into_iter().filter(|draft| !draft.is_empty());
        let (units, before) = drafts.map(Draft::finish).unzip();
        let plan = Plan {
            transaction: Transaction { units },
            warnings: self.warnings,
            refused: self.refused,
        };
        (plan, before)
    }

    fn push(&mut self, draft: Draft) -> usize {
        let index = self.drafts.len();
        self.drafts.push(draft);
        self.joined.push(index);
        index
    }

    /// Makes two drafts one unit, in the place of the first.
    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.joined[one.max(other)] = one.min(other);
    }

    fn root(&self, mut index: usize) -> usize {
        while self.joined[index] != index {
            index = self.joined[index];
        }
        index
    }
}

impl Planner {
    /// Writes every frontend that is not what the claims say.
    pub(super) fn publish(&mut self, sketch: &mut Sketch) {
        let mut touched = std::mem::take(&mut sketch.touched);
        touched.sort_unstable();
        touched.dedup();
        for key in touched.iter().filter(|key| self.claims.is_contested(key)) {
            self.warn(key, sketch);
        }
        let unsettled = std::mem::take(&mut self.claims.unsettled);
        let mut keys = touched;
        keys.extend(
            sketch
                .checked
                .drain(..)
                .filter(|key| !unsettled.contains(key)),
        );
        keys.extend(unsettled.iter().copied());
        let addresses = sketch.addresses.keys().copied();
        keys.extend(addresses.map(FrontendKey::whole_address));
        keys.sort_unstable();
        keys.dedup();
        let (whole, ports): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_whole);
        for key in ports {
            self.publish_port(key, unsettled.contains(&key), sketch);
        }
        // After all joins, since the order of units counts here.
        for key in whole {
            self.publish_address(key, unsettled.contains(&key), sketch);
        }
    }

    fn publish_port(&mut self, key: FrontendKey, unsettled: bool, sketch: &mut Sketch) {
        let held = self.claims.held(&key);
        let target = self.claims.target(&key, |id| self.name(id));
        let undo = match held {
            Some(value) => Op::PutFrontend(key, value),
            None => Op::DeleteFrontend(key),
        };
        match target {
            Some(target) if held != Some(target) => {
                let draft = sketch.draft(target.service, self.name(target.service));
                let op = Op::PutFrontend(key, target);
                sketch.at(draft).write(Stage::FrontendsCome, op, undo);
                // The former owner's unit, unless it merely lost to a better claim.
                let former = held
                    .map(|value| value.service)
                    .filter(|&id| !self.claims.claims(id, &key));
                if let Some(&other) = former.and_then(|id| sketch.by_service.get(&id)) {
                    sketch.join(draft, other);
                }
            }
            None if held.is_some() || unsettled => {
                let op = Op::DeleteFrontend(key);
                let owner = held.and_then(|value| sketch.by_service.get(&value.service));
                match owner {
                    Some(&draft) => sketch.at(draft).write(Stage::FrontendsGo, op, undo),
                    None => sketch.alone(op, held.map(|_| undo)),
                }
            }
            _ => return,
        }
        self.claims.hold(&key, target);
    }

    /// A whole-address entry is shared. Each service that is new at the address puts it, since the
    /// units of the others may fail; the last to leave deletes it. What changes the kind of an
    /// address is a unit by itself, since no Service stands or falls with it.
    fn publish_address(&mut self, key: FrontendKey, unsettled: bool, sketch: &mut Sketch) {
        let held = self.claims.held(&key);
        let target = self.claims.target(&key, |_| None);
        let mut drafts = sketch.addresses.remove(&key.addr).unwrap_or_default();
        drafts.sort_by_key(|&(draft, _)| sketch.root(draft));
        let put = |value| Op::PutFrontend(key, value);
        let delete = Op::DeleteFrontend(key);
        match (held, target) {
            (None, Some(target)) => {
                let mut undo = Some(delete);
                drafts.retain(|&(_, added)| added);
                drafts.dedup_by_key(|&mut (draft, _)| sketch.root(draft));
                if drafts.is_empty() {
                    sketch.alone(put(target), undo.take());
                }
                for (draft, _) in drafts {
                    let draft = sketch.at(draft);
                    draft.write(Stage::FrontendsCome, put(target), undo.take());
                }
            }
            (Some(held), Some(target)) if held != target => {
                sketch.alone(put(target), put(held));
            }
            (Some(held), None) => match drafts.last() {
                Some(&(draft, _)) => {
                    let draft = sketch.at(draft);
                    draft.write(Stage::FrontendsGo, delete, put(held));
                }
                None => sketch.alone(delete, put(held)),
            },
            (None, None) if unsettled => match drafts.last() {
                Some(&(draft, _)) => sketch.at(draft).write(Stage::FrontendsGo, delete, None),
                None => sketch.alone(delete, None),
            },
            _ => {}
        }
        self.claims.hold(&key, target);
    }

    /// Reports who does not get a frontend.
    fn warn(&self, key: &FrontendKey, sketch: &mut Sketch) {
        let ranked = self.claims.ranked(key, |id| self.name(id));
        let Some((winner, losers)) = ranked.split_first() else {
            return;
        };
        for loser in losers {
            if let (Some(winner), Some(name)) =
                (self.name(winner.service), self.name(loser.service))
            {
                sketch.warnings.push(conflict(key, winner, name, loser));
            }
        }
    }

    /// Writes this node's addresses. Each is a unit, so that one that does not fit stops no other.
    pub(super) fn write_node(&mut self, sketch: &mut Sketch) {
        let Some(wanted) = self.node_wanted.take() else {
            return;
        };
        let put = |addr: Address, flags: u32| {
            Op::PutNodeAddr(NodeAddrKey { addr }, NodeAddrValue { flags })
        };
        let delete = |addr: Address| Op::DeleteNodeAddr(NodeAddrKey { addr });
        for (&addr, &flags) in self
            .node
            .iter()
            .filter(|(addr, _)| !wanted.contains_key(*addr))
        {
            sketch.alone(delete(addr), put(addr, flags));
        }
        for (&addr, &flags) in &wanted {
            match self.node.get(&addr) {
                Some(&held) if held == flags => {}
                Some(&held) => sketch.alone(put(addr, flags), put(addr, held)),
                None => sketch.alone(put(addr, flags), delete(addr)),
            }
        }
        self.node = wanted;
    }
}

fn conflict(
    key: &FrontendKey,
    winner: &ServiceKey,
    loser: &ServiceKey,
    value: &FrontendValue,
) -> Warning {
    let field = match value.kind {
        FrontendKind::Cluster => "spec.clusterIPs",
        FrontendKind::Node => "spec.ports.nodePort",
        FrontendKind::Balancer => "status.loadBalancer.ingress",
        FrontendKind::External => "spec.externalIPs",
    };
    let at = std::net::SocketAddr::new(addr::to_ip(&key.addr), key.port);
    Warning::new(
        format!("Service {}", loser.service),
        field,
        format!(
            "{at}/{} belongs to {winner} already; there it is not served for {loser}",
            key.protocol.name()
        ),
    )
}
