//! Connected UDP sockets by sock_diag(7): list them, destroy one.

use std::{io, net::SocketAddr, os::fd::AsFd as _, time::Duration};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_sock_diag::{
    SockDiagDestroy, SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_UDP},
    inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags},
};
use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};
use rustix::net::sockopt;

/// The kernel fills datagrams up to what the reader has shown to take, 32 KiB at most
/// (netlink_dump, net/netlink/af_netlink.c).
const BUFFER: usize = 32 * 1024;

/// The kernel answers while it sends; this only guards against a lost answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Address family of a socket, which an IPv6 socket keeps also when it talks IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// A connected UDP socket.
#[derive(Clone, Debug)]
pub(super) struct Connected {
    family: Family,
    id: SocketId,
}

impl Connected {
    /// Whom the kernel sends to and takes answers from.
    pub(super) fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.id.destination_address, self.id.destination_port)
    }

    /// The socket's cookie (SO_COOKIE), its own among all sockets since boot.
    pub(super) fn cookie(&self) -> u64 {
        u64::from_ne_bytes(self.id.cookie)
    }
}

/// A socket to ask with; it sees the network namespace that it was opened in.
pub(super) struct SockDiag {
    socket: Socket,
    sequence: u32,
}

impl SockDiag {
    /// Opens one in the calling thread's network namespace.
    pub(super) fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_SOCK_DIAG)?;
        sockopt::set_socket_timeout(socket.as_fd(), sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Every connected UDP socket of a family in the namespace.
    pub(super) fn connected_udp(&mut self, family: Family) -> io::Result<Vec<Connected>> {
        // Of UDP sockets, those that connect(2) fixed to a peer are "established".
        let request = request(family, StateFlags::ESTABLISHED, unspecified(family));
        self.send(SockDiagMessage::InetRequest(request), NLM_F_DUMP)?;
        let mut found = Vec::new();
        self.receive(|response| {
            let id = response.header.socket_id;
            found.push(Connected { family, id });
        })?;
        Ok(found)
    }

    /// Destroys exactly this socket: it is no longer connected, who waits for it wakes, and its next
    /// receive fails with ECONNABORTED (net/ipv4/udp.c, `udp_abort`).
    ///
    /// Needs CONFIG_INET_DIAG_DESTROY and CAP_NET_ADMIN. `NotFound`: it was closed or connected
    /// elsewhere meanwhile, or another socket with the same four-tuple is in front of it.
    pub(super) fn destroy(&mut self, socket: &Connected) -> io::Result<()> {
        self.destroy_id(socket.family, socket.id.clone())
    }

    /// Asks to destroy a socket that cannot be there: `Ok` if the kernel could have.
    pub(super) fn probe_destroy(&mut self) -> io::Result<()> {
        match self.destroy_id(Family::V4, unspecified(Family::V4)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn destroy_id(&mut self, family: Family, id: SocketId) -> io::Result<()> {
        let request = request(family, StateFlags::all(), id);
        let message = SockDiagDestroy::new(SockDiagMessage::InetRequest(request));
        self.send(message, NLM_F_ACK)?;
        self.receive(|_| {})
    }

    fn send<T: NetlinkSerializable>(&mut self, message: T, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut buffer = vec![0; message.buffer_len()];
        message.serialize(&mut buffer);
        self.socket.send(&buffer, 0)?;
        Ok(())
    }

    /// Reads answers to the last request until the one that ends them.
    fn receive(&mut self, mut each: impl FnMut(InetResponse)) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            buffer.clear();
            match self.socket.recv(&mut buffer, 0) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            let mut rest = buffer.as_slice();
            while !rest.is_empty() {
                let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
                    .map_err(io::Error::other)?;
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                if message.header.sequence_number != self.sequence {
                    continue; // what a request that failed half-way left behind
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                        each(*response);
                    }
                    // An acknowledgement is an error without a code.
                    NetlinkPayload::Error(error) => {
                        return error.code.map_or(Ok(()), |_| Err(error.to_io()));
                    }
                    NetlinkPayload::Done(done) if done.code < 0 => {
                        return Err(io::Error::from_raw_os_error(-done.code));
                    }
                    NetlinkPayload::Done(_) => return Ok(()),
                    _ => {}
                }
            }
        }
    }
}

fn request(family: Family, states: StateFlags, socket_id: SocketId) -> InetRequest {
    InetRequest {
        family: match family {
            Family::V4 => AF_INET,
            Family::V6 => AF_INET6,
        },
        protocol: IPPROTO_UDP,
        extensions: ExtensionFlags::empty(),
        states,
        socket_id,
    }
}

fn unspecified(family: Family) -> SocketId {
    match family {
        Family::V4 => SocketId::new_v4(),
        Family::V6 => SocketId::new_v6(),
    }
}
