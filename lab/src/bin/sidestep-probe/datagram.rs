//! UDP datagrams, each with its answer.

use std::{
    io::{self, Read as _},
    net::SocketAddr,
    time::Instant,
};

use anyhow::ensure;
use lab::report::Attempt;
use socket2::{Socket, Type};

use crate::client::{Ask, Options, microseconds, shown};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to; several are used in turn.
    #[arg(value_name = "ADDR:PORT", required = true)]
    to: Vec<SocketAddr>,
    /// Connect each socket first.
    #[arg(long)]
    connected: bool,
    /// Take a new socket for each datagram.
    #[arg(long)]
    fresh: bool,
    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(
        !args.connected || args.to.len() == 1,
        "--connected needs exactly one address"
    );
    let targets: Vec<_> = args
        .to
        .iter()
        .map(|&to| args.options.target(to))
        .collect::<Result<_, _>>()?;
    ensure!(
        targets
            .iter()
            .all(|to| to.is_ipv4() == targets[0].is_ipv4()),
        "addresses of one family only: they share a socket"
    );
    let shared = !args.fresh && !args.options.hold;
    let mut kept = None;
    args.options.run(|attempt| {
        let mut port = match kept.take() {
            Some(port) => port,
            None => Port::open(args, &targets)?,
        };
        let result = port.ask(attempt);
        if !shared {
            return result.map(|()| Some(port));
        }
        kept = Some(port);
        result.map(|()| None)
    })
}

/// A socket and whom it asks.
#[derive(Debug)]
struct Port<'a> {
    socket: Socket,
    /// As the user wrote them, and as the socket takes them.
    targets: (&'a [SocketAddr], &'a [SocketAddr]),
    connected: bool,
    /// Number of the next question, which is its payload.
    number: u64,
}

impl<'a> Port<'a> {
    fn open(args: &'a Args, targets: &'a [SocketAddr]) -> io::Result<Self> {
        let socket = args.options.socket(targets[0], Type::DGRAM)?;
        if args.connected {
            socket.connect(&targets[0].into())?;
        }
        Ok(Self {
            socket,
            targets: (&args.to, targets),
            connected: args.connected,
            number: 0,
        })
    }

    /// Waits for the answer to this question; late ones to earlier questions are skipped.
    fn answer(&mut self, question: &str, attempt: &mut Attempt) -> io::Result<()> {
        let mut buffer = [0; 512];
        loop {
            let (length, from) = if self.connected {
                (self.socket.read(&mut buffer)?, None)
            } else {
                receive_from(&self.socket, &mut buffer)?
            };
            let text = String::from_utf8_lossy(&buffer[..length]);
            if let Some((name, number)) = text.rsplit_once(' ')
                && number == question
            {
                attempt.server = Some(name.to_owned());
                attempt.from = from;
                return Ok(());
            }
        }
    }
}

impl Ask for Port<'_> {
    fn ask(&mut self, attempt: &mut Attempt) -> io::Result<()> {
        let turn = usize::try_from(self.number).unwrap_or(0) % self.targets.0.len();
        attempt.to = Some(self.targets.0[turn]);
        let question = self.number.to_string();
        self.number += 1;
        let start = Instant::now();
        if self.connected {
            self.socket.send(question.as_bytes())?;
        } else {
            self.socket
                .send_to(question.as_bytes(), &self.targets.1[turn].into())?;
        }
        attempt.sent = true;
        let result = self.answer(&question, attempt);
        attempt.latency_us = microseconds(start);
        attempt.local = shown(self.socket.local_addr());
        attempt.peer = shown(self.socket.peer_addr());
        result
    }
}

/// A socket that may be shared, and so is not in the hands of whom it answers.
impl Ask for Option<Port<'_>> {
    fn ask(&mut self, attempt: &mut Attempt) -> io::Result<()> {
        self.as_mut().map_or(Ok(()), |port| port.ask(attempt))
    }
}

fn receive_from(socket: &Socket, buffer: &mut [u8]) -> io::Result<(usize, Option<SocketAddr>)> {
    let (length, from) = rustix::net::recvfrom(socket, buffer, rustix::net::RecvFlags::empty())
        .map(|(n, _, f)| (n, f))?;
    Ok((
        length,
        from.and_then(|from| SocketAddr::try_from(from).ok()),
    ))
}
