//! What a socket remembers of its translations, and the connection counts that hang on it.

use core::{
    ffi::c_void,
    ptr::{from_ref, null_mut},
};

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_NOEXIST, BPF_SK_STORAGE_GET_F_CREATE},
    helpers::bpf_sk_storage_get,
    programs::{SockAddrContext, SockContext},
};
use proxy_common::{Counter, LoadValue, PeerValue, SockValue};

use crate::{
    address::{Endpoint, Words},
    balance::select::Backend,
    maps::{LOAD, SOCK},
    report::{add, count},
    socket::context,
};

/// Memory of one socket.
pub struct Memory(&'static mut SockValue);

/// The memory of a socket that has one.
#[inline(always)]
pub fn of(ctx: &SockAddrContext) -> Option<Memory> {
    storage(context::socket(ctx).cast(), 0)
}

/// The memory of a socket, made if it has none. `None`: the kernel has no memory to give.
#[inline(always)]
pub fn make(ctx: &SockAddrContext) -> Option<Memory> {
    storage(
        context::socket(ctx).cast(),
        u64::from(BPF_SK_STORAGE_GET_F_CREATE),
    )
}

/// The memory of a socket that goes away.
#[inline(always)]
pub fn of_released(ctx: &SockContext) -> Option<Memory> {
    storage(ctx.as_ptr(), 0)
}

#[inline(always)]
fn storage(socket: *mut c_void, flags: u64) -> Option<Memory> {
    // SAFETY: the verifier checks that it is a socket. Storage is made of zeros.
    let value =
        unsafe { bpf_sk_storage_get(from_ref(&SOCK).cast_mut().cast(), socket, null_mut(), flags) };
    // SAFETY: it lives as long as the socket, and the socket is locked (see `socket`), so that this
    // is the only reference.
    unsafe { value.cast::<SockValue>().as_mut() }.map(Memory)
}

/// A translation: what the program asked for and what it got.
#[inline(always)]
pub fn translation(asked: Endpoint, service: u32, got: &Backend) -> PeerValue {
    PeerValue {
        vip: asked.addr.bytes(),
        addr: got.at.addr.bytes(),
        vip_port: asked.port,
        port: got.at.port,
        service,
        backend: got.id,
    }
}

/// What the program asked for.
#[inline(always)]
pub fn asked(entry: &PeerValue) -> Endpoint {
    // SAFETY: a field of a value of `proxy_common`.
    Endpoint {
        addr: unsafe { Words::read(&raw const entry.vip) },
        port: entry.vip_port,
    }
}

/// What it got.
#[inline(always)]
pub fn got(entry: &PeerValue) -> Endpoint {
    // SAFETY: a field of a value of `proxy_common`.
    Endpoint {
        addr: unsafe { Words::read(&raw const entry.addr) },
        port: entry.port,
    }
}

impl Memory {
    /// The connection.
    #[inline(always)]
    pub fn connected(&self) -> Option<&PeerValue> {
        (self.0.connected.backend != 0).then_some(&self.0.connected)
    }

    /// One of the translations of datagrams, the latest first.
    #[inline(always)]
    pub fn peer(&self, index: usize) -> Option<&PeerValue> {
        self.0.peers.get(index).filter(|entry| entry.backend != 0)
    }

    /// Remembers a connection and counts it, in place of the one before.
    #[inline(always)]
    pub fn connect(&mut self, entry: PeerValue) {
        self.uncount();
        self.0.counted = if count_up(entry.backend) {
            entry.backend
        } else {
            0
        };
        self.0.connected = entry;
    }

    /// Forgets the connection.
    #[inline(always)]
    pub fn disconnect(&mut self) {
        self.uncount();
        self.0.connected.backend = 0;
    }

    /// Ends the count of the connection.
    #[inline(always)]
    pub fn uncount(&mut self) {
        if self.0.counted != 0 {
            count_down(self.0.counted);
            self.0.counted = 0;
        }
    }
}

/// Counts a connection to a backend. `false`: it could not be counted.
#[inline(always)]
fn count_up(backend: u32) -> bool {
    let mut load = LOAD.get_ptr_mut(backend);
    if load.is_none() {
        // Fails if another CPU was quicker, which is as good, or if the map is full.
        let _ = LOAD.insert(backend, &LoadValue::default(), u64::from(BPF_NOEXIST));
        load = LOAD.get_ptr_mut(backend);
    }
    let Some(load) = load else {
        count(Counter::LoadUncounted);
        return false;
    };
    // SAFETY: a map value; only its address is taken here.
    unsafe {
        add((&raw mut (*load).connections).cast(), 1);
        add(&raw mut (*load).total, 1);
    }
    true
}

#[inline(always)]
fn count_down(backend: u32) {
    if let Some(load) = LOAD.get_ptr_mut(backend) {
        // SAFETY: a map value; only its address is taken here.
        add(unsafe { (&raw mut (*load).connections).cast() }, u64::MAX);
    }
}
