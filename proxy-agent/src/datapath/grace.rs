//! When may what was replaced be used again?
//!
//! Programs run inside an RCU read-side section (kernel/bpf/cgroup.c, `bpf_prog_run_array_cg`), so
//! one that had read the old record is done when a grace period has passed.
//! `membarrier(MEMBARRIER_CMD_GLOBAL)` is `synchronize_rcu()` (kernel/sched/membarrier.c); it skips
//! that with one CPU online, where a preempted program could still stand in the middle, so a rest
//! is added in any case.

use std::{io, thread, time::Duration};

use rustix::thread::{MembarrierCommand, membarrier};

use super::Error;

/// Rest besides the grace period: no program runs nearly that long.
pub const REST: Duration = Duration::from_secs(1);

/// Rest where membarrier does not exist.
pub(super) const REST_ALONE: Duration = Duration::from_secs(10);

/// Blocks until what was unpublished before the call may be reused.
///
/// # Errors
///
/// If the kernel refuses membarrier for another reason than not having it.
pub(super) fn wait() -> Result<(), Error> {
    match membarrier(MembarrierCommand::Global) {
        Ok(()) => thread::sleep(REST),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => thread::sleep(REST_ALONE),
        Err(error) => {
            let source = io::Error::from(error);
            return Err(Error::Map {
                what: "wait for readers of",
                map: "slot",
                source,
            });
        }
    }
    Ok(())
}
