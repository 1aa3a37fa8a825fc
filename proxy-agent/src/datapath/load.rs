//! Loading the object of kernel programs: sizes, globals, pins.

use aya::{
    Ebpf, EbpfLoader,
    programs::{Program, ProgramError, ProgramFd},
};
use proxy_common::setting::global;

use crate::node::reserved_ports::PortRange;

use super::{
    pins::{Pins, Sizes},
    programs::{PACKET_PROGRAMS, PROGRAMS},
    start::StartError,
};

/// The object that was built into this binary; empty if it was built without.
static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("SIDESTEP_EMBEDDED_OBJECT"));

/// What the programs are told at load.
#[derive(Clone, Copy, Debug)]
pub struct Globals {
    /// Network-namespace cookie of the node; 0: unknown.
    pub node_netns: u64,
    /// `bpf_set_retval` exists.
    pub set_retval: bool,
    /// Guard NodePorts against local binds.
    pub port_guard: bool,
    /// Ports that SNAT uses; `None`: the programs of the packet path are not loaded.
    pub snat: Option<PortRange>,
}

/// Creates the maps, or takes those that are pinned, and loads all programs. Attaches nothing.
///
/// The caller has checked the pins: see [`Pins::check`].
///
/// # Errors
///
/// [`StartError::NoObject`], [`StartError::NoBtf`], [`StartError::NoRights`], or what the kernel
/// said of the object or a program.
pub fn load(pins: Option<&Pins>, sizes: &Sizes, globals: Globals) -> Result<Ebpf, StartError> {
    if OBJECT.is_empty() {
        return Err(StartError::NoObject);
    }
    if aya::features().btf().is_none() {
        return Err(if rustix::process::geteuid().is_root() {
            StartError::NoBtf
        } else {
            StartError::NoRights
        });
    }
    let set_retval = u8::from(globals.set_retval);
    let port_guard = u8::from(globals.port_guard);
    let mut loader = EbpfLoader::new();
    loader
        .override_global(global::NODE_NETNS, &globals.node_netns, true)
        .override_global(global::SET_RETVAL, &set_retval, true)
        .override_global(global::PORT_GUARD, &port_guard, true);
    let snat = globals.snat.map(|ports| (ports.first, ports.count()));
    if let Some((first, count)) = &snat {
        loader
            .override_global(global::SNAT_FIRST, first, true)
            .override_global(global::SNAT_COUNT, count, true);
    }
    for (&name, &entries) in sizes {
        loader.map_max_entries(name, entries);
    }
    if let Some(pins) = pins {
        for spec in proxy_common::map::ALL {
            loader.map_pin_path(spec.name, pins.map(spec.name));
        }
    }
    let mut object = loader.load(OBJECT).map_err(object_error)?;
    let packet = PACKET_PROGRAMS.iter().filter(|_| globals.snat.is_some());
    for spec in PROGRAMS.iter().chain(packet) {
        load_program(program(&mut object, spec.name)?).map_err(|source| StartError::Program {
            program: spec.name,
            source: Box::new(source),
        })?;
    }
    Ok(object)
}

/// A program of the object by name.
pub(super) fn program<'a>(
    object: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut Program, StartError> {
    object.program_mut(name).ok_or_else(|| StartError::Missing {
        what: format!("program {name}"),
    })
}

/// The descriptor of a loaded program.
pub(super) fn program_fd(program: &Program) -> Result<&ProgramFd, ProgramError> {
    match program {
        Program::CgroupSockAddr(p) => p.fd(),
        Program::CgroupSock(p) => p.fd(),
        Program::SchedClassifier(p) => p.fd(),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

fn load_program(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::CgroupSockAddr(p) => p.load(),
        Program::CgroupSock(p) => p.load(),
        Program::SchedClassifier(p) => p.load(),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

fn object_error(error: aya::EbpfError) -> StartError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = source {
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::PermissionDenied
        {
            return StartError::NoRights;
        }
        source = inner.source();
    }
    StartError::Object(Box::new(error))
}
