//! Removing a lab: one's own at the end, and those of processes that died without doing so.
//!
//! Every lab has a folder `/run/<tag>`, made first and removed last, with a file in it that its
//! process holds locked: a lab whose file can be locked has no owner. Process ids are reused and
//! say nothing.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use rustix::mount::{UnmountFlags, unmount};

use crate::{Error, Result, cgroup, netns};

/// What every lab's tag starts with.
pub(crate) const PREFIX: &str = "sidestep-lab-";
/// Where the labs' folders are.
pub(crate) const RUN: &str = "/run";
/// A file of this name in a lab's folder: it is meant to outlive its process.
pub(crate) const KEEP: &str = "keep";
const LOCK: &str = "lock";

/// The right to make or judge lab folders, one process at a time, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim(#[expect(dead_code, reason = "held for its lock")] File);

/// Removes what dead processes left, and returns with the claim to make a new lab.
pub(crate) fn claim(cgroup2: &Path) -> Result<Claim> {
    let claim = take_claim()?;
    sweep_claimed(cgroup2, false)?;
    Ok(claim)
}

/// Removes labs whose process has ended: those that were kept, or those that were not.
pub(crate) fn sweep(cgroup2: &Path, kept: bool) -> Result<Vec<String>> {
    let _claim = take_claim()?;
    let removed = sweep_claimed(cgroup2, kept);
    netns::tidy();
    removed
}

/// Locks a new lab's folder for this process's life.
pub(crate) fn lock(run: &Path) -> Result<File> {
    let path = run.join(LOCK);
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    file.lock().map_err(Error::io("lock", path))?;
    Ok(file)
}

/// Removes the lab of this process.
pub(crate) fn remove_own(tag: &str, run: &Path, cgroup: &Path) -> Result<()> {
    let result = remove(tag, run, cgroup);
    let _claim = take_claim()?;
    netns::tidy();
    result
}

/// Removes a lab: processes, bpffs mounts, cgroups, namespaces, folder. Goes on after a failure,
/// and returns the first.
fn remove(tag: &str, run: &Path, cgroup: &Path) -> Result<()> {
    let mut result = cgroup::kill(cgroup);
    for mount in mounts_below(run)?.iter().rev() {
        result = result.and(
            unmount(mount, UnmountFlags::DETACH).map_err(|e| Error::io("unmount", mount)(e.into())),
        );
    }
    result = result.and(cgroup::remove(cgroup));
    for name in netns::list(&format!("{tag}.")) {
        result = result.and(netns::delete(&name));
    }
    match fs::remove_dir_all(run) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            result.and(Err(Error::io("remove", run)(e)))
        }
        _ => result,
    }
}

fn take_claim() -> Result<Claim> {
    let file = File::open(RUN).map_err(Error::io("open", RUN))?;
    file.lock().map_err(Error::io("lock", RUN))?;
    Ok(Claim(file))
}

fn sweep_claimed(cgroup2: &Path, kept: bool) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(RUN).map_err(Error::io("list", RUN))?.flatten() {
        let run = entry.path();
        let Ok(tag) = entry.file_name().into_string() else {
            continue;
        };
        if tag.starts_with(PREFIX) && run.join(KEEP).exists() == kept && is_abandoned(&run)? {
            remove(&tag, &run, &cgroup2.join(&tag))?;
            removed.push(tag);
        }
    }
    Ok(removed)
}

/// Whether no process holds the lab's lock. A folder without one was never finished.
fn is_abandoned(run: &Path) -> Result<bool> {
    let path = run.join(LOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(e) => return Err(Error::io("open", path)(e)),
    };
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(Error::io("lock", path)(e)),
    }
}

fn mounts_below(run: &Path) -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")
        .map_err(Error::io("read mounts from", "/proc/self/mounts"))?;
    let points = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(PathBuf::from);
    Ok(points.filter(|point| point.starts_with(run)).collect())
}
