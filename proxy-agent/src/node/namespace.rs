//! Network namespaces: which ones there are, and doing something inside one.
//!
//! A namespace belongs to a thread, so everything that enters one does so on a thread of its own
//! that ends with the work. This is the only file of the agent that calls setns(2); it must never do
//! so on a thread that somebody else uses, such as a tokio worker.
//!
//! Needs CAP_SYS_ADMIN, CAP_SYS_PTRACE for the namespaces of other users' processes, and the host's
//! process ids (`hostPID` in a pod).

use std::{
    collections::HashSet,
    fs, io,
    net::UdpSocket,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    thread,
};

use nix::{getsockopt_impl, sockopt_impl, sys::socket::GetSockOpt};
use rustix::{
    fs::{Mode, OFlags},
    thread::LinkNameSpaceType,
};

/// A network namespace, kept alive by this value.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
    inode: u64,
}

/// How [`visit_all`] went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// Namespaces entered.
    pub entered: u32,
    /// Namespaces that were found but could not be opened or entered, for another reason than that
    /// their process ended meanwhile.
    pub failed: u32,
}

/// Why namespaces could not be listed or entered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A namespace file could not be opened.
    #[error("open network namespace {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// setns(2) refused.
    #[error("enter network namespace {inode} (needs CAP_SYS_ADMIN)")]
    Enter {
        /// Its inode, as `ls -l /proc/PID/ns/net` shows it.
        inode: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `/proc` could not be read.
    #[error("list processes in /proc")]
    List(#[source] io::Error),
    /// No thread to enter a namespace with.
    #[error("start a thread to enter network namespaces")]
    Thread(#[source] io::Error),
}

/// Calls `work` once inside every network namespace that a process runs in or that is mounted by
/// name (`ip netns`, container runtimes), as far as this process can see them.
///
/// All calls are made one after the other by one thread, which is in that namespace during the
/// call. One namespace is open at a time. Not seen: a namespace that only threads other than their
/// process's first one, or only open files, hold.
///
/// # Errors
///
/// If there is no thread, or no `/proc`. What fails for a single namespace is counted and logged.
pub fn visit_all(work: impl FnMut(&Namespace) + Send) -> Result<Visited, Error> {
    on_own_thread(|| {
        let mut visitor = Visitor {
            work,
            seen: HashSet::new(),
            visited: Visited::default(),
        };
        visitor.mounts("/proc/self");
        // The host's mounts, where the agent's own mount namespace lacks them.
        visitor.mounts("/proc/1");
        visitor.processes()?;
        Ok(visitor.visited)
    })?
}

/// The cookie of the calling thread's network namespace, as `bpf_get_netns_cookie` gives it to
/// programs.
///
/// `None` before kernel 5.14, which has no SO_NETNS_COOKIE (net/core/sock.c).
///
/// # Errors
///
/// If no socket can be made, or for any other reason than that the kernel is too old.
pub fn cookie() -> io::Result<Option<u64>> {
    // A socket says which namespace it is in; it is bound to nothing that others could reach.
    let socket = match UdpSocket::bind("127.0.0.1:0") {
        // A namespace whose lo is down has no 127.0.0.1, but every one has the wildcard.
        Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => UdpSocket::bind("0.0.0.0:0")?,
        other => other?,
    };
    match NetnsCookie.get(&socket) {
        Ok(cookie) => Ok(Some(cookie)),
        Err(nix::errno::Errno::ENOPROTOOPT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

impl Namespace {
    /// The calling thread's own.
    ///
    /// # Errors
    ///
    /// If `/proc` is not there.
    pub fn current() -> Result<Self, Error> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// The one behind `/proc/PID/ns/net`, `/run/netns/NAME` or any other mount of it.
    ///
    /// # Errors
    ///
    /// If the file is not there or not ours to open. That it is no network namespace shows when it
    /// is entered.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        // Whatever may have been mounted there instead: do not wait for it.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        rustix::fs::open(path, flags, Mode::empty())
            .and_then(|fd| {
                Ok(Self {
                    inode: rustix::fs::fstat(&fd)?.st_ino,
                    fd,
                })
            })
            .map_err(|e| Error::Open {
                path: path.into(),
                source: e.into(),
            })
    }

    /// Its identity, as `ls -l /proc/PID/ns/net` shows it.
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Does something inside it and comes back with the result.
    ///
    /// Sockets stay in the namespace that they were made in, wherever they are used later.
    ///
    /// # Errors
    ///
    /// If there is no thread, or the namespace may not be entered; then `work` was not called.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_own_thread(|| {
            self.enter()?;
            Ok(work())
        })?
    }

    /// [`cookie`] of this namespace.
    ///
    /// # Errors
    ///
    /// If it may not be entered, or [`cookie`] fails in it.
    pub fn cookie(&self) -> Result<io::Result<Option<u64>>, Error> {
        self.run(cookie)
    }

    /// Only for threads that end after.
    #[expect(
        clippy::disallowed_methods,
        reason = "this file owns the threads that enter a namespace"
    )]
    fn enter(&self) -> Result<(), Error> {
        rustix::thread::move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| Error::Enter {
                inode: self.inode,
                source: e.into(),
            })
    }
}

sockopt_impl!(
    /// Cookie of the socket's network namespace.
    NetnsCookie,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_NETNS_COOKIE,
    u64
);

struct Visitor<F> {
    work: F,
    seen: HashSet<u64>,
    visited: Visited,
}

impl<F: FnMut(&Namespace)> Visitor<F> {
    fn processes(&mut self) -> Result<(), Error> {
        for entry in fs::read_dir("/proc").map_err(Error::List)? {
            let entry = entry.map_err(Error::List)?;
            if !entry
                .file_name()
                .as_encoded_bytes()
                .iter()
                .all(u8::is_ascii_digit)
            {
                continue;
            }
            let path = entry.path().join("ns/net");
            match fs::read_link(&path) {
                Ok(link) => {
                    let inode = link.to_str().and_then(inode_of);
                    if inode.is_none_or(|inode| !self.seen.contains(&inode)) {
                        self.visit(&path);
                    }
                }
                Err(e) => self.missed(&path, &e),
            }
        }
        Ok(())
    }

    fn mounts(&mut self, process: &str) {
        // Absent or not readable: what is mounted by name alone is not seen then.
        let Ok(mountinfo) = fs::read(format!("{process}/mountinfo")) else {
            return;
        };
        for (inode, mount) in namespace_mounts(&mountinfo) {
            if !self.seen.contains(&inode) {
                let mut path = PathBuf::from(format!("{process}/root"));
                path.push(mount.strip_prefix("/").unwrap_or(&mount));
                self.visit(&path);
            }
        }
    }

    fn visit(&mut self, path: &Path) {
        match Namespace::open(path) {
            Ok(namespace) => {
                if !self.seen.insert(namespace.inode) {
                    return;
                }
                match namespace.enter() {
                    Ok(()) => {
                        self.visited.entered += 1;
                        (self.work)(&namespace);
                    }
                    Err(error) => {
                        self.visited.failed += 1;
                        tracing::debug!(%error, path = %path.display(), "skip network namespace");
                    }
                }
            }
            Err(Error::Open { source, .. }) => self.missed(path, &source),
            Err(_) => self.visited.failed += 1,
        }
    }

    fn missed(&mut self, path: &Path, error: &io::Error) {
        // The process ended while we looked: its sockets ended with it.
        let ended =
            error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
        if !ended {
            self.visited.failed += 1;
            tracing::debug!(%error, path = %path.display(), "skip network namespace");
        }
    }
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, work)
            .map_err(Error::Thread)?;
        handle
            .join()
            .map_err(|panic| std::panic::resume_unwind(panic))
    })
}

/// `net:[4026531840]` → 4026531840.
fn inode_of(link: &str) -> Option<u64> {
    link.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// Inodes and mount points of the network namespaces in a `mountinfo` file (proc_pid_mountinfo(5)).
fn namespace_mounts(mountinfo: &[u8]) -> impl Iterator<Item = (u64, PathBuf)> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(|line| {
        // id, parent, device, root, mount point; the root of such a mount is the namespace.
        let mut fields = line.split(|&byte| byte == b' ').skip(3);
        let inode = inode_of(std::str::from_utf8(fields.next()?).ok()?)?;
        Some((
            inode,
            PathBuf::from(std::ffi::OsString::from_vec(unescape(fields.next()?))),
        ))
    })
}

/// Spaces, tabs, line breaks and backslashes stand as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let octal = tail
            .get(..3)
            .filter(|_| byte == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(escaped) => {
                out.push(escaped);
                rest = &tail[3..];
            }
            None => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_mounts_are_found_by_their_root() {
        let mountinfo = b"\
22 28 0:21 / /proc rw,relatime - proc proc rw
401 29 0:4 net:[4026532345] /run/netns/blue rw shared:180 - nsfs nsfs rw
402 29 0:4 mnt:[4026532346] /run/mnt rw - nsfs nsfs rw
403 29 0:4 net:[4026532347] /run/my\\040space\\134x rw - nsfs nsfs rw
";
        let found: Vec<_> = namespace_mounts(mountinfo).collect();
        assert_eq!(
            found,
            [
                (4026532345, PathBuf::from("/run/netns/blue")),
                (4026532347, PathBuf::from("/run/my space\\x")),
            ]
        );
    }

    #[test]
    fn a_truncated_mountinfo_line_is_skipped() {
        assert_eq!(namespace_mounts(b"401 29 0:4 net:[5]").count(), 0);
        assert_eq!(namespace_mounts(b"\n\n 1 2").count(), 0);
    }

    #[test]
    fn an_escape_that_is_cut_off_stays_as_it_is() {
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"\\"), b"\\");
        assert_eq!(unescape(b"\\999"), b"\\999");
    }

    #[test]
    fn the_own_namespace_has_one_cookie() {
        let first = cookie().unwrap();
        assert_eq!(first, cookie().unwrap());
        assert_ne!(first, Some(0));
    }
}
