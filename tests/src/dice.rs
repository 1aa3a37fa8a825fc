//! Numbers that look random and repeat with their seed.

/// Where they come from.
#[derive(Clone, Debug)]
pub struct Dice(fastrand::Rng);

impl Dice {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    /// True once in `bound` times.
    pub fn once_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    /// One of these.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
