//! bpf(2) itself, and opening pinned objects.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

/// Commands, by their number in `enum bpf_cmd` (include/uapi/linux/bpf.h).
#[derive(Clone, Copy)]
pub(super) enum Command {
    ObjectGet = 7,
    ObjectInfoByFd = 15,
    MapLookupBatch = 24,
    LinkCreate = 28,
    LinkUpdate = 29,
    IterCreate = 33,
    LinkDetach = 34,
}

/// Calls bpf(2) with one of the members of `union bpf_attr`.
///
/// # Safety
///
/// `A` must be the `repr(C)` image of the member that `command` reads, and every pointer in it must
/// be valid for what the command reads and writes.
pub(super) unsafe fn bpf<A>(command: Command, attr: &mut A) -> io::Result<i64> {
    // SAFETY: `attr` is valid for reads and writes of its own size, the caller answers for the
    // rest. The kernel takes an attribute shorter than its union and reads the rest as zero.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            std::ptr::from_mut(attr),
            size_of::<A>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[repr(C)]
struct ObjectGetAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// Opens a pinned map, program or link. Minimum kernel 4.4, for links 5.7.
///
/// # Errors
///
/// ENOENT without such a pin, EPERM without CAP_BPF or CAP_SYS_ADMIN.
pub(crate) fn object_get(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let mut attr = ObjectGetAttr {
        pathname: path.as_ptr() as u64,
        bpf_fd: 0,
        file_flags: 0,
    };
    // SAFETY: the image of BPF_OBJ_GET; the path lives until the call returns.
    let fd = unsafe { bpf(Command::ObjectGet, &mut attr) }?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
