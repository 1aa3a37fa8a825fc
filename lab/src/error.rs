//! What can go wrong in the lab, said so that the reader knows what to do.

use std::{io, path::PathBuf};

/// A lab operation that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The effective user is not root.
    #[error("the lab makes network namespaces and needs root: run it with sudo")]
    NotRoot,
    /// No cgroup2 file system in `/proc/self/mounts`.
    #[error(
        "no cgroup2 file system is mounted: \
         mount one, for example `mount -t cgroup2 none /sys/fs/cgroup`"
    )]
    NoCgroup2,
    /// The kernel, or the sandbox around us, has no network namespaces.
    #[error("cannot make a network namespace: is CONFIG_NET_NS on and CAP_SYS_ADMIN allowed here?")]
    NoNetns(#[source] io::Error),
    /// The kernel runs without IPv6, which every lab host needs.
    #[error("this kernel has no IPv6 (/proc/sys/net/ipv6 is missing): boot without ipv6.disable=1")]
    NoIpv6,
    /// `ip` could not be started.
    #[error("cannot run `ip`: install iproute2")]
    NoIp(#[source] io::Error),
    /// `ip -batch` refused a line.
    #[error("`ip` failed in namespace {netns}: {message}")]
    Ip {
        /// Name below `/run/netns`.
        netns: String,
        /// What `ip` printed, with the line it refused.
        message: String,
    },
    /// A name that is no DNS label, or is taken.
    #[error("bad name {name:?} in the lab: {reason}")]
    Name {
        /// The name that was asked for.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A system call on a file, mount or process failed.
    #[error("{attempt} {path:?}")]
    Io {
        /// What was attempted, as a verb phrase: "create cgroup".
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A lab program is not where it should be.
    #[error(
        "{name} is not built: run `cargo build -p {package} --bin {name}`, \
         or set SIDESTEP_BIN_DIR to the folder that holds it"
    )]
    NoBinary {
        /// The program's file name.
        name: String,
        /// The cargo package that builds it.
        package: &'static str,
    },
    /// A process ended in a way that its caller did not expect.
    #[error("{program} in {host}: {message}")]
    Process {
        /// The program.
        program: String,
        /// The lab host that it ran in.
        host: String,
        /// Exit status and what it printed on stderr.
        message: String,
    },
    /// A probe printed a line that is no report.
    #[error("cannot read the report of {program}: {line:?}")]
    Report {
        /// The program.
        program: String,
        /// The offending line.
        line: String,
        /// The parser's answer.
        #[source]
        source: serde_json::Error,
    },
    /// Something did not happen in the time that was given.
    #[error("{what} did not happen within {seconds} s")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long, in seconds.
        seconds: u64,
    },
}

impl Error {
    /// `map_err` adapter for system calls on `path`.
    pub(crate) fn io(
        attempt: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            attempt,
            path,
            source,
        }
    }
}
