//! Servers of `sidestep-probe` in a lab host.

use std::net::{Ipv6Addr, SocketAddr};

use crate::{
    Process, Result,
    place::Place,
    probe::{PATIENCE, Run, Transport, next},
    report::{Line, Ready},
};

/// A server to be started.
#[derive(Clone, Debug)]
pub struct Serve {
    run: Run,
    named: Option<String>,
}

/// A server that runs: it answers each connection, line and datagram with its name. Dropping it
/// stops it at once; open connections are reset or closed by the kernel.
#[derive(Debug)]
pub struct Server {
    process: Process,
    ready: Ready,
}

impl Serve {
    pub(crate) fn new(host: &str, place: &Place) -> Self {
        Self {
            run: Run::new(host, place, &["serve"]),
            named: None,
        }
    }

    /// The name to answer with; the host's if not given.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.named = Some(name.to_owned());
        self
    }

    /// Listens on a TCP port of every address, IPv4 and IPv6.
    #[must_use]
    pub fn tcp(self, port: u16) -> Self {
        self.listen(Transport::Tcp, (Ipv6Addr::UNSPECIFIED, port))
    }

    /// Listens on a UDP port of every address, IPv4 and IPv6. On a host with several addresses an
    /// answer may come from another than was asked: [`listen`](Self::listen) on one there.
    #[must_use]
    pub fn udp(self, port: u16) -> Self {
        self.listen(Transport::Udp, (Ipv6Addr::UNSPECIFIED, port))
    }

    /// Listens on one address.
    #[must_use]
    pub fn listen(mut self, transport: Transport, on: impl Into<SocketAddr>) -> Self {
        self.run.arg(transport.flag(), on.into());
        self
    }

    /// Starts the server and waits until it listens.
    pub fn start(mut self) -> Result<Server> {
        let name = self.named.take().unwrap_or_else(|| self.run.host.clone());
        self.run.arg("--name", name);
        let mut process = self.run.start()?;
        match next(&mut process, PATIENCE)? {
            Some(Line::Ready(ready)) => Ok(Server { process, ready }),
            _ => Err(process.failure("it did not become ready")),
        }
    }
}

impl Server {
    /// What it listens on.
    #[must_use]
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it.
    pub fn stop(self) {
        drop(self);
    }

    /// Lets it run until the end of its lab.
    pub fn leave(self) {
        self.process.leave();
    }
}
