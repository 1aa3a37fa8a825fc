//! TCP connections, one after the other.

use std::{
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    time::Instant,
};

use lab::report::Attempt;
use socket2::{Socket, Type};

use crate::client::{Ask, Options, microseconds, shown};

/// Longest name that a server may have.
const LONGEST_NAME: usize = 256;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to.
    #[arg(value_name = "ADDR:PORT")]
    to: SocketAddr,
    /// Send the first bytes with the SYN (TCP Fast Open).
    #[arg(long)]
    tfo: bool,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let to = args.options.target(args.to)?;
    args.options.run(|attempt| {
        attempt.to = Some(args.to);
        let mut connection = Connection {
            socket: args.options.socket(to, Type::STREAM)?,
        };
        let start = Instant::now();
        let result = connection.open(to, args.tfo);
        attempt.latency_us = microseconds(start);
        attempt.local = shown(connection.socket.local_addr());
        result?;
        attempt.sent = true;
        attempt.peer = shown(connection.socket.peer_addr());
        connection.read_name(attempt)?;
        Ok(connection)
    })
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
}

impl Connection {
    fn open(&self, to: SocketAddr, tfo: bool) -> io::Result<()> {
        if !tfo {
            return self.socket.connect(&to.into());
        }
        // MSG_FASTOPEN makes sendto connect as well (tcp(7)). The server answers this line with
        // its name once more, which is left unread.
        self.socket
            .send_to_with_flags(b"hello\n", &to.into(), libc::MSG_FASTOPEN)?;
        Ok(())
    }

    fn read_name(&mut self, attempt: &mut Attempt) -> io::Result<()> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < LONGEST_NAME {
            self.socket.read_exact(&mut byte)?;
            if byte[0] == b'\n' {
                attempt.server = Some(String::from_utf8_lossy(&line).into_owned());
                return Ok(());
            }
            line.push(byte[0]);
        }
        Err(io::Error::from(io::ErrorKind::InvalidData))
    }
}

impl Ask for Connection {
    fn ask(&mut self, attempt: &mut Attempt) -> io::Result<()> {
        let start = Instant::now();
        self.socket.write_all(b"again\n")?;
        attempt.sent = true;
        self.read_name(attempt)?;
        attempt.latency_us = microseconds(start);
        attempt.local = shown(self.socket.local_addr());
        attempt.peer = shown(self.socket.peer_addr());
        Ok(())
    }
}
