//! Replacing the program inside a link, detaching it, and asking it where it is attached.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use super::bpf::{Command, bpf};

#[repr(C)]
struct LinkUpdateAttr {
    link_fd: u32,
    new_prog_fd: u32,
    flags: u32,
    old_prog_fd: u32,
}

/// Puts another program into a link, atomically. Minimum kernel 5.7 (kernel/bpf/syscall.c,
/// `link_update`). aya gains this for cgroup links in 0.15 (aya#1687).
///
/// # Errors
///
/// ENOLINK if what the link was attached to is gone: remove the pin and attach anew.
pub(crate) fn update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = LinkUpdateAttr {
        link_fd: link.as_raw_fd() as u32,
        new_prog_fd: program.as_raw_fd() as u32,
        flags: 0,
        old_prog_fd: 0,
    };
    // SAFETY: the image of BPF_LINK_UPDATE, no pointers.
    unsafe { bpf(Command::LinkUpdate, &mut attr) }.map(drop)
}

#[repr(C)]
struct LinkDetachAttr {
    link_fd: u32,
}

/// Detaches a link, whoever else holds it: when this returns, no new run of its program begins.
/// Closing or unpinning the last reference does the same, but some time later, on a work queue
/// (kernel/bpf/syscall.c, `bpf_link_put`). Minimum kernel 5.9.
///
/// # Errors
///
/// Those of BPF_LINK_DETACH.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = LinkDetachAttr {
        link_fd: link.as_raw_fd() as u32,
    };
    // SAFETY: the image of BPF_LINK_DETACH, no pointers.
    unsafe { bpf(Command::LinkDetach, &mut attr) }.map(drop)
}

/// What the kernel says of a cgroup link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkFacts {
    /// Link id.
    pub(crate) id: u32,
    /// Id of the program inside.
    pub(crate) program: u32,
    /// Inode of the cgroup; 0: the cgroup is gone.
    pub(crate) cgroup: u64,
}

#[repr(C)]
#[derive(Default)]
struct CgroupLinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    reserved: u32,
    cgroup: u64,
    attach_type: u32,
    reserved2: u32,
}

/// What the kernel says of a tcx link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceLinkFacts {
    /// Link id.
    pub(crate) id: u32,
    /// Id of the program inside.
    pub(crate) program: u32,
    /// Index of the interface; 0: it is gone.
    pub(crate) interface: u32,
}

#[repr(C)]
#[derive(Default)]
struct TcxLinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    reserved: u32,
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct InfoAttr {
    fd: u32,
    len: u32,
    info: u64,
}

/// Asks a cgroup link for its ids. Minimum kernel 5.8.
///
/// # Errors
///
/// Those of BPF_OBJ_GET_INFO_BY_FD.
pub(crate) fn facts(link: BorrowedFd<'_>) -> io::Result<LinkFacts> {
    let mut info = CgroupLinkInfo::default();
    ask(link, &mut info)?;
    Ok(LinkFacts {
        id: info.id,
        program: info.program,
        cgroup: info.cgroup,
    })
}

/// Asks a tcx link for its ids. Minimum kernel 6.6.
///
/// # Errors
///
/// Those of BPF_OBJ_GET_INFO_BY_FD.
pub(crate) fn device_facts(link: BorrowedFd<'_>) -> io::Result<DeviceLinkFacts> {
    let mut info = TcxLinkInfo::default();
    ask(link, &mut info)?;
    Ok(DeviceLinkFacts {
        id: info.id,
        program: info.program,
        interface: info.interface,
    })
}

/// Fills in `info`, an image of the begin of `struct bpf_link_info` for the link's kind.
fn ask<T>(link: BorrowedFd<'_>, info: &mut T) -> io::Result<()> {
    let mut attr = InfoAttr {
        fd: link.as_raw_fd() as u32,
        len: size_of::<T>() as u32,
        info: std::ptr::from_mut(info) as u64,
    };
    // SAFETY: the image of BPF_OBJ_GET_INFO_BY_FD; `info` is writable for `len` bytes, and all of
    // its fields are plain numbers.
    unsafe { bpf(Command::ObjectInfoByFd, &mut attr) }.map(drop)
}
