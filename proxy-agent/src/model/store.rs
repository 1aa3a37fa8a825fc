//! The last known state of every object.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Change, EndpointSlice, Node, Service, ServiceName, SliceName};

/// What a [`Change`] touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Services whose own object or any of whose slices changed.
    pub services: BTreeSet<ServiceName>,
    /// The node's name or zone changed: every Service has to be looked at.
    pub all: bool,
}

/// The cluster: Services, EndpointSlices by Service, this node.
///
/// Shared with readers (CLI, health, metrics) only by reference; it never fails and never logs.
#[derive(Debug)]
pub struct Store {
    node: Node,
    services: HashMap<ServiceName, Service>,
    slices: HashMap<ServiceName, BTreeMap<SliceName, EndpointSlice>>,
    owner: HashMap<SliceName, ServiceName>,
    services_listed: bool,
    slices_listed: bool,
}
