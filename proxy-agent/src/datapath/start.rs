//! Why the data plane could not be started: one clear sentence each, with what to do.

use std::{io, path::PathBuf};

use super::shape::Mismatch;

/// Why the data plane could not be opened or started. What is in the maps keeps serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Built without kernel programs.
    #[error(
        "this binary holds no kernel programs: build them with `cargo xtask build-ebpf`, then build the agent again"
    )]
    NoObject,
    /// Not root, or too few capabilities.
    #[error(
        "no rights to use bpf(2): run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (CAP_SYS_ADMIN below Linux 5.8)"
    )]
    NoRights,
    /// The kernel takes no BTF.
    #[error(
        "this kernel takes no BTF, which socket storage needs: use a kernel of 5.10 or newer with CONFIG_BPF_SYSCALL and BTF"
    )]
    NoBtf,
    /// There is no cgroup2.
    #[error(
        "no cgroup2 is mounted: mount one (`mount -t cgroup2 none /sys/fs/cgroup/unified`) or name it with --cgroup-root"
    )]
    NoCgroup2,
    /// The named cgroup is none.
    #[error(
        "{path} is no cgroup2 folder: name the root of the cgroup2 hierarchy with --cgroup-root"
    )]
    NotCgroup2 {
        /// The folder.
        path: PathBuf,
    },
    /// The pins' file system is no bpffs.
    #[error(
        "{path} is not on a bpffs: mount one (`mount -t bpf bpf /sys/fs/bpf`) or name one with --bpffs"
    )]
    NotBpffs {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing is pinned.
    #[error(
        "{path} holds no Sidestep maps: is `sidestep run` used with another --bpffs, or was it never started here?"
    )]
    NoPins {
        /// The folder.
        path: PathBuf,
    },
    /// Another agent holds the lock.
    #[error(
        "another agent runs on the pins in {path}: stop it first, or give this one another --bpffs"
    )]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// A pin has another layout.
    #[error(
        "the pins in {path} are of another version: {mismatch}; they keep serving; to start anew run `sidestep cleanup` (Services fail until the new agent has synced)"
    )]
    Mismatch {
        /// The folder.
        path: PathBuf,
        /// What differs.
        #[source]
        mismatch: Mismatch,
    },
    /// The schema number differs.
    #[error(
        "the pins in {path} have schema {found}, this version of sidestep needs {expected}; they keep serving; to start anew run `sidestep cleanup` (Services fail until the new agent has synced)"
    )]
    Schema {
        /// The folder.
        path: PathBuf,
        /// In the `setting` map.
        found: u32,
        /// [`proxy_common::SCHEMA`].
        expected: u32,
    },
    /// The object could not be loaded.
    #[error("load the kernel programs' object")]
    Object(#[source] Box<aya::EbpfError>),
    /// The kernel refused a program.
    #[error("load program {program}")]
    Program {
        /// Its name.
        program: &'static str,
        /// Why, with the verifier's log.
        #[source]
        source: Box<aya::programs::ProgramError>,
    },
    /// The object lacks something: it is of another version.
    #[error(
        "the kernel programs' object has no {what}: it is of another version, build it again with `cargo xtask build-ebpf`"
    )]
    Missing {
        /// "map x", "program y".
        what: String,
    },
    /// A link could not be made or updated.
    #[error("attach program {program} to {target}")]
    Attach {
        /// Its name.
        program: &'static str,
        /// The cgroup.
        target: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The self-test failed; nothing was attached.
    #[error("the self-test in a scratch cgroup failed, nothing was changed: {0}")]
    SelfTest(String),
    /// Any other failure.
    #[error("{what} {}", path.display())]
    Io {
        /// What was attempted: "create folder".
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A map could not be opened.
    #[error("open map {map}")]
    OpenMap {
        /// Its name.
        map: &'static str,
        /// Why.
        #[source]
        source: Box<aya::maps::MapError>,
    },
}

impl StartError {
    /// For a failed file operation.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
