//! Addresses of the test's network namespace, servers and clients.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use proxy_common::Protocol;

use crate::stage::{Endpoint, Policy, Stage};

/// Addresses that "pods" listen on.
pub(crate) const PODS: [&str; 3] = ["10.1.0.1", "10.1.0.2", "10.1.0.3"];
/// The same for IPv6.
pub(crate) const PODS6: [&str; 3] = ["fd01::1", "fd01::2", "fd01::3"];
/// An address of the node.
pub(crate) const NODE: &str = "192.168.7.1";
/// The same for IPv6.
pub(crate) const NODE6: &str = "fd07::1";
/// A ClusterIP; on no interface.
pub(crate) const VIP: &str = "10.96.0.10";
/// The same for IPv6.
pub(crate) const VIP6: &str = "fd96::10";
/// How long a client waits for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Puts the addresses on the loopback interface.
pub(crate) fn set_up() -> anyhow::Result<()> {
    let mut lines = String::from("link set lo up\n");
    for addr in PODS.iter().chain([&NODE]) {
        lines += &format!("addr add {addr}/32 dev lo\n");
    }
    for addr in PODS6.iter().chain([&NODE6]) {
        lines += &format!("addr add {addr}/128 dev lo nodad\n");
    }
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("start ip(8)")?;
    ip.stdin
        .take()
        .context("stdin of ip")?
        .write_all(lines.as_bytes())?;
    ensure!(ip.wait()?.success(), "ip(8) failed");
    Ok(())
}

/// Puts one more address on the loopback interface.
pub(crate) fn add_addr(addr: &str) -> anyhow::Result<()> {
    let status = Command::new("ip")
        .args(["addr", "add", addr, "dev", "lo"])
        .status()?;
    ensure!(status.success(), "ip(8) failed to add {addr}");
    Ok(())
}

/// Writes a sysctl of the network namespace.
pub(crate) fn sysctl(path: &str, value: &str) -> anyhow::Result<()> {
    fs::write(format!("/proc/sys/{path}"), value).with_context(|| format!("write sysctl {path}"))
}

/// An address and port.
pub(crate) fn at(addr: &str, port: u16) -> SocketAddr {
    SocketAddr::new(addr.parse().expect("an address"), port)
}

/// The address as an IPv6 socket names it.
pub(crate) fn mapped(addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

/// The pods of the family of an address, at port 8080.
pub(crate) fn pods(to: SocketAddr) -> Vec<SocketAddr> {
    let pods = if to.ip().to_canonical().is_ipv4() {
        PODS
    } else {
        PODS6
    };
    pods.iter().map(|pod| at(pod, 8080)).collect()
}

/// Servers on all pods of the family of `vip`, and a Service of them at `vip`. Returns the backends.
pub(crate) fn serve(
    stage: &mut Stage,
    protocol: Protocol,
    vip: SocketAddr,
) -> anyhow::Result<Vec<u32>> {
    for pod in pods(vip) {
        match protocol {
            Protocol::Tcp => tcp_server(pod)?,
            _ => udp_server(pod)?,
        }
    }
    let endpoints: Vec<_> = pods(vip).into_iter().map(Endpoint::cluster_only).collect();
    let service = stage.id();
    let backends = stage.publish(service, protocol, &endpoints, Policy::default())?;
    stage.cluster_ip(vip, protocol, service)?;
    Ok(backends)
}

/// Accepts connections and says its address on each, until the test's process ends.
pub(crate) fn tcp_server(addr: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(addr).with_context(|| format!("listen on {addr}"))?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let _ = stream.write_all(format!("{addr}\n").as_bytes());
                // Until the client closes.
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    Ok(())
}

/// Answers each datagram with its address, until the test's process ends.
pub(crate) fn udp_server(addr: SocketAddr) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(addr).with_context(|| format!("bind {addr}"))?;
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(addr.to_string().as_bytes(), from);
        }
    });
    Ok(())
}

/// What a server says first.
pub(crate) fn read_line(stream: &mut TcpStream) -> io::Result<SocketAddr> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut said = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        said.push(byte[0]);
    }
    parse(&said)
}

/// Connects and returns the connection and who answered.
pub(crate) fn call(to: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let mut stream = TcpStream::connect(to)?;
    let who = read_line(&mut stream)?;
    Ok((stream, who))
}

/// An unconnected UDP socket of the family of `to`.
pub(crate) fn udp_client(to: SocketAddr) -> io::Result<UdpSocket> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Sends to an address; returns who answered by its own word, and the source that the answer had.
pub(crate) fn ask(socket: &UdpSocket, to: SocketAddr) -> io::Result<(SocketAddr, SocketAddr)> {
    socket.send_to(b"who", to)?;
    answer(socket)
}

/// Waits for an answer: who it is by its own word, and the source that it had.
pub(crate) fn answer(socket: &UdpSocket) -> io::Result<(SocketAddr, SocketAddr)> {
    let mut buffer = [0; 64];
    let (length, from) = socket.recv_from(&mut buffer)?;
    Ok((parse(&buffer[..length])?, from))
}

fn parse(said: &[u8]) -> io::Result<SocketAddr> {
    let text = std::str::from_utf8(said).map_err(io::Error::other)?;
    text.parse()
        .map_err(|e| io::Error::other(format!("'{text}': {e}")))
}
