//! What changes touched.

use std::collections::{BTreeMap, BTreeSet};

use super::ServiceName;

/// What a [`Change`](super::Change), or several, touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Services whose own object or any of whose slices changed.
    pub services: BTreeSet<ServiceName>,
    /// The node's name or zone changed: every Service has to be looked at.
    pub all: bool,
    /// Trigger times of the slices that changed, by Service.
    triggers: BTreeMap<ServiceName, Triggers>,
}

/// Trigger times of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Triggers {
    /// A slice went away: what was waiting before says nothing about the rest.
    forget_older: bool,
    /// Unix nanoseconds, in the order of the changes.
    times: Vec<i64>,
}

impl Dirty {
    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && !self.all
    }

    /// Adds what a later change touched.
    pub fn merge(&mut self, later: Self) {
        self.services.extend(later.services);
        self.all |= later.all;
        for (name, new) in later.triggers {
            let triggers = self.triggers.entry(name).or_default();
            if new.forget_older {
                *triggers = new;
            } else {
                triggers.times.extend(new.times);
            }
        }
    }

    /// When the cluster's state changed that these changes told of: Unix nanoseconds by Service, for
    /// `kubeproxy_network_programming_duration_seconds`. Times before `since`, the start of the
    /// process, measure our absence and not our speed, and are left out as kube-proxy does
    /// (pkg/proxy/endpointschangetracker.go).
    pub fn trigger_times(&self, since: i64) -> impl Iterator<Item = (&ServiceName, i64)> {
        self.triggers.iter().flat_map(move |(name, triggers)| {
            let recent = triggers.times.iter().filter(move |&&time| time > since);
            recent.map(move |&time| (name, time))
        })
    }

    pub(super) fn service(&mut self, name: &ServiceName) {
        if !self.services.contains(name) {
            self.services.insert(name.clone());
        }
    }

    /// A slice of the Service is new or changed; `trigger_time` 0: it does not say when.
    pub(super) fn slice(&mut self, name: &ServiceName, trigger_time: i64) {
        self.service(name);
        if trigger_time != 0 {
            let triggers = self.triggers.entry(name.clone()).or_default();
            triggers.times.push(trigger_time);
        }
    }

    /// A slice of the Service is gone.
    pub(super) fn slice_gone(&mut self, name: &ServiceName) {
        self.service(name);
        let triggers = self.triggers.entry(name.clone()).or_default();
        triggers.forget_older = true;
        triggers.times.clear();
    }
}
