//! What a socket remembers of its translations, in socket storage: datagrams, the connection of a
//! UDP socket, and that of a TCP socket which found no [element](super::connection) free.

use core::{
    ffi::c_void,
    ptr::{from_ref, null_mut},
};

use aya_ebpf::{
    EbpfContext,
    bindings::{BPF_ANY, BPF_SK_STORAGE_GET_F_CREATE},
    helpers::bpf_sk_storage_get,
    programs::{SockAddrContext, SockContext},
};
use proxy_common::{PeerKey, PeerValue, SOCK_PEERS, SockValue};

use crate::{
    address::{Endpoint, Words},
    balance::select::Backend,
    maps::{PEER, SOCK},
    socket::{connection::Connection, context},
};

/// Translations of datagrams that a socket remembers by itself.
pub const PEERS: usize = SOCK_PEERS;

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

/// The memory of a socket that an iterator came to.
#[inline(always)]
pub fn of_listed(socket: *mut c_void) -> Option<Memory> {
    storage(socket, 0)
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

    /// The same, to be changed.
    #[inline(always)]
    pub fn connection(self) -> Connection<'static> {
        Connection::stored(&mut self.0.connected, &mut self.0.counted)
    }

    /// Forgets the connection.
    #[inline(always)]
    pub fn disconnect(&mut self) {
        Connection::stored(&mut self.0.connected, &mut self.0.counted).disconnect();
    }

    /// Ends a connection that its program has dissolved, which no hook told us
    /// (net/ipv4/udp.c `udp_disconnect`). What still comes from the backend was asked of the Service.
    #[inline(always)]
    pub fn settle(&mut self, ctx: &SockAddrContext) {
        if self.0.connected.backend != 0 && !context::is_connected(ctx) {
            let entry = self.0.connected;
            self.disconnect();
            self.remember(ctx, entry);
        }
    }

    /// One of the translations of datagrams, the latest first.
    #[inline(always)]
    pub fn peer(&self, index: usize) -> Option<&PeerValue> {
        self.0.peers.get(index).filter(|entry| entry.backend != 0)
    }

    /// Forgets one of them.
    #[inline(always)]
    pub fn clear(&mut self, index: usize) {
        if let Some(entry) = self.0.peers.get_mut(index) {
            entry.backend = 0;
        }
    }

    /// Makes one of them the latest.
    #[inline(always)]
    pub fn promote(&mut self, index: usize) {
        if index != 0
            && let Some(entry) = self.0.peers.get(index)
        {
            let entry = *entry;
            self.push(entry, index);
        }
    }

    /// Adds one as the latest. If there is no room, the one used longest ago leaves for the `peer`
    /// map, in case an answer is still to come.
    #[inline(always)]
    pub fn remember(&mut self, ctx: &SockAddrContext, entry: PeerValue) {
        let mut gap = PEERS;
        for index in (0..PEERS).rev() {
            if self.peer(index).is_none() {
                gap = index;
            }
        }
        if gap == PEERS {
            gap = PEERS - 1;
            let last = &self.0.peers[PEERS - 1];
            // An LRU map makes room for itself. Should that fail, a late answer shows the backend.
            let _ = PEER.insert(&key(ctx, got(last)), last, u64::from(BPF_ANY));
            self.0.spilled = 1;
        }
        self.push(entry, gap);
    }

    /// What the program asked for when it got this, if that has left for the `peer` map.
    #[inline(always)]
    pub fn spilled(&self, ctx: &SockAddrContext, source: Endpoint) -> Option<Endpoint> {
        if self.0.spilled == 0 {
            return None;
        }
        let entry = PEER.get_ptr(&key(ctx, source))?;
        // SAFETY: a map value; copied at once, since the map may give it to another socket. The
        // copy tells whether it has.
        let entry = unsafe { entry.read_volatile() };
        got(&entry).is(source).then(|| asked(&entry))
    }

    /// The program talks to this address itself: what comes from there is what it shows.
    #[inline(always)]
    pub fn address_directly(&mut self, ctx: &SockAddrContext, to: Endpoint) {
        for index in 0..PEERS {
            if let Some(peer) = self.peer(index)
                && got(peer).is(to)
            {
                self.clear(index);
            }
        }
        if self.0.spilled != 0 {
            // Fails if it is not there, as for most addresses.
            let _ = PEER.remove(&key(ctx, to));
        }
    }

    /// Puts an entry first; those before `gap` move up by one. Written out, so that the verifier
    /// sees constant offsets.
    #[inline(always)]
    fn push(&mut self, entry: PeerValue, gap: usize) {
        let peers = &mut self.0.peers;
        if gap > 2 {
            peers[3] = peers[2];
        }
        if gap > 1 {
            peers[2] = peers[1];
        }
        if gap > 0 {
            peers[1] = peers[0];
        }
        peers[0] = entry;
    }
}

/// Key of a backend in the `peer` map.
#[inline(always)]
fn key(ctx: &SockAddrContext, backend: Endpoint) -> PeerKey {
    PeerKey {
        cookie: context::cookie(ctx),
        addr: backend.addr.bytes(),
        port: backend.port,
        reserved: [0; 3],
    }
}
