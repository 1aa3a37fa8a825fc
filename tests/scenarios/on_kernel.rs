//! A scenario on the real maps, with the programs attached and with real sockets.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use proxy_agent::{datapath::Kernel, plan::Snapshot};
use proxy_common::{Counter, Protocol, addr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect as start, socket_with};
use sidestep_tests::{
    data_plane::DataPlane,
    place::Place,
    talk::{ask, ip, read_line, tcp_server, udp_client, udp_server},
};

use crate::{
    on_fake::answers,
    player::{Clients, Order, Player},
    script::{Client, Connect, Outcome, Script},
};

/// Address of the client pod: an endpoint there listens in the pod.
const POD: &str = "10.200.0.2";
/// How long a connection may take that must come.
const PATIENCE: Duration = Duration::from_secs(5);
/// Tries for each backend until all have to have answered: missing one of three happens once in
/// 10^7 times.
const TRIES: usize = 40;

/// Plays as written. To be called in the process of a test.
pub(crate) fn play(script: &Script) -> anyhow::Result<()> {
    let data_plane = DataPlane::start(&script.settings.sizes)?;
    let sockets = Sockets::new(data_plane.open()?)?;
    Player::new(script, Order::AsWritten, data_plane.open()?, sockets)?.play()?;
    Ok(())
}

/// Clients and backends with sockets.
struct Sockets {
    pod: Place,
    counters: Kernel,
    /// On the loopback interface of the node.
    addresses: BTreeSet<IpAddr>,
    servers: BTreeSet<(SocketAddr, Protocol)>,
    open: BTreeMap<String, Open>,
}

enum Open {
    Tcp(TcpStream),
    Udp(UdpSocket, SocketAddr),
}

/// What the programs counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted {
    translated: u64,
    refused: u64,
    dropped: u64,
    broken: u64,
}

impl Sockets {
    fn new(counters: Kernel) -> anyhow::Result<Self> {
        ip("link set lo up\n")?;
        let pod = Place::new()?;
        let pid = pod.pid();
        ip(&format!(
            "link add veth0 type veth peer name eth0 netns {pid}\n\
             addr add 10.200.0.1/24 dev veth0\n\
             addr add fd00:200::1/64 dev veth0 nodad\n\
             link set veth0 up\n"
        ))?;
        pod.run(|| {
            ip(&format!(
                "link set lo up\n\
                 addr add {POD}/24 dev eth0\n\
                 addr add fd00:200::2/64 dev eth0 nodad\n\
                 link set eth0 up\n\
                 route add default via 10.200.0.1\n\
                 route add default via fd00:200::1\n"
            ))
        })??;
        Ok(Self {
            pod,
            counters,
            addresses: BTreeSet::new(),
            servers: BTreeSet::new(),
            open: BTreeMap::new(),
        })
    }

    fn add_address(&mut self, address: IpAddr) -> anyhow::Result<()> {
        if address.is_loopback() || !self.addresses.insert(address) {
            return Ok(());
        }
        ip(&match address {
            IpAddr::V4(_) => format!("addr add {address}/32 dev lo\n"),
            IpAddr::V6(_) => format!("addr add {address}/128 dev lo nodad\n"),
        })
    }

    fn count(&self) -> anyhow::Result<Counted> {
        let counters = self.counters.counters()?;
        Ok(Counted {
            translated: counters[&Counter::SocketTranslated],
            refused: counters[&Counter::SocketRefused] + counters[&Counter::SocketUnknownPort],
            dropped: counters[&Counter::SocketDropped],
            broken: counters[&Counter::SocketBroken],
        })
    }

    fn run<T: Send>(&self, from: Client, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match from {
            Client::Node => Ok(work()),
            Client::Pod => self.pod.run(work),
        }
    }

    /// Asks until everybody has answered, or long enough.
    fn gather(&self, connect: &Connect, tries: usize) -> anyhow::Result<BTreeSet<SocketAddr>> {
        let all = answers(&connect.outcome);
        let (to, protocol) = (connect.to, connect.protocol);
        self.run(connect.from, move || {
            let mut found = BTreeSet::new();
            for _ in 0..tries {
                found.insert(call(to, protocol)?);
                if found == all && all.len() > 1 {
                    break;
                }
            }
            io::Result::Ok(found)
        })?
        .with_context(|| format!("connect to {to}"))
    }
}

impl Clients for Sockets {
    fn see(&mut self, maps: &Snapshot) -> anyhow::Result<()> {
        for backend in maps.backends.values() {
            let at = SocketAddr::new(addr::to_ip(&backend.addr), backend.port);
            if !self.servers.insert((at, backend.protocol)) {
                continue;
            }
            let place = match at.ip() == POD.parse::<IpAddr>()? {
                true => Client::Pod,
                false => Client::Node,
            };
            if place == Client::Node {
                self.add_address(at.ip())?;
            }
            let protocol = backend.protocol;
            self.run(place, move || match protocol {
                Protocol::Tcp => tcp_server(at),
                Protocol::Udp => udp_server(at),
                _ => Ok(()),
            })??;
        }
        Ok(())
    }

    fn node_addresses(&mut self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        addresses
            .iter()
            .try_for_each(|&address| self.add_address(address))
    }

    fn connect(&mut self, connect: &Connect) -> anyhow::Result<()> {
        let (to, protocol) = (connect.to, connect.protocol);
        let before = self.count()?;
        match &connect.outcome {
            Outcome::Spread(all) => {
                let found = self.gather(connect, TRIES * all.len())?;
                ensure!(found == *all, "{found:?} answered");
            }
            Outcome::Sticky(all) => {
                let found = self.gather(connect, TRIES / 4)?;
                ensure!(
                    found.len() == 1 && found.is_subset(all),
                    "{found:?} answered"
                );
            }
            Outcome::Untouched => {
                self.run(connect.from, move || poke(to, protocol))??;
                let after = self.count()?;
                ensure!(after == before, "counted {before:?}, then {after:?}");
            }
            Outcome::Refused | Outcome::Dropped => {
                let error = self.run(connect.from, move || call(to, protocol))?;
                let error = error.err().and_then(|error| error.raw_os_error());
                let after = self.count()?;
                let refused = (error == Some(libc::ECONNREFUSED), after.refused)
                    == (true, before.refused + 1);
                let dropped = (error == Some(libc::EHOSTUNREACH), after.dropped)
                    == (true, before.dropped + 1);
                let is_right = match connect.outcome {
                    Outcome::Refused => refused,
                    _ => dropped,
                };
                ensure!(
                    is_right,
                    "error {error:?}, counted {before:?}, then {after:?}"
                );
            }
        }
        let after = self.count()?;
        ensure!(
            after.broken == before.broken,
            "a program found broken maps: {after:?}"
        );
        Ok(())
    }

    fn open(&mut self, name: &str, connect: &Connect) -> anyhow::Result<()> {
        let to = connect.to;
        let (open, who) = match connect.protocol {
            Protocol::Tcp => {
                let mut stream = self.run(connect.from, move || connect_when_routed(&to))??;
                let who = read_line(&mut stream)?;
                (Open::Tcp(stream), who)
            }
            _ => {
                let socket = self.run(connect.from, move || udp_client(to))??;
                let (who, _) = ask(&socket, to)?;
                (Open::Udp(socket, to), who)
            }
        };
        ensure!(answers(&connect.outcome).contains(&who), "{who} answered");
        self.open.insert(name.into(), open);
        Ok(())
    }

    fn ask(&mut self, name: &str, outcome: &Outcome) -> anyhow::Result<()> {
        let who = match self.open.get_mut(name).context("it is not open")? {
            Open::Tcp(stream) => {
                io::Write::write_all(stream, b"?")?;
                read_line(stream)
            }
            Open::Udp(socket, to) => ask(socket, *to).map(|(who, _)| who),
        };
        match (who, outcome) {
            (Ok(who), outcome) if answers(outcome).contains(&who) => Ok(()),
            (Err(error), Outcome::Refused) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Ok(())
            }
            (who, _) => bail!("it is {who:?}"),
        }
    }
}

/// Connects, or sends a datagram, and returns who answered. The client sees the address that it
/// asked for.
fn call(to: SocketAddr, protocol: Protocol) -> io::Result<SocketAddr> {
    let (who, seen) = match protocol {
        Protocol::Tcp => {
            let mut stream = connect_when_routed(&to)?;
            let seen = stream.peer_addr()?;
            (read_line(&mut stream)?, seen)
        }
        _ => ask(&udp_client(to)?, to)?,
    };
    match seen == to {
        true => Ok(who),
        false => Err(io::Error::other(format!("{to} shows as {seen}"))),
    }
}

/// Starts to connect, or sends a datagram, whatever comes of it.
fn poke(to: SocketAddr, protocol: Protocol) -> io::Result<()> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    match protocol {
        Protocol::Tcp => {
            let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK, None)?;
            let _ = start(&socket, &to);
        }
        _ => {
            let socket = udp_client(to)?;
            socket.set_nonblocking(true)?;
            let _ = socket.send_to(b"?", to);
        }
    }
    Ok(())
}

/// Connects. The kernel brings up new IPv6 addresses on a work queue (net/ipv6/addrconf.c,
/// `addrconf_mod_dad_work`), so the first connections may come before their routes.
fn connect_when_routed(to: &std::net::SocketAddr) -> std::io::Result<TcpStream> {
    let patience = std::time::Instant::now() + PATIENCE;
    loop {
        match TcpStream::connect_timeout(to, PATIENCE) {
            Err(error)
                if error.kind() == std::io::ErrorKind::NetworkUnreachable
                    && std::time::Instant::now() < patience =>
            {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            result => return result,
        }
    }
}
