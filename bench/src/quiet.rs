//! Measuring on a machine that others use too.

use rustix::{
    process::setpriority_process,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Ties the calling thread to one CPU, the last that it may use, and puts it before others as far
/// as the kernel lets it. Both are wishes: without the rights it is measured as it comes.
pub(crate) fn prefer_this_thread() {
    if let Ok(allowed) = sched_getaffinity(None)
        && let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu))
    {
        let mut one = CpuSet::new();
        one.set(last);
        let _ = sched_setaffinity(None, &one);
    }
    let _ = setpriority_process(None, -20);
}

/// Runs a closure on a thread of its own that [is preferred](prefer_this_thread), so that
/// processes that are started later do not inherit that.
pub(crate) fn preferred<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let thread = move || {
        prefer_this_thread();
        work()
    };
    std::thread::scope(|scope| match scope.spawn(thread).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The middle one; of an even number the upper of the two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_not_moved_by_one_wild_value() {
        assert_eq!(median(vec![3.0, 1.0, 1000.0, 2.0, 2.5]), 2.5);
    }
}
