//! Ids: numbers that are never in use twice.
//!
//! Sockets and flows remember ids, so a number is not given out again for as long as can be: ids
//! count up from 1 and come round only after four billion.
//!
//! Where a map has one element for all ids of the same remainder (`load`), ids that are in use
//! together also differ in that, as long as there are more remainders than ids.

use std::collections::BTreeMap;

/// How far a restarted agent skips ahead. It knows the ids that are in use, not those that were
/// freed before it started; a socket may still remember one of these.
const RESTART_GAP: u32 = 1 << 16;

/// Ids per page of [`Used`].
const PAGE: u32 = 512;

/// Hands out the ids of one map.
#[derive(Debug)]
pub(super) struct Ids {
    next: u32,
    /// Number of remainders; `u32::MAX` where they do not matter.
    modulus: u32,
    used: Used,
    remainders: Used,
}

/// A set of ids, a bit each, since they come in long rows.
#[derive(Debug, Default)]
struct Used {
    pages: BTreeMap<u32, [u64; PAGE as usize / 64]>,
    count: u32,
}

impl Ids {
    /// Nothing is in use.
    pub(super) fn new(modulus: u32) -> Self {
        Self {
            next: 1,
            modulus,
            used: Used::default(),
            remainders: Used::default(),
        }
    }

    /// What another agent left in use.
    pub(super) fn restore(used: impl IntoIterator<Item = u32>, modulus: u32) -> Self {
        let mut ids = Self::new(modulus);
        ids.replace(used);
        if let Some(highest) = ids.used.highest() {
            ids.next = after(highest.checked_add(RESTART_GAP).unwrap_or_default());
        }
        ids
    }

    /// Goes on counting, but with this in use.
    pub(super) fn replace(&mut self, used: impl IntoIterator<Item = u32>) {
        self.used = Used::default();
        self.remainders = Used::default();
        for id in used {
            self.used.insert(id);
            self.remainders.insert(id % self.modulus);
        }
    }

    /// An id that is not in use, from now on in use.
    pub(super) fn take(&mut self) -> u32 {
        loop {
            let id = self.next;
            self.next = after(id);
            if self.is_free(id) {
                self.used.insert(id);
                self.remainders.insert(id % self.modulus);
                return id;
            }
        }
    }

    /// The maps no longer hold this id.
    pub(super) fn release(&mut self, id: u32) {
        self.used.remove(id);
        self.remainders.remove(id % self.modulus);
    }

    fn is_free(&self, id: u32) -> bool {
        let all_taken = self.remainders.count >= self.modulus;
        !self.used.has(id) && (all_taken || !self.remainders.has(id % self.modulus))
    }
}

impl Used {
    fn has(&self, id: u32) -> bool {
        let (word, bit) = place(id);
        self.pages
            .get(&(id / PAGE))
            .is_some_and(|page| page[word] & bit != 0)
    }

    fn insert(&mut self, id: u32) {
        let (word, bit) = place(id);
        let word = &mut self.pages.entry(id / PAGE).or_default()[word];
        self.count += u32::from(*word & bit == 0);
        *word |= bit;
    }

    fn remove(&mut self, id: u32) {
        let (word, bit) = place(id);
        if let Some(page) = self.pages.get_mut(&(id / PAGE)) {
            self.count -= u32::from(page[word] & bit != 0);
            page[word] &= !bit;
            if page.iter().all(|&word| word == 0) {
                self.pages.remove(&(id / PAGE));
            }
        }
    }

    fn highest(&self) -> Option<u32> {
        let (page, words) = self.pages.last_key_value()?;
        let (index, word) = words.iter().enumerate().rfind(|(_, word)| **word != 0)?;
        Some(page * PAGE + index as u32 * 64 + word.ilog2())
    }
}

/// Word and bit within a page.
const fn place(id: u32) -> (usize, u64) {
    ((id % PAGE / 64) as usize, 1 << (id % 64))
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
        let mut ids = Ids::new(u32::MAX);
        assert_eq!([ids.take(), ids.take()], [1, 2]);
        ids.release(1);
        assert_eq!(ids.take(), 3);
    }

    #[test]
    fn after_four_billion_ids_those_in_use_are_skipped_and_zero_is_none() {
        let mut ids = Ids::restore([1, 2, u32::MAX - 1], u32::MAX);
        assert_eq!(ids.take(), 3, "the gap does not fit below 2^32");
        assert_eq!([ids.take(), ids.take()], [4, 5]);
        ids.release(4);
        ids.next = u32::MAX - 1;
        assert_eq!([ids.take(), ids.take()], [u32::MAX, 4]);
    }

    #[test]
    fn a_restarted_agent_does_not_give_out_what_was_freed_before_it_started() {
        let mut ids = Ids::restore([7], u32::MAX);
        assert_eq!(ids.take(), 8 + RESTART_GAP);
        assert_eq!(Ids::restore([], u32::MAX).take(), 1);
    }

    #[test]
    fn ids_in_use_differ_in_their_remainder_as_long_as_there_are_any() {
        let mut ids = Ids::restore([2, 6], 8);
        ids.next = 9;
        assert_eq!(
            [ids.take(), ids.take(), ids.take()],
            [9, 11, 12],
            "10 is like 2"
        );
        ids.release(2);
        assert_eq!(
            [ids.take(), ids.take(), ids.take(), ids.take()],
            [13, 15, 16, 18]
        );
        assert_eq!(
            [ids.take(), ids.take()],
            [19, 20],
            "all are in use: better twice than none"
        );
    }
}
