//! From what should be to what to write.
//!
//! Pure: [`DesiredService`] in, [`Transaction`] out. A Transaction is the only way to write maps.
//! The planner mirrors what the maps hold, hands out ids and slots, and never looks at a map.

mod build;
mod check;
mod claims;
mod desired;
mod diff;
mod draft;
mod entry;
mod ids;
mod listing;
mod planner;
mod replay;
mod restore;
mod settle;
mod sketch;
mod slots;
mod snapshot;
mod transaction;

pub use build::{Desired, build, desired};
pub use desired::{DesiredService, Frontend};
pub use planner::{Plan, Planner, SlotsFull, Usage};
pub use replay::ReplayError;
pub use snapshot::Snapshot;
pub use transaction::{Op, Transaction, Unit};
