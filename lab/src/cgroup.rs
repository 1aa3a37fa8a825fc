//! cgroup2 folders: find the mount, make, kill what runs inside, remove.
//!
//! No controller is switched on anywhere, so processes may live in inner folders too
//! (Documentation/admin-guide/cgroup-v2.rst, "No Internal Process Constraint").

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result};

/// How long killed processes may take to be gone. Only an uninterruptible sleep takes long.
const EXIT_PATIENCE: Duration = Duration::from_secs(60);

/// Mount point of the first cgroup2 file system: `/sys/fs/cgroup`, or elsewhere on hybrid hosts.
pub(crate) fn mount_point() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")
        .map_err(Error::io("read mounts from", "/proc/self/mounts"))?;
    cgroup2_in(&mounts).ok_or(Error::NoCgroup2)
}

/// Makes the folder and those above it.
pub(crate) fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io("create cgroup", folder))
}

/// Kills every process in the folder and below, and returns when none is left.
pub(crate) fn kill(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    // cgroup.kill is there from Linux 5.14; before, the loop below does it.
    let _ = fs::write(folder.join("cgroup.kill"), "1");
    let deadline = Instant::now() + EXIT_PATIENCE;
    while populated(folder)? {
        if Instant::now() > deadline {
            return Err(Error::Timeout {
                what: format!("the end of the processes in {}", folder.display()),
                seconds: EXIT_PATIENCE.as_secs(),
            });
        }
        for pid in processes(folder)? {
            // It may have ended by itself since.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Removes the folder and all below it. They must be empty of processes: see [`kill`].
pub(crate) fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for child in children(folder)? {
        remove(&child)?;
    }
    let deadline = Instant::now() + EXIT_PATIENCE;
    loop {
        match fs::remove_dir(folder) {
            // A process that is gone from cgroup.procs may still hold the folder for a moment.
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove cgroup", folder)(e));
            }
            _ => return Ok(()),
        }
    }
}

/// Processes in the folder and below.
pub(crate) fn processes(folder: &Path) -> Result<Vec<Pid>> {
    let procs = folder.join("cgroup.procs");
    let text = fs::read_to_string(&procs).map_err(Error::io("read", procs))?;
    let mut pids: Vec<Pid> = text
        .lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
        .collect();
    for child in children(folder)? {
        pids.extend(processes(&child)?);
    }
    Ok(pids)
}

fn cgroup2_in(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let path = fields.next()?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(path))
    })
}

fn populated(folder: &Path) -> Result<bool> {
    let events = folder.join("cgroup.events");
    let text = fs::read_to_string(&events).map_err(Error::io("read", events))?;
    Ok(text.lines().any(|line| line == "populated 1"))
}

fn children(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(Error::io("list cgroup", folder))?;
    Ok(entries
        .flatten()
        .filter(|e| e.path().is_dir())
        .map(|e| e.path())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_is_found_on_unified_and_hybrid_hosts_only() {
        let unified = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(cgroup2_in(unified), Some("/sys/fs/cgroup".into()));
        let hybrid = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(cgroup2_in(hybrid), Some("/sys/fs/cgroup/unified".into()));
        let legacy = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        assert_eq!(cgroup2_in(legacy), None);
    }
}
