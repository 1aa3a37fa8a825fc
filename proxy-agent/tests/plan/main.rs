//! The planner against the fake data plane.

mod cluster;
mod conflicts;
mod faults;
mod properties;
mod readers;
mod replay;
mod restart;
mod units;
