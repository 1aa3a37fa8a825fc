//! What the agent's `node` modules ask of the kernel, on the running kernel.
//!
//! In network namespaces of their own and with maps of their own; no program is attached to a hook.
//! Needs root, ip(8) and unshare(1); object file: see [`storage::object`].

mod interfaces;
mod namespaces;
mod place;
mod sockets;
mod storage;
