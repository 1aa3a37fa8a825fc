//! What a TCP socket remembers: its connection to a Service.
//!
//! It stands in the `connection` array, in an element that the socket takes when it connects and
//! gives back when it is released. Socket storage would do the same, but its two allocations cost
//! more than all lookups together (docs/decisions/0008); it is for sockets whose element is taken.

use aya_ebpf::{
    bindings::bpf_spin_lock as Lock,
    helpers::generated::{bpf_spin_lock, bpf_spin_unlock},
    programs::{SockAddrContext, SockContext},
};
use proxy_common::{ConnectionValue, PeerValue};

use crate::{
    balance::load::{count_down, count_up},
    maps::CONNECTION,
    socket::{context, memory},
};

/// A connection that is remembered, wherever that is.
pub struct Connection<'a> {
    entry: &'a mut PeerValue,
    /// Backend that it is counted for in `load`, where that is needed; 0: none.
    counted: Option<&'a mut u32>,
}

/// The connection of a TCP socket that connected to a Service before.
#[inline(always)]
pub fn of(ctx: &SockAddrContext) -> Option<Connection<'static>> {
    match own(context::cookie(ctx)) {
        Some(value) => Some(in_element(value)),
        None => Some(memory::of(ctx)?.connection()),
    }
}

/// A place for the connection of a TCP socket. `None`: the kernel has no memory to give.
#[inline(always)]
pub fn make(ctx: &SockAddrContext) -> Option<Connection<'static>> {
    let cookie = context::cookie(ctx);
    // A socket that has found its element taken stays with its storage.
    if let Some(memory) = memory::of(ctx) {
        return Some(memory.connection());
    }
    match own(cookie).or_else(|| take(cookie)) {
        Some(value) => Some(in_element(value)),
        None => Some(memory::make(ctx)?.connection()),
    }
}

/// Forgets what a TCP socket remembers.
#[inline(always)]
pub fn release(ctx: &SockContext) {
    if let Some(value) = own(context::released_cookie(ctx)) {
        in_element(value).disconnect();
        give_back(value);
    } else if let Some(memory) = memory::of_released(ctx) {
        memory.connection().uncount();
    }
}

impl<'a> Connection<'a> {
    /// One in socket storage.
    #[inline(always)]
    pub fn stored(entry: &'a mut PeerValue, counted: &'a mut u32) -> Self {
        Self {
            entry,
            counted: Some(counted),
        }
    }

    /// What it is translated from and to.
    #[inline(always)]
    pub fn entry(&self) -> Option<&PeerValue> {
        (self.entry.backend != 0).then_some(&*self.entry)
    }

    /// Remembers a connection and counts it, in place of the one before.
    #[inline(always)]
    pub fn connect(&mut self, entry: PeerValue) {
        self.uncount();
        if let Some(counted) = &mut self.counted
            && count_up(entry.backend)
        {
            **counted = entry.backend;
        }
        *self.entry = entry;
    }

    /// Forgets it.
    #[inline(always)]
    pub fn disconnect(&mut self) {
        self.uncount();
        self.entry.backend = 0;
    }

    /// Ends its count.
    #[inline(always)]
    pub fn uncount(&mut self) {
        if let Some(counted) = &mut self.counted
            && **counted != 0
        {
            count_down(**counted);
            **counted = 0;
        }
    }
}

/// The element that a socket has taken.
#[inline(always)]
fn own(cookie: u64) -> Option<*mut ConnectionValue> {
    let value = element(cookie)?;
    // SAFETY: a map value.
    let owner = unsafe { (&raw const (*value).cookie).read_volatile() };
    (owner == cookie).then_some(value)
}

/// Takes the element of a socket, if it is free.
#[inline(always)]
fn take(cookie: u64) -> Option<*mut ConnectionValue> {
    let value = element(cookie)?;
    // SAFETY: a map value; what is compared without the lock is compared again.
    let free = unsafe {
        let owner = &raw mut (*value).cookie;
        if owner.read_volatile() != 0 {
            return None;
        }
        bpf_spin_lock(lock(value));
        let free = owner.read_volatile() == 0;
        if free {
            owner.write_volatile(cookie);
        }
        bpf_spin_unlock(lock(value));
        free
    };
    free.then_some(value)
}

/// Frees the element of a socket. With the lock, so that whoever takes it next comes after all that
/// was written here.
#[inline(always)]
fn give_back(value: *mut ConnectionValue) {
    // SAFETY: a map value, which belongs to the socket.
    unsafe {
        bpf_spin_lock(lock(value));
        (&raw mut (*value).cookie).write_volatile(0);
        bpf_spin_unlock(lock(value));
    }
}

#[inline(always)]
fn element(cookie: u64) -> Option<*mut ConnectionValue> {
    CONNECTION.get_ptr_mut(ConnectionValue::index(cookie))
}

#[inline(always)]
fn in_element(value: *mut ConnectionValue) -> Connection<'static> {
    // SAFETY: the element belongs to the socket, which is locked or has no users left (see
    // `socket`), so that this is the only reference.
    let value = unsafe { &mut *value };
    Connection {
        entry: &mut value.connected,
        counted: None,
    }
}

#[inline(always)]
fn lock(value: *mut ConnectionValue) -> *mut Lock {
    // SAFETY: only an address.
    unsafe { (&raw mut (*value).lock).cast() }
}
