//! What the tests of the whole share: a place of its own for each test, servers and clients, the
//! real data plane.

pub mod case;
pub mod data_plane;
pub mod dice;
pub mod frame;
pub mod maps;
pub mod place;
pub mod talk;
