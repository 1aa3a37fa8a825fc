//! From an address to a backend. The same for sockets and packets.

pub mod lookup;
pub mod select;
