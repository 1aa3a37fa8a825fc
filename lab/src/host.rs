//! What nodes, pods and clients have in common, and the two that are nothing more.

use std::{
    ffi::OsStr,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::Command,
};

use crate::{
    Result, address, cgroup, netns,
    place::Place,
    probe::{Bind, Connect, Datagram, Transport},
    serve::Serve,
};

/// A machine of the lab: it has a name, addresses and a place where processes run.
pub trait Host {
    /// Name, unique in the lab.
    fn name(&self) -> &str;
    /// IPv4 address.
    fn v4(&self) -> Ipv4Addr;
    /// IPv6 address.
    fn v6(&self) -> Ipv6Addr;
    /// Its network namespace and cgroup.
    fn place(&self) -> &Place;

    /// A command that runs here: see [`Place::command`].
    fn command(&self, program: impl AsRef<OsStr>) -> Command
    where
        Self: Sized,
    {
        self.place().command(program)
    }

    /// Runs a closure in this network namespace: see [`Place::enter`].
    fn enter<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T>
    where
        Self: Sized,
    {
        self.place().enter(closure)
    }

    /// A server that answers with this host's name.
    fn serve(&self) -> Serve {
        Serve::new(self.name(), self.place())
    }

    /// TCP connections from here.
    fn connect(&self, to: impl Into<SocketAddr>) -> Connect
    where
        Self: Sized,
    {
        Connect::new(self.name(), self.place(), to.into())
    }

    /// UDP questions from here.
    fn datagram(&self, to: impl Into<SocketAddr>) -> Datagram
    where
        Self: Sized,
    {
        Datagram::new(self.name(), self.place(), to.into())
    }

    /// An attempt to bind a port here.
    fn bind(&self, transport: Transport, to: impl Into<SocketAddr>) -> Bind
    where
        Self: Sized,
    {
        Bind::new(self.name(), self.place(), transport, to.into())
    }
}

/// A pod: a network namespace behind a node, and a cgroup inside the node's.
#[derive(Debug)]
pub struct Pod {
    pub(crate) name: String,
    pub(crate) addresses: address::Pair,
    pub(crate) place: Place,
    /// The node's end of the pod's veth pair.
    pub(crate) device: String,
    pub(crate) node_netns: String,
}

impl Pod {
    /// Name of the node's end of the pod's veth pair. The pod's end is `eth0`.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Removes the pod as a node would: its processes are killed, its network goes. Its name and
    /// addresses are not given out again.
    pub fn delete(self) -> Result<()> {
        cgroup::kill(self.place.cgroup())?;
        netns::ip(&self.node_netns, &format!("link del {}\n", self.device))?;
        cgroup::remove(self.place.cgroup())?;
        netns::delete(self.place.netns())
    }
}

impl Host for Pod {
    fn name(&self) -> &str {
        &self.name
    }
    fn v4(&self) -> Ipv4Addr {
        self.addresses.v4
    }
    fn v6(&self) -> Ipv6Addr {
        self.addresses.v6
    }
    fn place(&self) -> &Place {
        &self.place
    }
}

/// A machine outside the cluster. It knows the nodes' addresses, not the pods'.
#[derive(Debug)]
pub struct Client {
    pub(crate) name: String,
    pub(crate) addresses: address::Pair,
    pub(crate) place: Place,
}

impl Host for Client {
    fn name(&self) -> &str {
        &self.name
    }
    fn v4(&self) -> Ipv4Addr {
        self.addresses.v4
    }
    fn v6(&self) -> Ipv6Addr {
        self.addresses.v6
    }
    fn place(&self) -> &Place {
        &self.place
    }
}
