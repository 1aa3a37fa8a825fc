//! Where a process runs: a network namespace and a cgroup. The one module that enters them, and
//! the only one of the lab with unsafe code.
//!
//! A namespace is a property of a thread, so a closure gets a thread of its own, and a program is
//! moved between fork and exec. The calling thread never changes its namespace.
#![expect(
    unsafe_code,
    reason = "unshare and pre_exec are unsafe; nothing else here is"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "this module owns the threads that enter a namespace"
)]

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

use crate::{Error, Result, binary, cgroup, netns};

/// A network namespace and a cgroup folder that belong together.
#[derive(Clone, Debug)]
pub struct Place {
    pub(crate) netns: String,
    pub(crate) cgroup: PathBuf,
    /// Whether processes die with the thread that started them.
    pub(crate) bound: bool,
}

impl Place {
    /// Name of the network namespace, as in `ip -n NAME`.
    #[must_use]
    pub fn netns(&self) -> &str {
        &self.netns
    }

    /// File that names the network namespace.
    #[must_use]
    pub fn netns_path(&self) -> PathBuf {
        netns::path(&self.netns)
    }

    /// The cgroup2 folder.
    #[must_use]
    pub fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    /// A command whose process is started in this place. `sidestep`, `sidestep-probe` and
    /// `sidestep-demo` mean this workspace's programs (see [`binary()`]), anything else is searched
    /// in PATH.
    ///
    /// The process is killed when the thread that spawned it ends (PR_SET_PDEATHSIG), unless the
    /// lab is one to keep: spawn from a thread that outlives it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let program = program.as_ref();
        let ours = program.to_str().filter(|name| binary::is_ours(name));
        let path = ours.and_then(|name| binary::binary(name).ok());
        let mut command = Command::new(path.as_deref().map_or(program, Path::as_os_str));
        self.place(&mut command);
        command
    }

    /// Makes the command's process start in this place.
    pub fn place(&self, command: &mut Command) {
        let netns = c_string(&self.netns_path());
        let procs = c_string(&self.cgroup.join("cgroup.procs"));
        let (bound, parent) = (self.bound, getpid());
        let enter = move || -> io::Result<()> {
            let read = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(netns.as_c_str(), read, Mode::empty())?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            let write = OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(procs.as_c_str(), write, Mode::empty())?;
            // "0" is the writing process (cgroup_procs_write).
            rustix::io::write(&file, b"0")?;
            if bound {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                if getppid() != Some(parent) {
                    return Err(rustix::io::Errno::SRCH.into());
                }
            }
            Ok(())
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed: `enter` makes
        // plain system calls on strings that were built before the fork, and allocates nothing
        // (an io::Error of an errno does not).
        unsafe { command.pre_exec(enter) };
    }

    /// Runs a closure on a thread in this network namespace and waits for it: to open sockets, say.
    /// They belong to the cgroup of *this* process, not of the place.
    pub fn enter<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T> {
        let path = self.netns_path();
        let file = File::open(&path).map_err(Error::io("open network namespace", &path))?;
        on_a_thread(|| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|e| Error::io("enter network namespace", &path)(e.into()))?;
            Ok(closure())
        })
    }

    /// Processes that run in this place's cgroup and below it.
    pub fn processes(&self) -> Result<Vec<u32>> {
        let pids = cgroup::processes(&self.cgroup)?;
        Ok(pids
            .into_iter()
            .map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
            .collect())
    }
}

/// Runs a closure on a thread in a fresh network namespace.
pub(crate) fn in_new_netns<T: Send>(closure: impl FnOnce() -> T + Send) -> Result<T> {
    on_a_thread(|| {
        // SAFETY: unshare is unsafe because of CLONE_FILES, which would take file descriptors
        // away from other threads' view; a network namespace concerns no memory or descriptor.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|e| Error::NoNetns(e.into()))?;
        Ok(closure())
    })
}

/// Runs a closure on a thread of its own; a panic goes on in the caller.
fn on_a_thread<T: Send>(closure: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(closure).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn c_string(path: &Path) -> CString {
    // Lab paths hold validated names; a NUL cannot be in them.
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}
