//! Clients from outside of the cluster, on real sockets, in a lab of two nodes with real agents.
//!
//! Servers say whom they see. Needs root and cgroup2.
#![expect(clippy::unwrap_used, reason = "what fails here fails its test")]

mod cluster;
mod fragments;
mod path_mtu;
mod restart;
mod talk;
mod transfer;
mod way;
