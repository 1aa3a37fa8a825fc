//! What a translated socket remembers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::{addr::Address, map};

/// How many Services one unconnected UDP socket can talk to before the `peer` map has to help.
pub const SOCK_PEERS: usize = 4;

/// One translation: the service address that the program asked for and the backend it got.
///
/// `backend` 0 marks a free entry.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct PeerValue {
    /// Address that the program used.
    pub vip: Address,
    /// Address that it was given.
    pub addr: Address,
    /// Port that the program used, host order.
    pub vip_port: u16,
    /// Port that it was given, host order.
    pub port: u16,
    /// Service id.
    pub service: u32,
    /// Backend id.
    pub backend: u32,
}

/// Value of the `sock` map (socket storage, so it lives exactly as long as the socket).
///
/// What the agent needs of it, program `orphans` tells: see [`OrphanRecord`].
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct SockValue {
    /// The connection, of a connected UDP socket, and of a TCP socket without an element in
    /// `connection`.
    pub connected: PeerValue,
    /// Where the socket sent without being connected, the most recently used first.
    pub peers: [PeerValue; SOCK_PEERS],
    /// Backend id that this socket is counted for in `load`; 0: none. It is `connected.backend`,
    /// unless that count could not be made or the socket is no longer connected.
    pub counted: u32,
    /// 1 once an entry had to leave `peers` for the `peer` map.
    pub spilled: u32,
}

/// A lock that programs take (`bpf_spin_lock`, kernel 5.1), by the name under which the kernel looks
/// for it.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct bpf_spin_lock {
    /// The kernel's.
    pub val: u32,
}

/// Element of the `connection` array: what one TCP socket remembers, at [`index`](Self::index) of
/// its cookie.
///
/// Cookies count up, so that those of sockets that live at the same time stand in different
/// elements, side by side in memory. A socket that meets another's takes socket storage instead
/// (`sock`), which costs an allocation.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct ConnectionValue {
    /// Cookie of the socket (`bpf_get_socket_cookie`); 0: free.
    pub cookie: u64,
    /// Held while the element passes from one socket to another.
    pub lock: bpf_spin_lock,
    /// Zero.
    pub reserved: u32,
    /// The connection; of backend 0 if there is none.
    pub connected: PeerValue,
    /// Zero.
    pub tail: u32,
}

impl ConnectionValue {
    /// Where a socket's connection stands.
    #[inline(always)]
    pub const fn index(cookie: u64) -> u32 {
        (cookie % map::CONNECTION.entries as u64) as u32
    }
}

/// Key of the `peer` map: what an unconnected UDP socket beyond [`SOCK_PEERS`] Services is answered
/// from.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, TryFromBytes, Immutable, KnownLayout,
)]
pub struct PeerKey {
    /// Socket cookie (`bpf_get_socket_cookie`).
    pub cookie: u64,
    /// Backend address.
    pub addr: Address,
    /// Backend port, host order.
    pub port: u16,
    /// Zero.
    pub reserved: [u16; 3],
}

/// What program `orphans` says of each UDP socket that is connected to a dead backend.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct OrphanRecord {
    /// Socket cookie (`bpf_get_socket_cookie`, SO_COOKIE).
    pub cookie: u64,
    /// Address that the socket was given.
    pub addr: Address,
    /// Backend id; not in the `backend` map.
    pub backend: u32,
    /// Port that the socket was given, host order.
    pub port: u16,
    /// Zero.
    pub reserved: u16,
}

crate::pod!(PeerValue, ConnectionValue, SockValue, PeerKey, OrphanRecord);
