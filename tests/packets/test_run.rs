//! BPF_PROG_TEST_RUN. aya's own call has no way to ask for a sum over the packet.
#![expect(unsafe_code, reason = "a raw bpf(2); says why it is sound")]

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

/// `BPF_PROG_TEST_RUN` in `enum bpf_cmd` (include/uapi/linux/bpf.h).
const PROG_TEST_RUN: libc::c_int = 10;
/// `BPF_F_TEST_SKB_CHECKSUM_COMPLETE`: the buffer has CHECKSUM_COMPLETE, and the call fails with
/// EBADMSG if the sum is not that of the packet afterwards. Minimum kernel 6.17.
const CHECKSUM_COMPLETE: u32 = 1 << 2;

/// The member `test` of `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct TestAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    reserved: u32,
}

/// What came of a run.
pub(crate) struct Run {
    pub(crate) verdict: u32,
    /// Octets that were written.
    pub(crate) length: usize,
}

/// Runs a program on a packet.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    out: &mut [u8],
    complete: bool,
) -> io::Result<Run> {
    let mut attr = TestAttr {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: packet.len() as u32,
        data_size_out: out.len() as u32,
        data_in: packet.as_ptr() as u64,
        data_out: out.as_mut_ptr() as u64,
        flags: if complete { CHECKSUM_COMPLETE } else { 0 },
        ..TestAttr::default()
    };
    // SAFETY: the image of BPF_PROG_TEST_RUN; the packet is readable and `out` writable for the
    // sizes that are given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_TEST_RUN,
            std::ptr::from_mut(&mut attr),
            size_of::<TestAttr>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Run {
        verdict: attr.retval,
        length: attr.data_size_out as usize,
    })
}
