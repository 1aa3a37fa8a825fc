//! Links: attach a program, or swap the one inside the link that is pinned.

use std::{fs, io, os::fd::AsFd as _, os::unix::fs::MetadataExt as _, path::Path};

use aya::{
    Ebpf,
    programs::{CgroupAttachMode, Program, ProgramError, links::FdLink},
};

use super::{
    load::{program, program_fd},
    pins::Pins,
    programs::PROGRAMS,
    start::StartError,
    sys,
};

/// What a pinned link is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Link id.
    pub id: u32,
    /// Id of the program inside.
    pub program: u32,
    /// Inode of the cgroup; 0: the cgroup is gone and the link does nothing.
    pub cgroup: u64,
}

/// Attaches all programs to a cgroup.
///
/// A program whose link is pinned and still attached to that cgroup is swapped inside the link, so
/// no connection sees a moment without it. A link whose cgroup is gone (ENOLINK) or another is
/// made anew; the old pin is removed after the new link works.
///
/// # Errors
///
/// [`StartError::Attach`] with the first program that could not be attached; those before it stay.
pub fn attach(object: &mut Ebpf, pins: &Pins, cgroup: &Path) -> Result<(), StartError> {
    for spec in &PROGRAMS {
        let program = program(object, spec.name)?;
        attach_one(program, &pins.link(spec.name), cgroup).map_err(|source| {
            StartError::Attach {
                program: spec.name,
                target: cgroup.into(),
                source,
            }
        })?;
    }
    Ok(())
}

/// Attaches all programs to a cgroup for as long as the object lives; nothing is pinned.
///
/// # Errors
///
/// As [`attach`].
pub(super) fn attach_unpinned(object: &mut Ebpf, cgroup: &Path) -> Result<(), StartError> {
    for spec in &PROGRAMS {
        let program = program(object, spec.name)?;
        let folder = fs::File::open(cgroup).map_err(StartError::io("open cgroup", cgroup))?;
        let attached = match program {
            // Any mode but Single is refused on kernels with links (aya#1078); the kernel shows
            // such a link as "multi", which is what is meant.
            Program::CgroupSockAddr(p) => p.attach(folder, CgroupAttachMode::Single).map(drop),
            Program::CgroupSock(p) => p.attach(folder, CgroupAttachMode::Single).map(drop),
            _ => Err(ProgramError::UnexpectedProgramType),
        };
        attached.map_err(|source| StartError::Attach {
            program: spec.name,
            target: cgroup.into(),
            source: Box::new(source),
        })?;
    }
    Ok(())
}

/// The state of a pinned link; `None` if nothing is pinned under that name.
///
/// # Errors
///
/// If the pin cannot be opened.
pub fn state(pins: &Pins, program: &str) -> Result<Option<LinkState>, StartError> {
    let path = pins.link(program);
    match sys::object_get(&path) {
        Ok(link) => {
            let facts = sys::link_facts(link.as_fd()).map_err(StartError::io("ask link", &path))?;
            Ok(Some(LinkState {
                id: facts.id,
                program: facts.program,
                cgroup: facts.cgroup,
            }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(StartError::NoRights),
        Err(error) => Err(StartError::io("open link", &path)(error)),
    }
}

type AttachError = Box<dyn std::error::Error + Send + Sync>;

fn attach_one(program: &mut Program, pin: &Path, cgroup: &Path) -> Result<(), AttachError> {
    let wanted = fs::metadata(cgroup)?.ino();
    match sys::object_get(pin) {
        Ok(link) if sys::link_facts(link.as_fd())?.cgroup == wanted => {
            match sys::link_update(link.as_fd(), program_fd(program)?.as_fd()) {
                Ok(()) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let link = attach_new(program, cgroup)?;
    // Removing the pin of an older link detaches it at once; the new one is in place already.
    match fs::remove_file(pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    link.pin(pin)?;
    Ok(())
}

fn attach_new(program: &mut Program, cgroup: &Path) -> Result<FdLink, AttachError> {
    let folder = fs::File::open(cgroup)?;
    Ok(match program {
        Program::CgroupSockAddr(p) => {
            let id = p.attach(folder, CgroupAttachMode::Single)?;
            p.take_link(id)?.try_into()?
        }
        Program::CgroupSock(p) => {
            let id = p.attach(folder, CgroupAttachMode::Single)?;
            p.take_link(id)?.try_into()?
        }
        _ => return Err(ProgramError::UnexpectedProgramType.into()),
    })
}
