//! The server: it answers everything with its name.

use std::{io, net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use lab::report::{Line, Ready};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
};

use crate::print;

/// Connections that the kernel may hold until they are accepted.
const BACKLOG: i32 = 4096;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to answer with.
    #[arg(long)]
    name: String,
    /// Listen on this TCP address; `[::]:PORT` takes IPv4 as well. May be given several times.
    #[arg(long, value_name = "ADDR:PORT")]
    tcp: Vec<SocketAddr>,
    /// Listen on this UDP address; `[::]:PORT` takes IPv4 as well. May be given several times.
    #[arg(long, value_name = "ADDR:PORT")]
    udp: Vec<SocketAddr>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let name: Arc<str> = args.name.into();
    let mut ready = Ready {
        name: name.to_string(),
        tcp: Vec::new(),
        udp: Vec::new(),
    };
    let mut servers = JoinSet::new();
    for address in args.tcp {
        let listener = listen_tcp(address).with_context(|| format!("listen on {address} (TCP)"))?;
        ready.tcp.push(listener.local_addr()?);
        servers.spawn(accept(listener, Arc::clone(&name)));
    }
    for address in args.udp {
        let socket = listen_udp(address).with_context(|| format!("listen on {address} (UDP)"))?;
        ready.udp.push(socket.local_addr()?);
        servers.spawn(answer_datagrams(socket, Arc::clone(&name)));
    }
    print(&Line::Ready(ready))?;
    // None of them ends by itself.
    while servers.join_next().await.is_some() {}
    Ok(())
}

async fn accept(listener: TcpListener, name: Arc<str>) {
    loop {
        // What fails here concerns one connection, or the lack of file descriptors, which passes.
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer_lines(stream, Arc::clone(&name)))),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Says the name at once, and again after each line.
async fn answer_lines(mut stream: TcpStream, name: Arc<str>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let answer = format!("{name}\n");
    let (read, mut write) = stream.split();
    write.write_all(answer.as_bytes()).await?;
    let mut lines = BufReader::with_capacity(256, read).lines();
    while lines.next_line().await?.is_some() {
        write.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// Answers each datagram with the name, a blank and its payload.
async fn answer_datagrams(socket: UdpSocket, name: Arc<str>) {
    let mut buffer = [0; 2048];
    loop {
        // Errors are ICMP messages about earlier answers to clients that have gone.
        if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let mut answer = format!("{name} ").into_bytes();
            answer.extend_from_slice(&buffer[..length]);
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

fn listen_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = open(address, Type::STREAM, Protocol::TCP)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn listen_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(address, Type::DGRAM, Protocol::UDP)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

fn open(address: SocketAddr, r#type: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), r#type, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}
