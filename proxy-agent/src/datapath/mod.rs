//! The maps: apply Transactions, read back, load programs, pin links.
//!
//! Only this module knows that maps exist.

mod devices;
mod dump;
mod elements;
pub mod fake;
mod features;
mod flows;
mod grace;
mod kernel;
mod links;
mod load;
mod maps;
mod memory;
mod orphans;
mod pins;
mod programs;
mod record;
mod removal;
mod selftest;
mod services;
mod shape;
mod start;
mod sys;
mod table;
mod trie;

pub use devices::{Attachments, DeviceLink, Method, device_links};
pub use dump::{DumpError, MapSize, MapUsage, dump, usage};
pub use fake::Fake;
pub use features::{Feature, Features};
pub use flows::{Flows, Timeouts, Walked};
pub use grace::REST;
pub use kernel::Kernel;
pub use links::{LinkState, attach, state as link_state};
pub use load::{Globals, load};
pub use orphans::Orphans;
pub use pins::{DEFAULT_BPFFS, Lock, Pins, Sizes, cgroup_root};
pub use programs::{PACKET_PROGRAMS, PROGRAMS, ProgramSpec};
pub use record::{Field, Record};
pub use removal::remove;
pub use selftest::{client as self_test_client, run as self_test};
pub use shape::{Mismatch, SHAPES, Shape};
pub use start::StartError;

use crate::{
    model::ServiceKey,
    plan::{Snapshot, Transaction},
};

/// Something that holds the maps: the kernel, or the fake.
pub trait Dataplane {
    /// Applies each unit, all or nothing, and goes on after one that failed.
    fn apply(&mut self, transaction: &Transaction) -> Outcome;

    /// Everything that the maps hold.
    ///
    /// # Errors
    ///
    /// If a map cannot be read.
    fn dump(&mut self) -> Result<Snapshot, Error>;

    /// A wait, to be done on another thread, after which no program can still read what was
    /// replaced or deleted before this call: one RCU grace period and a rest.
    fn grace(&self) -> Grace;
}

/// The wait that [`Dataplane::grace`] gives; it blocks.
pub type Grace = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// What became of a Transaction.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Units that were refused, by index into the Transaction; all others were applied whole.
    pub failed: Vec<Failed>,
}

/// A unit that was not applied.
#[derive(Debug)]
pub struct Failed {
    /// Index into [`Transaction::units`].
    pub unit: usize,
    /// Whom it was about.
    pub service: Option<ServiceKey>,
    /// Why.
    pub error: Error,
    /// The undo failed as well: the maps hold a part of the unit, until a dump and a full plan.
    pub torn: bool,
}

/// Why a map or program could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A map is full. It comes right when there is room again.
    #[error(
        "map {map} is full at {entries} entries: {}remove Services",
        raise(map)
    )]
    Full {
        /// Name of the map.
        map: &'static str,
        /// Its size.
        entries: u32,
    },
    /// Any other failure of a map write or read.
    #[error("{what} map {map}")]
    Map {
        /// "write to", "read".
        what: &'static str,
        /// Name of the map.
        map: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// How to make a map larger, if that can be.
fn raise(name: &str) -> String {
    let mut maps = proxy_common::map::ALL.iter();
    match maps.find(|spec| spec.name == name) {
        Some(spec) if !spec.resizable => String::new(),
        _ => format!("raise it with --map-size {name}=N and restart, or "),
    }
}

impl Error {
    /// Whether trying again later can help without anybody's doing.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}
