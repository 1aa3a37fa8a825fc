//! The planner against the fake data plane.

mod cluster;
mod units;
