//! Destroying connected UDP sockets of dead backends.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::OwnedFd,
    sync::{Mutex, mpsc},
    time::Duration,
};

use proxy_agent::node::{
    namespace::Namespace,
    sockets::{self, Pass, Reaper},
};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};

use crate::{
    place::{PODS, PODS6, Place},
    storage::Maps,
};

/// Backends by their ids.
const DEAD: u32 = 7;
const LIVE: u32 = 8;

/// Reached only if the thread hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lists and destroys.
fn reap(maps: &Maps) -> Pass {
    sockets::reap(&|| maps.orphans()).expect("list namespaces")
}

/// What must be destroyed and what must not, in one namespace.
struct Sockets {
    doomed: Vec<UdpSocket>,
    spared: Vec<UdpSocket>,
    unconnected: UdpSocket,
    tcp: TcpStream,
    _server: TcpListener,
}

impl Sockets {
    fn open(place: &Place, maps: &mut Maps) -> Self {
        place.inside(|| {
            let (a, b) = (at(PODS[0]), at(PODS[1]));
            let doomed: Vec<_> = [a, at(PODS6[0]), mapped(a)]
                .into_iter()
                .map(|peer| {
                    let socket = connected(peer);
                    maps.connected(&socket, peer, DEAD);
                    socket
                })
                .collect();

            let to_live = connected(b);
            maps.connected(&to_live, b, LIVE);
            let to_live6 = connected(at(PODS6[1]));
            maps.connected(&to_live6, at(PODS6[1]), LIVE);
            let direct = connected(a);
            let elsewhere_since = connected(b);
            maps.connected(&elsewhere_since, a, DEAD);
            let other_port_since = connected(SocketAddr::new(a.ip(), 5354));
            maps.connected(&other_port_since, a, DEAD);

            let unconnected = UdpSocket::bind(SocketAddr::new(a.ip(), 0)).expect("bind");
            maps.connected(&unconnected, a, DEAD);

            let server = TcpListener::bind((a.ip(), 0)).expect("listen");
            let tcp = TcpStream::connect(server.local_addr().expect("address")).expect("connect");
            maps.connected(&tcp, tcp.peer_addr().expect("peer"), DEAD);

            Self {
                doomed,
                spared: vec![to_live, to_live6, direct, elsewhere_since, other_port_since],
                unconnected,
                tcp,
                _server: server,
            }
        })
    }

    fn check(&self) {
        for socket in &self.doomed {
            let error = socket.recv(&mut [0; 8]).expect_err("it is destroyed");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
            assert!(socket.peer_addr().is_err(), "still connected: {socket:?}");
        }
        for socket in &self.spared {
            assert!(
                socket.take_error().expect("ask for an error").is_none(),
                "{socket:?}"
            );
            assert!(
                socket.peer_addr().is_ok(),
                "no longer connected: {socket:?}"
            );
        }
        assert!(
            self.unconnected
                .take_error()
                .expect("ask for an error")
                .is_none()
        );
        assert_ne!(self.unconnected.local_addr().expect("address").port(), 0);
        assert!(self.tcp.take_error().expect("ask for an error").is_none());
        assert!(self.tcp.peer_addr().is_ok());
    }
}

#[test]
fn exactly_the_connected_udp_sockets_of_dead_backends_are_destroyed_in_every_namespace() {
    let mut maps = Maps::new();
    maps.put_backend(LIVE, 1, at(PODS[1]));
    let places = [Place::named(), Place::with_process()];
    let sockets: Vec<_> = places
        .iter()
        .map(|place| Sockets::open(place, &mut maps))
        .collect();

    let pass = reap(&maps);

    sockets.iter().for_each(Sockets::check);
    assert_eq!((pass.destroyed, pass.failed), (2 * 3, 0), "{pass:?}");
    // The others are connected elsewhere since, or not connected.
    assert_eq!(pass.orphans, 2 * (3 + 2 + 1), "{pass:?}");
    assert!(pass.namespaces >= 3, "{pass:?}");
}

#[test]
fn of_many_sockets_none_is_overlooked() {
    let mut maps = Maps::new();
    let place = Place::named();
    // More records than one read of the iterator returns (32 KiB).
    let clients: Vec<_> = place.inside(|| (0..1500).map(|_| connected(at(PODS[0]))).collect());
    for client in &clients {
        maps.connected(client, at(PODS[0]), DEAD);
    }
    let pass = reap(&maps);
    assert_eq!(
        (pass.orphans, pass.destroyed, pass.failed),
        (1500, 1500, 0),
        "{pass:?}"
    );
}

#[test]
fn a_destroyed_socket_can_be_connected_again() {
    let mut maps = Maps::new();
    let place = Place::named();
    place.inside(|| {
        let server = UdpSocket::bind((PODS[1], 0)).expect("bind");
        let client = connected(at(PODS[0]));
        maps.connected(&client, at(PODS[0]), DEAD);
        let pass = reap(&maps);
        assert_eq!(pass.destroyed, 1);

        let aborted = client.recv(&mut [0; 8]).expect_err("it is destroyed");
        assert_eq!(aborted.kind(), io::ErrorKind::ConnectionAborted);
        client
            .connect(server.local_addr().expect("address"))
            .expect("connect again");
        client.send(b"hello").expect("send");
        let (length, _) = server.recv_from(&mut [0; 8]).expect("receive");
        assert_eq!(length, 5);
    });
}

#[test]
fn sockets_that_share_port_and_peer_are_all_destroyed() {
    let mut maps = Maps::new();
    let place = Place::named();
    let peer = at(PODS[0]);
    let twins: Vec<OwnedFd> = place.inside(|| (0..4).map(|_| reuse_port(peer)).collect());
    for twin in &twins {
        maps.connected(twin, peer, DEAD);
    }
    let pass = reap(&maps);
    assert_eq!((pass.destroyed, pass.failed), (4, 0), "{pass:?}");
    for twin in twins {
        let error = UdpSocket::from(twin)
            .recv(&mut [0; 8])
            .expect_err("it is destroyed");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
}

#[test]
fn requests_during_a_pass_share_the_next_one() {
    let mut maps = Maps::new();
    let place = Place::named();
    let client = place.inside(|| connected(at(PODS[0])));
    maps.connected(&client, at(PODS[0]), DEAD);
    let orphans = maps.into_orphans();

    // Each pass says when it comes to the place, and waits there until it may go on.
    let inode = place.namespace.inode();
    let (arrive, arrivals) = mpsc::channel();
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let (report, passes) = mpsc::channel();
    let list = move || {
        if Namespace::current().is_ok_and(|here| here.inode() == inode) {
            let _ = arrive.send(());
            // Without a sender: the test is over.
            let _ = gate.lock().map(|gate| gate.recv());
        }
        orphans.list()
    };
    let reaper = Reaper::spawn(list, move |pass| {
        let _ = report.send(pass);
    })
    .expect("this kernel can destroy sockets");

    reaper.request();
    arrivals.recv_timeout(PATIENCE).expect("a pass");
    for _ in 0..1000 {
        reaper.request();
    }
    go.send(()).expect("the pass goes on");
    let first = passes.recv_timeout(PATIENCE).expect("the pass ends");
    assert_eq!(first.destroyed, 1, "{first:?}");
    arrivals.recv_timeout(PATIENCE).expect("a second pass");
    go.send(()).expect("the pass goes on");
    let second = passes.recv_timeout(PATIENCE).expect("the second pass ends");
    assert_eq!(second.destroyed, 0, "{second:?}");

    // One more, unasked, for sockets that were inside connect(2) meanwhile; then no other.
    arrivals.recv_timeout(PATIENCE).expect("the echo");
    drop(go);
    passes.recv_timeout(PATIENCE).expect("the echo ends");
    drop(reaper);
    assert_eq!(passes.iter().count(), 0);
}

/// A UDP socket of the peer's family, connected to it.
fn connected(peer: SocketAddr) -> UdpSocket {
    let any = if peer.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).expect("bind");
    socket.connect(peer).expect("connect");
    // Reached only if a socket that should be destroyed is not.
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("set a timeout");
    socket
}

/// One of a group on the same port with the same peer.
fn reuse_port(peer: SocketAddr) -> OwnedFd {
    let fd = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("open");
    sockopt::set_socket_reuseport(&fd, true).expect("share a port");
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))
        .expect("set a timeout");
    bind(&fd, &SocketAddr::new(peer.ip(), 40_000)).expect("bind");
    connect(&fd, &peer).expect("connect");
    fd
}

fn at(pod: &str) -> SocketAddr {
    SocketAddr::new(pod.parse().expect("an address"), 5353)
}

/// The address as an IPv6 socket names it.
fn mapped(peer: SocketAddr) -> SocketAddr {
    match peer.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), peer.port()),
        IpAddr::V6(_) => peer,
    }
}
