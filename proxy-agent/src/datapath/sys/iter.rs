//! Running an iterator program any number of times. aya's link is used up by the first.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use super::bpf::{Command, bpf};

/// BPF_TRACE_ITER in `enum bpf_attach_type`.
const TRACE_ITER: u32 = 28;

#[repr(C)]
struct LinkCreateAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct IterCreateAttr {
    link_fd: u32,
    flags: u32,
}

/// Ties an iterator program to what it goes over; the link goes with its descriptor. Minimum kernel
/// 5.8 (kernel/bpf/bpf_iter.c, `bpf_iter_link_attach`).
///
/// # Errors
///
/// Those of BPF_LINK_CREATE.
pub(crate) fn iter_link(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attr = LinkCreateAttr {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: 0,
        attach_type: TRACE_ITER,
        flags: 0,
    };
    // SAFETY: the image of BPF_LINK_CREATE, no pointers.
    let fd = unsafe { bpf(Command::LinkCreate, &mut attr) }?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Begins an iteration: reading the file runs the program. What goes over one network namespace
/// goes over the calling thread's. Minimum kernel 5.8.
///
/// # Errors
///
/// Those of BPF_ITER_CREATE.
pub(crate) fn iterate(link: BorrowedFd<'_>) -> io::Result<File> {
    let mut attr = IterCreateAttr {
        link_fd: link.as_raw_fd() as u32,
        flags: 0,
    };
    // SAFETY: the image of BPF_ITER_CREATE, no pointers.
    let fd = unsafe { bpf(Command::IterCreate, &mut attr) }?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
