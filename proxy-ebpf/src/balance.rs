//! From an address to a backend. The same for sockets and packets.

pub mod load;
pub mod lookup;
pub mod select;
