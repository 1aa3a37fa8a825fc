//! Which endpoints may serve this node, for which frontend.
//!
//! Pure. The algorithm is kube-proxy's `CategorizeEndpoints` (pkg/proxy/topology.go) and the rules
//! of sections 1.5 to 1.7 of its behaviour; nothing here knows of maps. One file per rule:
//! `merge` makes one list of all slices, `traffic` says which sets a ServicePort needs, `topology`
//! and `terminating` who is in them, `selection` puts that together.

mod local;
mod merge;
mod selection;
mod terminating;
mod topology;
mod traffic;

pub use local::local_ready;
pub use selection::{Candidate, Selection, select};
pub use traffic::{is_local, of_family};
