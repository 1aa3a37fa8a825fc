//! The node that the agent runs on: its addresses, its network namespaces, its sockets.
//!
//! Everything here asks the kernel and nothing of the cluster; no file here knows a map, except by
//! a descriptor that it is handed.

pub mod devices;
pub mod interfaces;
mod listed;
pub use listed::first as first_listing;
pub mod namespace;
pub mod node_port;
pub mod reserved_ports;
mod sock_diag;
pub mod sockets;
