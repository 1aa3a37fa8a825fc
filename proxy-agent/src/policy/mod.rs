//! Which endpoints may serve this node, for which frontend.
//!
//! Pure. The algorithm is kube-proxy's `CategorizeEndpoints` (pkg/proxy/topology.go) and the rules
//! of sections 1.5 to 1.7 of its behaviour; nothing here knows of maps.

mod selection;

pub use selection::{Candidate, Selection};
