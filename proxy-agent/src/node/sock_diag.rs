//! UDP sockets by sock_diag(7): list the connected ones with their socket storage, destroy one.
//!
//! The crate for these messages knows the request's header but none of its attributes, so the one
//! that asks for socket storage is added here.

use std::{
    io,
    mem::size_of,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, Nla as _, NlasIterator,
};
use netlink_packet_sock_diag::{
    SOCK_DIAG_BY_FAMILY, SockDiagDestroy, SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_UDP},
    inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags, nlas::Nla},
};
use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};
use proxy_common::SockValue;
use zerocopy::FromBytes;

// linux/inet_diag.h
const INET_DIAG_REQ_SK_BPF_STORAGES: u16 = 2;
const INET_DIAG_SK_BPF_STORAGES: u16 = 20;
// linux/sock_diag.h
const SK_DIAG_BPF_STORAGE_REQ_MAP_FD: u16 = 1;
const SK_DIAG_BPF_STORAGE: u16 = 1;
const SK_DIAG_BPF_STORAGE_MAP_VALUE: u16 = 3;

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

/// A connected UDP socket that carries our storage.
#[derive(Clone, Debug)]
pub(super) struct Found {
    family: Family,
    id: SocketId,
    /// What the programs wrote for it.
    pub(super) value: SockValue,
}

impl Found {
    /// Whom the kernel sends to and takes answers from.
    pub(super) fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.id.destination_address, self.id.destination_port)
    }

    /// The socket's cookie (SO_COOKIE).
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
        rustix::net::sockopt::set_socket_timeout(
            socket.as_fd(),
            rustix::net::sockopt::Timeout::Recv,
            Some(PATIENCE),
        )?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Every connected UDP socket of a family that has storage in `map`, a map of type
    /// BPF_MAP_TYPE_SK_STORAGE whose value is [`SockValue`].
    ///
    /// From kernel 5.7 (net/core/bpf_sk_storage.c); needs CAP_BPF in the first user namespace.
    pub(super) fn connected_udp(
        &mut self,
        family: Family,
        map: BorrowedFd<'_>,
    ) -> io::Result<Vec<Found>> {
        // Of UDP sockets, those that connect(2) fixed to a peer are "established".
        let request = request(family, StateFlags::ESTABLISHED, unspecified(family));
        self.send(
            StorageDump {
                request,
                map: map.as_raw_fd(),
            },
            NLM_F_DUMP,
        )?;
        let mut found = Vec::new();
        self.receive(|response| {
            if let Some(value) = storage(&response.nlas) {
                found.push(Found {
                    family,
                    id: response.header.socket_id,
                    value,
                });
            }
        })?;
        Ok(found)
    }

    /// Destroys exactly this socket: its next call fails with ECONNABORTED, and it is no longer
    /// connected (udp_abort, net/ipv4/udp.c).
    ///
    /// Needs CONFIG_INET_DIAG_DESTROY and CAP_NET_ADMIN. `NotFound`: it was closed or connected
    /// elsewhere meanwhile, or another socket with the same four-tuple is in front of it.
    pub(super) fn destroy(&mut self, found: &Found) -> io::Result<()> {
        self.destroy_id(found.family, found.id.clone())
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

/// `struct inet_diag_req_v2` and the attribute that asks for the storage of one map.
struct StorageDump {
    request: InetRequest,
    map: i32,
}

impl StorageDump {
    fn attribute(&self) -> DefaultNla {
        let map = DefaultNla::new(
            SK_DIAG_BPF_STORAGE_REQ_MAP_FD,
            self.map.to_ne_bytes().to_vec(),
        );
        let mut maps = vec![0; map.buffer_len()];
        map.emit(&mut maps);
        DefaultNla::new(INET_DIAG_REQ_SK_BPF_STORAGES, maps)
    }
}

impl NetlinkSerializable for StorageDump {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        self.request.buffer_len() + self.attribute().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (header, attributes) = buffer.split_at_mut(self.request.buffer_len());
        self.request.emit(header);
        self.attribute().emit(attributes);
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

/// The value in INET_DIAG_SK_BPF_STORAGES → SK_DIAG_BPF_STORAGE → SK_DIAG_BPF_STORAGE_MAP_VALUE.
fn storage(attributes: &[Nla]) -> Option<SockValue> {
    let storages = attributes.iter().find_map(|attribute| match attribute {
        Nla::Other(other) if kind(other.kind()) == INET_DIAG_SK_BPF_STORAGES => Some(other),
        _ => None,
    })?;
    let mut bytes = vec![0; storages.value_len()];
    storages.emit_value(&mut bytes);
    let one = nested(&bytes, SK_DIAG_BPF_STORAGE)?;
    let value = nested(one, SK_DIAG_BPF_STORAGE_MAP_VALUE)?;
    // The kernel rounds a value's size up to 8 bytes.
    SockValue::read_from_bytes(value.get(..size_of::<SockValue>())?).ok()
}

fn nested(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut attributes = NlasIterator::new(bytes).map_while(Result::ok);
    let attribute = attributes.find(|attribute| attribute.kind() == wanted)?;
    let length = attribute.length() as usize;
    attribute.into_inner().get(NLA_HEADER_SIZE..length)
}

/// Without the flags in the upper bits.
const fn kind(raw: u16) -> u16 {
    raw & netlink_packet_core::NLA_TYPE_MASK
}
