//! Runs of slots: a buddy allocator with a quarantine.
//!
//! A run is a power of two of consecutive slots, aligned to its length, so the length of a run
//! follows from the number of its endpoints and nothing has to be stored beside the service record.
//! A run that was published is retired, not freed: programs may still read it.

use std::collections::{BTreeMap, BTreeSet};

const ORDERS: usize = 32;

/// Consecutive slots: `2^order` from `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) base: u32,
    pub(super) order: u8,
}

/// All slots of the map.
#[derive(Debug)]
pub(super) struct Slots {
    size: u32,
    /// Free runs, by order.
    free: [BTreeSet<u32>; ORDERS],
    /// Retired runs, by the epoch in which they were.
    resting: BTreeMap<u64, BTreeSet<Run>>,
    epoch: u64,
}

impl Run {
    /// The order of a run for this many slots; `None` if it can never exist.
    fn order(slots: u32) -> Option<u8> {
        let length = slots.checked_next_power_of_two()?;
        Some(length.trailing_zeros() as u8)
    }

    /// Number of slots.
    pub(super) const fn length(self) -> u32 {
        1 << self.order
    }
}

impl Slots {
    /// All free.
    pub(super) fn new(size: u32) -> Self {
        let mut slots = Self {
            size,
            free: [const { BTreeSet::new() }; ORDERS],
            resting: BTreeMap::new(),
            epoch: 0,
        };
        let mut base = 0;
        for order in (0..ORDERS as u8).rev() {
            let run = Run { base, order };
            if size & run.length() != 0 {
                slots.free[usize::from(order)].insert(base);
                base = base.wrapping_add(run.length());
            }
        }
        slots
    }

    /// Number of slots in all.
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    /// Number of slots that rest.
    pub(super) fn resting(&self) -> u32 {
        self.resting
            .values()
            .flatten()
            .map(|run| run.length())
            .sum()
    }

    /// Number of free slots.
    pub(super) fn free(&self) -> u32 {
        let of_order = |(order, runs): (usize, &BTreeSet<u32>)| (runs.len() as u32) << order;
        self.free.iter().enumerate().map(of_order).sum()
    }

    /// A run that holds at least this many slots.
    pub(super) fn take(&mut self, slots: u32) -> Option<Run> {
        let order = Run::order(slots)?;
        let found = (order..ORDERS as u8).find(|&o| !self.free[usize::from(o)].is_empty())?;
        let base = self.free[usize::from(found)].pop_first()?;
        Some(self.split(base, found, Run { base, order }))
    }

    /// The run of this many slots that starts here, if all of it is free.
    pub(super) fn reserve(&mut self, base: u32, slots: u32) -> Option<Run> {
        let order = Run::order(slots)?;
        let run = Run { base, order };
        if !base.is_multiple_of(run.length()) {
            return None;
        }
        let start = |order: u8| base & (u32::MAX << order);
        let found = (order..ORDERS as u8).find(|&o| self.free[usize::from(o)].remove(&start(o)))?;
        Some(self.split(start(found), found, run))
    }

    /// Frees a run that no program can read.
    pub(super) fn release(&mut self, run: Run) {
        let Run {
            mut base,
            mut order,
        } = run;
        while usize::from(order) + 1 < ORDERS
            && self.free[usize::from(order)].remove(&(base ^ (1 << order)))
        {
            base &= !(1 << order);
            order += 1;
        }
        self.free[usize::from(order)].insert(base);
    }

    /// Puts a run aside that programs may still read.
    pub(super) fn retire(&mut self, run: Run) {
        self.resting.entry(self.epoch).or_default().insert(run);
    }

    /// Ends the epoch: names everything that was retired until now; `None` if nothing rests.
    pub(super) fn close(&mut self) -> Option<u64> {
        let (&last, _) = self.resting.last_key_value()?;
        self.epoch = self.epoch.max(last + 1);
        Some(last)
    }

    /// Frees what was retired in this epoch and before. Whether there was anything.
    pub(super) fn free_until(&mut self, epoch: u64) -> bool {
        let later = self.resting.split_off(&(epoch + 1));
        let done = std::mem::replace(&mut self.resting, later);
        let any = !done.is_empty();
        for run in done.into_values().flatten() {
            self.release(run);
        }
        any
    }

    /// All free but what rests: to be followed by a `reserve` of each run that is in use. A resting
    /// run that turns out to be in use must be claimed first, hence the list.
    pub(super) fn restart(&mut self, in_use: &[(u32, u32)]) {
        let mut fresh = Self::new(self.size);
        fresh.epoch = self.epoch;
        for (epoch, runs) in std::mem::take(&mut self.resting) {
            let used = |run: &Run| {
                in_use.iter().any(|&(base, slots)| {
                    base < run.base + run.length() && run.base < base.saturating_add(slots)
                })
            };
            let rest = runs
                .into_iter()
                .filter(|run| !used(run) && fresh.reserve(run.base, run.length()).is_some())
                .collect::<BTreeSet<Run>>();
            if !rest.is_empty() {
                fresh.resting.insert(epoch, rest);
            }
        }
        *self = fresh;
    }

    /// Cuts a free block, already taken off its list, down to the run inside it.
    fn split(&mut self, block: u32, order: u8, run: Run) -> Run {
        let mut block = block;
        for half in (run.order..order).rev() {
            let upper = block + (1 << half);
            if run.base >= upper {
                self.free[usize::from(half)].insert(block);
                block = upper;
            } else {
                self.free[usize::from(half)].insert(upper);
            }
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_run_is_the_next_power_of_two_aligned_to_its_length() {
        let mut slots = Slots::new(64);
        assert_eq!(slots.take(1), Some(Run { base: 0, order: 0 }));
        assert_eq!(slots.take(5), Some(Run { base: 8, order: 3 }));
        assert_eq!(slots.take(2), Some(Run { base: 2, order: 1 }));
        assert_eq!(slots.free(), 64 - 1 - 8 - 2);
    }

    #[test]
    fn a_map_whose_size_is_no_power_of_two_is_used_whole() {
        let mut slots = Slots::new(13);
        let lengths = [8, 4, 1].map(|n| slots.take(n).map(Run::length));
        assert_eq!(lengths, [Some(8), Some(4), Some(1)]);
        assert_eq!(slots.take(1), None);
    }

    #[test]
    fn freed_neighbours_become_one_run_again() {
        let mut slots = Slots::new(8);
        let runs: Vec<Run> = (0..8).filter_map(|_| slots.take(1)).collect();
        assert_eq!(slots.take(1), None);
        runs.into_iter().for_each(|run| slots.release(run));
        assert_eq!(slots.take(8), Some(Run { base: 0, order: 3 }));
    }

    #[test]
    fn a_retired_run_is_free_only_after_its_own_epoch_has_passed() {
        let mut slots = Slots::new(2);
        let first = slots.take(1).expect("room");
        let second = slots.take(1).expect("room");
        slots.retire(first);
        let epoch = slots.close().expect("one rests");
        slots.retire(second);
        assert_eq!((slots.take(1), slots.resting()), (None, 2));
        assert!(slots.free_until(epoch));
        assert_eq!((slots.take(1), slots.take(1)), (Some(first), None));
        let later = slots.close().expect("one rests");
        assert!(later > epoch && slots.free_until(later) && !slots.free_until(later));
        assert_eq!((slots.take(1), slots.close()), (Some(second), None));
    }

    #[test]
    fn a_reserved_run_must_be_aligned_inside_the_map_and_free() {
        let mut slots = Slots::new(16);
        assert_eq!(slots.reserve(4, 3), Some(Run { base: 4, order: 2 }));
        assert_eq!(slots.reserve(6, 2), None, "inside the last one");
        assert_eq!(slots.reserve(1, 2), None, "not aligned");
        assert_eq!(slots.reserve(16, 1), None, "beyond the end");
        assert_eq!(slots.reserve(0, u32::MAX), None);
        assert_eq!(slots.free(), 12);
    }

    #[test]
    fn a_restart_keeps_the_quarantine_but_for_runs_that_are_in_use() {
        let mut slots = Slots::new(8);
        let runs: Vec<Run> = (0..4).filter_map(|_| slots.take(2)).collect();
        slots.retire(runs[0]);
        slots.retire(runs[1]);
        slots.restart(&[(0, 2)]);
        assert_eq!((slots.resting(), slots.free()), (2, 6));
        assert!(slots.reserve(0, 2).is_some());
    }

    proptest! {
        #[test]
        fn runs_never_overlap_and_all_slots_come_back(
            size in 1_u32..200,
            steps in prop::collection::vec((0_u32..20, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut slots = Slots::new(size);
            let mut taken: Vec<Run> = Vec::new();
            for (want, which) in steps {
                if want == 0 && !taken.is_empty() {
                    slots.release(taken.swap_remove(which.index(taken.len())));
                } else if let Some(run) = slots.take(want.max(1)) {
                    prop_assert!(run.base + run.length() <= size);
                    prop_assert!(taken.iter().all(|other| run.base >= other.base + other.length()
                        || other.base >= run.base + run.length()));
                    taken.push(run);
                }
                let used: u32 = taken.iter().map(|run| run.length()).sum();
                prop_assert_eq!(slots.free() + used, size);
            }
            taken.into_iter().for_each(|run| slots.release(run));
            prop_assert_eq!(format!("{:?}", slots.free), format!("{:?}", Slots::new(size).free));
        }
    }
}
