//! The socket path: a program's address is exchanged for a backend's before any packet exists.
//!
//! Every hook of a socket but `sock_release`, which comes when nobody else can hold the socket, runs
//! under the socket's lock (include/linux/bpf-cgroup.h, the `_LOCK` macros; net/ipv4/af_inet.c), so
//! what a socket remembers is changed by one program at a time.

pub mod bind;
pub mod connect;
pub mod connection;
pub mod context;
pub mod datagram;
pub mod memory;
pub mod orphan;
pub mod peer;
mod refusal;

/// Verdict of a hook: go on, with the address as it is now.
pub const ALLOW: i32 = 1;
