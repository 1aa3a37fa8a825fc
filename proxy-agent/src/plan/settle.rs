//! What became of the plan in flight.

use std::collections::BTreeSet;

use proxy_common::{Address, FrontendKey, FrontendValue};

use super::{
    Op, Planner, Transaction, Unit,
    claims::{Claim, is_whole},
    draft::Before,
};

impl Planner {
    /// Ends a plan: takes back what these units (by index) would have changed, and remembers their
    /// services as [`refused`](Self::refused). What units that were applied unpublished begins to
    /// rest.
    ///
    /// A unit whose undo failed as well needs a [`resync`](Self::resync).
    pub fn settle(&mut self, transaction: &Transaction, failed: impl IntoIterator<Item = usize>) {
        let failed: BTreeSet<usize> = failed.into_iter().collect();
        let in_flight = std::mem::take(&mut self.in_flight);
        let mut disputed = BTreeSet::new();
        for (index, (unit, before)) in transaction.units.iter().zip(in_flight).enumerate() {
            if failed.contains(&index) {
                self.take_back_writes(unit, before.is_empty(), &mut disputed);
                for before in before {
                    self.take_back(before, &mut disputed);
                }
            } else {
                self.confirm_writes(unit);
                before.iter().for_each(|before| self.retire_old_run(before));
            }
        }
        self.unsettle(disputed);
    }

    /// Takes a plan that nobody settled for applied. Ids that it freed stay out of use.
    pub(super) fn settle_in_flight(&mut self) {
        for before in std::mem::take(&mut self.in_flight).iter().flatten() {
            self.retire_old_run(before);
        }
    }

    fn retire_old_run(&mut self, before: &Before) {
        let old = before.entry.as_ref().and_then(|entry| entry.run);
        let new = self.services.get(&before.id).and_then(|entry| entry.run);
        if let Some(run) = old.filter(|_| old != new) {
            self.slots.retire(run);
        }
    }

    fn confirm_writes(&mut self, unit: &Unit) {
        for op in &unit.ops {
            match op {
                Op::DeleteBackend(id) => self.backend_ids.release(*id),
                Op::DeleteService(id) => self.service_ids.release(*id),
                Op::DeleteName(_)
                | Op::DeleteFrontend(_)
                | Op::DeleteRange(..)
                | Op::DeleteNodeAddr(_) => {}
                _ => continue,
            }
            self.room = true;
        }
    }

    /// Takes back what does not belong to one service alone.
    fn take_back_writes(&mut self, unit: &Unit, loose: bool, disputed: &mut BTreeSet<FrontendKey>) {
        for (op, undo) in unit.ops.iter().zip(&unit.undo) {
            match op {
                Op::PutFrontend(key, _) | Op::DeleteFrontend(key) => {
                    disputed.insert(*key);
                    self.take_back_frontend(*key, undo.as_ref());
                }
                Op::PutNodeAddr(key, _) | Op::DeleteNodeAddr(key) => {
                    self.take_back_node_addr(key.addr, undo.as_ref());
                }
                Op::PutBackend(value) if matches!(undo, Some(Op::DeleteBackend(_))) => {
                    self.backend_ids.release(value.id);
                }
                Op::PutService(id, _) if matches!(undo, Some(Op::DeleteService(_))) => {
                    self.service_ids.release(*id);
                }
                _ if loose => self.loose.push((op.clone(), undo.clone())),
                _ => {}
            }
        }
    }

    fn take_back_frontend(&mut self, key: FrontendKey, undo: Option<&Op>) {
        match undo {
            // Several units write it, of which some may have failed: write it again.
            _ if is_whole(&key) => self.claims.hold(&key, None),
            Some(Op::PutFrontend(_, value)) => return self.claims.hold(&key, Some(*value)),
            Some(_) => return self.claims.hold(&key, None),
            None => {}
        }
        self.claims.unsettled.insert(key);
    }

    fn take_back_node_addr(&mut self, addr: Address, undo: Option<&Op>) {
        self.node_wanted.get_or_insert_with(|| self.node.clone());
        match undo {
            Some(Op::PutNodeAddr(_, value)) => self.node.insert(addr, value.flags),
            _ => self.node.remove(&addr),
        };
    }

    fn take_back(&mut self, before: Before, disputed: &mut BTreeSet<FrontendKey>) {
        let Before { id, entry, orphan } = before;
        let new = self.services.remove(&id);
        if let Some(new) = &new {
            for claim in &new.claims {
                self.claims.remove(id, claim);
                dispute(claim, disputed);
            }
            // Undone, but perhaps after the flip: programs may have seen it.
            let old = entry.as_ref().and_then(|entry| entry.run);
            if let Some(run) = new.run.filter(|_| new.run != old) {
                self.slots.retire(run);
            }
            self.ids.remove(&new.key);
        }
        if !orphan {
            let known = entry.as_deref().or(new.as_ref());
            self.refused.extend(known.map(|entry| entry.key.clone()));
        }
        let Some(old) = entry else { return };
        for claim in &old.claims {
            self.claims.add(id, claim);
            dispute(claim, disputed);
        }
        if orphan {
            self.orphans.insert(id);
        } else {
            self.ids.insert(old.key.clone(), id);
        }
        self.services.insert(id, *old);
    }

    /// Remembers every frontend in `keys` that is not what it should be.
    fn unsettle(&mut self, keys: BTreeSet<FrontendKey>) {
        for key in keys {
            let target: Option<FrontendValue> = self.claims.target(&key, |id| self.name(id));
            if self.claims.held(&key) != target {
                self.claims.unsettled.insert(key);
            }
        }
    }
}

fn dispute(claim: &Claim, disputed: &mut BTreeSet<FrontendKey>) {
    disputed.insert(claim.key);
    disputed.extend(claim.whole_address().map(FrontendKey::whole_address));
}
