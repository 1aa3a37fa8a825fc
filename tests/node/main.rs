//! What the agent's `node` modules ask of the kernel, on the running kernel.
//!
//! In network namespaces and a cgroup of their own and with maps of their own.
//! Needs root, ip(8) and unshare(1); object file: see [`storage::object`].

mod connect;
mod interfaces;
mod namespaces;
mod place;
mod sockets;
mod storage;
