//! One copy of every text that many objects carry.
//!
//! 100,000 endpoints name a few hundred nodes. Decoders make a fresh text for each; the store keeps
//! the first and lets go of the others, which is most of what keeps the agent small.

use std::{collections::HashSet, sync::Arc};

use super::{EndpointSlice, Service, ServiceName, Text};

/// The texts in use.
#[derive(Debug, Default)]
pub(super) struct Pool {
    texts: HashSet<Text>,
    /// Number of texts at which those that nobody uses any more are let go.
    prune_at: usize,
}

impl Pool {
    /// Below this many texts nothing is pruned.
    const SMALL: usize = 1024;

    /// Shares all texts of a Service that others may have too, and gives back spare capacity.
    pub(super) fn share_service(&mut self, service: &mut Service) {
        self.share_name(&mut service.name);
        for port in &mut service.ports {
            self.share(&mut port.name);
        }
        service.cluster_ips.shrink_to_fit();
        service.external_ips.shrink_to_fit();
        service.balancer_ips.shrink_to_fit();
        service.source_ranges.shrink_to_fit();
        service.ports.shrink_to_fit();
    }

    /// The same for an EndpointSlice. Its own name is left alone: no other object has it.
    pub(super) fn share_slice(&mut self, slice: &mut EndpointSlice) {
        self.share(&mut slice.name.namespace);
        self.share_name(&mut slice.service);
        for port in &mut slice.ports {
            self.share(&mut port.name);
        }
        for endpoint in &mut slice.endpoints {
            if let Some(node) = &mut endpoint.node {
                self.share(node);
            }
            if let Some(hints) = &mut endpoint.hints {
                for text in hints.zones.iter_mut().chain(&mut hints.nodes) {
                    self.share(text);
                }
                hints.zones.shrink_to_fit();
                hints.nodes.shrink_to_fit();
            }
        }
        slice.ports.shrink_to_fit();
        slice.endpoints.shrink_to_fit();
    }

    fn share_name(&mut self, name: &mut ServiceName) {
        self.share(&mut name.namespace);
        self.share(&mut name.name);
    }

    fn share(&mut self, text: &mut Text) {
        if let Some(known) = self.texts.get(text) {
            *text = Arc::clone(known);
            return;
        }
        if self.texts.len() >= self.prune_at.max(Self::SMALL) {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.prune_at = 2 * self.texts.len();
        }
        self.texts.insert(Arc::clone(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_become_one_allocation() {
        let mut pool = Pool::default();
        let (mut a, mut b): (Text, Text) = ("node-1".into(), "node-1".into());
        pool.share(&mut a);
        pool.share(&mut b);
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn texts_that_nobody_uses_are_let_go() {
        let mut pool = Pool::default();
        let mut kept: Text = "kept".into();
        pool.share(&mut kept);
        for i in 0..10 * Pool::SMALL {
            pool.share(&mut Text::from(i.to_string()));
        }
        assert!(pool.texts.len() <= Pool::SMALL, "{}", pool.texts.len());
        assert!(pool.texts.contains("kept"));
    }
}
