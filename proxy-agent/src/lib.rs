//! The node agent of Sidestep.
//!
//! Data flows one way, and the modules stand in that order:
//! [`source`] → [`model`] → [`policy`] → [`plan`] → [`datapath`].
//! `model`, `policy` and `plan` are pure: no IO, not async, no Kubernetes or aya type, and they
//! cannot fail; bad input becomes a reported skip.

pub mod cli;
pub mod datapath;
pub mod model;
pub mod node;
pub mod plan;
pub mod policy;
pub mod reconcile;
pub mod source;
pub mod telemetry;
