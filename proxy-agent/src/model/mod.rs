//! The cluster as this node knows it, in types of our own.
//!
//! Pure: no IO, no Kubernetes types. `source` decodes objects into these types, [`Store`] keeps the
//! last state of each and tells which Services a [`Change`] touched.

mod change;
mod dirty;
mod endpoint;
#[cfg(test)]
pub(crate) mod fixture;
mod last_good;
mod name;
mod node;
mod pool;
mod service;
mod store;
mod warning;

pub use change::Change;
pub use dirty::Dirty;
pub use endpoint::{Endpoint, EndpointSlice, Hints, PodId, SlicePort};
pub use name::{Family, ServiceKey, ServiceName, SliceName, Text};
pub use node::Node;
pub use service::{Policy, Service, ServicePort};
pub use store::{Counts, Store};
pub use warning::Warning;
