//! Sockets in the hosts of a lab: servers that say whom they see, clients that ask.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

use lab::Host;

/// How long an answer that must come may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long is waited for one that must not.
pub(crate) const IMPATIENCE: Duration = Duration::from_millis(700);

/// What a client learns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Name of the server.
    pub(crate) server: String,
    /// Whom the server saw.
    pub(crate) seen: SocketAddr,
    /// The client's own address.
    pub(crate) own: SocketAddr,
}

/// Serves TCP and UDP at a port of a host until the test's process ends. TCP connections are
/// answered with one line each, and then echo.
pub(crate) fn serve(host: &impl Host, port: u16) {
    for ip in [host.v4().into(), host.v6().into()] {
        let at = SocketAddr::new(ip, port);
        let name = host.name().to_owned();
        let (listener, socket) = host
            .enter(|| (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap()))
            .unwrap();
        let tcp_name = name.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let name = tcp_name.clone();
                thread::spawn(move || echo(stream.unwrap(), &name));
            }
        });
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(format!("{name} {from}").as_bytes(), from);
            }
        });
    }
}

fn echo(mut stream: TcpStream, name: &str) {
    let from = stream.peer_addr().unwrap();
    let _ = writeln!(stream, "{name} {from}");
    let mut reader = stream.try_clone().unwrap();
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// A connection from a host, and what the server says of it.
pub(crate) fn connect(
    host: &impl Host,
    to: SocketAddr,
    patience: Duration,
) -> io::Result<(TcpStream, Answer)> {
    let stream = host
        .enter(|| TcpStream::connect_timeout(&to, patience))
        .unwrap()?;
    stream.set_read_timeout(Some(patience))?;
    let own = stream.local_addr()?;
    assert_eq!(stream.peer_addr()?, to);
    let mut line = String::new();
    // Nothing else is said before the client speaks.
    BufReader::new(&stream).read_line(&mut line)?;
    let answer = parse(line.trim(), own)?;
    Ok((stream, answer))
}

/// A socket of a host, connected to an address, so that it hears of refusals and of nobody else.
pub(crate) fn datagrams(host: &impl Host, to: SocketAddr, patience: Duration) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = host
        .enter(|| {
            let socket = UdpSocket::bind(any)?;
            socket.connect(to)?;
            io::Result::Ok(socket)
        })
        .unwrap()
        .unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket
}

/// Asks on such a socket.
pub(crate) fn ask(socket: &UdpSocket) -> io::Result<Answer> {
    let mut buffer = [0; 256];
    socket.send(b"who")?;
    let length = socket.recv(&mut buffer)?;
    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
    parse(&text, socket.local_addr()?)
}

fn parse(text: &str, own: SocketAddr) -> io::Result<Answer> {
    let (server, seen) = text
        .split_once(' ')
        .ok_or_else(|| io::Error::other(format!("the answer is {text:?}")))?;
    Ok(Answer {
        server: server.to_owned(),
        seen: seen.parse().map_err(io::Error::other)?,
        own,
    })
}
