//! Which UDP sockets are connected to a backend that is dead: read by the agent, when it has deleted
//! backends, to destroy them.
//!
//! sock_diag(7) could show the same memory from outside (INET_DIAG_REQ_SK_BPF_STORAGES), but not for
//! UDP: `inet_sk_diag_fill` (net/ipv4/inet_diag.c) ends early for what is no connection socket.

use core::{ffi::c_void, mem::size_of, ptr::from_ref};

use aya_ebpf::{
    bindings::seq_file,
    helpers::generated::{bpf_get_socket_cookie, bpf_seq_write},
};
use proxy_common::OrphanRecord;

use crate::{maps::BACKEND, socket::memory};

/// `struct bpf_iter__udp` (net/ipv4/udp.c): what an iterator gets that goes over the UDP sockets of
/// one network namespace.
#[repr(C)]
pub struct Context {
    meta: *const Meta,
    socket: *mut c_void,
    uid: u64,
    bucket: u64,
}

/// The beginning of `struct bpf_iter_meta` (linux/bpf.h).
#[repr(C)]
struct Meta {
    file: *mut seq_file,
}

/// Runs for each socket, and once at the end without one. Writes an [`OrphanRecord`] if the socket's
/// connection is to a backend that is not in the map.
///
/// From kernel 5.12, the first where an iterator may ask for a socket's storage and cookie. Before
/// 6.5 it does not hold the socket's lock, so the memory may be changing: the reader compares the
/// record with the peer that the kernel has.
#[inline(always)]
pub fn show(ctx: *mut Context) -> i32 {
    // SAFETY: the kernel calls with this type.
    let ctx = unsafe { &*ctx };
    let socket = ctx.socket;
    if socket.is_null() {
        return 0;
    }
    let Some(memory) = memory::of_listed(socket) else {
        return 0;
    };
    let Some(connected) = memory.connected() else {
        return 0;
    };
    let backend = connected.backend;
    if BACKEND.get_ptr(backend).is_some() {
        return 0;
    }
    let got = memory::got(connected);
    let record = OrphanRecord {
        // SAFETY: the verifier checks that it is a socket.
        cookie: unsafe { bpf_get_socket_cookie(socket) },
        addr: got.addr.bytes(),
        backend,
        port: got.port,
        reserved: 0,
    };
    // Fails when the buffer is full; the kernel then calls again for the same socket.
    // SAFETY: the record is this long.
    unsafe {
        bpf_seq_write(
            (*ctx.meta).file,
            from_ref(&record).cast(),
            size_of::<OrphanRecord>() as u32,
        )
    };
    0
}
