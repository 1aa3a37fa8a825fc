//! The lab's address plan. Every lab has the same one: nothing leaves its namespaces.
//!
//! Ranges are the ones that kind uses, so that manifests written for kind fit; clients and what
//! they may know of are from the documentation ranges (RFC 5737, RFC 3849).

use std::net::{Ipv4Addr, Ipv6Addr};

/// Most nodes, pods of one node, or clients that one lab can hold.
pub(crate) const MOST: u8 = 240;

/// The wire's own address on the nodes' network: the nodes' default gateway.
pub(crate) const WIRE: Pair = Pair::new([172, 18, 0, 1], [0xfd00, 0x18, 0, 0, 0, 0, 0, 1]);
/// The clients' default gateway.
pub(crate) const CLIENT_GATEWAY: Pair =
    Pair::new([203, 0, 113, 1], [0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 1]);

/// One IPv4 and one IPv6 address of the same interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

impl Pair {
    const fn new(v4: [u8; 4], v6: [u16; 8]) -> Self {
        Self {
            v4: Ipv4Addr::new(v4[0], v4[1], v4[2], v4[3]),
            v6: Ipv6Addr::new(v6[0], v6[1], v6[2], v6[3], v6[4], v6[5], v6[6], v6[7]),
        }
    }
}

/// Address of the `node`th node (from 1) on the wire, in a /16 and a /64.
pub(crate) const fn node(node: u8) -> Pair {
    Pair::new(
        [172, 18, 0, node + 1],
        [0xfd00, 0x18, 0, 0, 0, 0, 0, node as u16 + 1],
    )
}

/// Address of the `pod`th pod (from 1) of the `node`th node.
pub(crate) const fn pod(node: u8, pod: u8) -> Pair {
    Pair::new(
        [10, 244, node, pod + 1],
        [0xfd00, 0x10, 0x244, node as u16, 0, 0, 0, pod as u16 + 1],
    )
}

/// The node's address towards its pods: their default gateway.
pub(crate) const fn pod_gateway(node: u8) -> Pair {
    pod(node, 0)
}

/// The network address of a node's pods: a /24 and a /64.
pub(crate) const fn pod_network(node: u8) -> Pair {
    Pair::new(
        [10, 244, node, 0],
        [0xfd00, 0x10, 0x244, node as u16, 0, 0, 0, 0],
    )
}

/// Address of the `client`th outside client (from 1), beyond the wire.
pub(crate) const fn client(client: u8) -> Pair {
    Pair::new(
        [203, 0, 113, client + 9],
        [0x2001, 0xdb8, 0x113, 0, 0, 0, 0, client as u16 + 9],
    )
}
