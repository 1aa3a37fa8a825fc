//! The kernel programs: names as in the object and in the pins of their links.

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Name in the object, in the kernel (15 bytes) and of the link's pin.
    pub name: &'static str,
    /// What it does, as a phrase.
    pub role: &'static str,
}

/// All programs of the socket path, in the order in which a first start attaches them: what
/// translates answers before what translates requests.
pub const PROGRAMS: [ProgramSpec; 11] = [
    ProgramSpec {
        name: "sock_release",
        role: "forgets a closed socket",
    },
    ProgramSpec {
        name: "peername4",
        role: "shows the Service address as peer, IPv4",
    },
    ProgramSpec {
        name: "peername6",
        role: "shows the Service address as peer, IPv6",
    },
    ProgramSpec {
        name: "recvmsg4",
        role: "shows the Service address as source of datagrams, IPv4",
    },
    ProgramSpec {
        name: "recvmsg6",
        role: "shows the Service address as source of datagrams, IPv6",
    },
    ProgramSpec {
        name: "sendmsg4",
        role: "chooses a backend for unconnected datagrams, IPv4",
    },
    ProgramSpec {
        name: "sendmsg6",
        role: "chooses a backend for unconnected datagrams, IPv6",
    },
    ProgramSpec {
        name: "connect4",
        role: "chooses a backend for connections, IPv4",
    },
    ProgramSpec {
        name: "connect6",
        role: "chooses a backend for connections, IPv6",
    },
    ProgramSpec {
        name: "post_bind4",
        role: "guards NodePorts against local binds, IPv4",
    },
    ProgramSpec {
        name: "post_bind6",
        role: "guards NodePorts against local binds, IPv6",
    },
];

/// The programs of the packet path: each is attached to many interfaces.
pub const PACKET_PROGRAMS: [ProgramSpec; 4] = [
    ProgramSpec {
        name: "tc_ingress",
        role: "rewrites the destination of packets that arrive",
    },
    ProgramSpec {
        name: "tc_egress",
        role: "rewrites the source of packets that leave",
    },
    ProgramSpec {
        name: "tc_ingress_l3",
        role: "as tc_ingress, where packets have no Ethernet header",
    },
    ProgramSpec {
        name: "tc_egress_l3",
        role: "as tc_egress, where packets have no Ethernet header",
    },
];
