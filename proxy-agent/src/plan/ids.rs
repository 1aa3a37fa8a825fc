//! Ids: numbers that are never in use twice.
//!
//! Sockets and flows remember ids, so a number is not given out again for as long as can be: ids
//! count up from 1 and come round only after four billion.

use std::collections::HashSet;

/// How far a restarted agent skips ahead. It knows the ids that are in use, not those that were
/// freed before it started; a socket may still remember one of these.
const RESTART_GAP: u32 = 1 << 16;

/// Hands out the ids of one map.
#[derive(Debug)]
pub(super) struct Ids {
    next: u32,
    used: HashSet<u32>,
}

impl Ids {
    /// Nothing is in use.
    pub(super) fn new() -> Self {
        Self {
            next: 1,
            used: HashSet::new(),
        }
    }

    /// What another agent left in use.
    pub(super) fn restore(used: HashSet<u32>) -> Self {
        let next = match used.iter().max() {
            Some(&highest) => after(highest.checked_add(RESTART_GAP).unwrap_or_default()),
            None => 1,
        };
        Self { next, used }
    }

    /// Goes on counting, but with this in use.
    pub(super) fn replace(&mut self, used: HashSet<u32>) {
        self.used = used;
    }

    /// An id that is not in use, from now on in use.
    pub(super) fn take(&mut self) -> u32 {
        loop {
            let id = self.next;
            self.next = after(id);
            if self.used.insert(id) {
                return id;
            }
        }
    }

    /// The maps no longer hold this id.
    pub(super) fn release(&mut self, id: u32) {
        self.used.remove(&id);
    }
}

/// The id after this one; 0 is none.
fn after(id: u32) -> u32 {
    id.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_count_up_from_one_and_a_freed_id_is_not_given_out_again() {
        let mut ids = Ids::new();
        assert_eq!([ids.take(), ids.take()], [1, 2]);
        ids.release(1);
        assert_eq!(ids.take(), 3);
    }

    #[test]
    fn after_four_billion_ids_those_in_use_are_skipped_and_zero_is_none() {
        let mut ids = Ids::restore(HashSet::from([1, 2, u32::MAX - 1]));
        assert_eq!(ids.take(), 3, "the gap does not fit below 2^32");
        ids.next = u32::MAX - 1;
        assert_eq!([ids.take(), ids.take()], [u32::MAX, 4]);
    }

    #[test]
    fn a_restarted_agent_does_not_give_out_what_was_freed_before_it_started() {
        let mut ids = Ids::restore(HashSet::from([7]));
        assert_eq!(ids.take(), 8 + RESTART_GAP);
        assert_eq!(Ids::restore(HashSet::new()).take(), 1);
    }
}
