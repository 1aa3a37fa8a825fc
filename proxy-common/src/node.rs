//! This node's addresses.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::addr::Address;

/// Key of the `node_addr` map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct NodeAddrKey {
    /// An address of an interface in the node's network namespace.
    pub addr: Address,
}

/// Value of the `node_addr` map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct NodeAddrValue {
    /// [`NODE_PORT`](Self::NODE_PORT), [`LOOPBACK`](Self::LOOPBACK).
    pub flags: u32,
}

impl NodeAddrValue {
    /// NodePorts answer here.
    pub const NODE_PORT: u32 = 1;
    /// A loopback address: means this node only to sockets of the node's own network namespace.
    pub const LOOPBACK: u32 = 2;
}

/// Value of the `masq` map, by interface index: the addresses that SNAT on this interface uses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct MasqValue {
    /// IPv4-mapped; zero: none.
    pub v4: Address,
    /// IPv6; zero: none.
    pub v6: Address,
}

crate::pod!(NodeAddrKey, NodeAddrValue, MasqValue);
