//! An attempt to bind a port.

use std::{io, net::SocketAddr};

use lab::report::{Bound, Line};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{errno, print};

#[derive(Debug, clap::Args)]
#[group(id = "transport", required = true, args = ["tcp", "udp"])]
pub(crate) struct Args {
    /// What to bind.
    #[arg(value_name = "ADDR:PORT")]
    to: SocketAddr,
    /// A TCP socket.
    #[arg(long)]
    tcp: bool,
    /// A UDP socket.
    #[arg(long)]
    udp: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let result = bind(args.to, args.tcp);
    let bound = Bound {
        ok: result.is_ok(),
        error: result.as_ref().err().map(errno::name),
        local: result.ok(),
    };
    print(&Line::Bound(bound))
}

fn bind(to: SocketAddr, tcp: bool) -> io::Result<SocketAddr> {
    let (r#type, protocol) = if tcp {
        (Type::STREAM, Protocol::TCP)
    } else {
        (Type::DGRAM, Protocol::UDP)
    };
    let socket = Socket::new(Domain::for_address(to), r#type, Some(protocol))?;
    socket.bind(&to.into())?;
    socket
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
