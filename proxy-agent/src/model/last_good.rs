//! The API server's own Service never loses its last backends.
//!
//! When every API server withdraws its endpoint (or the list is read from one that has just
//! started), `default/kubernetes` has no usable endpoint. An agent that believed it would cut
//! itself and every controller off from the server that could correct it. So for this one Service,
//! per family, the last slices with a usable endpoint stay in force until there are new ones.
//! Nothing else has memory: it is the one exception to "same cluster, same maps".

use super::{EndpointSlice, Family, ServiceName};

/// The slices of `default/kubernetes` that are in force.
#[derive(Debug, Default)]
pub(super) struct LastGood {
    slices: Vec<EndpointSlice>,
    kept: Vec<Family>,
}

/// Whether the Service is the API server's own.
pub(super) fn applies_to(service: &ServiceName) -> bool {
    &*service.namespace == "default" && &*service.name == "kubernetes"
}

impl LastGood {
    /// Takes over the slices as the cluster has them now, where they have a usable endpoint.
    pub(super) fn update(&mut self, current: &[EndpointSlice]) {
        let old = std::mem::take(&mut self.slices);
        self.kept.clear();
        for family in Family::ALL {
            let keep = !has_usable(current, family) && has_usable(&old, family);
            if keep {
                self.kept.push(family);
            }
            let source = if keep { &old[..] } else { current };
            self.slices
                .extend(source.iter().filter(|s| s.family == family).cloned());
        }
    }

    /// What is in force.
    pub(super) fn slices(&self) -> &[EndpointSlice] {
        &self.slices
    }

    /// Families in which the cluster has no usable endpoint and the last good ones are kept.
    pub(super) fn kept(&self) -> &[Family] {
        &self.kept
    }
}

/// Usable as kube-proxy means it: ready, or serving while it terminates.
fn has_usable(slices: &[EndpointSlice], family: Family) -> bool {
    slices
        .iter()
        .filter(|slice| slice.family == family && !slice.ports.is_empty())
        .flat_map(|slice| &slice.endpoints)
        .any(|endpoint| endpoint.ready || (endpoint.serving && endpoint.terminating))
}

#[cfg(test)]
mod tests;
