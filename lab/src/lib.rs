//! The lab: a small cluster network on one kernel, for tests, the demo and the benches.
//!
//! A [`Lab`] is a router ("the wire") in a network namespace of its own, with [`Node`]s on one
//! side and outside [`Client`]s on the other; every node has [`Pod`]s. Each of them is a network
//! namespace with IPv4 and IPv6 addresses and a cgroup; a node also has a bpffs. The machine's own
//! network gets no interface, address or route, and all of it goes when the [`Lab`] is dropped,
//! also when a test panics. What a killed run left behind is removed by the next [`Lab`].
//!
//! ```text
//!                     wire (router, no route to pods)
//!          172.18.0.1 │ bridge                  │ 203.0.113.1
//!        ┌────────────┴───────────┐             └── client "outside" 203.0.113.10
//!   node-a 172.18.0.2        node-b 172.18.0.3
//!   10.244.1.0/24            10.244.2.0/24
//!   web-1 10.244.1.2         web-2 10.244.2.2
//! ```
//!
//! ```no_run
//! use std::time::Duration;
//! use lab::{Host as _, Lab};
//!
//! # fn main() -> Result<(), lab::Error> {
//! let lab = Lab::new("sketch")?;
//! let (node_a, node_b) = (lab.node("node-a")?, lab.node("node-b")?);
//! let (client, web) = (node_a.pod("client")?, node_b.pod("web-1")?);
//! let _server = web.serve().tcp(80).udp(53).start()?;
//! let report = client.connect((web.v4(), 80)).count(100).run()?;
//! assert_eq!(report.summary.ok, 100);
//! assert_eq!(report.summary.servers["web-1"], 100);
//! # Ok(()) }
//! ```
//!
//! Needs Linux 5.7 or newer, root (CAP_SYS_ADMIN, CAP_NET_ADMIN), a cgroup2 mount and `ip`
//! (iproute2). It never attaches anything to the machine's root cgroup.

mod address;
mod agent;
mod binary;
mod cgroup;
mod error;
mod host;
mod lab;
mod netns;
mod node;
mod place;
mod probe;
mod process;
mod remains;
pub mod report;
mod serve;

pub use crate::{
    agent::{Agent, RunningAgent},
    binary::binary,
    error::Error,
    host::{Client, Host, Pod},
    lab::Lab,
    node::Node,
    place::Place,
    probe::{Bind, Connect, Datagram, Held, Running, Transport},
    process::Process,
    serve::{Serve, Server},
};

/// What the lab's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
