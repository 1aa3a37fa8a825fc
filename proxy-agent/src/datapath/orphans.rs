//! Which UDP sockets are connected to dead backends, by program `orphans`.
//!
//! The program goes over the UDP sockets of a network namespace, with their storage in map `sock`
//! and the map `backend` at hand; it is attached to no hook and pinned nowhere.

use std::{
    io::{self, Read as _},
    os::fd::{AsFd as _, OwnedFd},
};

use aya::{Btf, Ebpf, programs::Program};
use proxy_common::OrphanRecord;
use zerocopy::FromBytes as _;

use super::{start::StartError, sys};

/// Name of the program.
const NAME: &str = "orphans";

/// The program, ready to be run.
#[derive(Debug)]
pub struct Orphans {
    link: OwnedFd,
}

impl Orphans {
    /// Loads the program of an object whose maps are there. Minimum kernel 5.12, with BTF: the
    /// first that lets an iterator ask for a socket's storage and cookie
    /// (kernel/trace/bpf_trace.c).
    ///
    /// # Errors
    ///
    /// If the kernel refuses: a degraded mode, connected UDP sockets of dead backends stay.
    pub fn load(object: &mut Ebpf) -> Result<Self, StartError> {
        let refused = |source| StartError::Program {
            program: NAME,
            source: Box::new(source),
        };
        let Some(Program::Iter(program)) = object.program_mut(NAME) else {
            return Err(StartError::Missing {
                what: format!("program {NAME}"),
            });
        };
        let btf = Btf::from_sys_fs().map_err(|e| refused(e.into()))?;
        program.load("udp", &btf).map_err(refused)?;
        let program = program.fd().map_err(refused)?;
        let link = sys::iter_link(program.as_fd()).map_err(|source| StartError::Attach {
            program: NAME,
            target: "UDP sockets".into(),
            source: source.into(),
        })?;
        Ok(Self { link })
    }

    /// The UDP sockets in the calling thread's network namespace that the programs connected to a
    /// backend which is not in the map `backend` while this runs. By now they may have another peer
    /// or none.
    ///
    /// # Errors
    ///
    /// Those of BPF_ITER_CREATE and read(2).
    pub fn list(&self) -> io::Result<Vec<OrphanRecord>> {
        let mut bytes = Vec::new();
        sys::iterate(self.link.as_fd())?.read_to_end(&mut bytes)?;
        Ok(bytes
            .chunks_exact(size_of::<OrphanRecord>())
            .filter_map(|record| OrphanRecord::read_from_bytes(record).ok())
            .collect())
    }
}
