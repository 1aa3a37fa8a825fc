//! Servers that say who they are, and clients that ask.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, ensure};

/// How long a client waits for an answer that must come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs ip(8) in this network namespace, one command a line.
pub fn ip(lines: &str) -> anyhow::Result<()> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("start ip(8)")?;
    ip.stdin
        .take()
        .context("stdin of ip")?
        .write_all(lines.as_bytes())?;
    ensure!(ip.wait()?.success(), "ip(8) failed: {lines}");
    Ok(())
}

/// Accepts connections and says its address on each, and again for every byte that comes, until the test's process ends.
pub fn tcp_server(addr: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(addr).with_context(|| format!("listen on {addr}"))?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let name = format!("{addr}\n");
                // Until the client closes.
                while stream.write_all(name.as_bytes()).is_ok()
                    && stream.read(&mut [0]).is_ok_and(|length| length > 0)
                {}
            });
        }
    });
    Ok(())
}

/// Answers each datagram with its address, until the test's process ends.
pub fn udp_server(addr: SocketAddr) -> anyhow::Result<()> {
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
pub fn read_line(stream: &mut TcpStream) -> io::Result<SocketAddr> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut said = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        said.push(byte[0]);
    }
    parse(&said)
}

/// Connects and returns the connection and who answered.
pub fn call(to: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let mut stream = TcpStream::connect(to)?;
    let who = read_line(&mut stream)?;
    Ok((stream, who))
}

/// An unconnected UDP socket of the family of `to`.
pub fn udp_client(to: SocketAddr) -> io::Result<UdpSocket> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Sends to an address; returns who answered by its own word, and the source that the answer had.
pub fn ask(socket: &UdpSocket, to: SocketAddr) -> io::Result<(SocketAddr, SocketAddr)> {
    socket.send_to(b"who", to)?;
    answer(socket)
}

/// Waits for an answer: who it is by its own word, and the source that it had.
pub fn answer(socket: &UdpSocket) -> io::Result<(SocketAddr, SocketAddr)> {
    let mut buffer = [0; 64];
    let (length, from) = socket.recv_from(&mut buffer)?;
    Ok((parse(&buffer[..length])?, from))
}

fn parse(said: &[u8]) -> io::Result<SocketAddr> {
    let text = std::str::from_utf8(said).map_err(io::Error::other)?;
    text.parse()
        .map_err(|e| io::Error::other(format!("'{text}': {e}")))
}
