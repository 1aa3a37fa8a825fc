//! The node that the agent runs on: its addresses, its network namespaces, its sockets.
//!
//! Everything here asks the kernel and nothing of the cluster; no file here knows a map, except by
//! a descriptor that it is handed.

pub mod interfaces;
pub mod namespace;
pub mod node_port;
mod sock_diag;
pub mod sockets;
