//! Datagrams that are longer than what the way takes, and so come in pieces.

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    thread,
};

use lab::Host;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use sidestep_tests::frame::{ETHERNET, Frame};

use crate::{
    cluster::{Cluster, Service, TARGET},
    talk::PATIENCE,
};

/// The longest datagram that is sent, and room for it.
const LENGTHS: [usize; 2] = [4_000, 60_000];
const ROOM: usize = 64 << 10;
/// What a veth takes.
const MTU: usize = 1500;

/// Sends every datagram back, until the test's process ends.
fn mirror(host: &impl Host) {
    for ip in [IpAddr::from(host.v4()), host.v6().into()] {
        let at = SocketAddr::new(ip, TARGET);
        let socket = host.enter(|| UdpSocket::bind(at)).unwrap().unwrap();
        thread::spawn(move || {
            let mut buffer = vec![0; ROOM];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        });
    }
}

/// Octets that tell one place in a datagram from another.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// A Service with a pod on the node of its address, and one with a pod on the other node.
fn cluster(name: &str) -> (Cluster, [Service; 2]) {
    let cluster = Cluster::new(name);
    let services = [Service::new("near", 10), Service::new("far", 11)];
    let here = cluster.node_a.pod("here").unwrap();
    let there = cluster.node_b.pod("there").unwrap();
    mirror(&here);
    mirror(&there);
    cluster.write(services[0], &[(&here, &cluster.node_a)]);
    cluster.write(services[1], &[(&there, &cluster.node_b)]);
    (cluster, services)
}

fn addresses(cluster: &Cluster, services: [Service; 2]) -> Vec<SocketAddr> {
    let of = |service: Service| {
        [
            service.node_ports(&cluster.node_a),
            service.balancers(),
            service.externals(),
            service.cluster_ips(),
        ]
        .concat()
    };
    services.map(of).concat()
}

/// A socket of the client that talks to one address.
fn client(cluster: &Cluster, to: SocketAddr) -> UdpSocket {
    let ip: IpAddr = match to.is_ipv4() {
        true => cluster.client.v4().into(),
        false => cluster.client.v6().into(),
    };
    let socket = cluster
        .client
        .enter(|| {
            let socket = UdpSocket::bind((ip, 0))?;
            socket.connect(to)?;
            io::Result::Ok(socket)
        })
        .unwrap()
        .unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn expect(socket: &UdpSocket, sent: &[u8], what: &str) {
    let mut buffer = vec![0; ROOM];
    let length = socket
        .recv(&mut buffer)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(buffer[..length] == *sent, "{what}: {length} octets");
}

#[test]
fn datagrams_of_4_and_60_kilobytes_come_back_whole() {
    let (cluster, services) = cluster("long");
    let _agent = cluster.agent(&cluster.node_a, &[]);
    for to in addresses(&cluster, services) {
        let socket = client(&cluster, to);
        for length in LENGTHS {
            let sent = pattern(length);
            socket.send(&sent).unwrap();
            expect(&socket, &sent, &format!("{to}: {length}"));
        }
    }
}

/// Sends packets as they are, from the IP header on.
fn send_raw(cluster: &Cluster, to: SocketAddr, frames: &[Vec<u8>]) {
    let family = match to.is_ipv4() {
        true => AddressFamily::INET,
        false => AddressFamily::INET6,
    };
    let raw = cluster
        .client
        .enter(|| socket(family, SocketType::RAW, Some(ipproto::RAW)))
        .unwrap()
        .unwrap();
    // A raw socket has no ports; IPv6 refuses others than zero.
    let to = SocketAddr::new(to.ip(), 0);
    for frame in frames {
        sendto(&raw, &frame[ETHERNET..], SendFlags::empty(), &to).unwrap();
    }
}

#[test]
fn fragments_may_come_in_any_order() {
    let (cluster, services) = cluster("shuffled");
    let _agent = cluster.agent(&cluster.node_a, &[]);
    let mut id = 0;
    for to in addresses(&cluster, services) {
        let socket = client(&cluster, to);
        for length in LENGTHS {
            let sent = pattern(length);
            id += 1;
            let frame = Frame::udp(socket.local_addr().unwrap(), to)
                .with_payload(&sent)
                .with_id(id);
            let mut fragments = frame.fragments(MTU).unwrap();
            fragments.reverse();
            send_raw(&cluster, to, &fragments);
            expect(&socket, &sent, &format!("{to}: {length} reversed"));

            id += 1;
            let mut fragments = frame.with_id(id).fragments(MTU).unwrap();
            fragments.rotate_left(1);
            send_raw(&cluster, to, &fragments);
            expect(&socket, &sent, &format!("{to}: {length}, first one last"));
        }
    }
}
