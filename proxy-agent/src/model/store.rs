//! The last known state of every object.
//!
//! It keeps what sources report and says what each report touched; it decides nothing. It never
//! fails and never logs.

use std::collections::{HashMap, HashSet};

use super::{
    Change, Dirty, EndpointSlice, Family, Node, Service, ServiceName, SliceName,
    last_good::{self, LastGood},
    pool::Pool,
};

/// The cluster: Services, EndpointSlices by Service, this node.
///
/// The state depends on the last report of each object only, not on the order of reports of
/// different objects. The one exception is the memory of `default/kubernetes`: see
/// [`keeps_last_good`](Self::keeps_last_good).
#[derive(Debug)]
pub struct Store {
    node: Node,
    entries: HashMap<ServiceName, Entry>,
    /// The Service that each slice belonged to when it was last seen.
    owner: HashMap<SliceName, ServiceName>,
    pool: Pool,
    last_good: LastGood,
    services_listed: bool,
    slices_listed: bool,
}

/// How much the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Services.
    pub services: usize,
    /// Ports of Services.
    pub service_ports: usize,
    /// EndpointSlices, also those of no Service.
    pub slices: usize,
    /// Endpoints in them.
    pub endpoints: usize,
}

/// What belongs to one name. It exists while any of it does.
#[derive(Debug, Default)]
struct Entry {
    /// Boxed, so that a half-empty table costs little.
    service: Option<Box<Service>>,
    /// Sorted by name. Nearly always one, so the capacity is exact.
    slices: Vec<EndpointSlice>,
}

impl Store {
    /// An empty store of a node.
    pub fn new(node: Node) -> Self {
        Self {
            node: clean(node),
            entries: HashMap::new(),
            owner: HashMap::new(),
            pool: Pool::default(),
            last_good: LastGood::default(),
            services_listed: false,
            slices_listed: false,
        }
    }

    /// Takes a report over and says what it touched. An object equal to the known one touches
    /// nothing; what a full list lacks is touched as a deletion.
    pub fn apply(&mut self, change: Change) -> Dirty {
        let mut dirty = Dirty::default();
        match change {
            Change::Services(list) => self.replace_services(list, &mut dirty),
            Change::Slices(list) => self.replace_slices(list, &mut dirty),
            Change::Service(service) => self.put_service(service, &mut dirty),
            Change::ServiceGone(name) => self.remove_service(&name, &mut dirty),
            Change::Slice(slice) => self.put_slice(slice, &mut dirty),
            Change::SliceGone(name) => self.remove_slice(&name, &mut dirty),
            Change::Node(node) => {
                let node = clean(node);
                dirty.all = node != self.node;
                self.node = node;
            }
        }
        if let Some(name) = dirty
            .services
            .iter()
            .find(|name| last_good::applies_to(name))
        {
            let entry = self.entries.get(name);
            self.last_good
                .update(entry.map_or(&[][..], |entry| &entry.slices));
        }
        dirty
    }

    /// Whether both full lists have been seen. Nothing may be pruned before.
    pub fn is_complete(&self) -> bool {
        self.services_listed && self.slices_listed
    }

    /// A Service, if there is one of that name.
    pub fn service(&self, name: &ServiceName) -> Option<&Service> {
        self.entries.get(name)?.service.as_deref()
    }

    /// The EndpointSlices in force for a Service, whether or not the Service itself is known.
    pub fn slices(&self, name: &ServiceName) -> &[EndpointSlice] {
        if last_good::applies_to(name) {
            return self.last_good.slices();
        }
        self.entries.get(name).map_or(&[], |entry| &entry.slices)
    }

    /// This node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// All Services, in no order.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.entries
            .values()
            .filter_map(|entry| entry.service.as_deref())
    }

    /// Slices whose Service is not here, in no order: it was deleted a moment ago, is headless, of
    /// type ExternalName, left to another proxy, or misspelt. Not an error in itself.
    pub fn orphans(&self) -> impl Iterator<Item = &EndpointSlice> {
        self.entries
            .values()
            .filter(|entry| entry.service.is_none())
            .flat_map(|entry| &entry.slices)
    }

    /// Families in which `default/kubernetes` has no usable endpoint in the cluster, so that its
    /// last good ones are kept.
    pub fn keeps_last_good(&self, name: &ServiceName) -> &[Family] {
        if last_good::applies_to(name) {
            self.last_good.kept()
        } else {
            &[]
        }
    }

    /// How much there is. Walks over everything.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for entry in self.entries.values() {
            if let Some(service) = &entry.service {
                counts.services += 1;
                counts.service_ports += service.ports.len();
            }
            counts.slices += entry.slices.len();
            counts.endpoints += entry
                .slices
                .iter()
                .map(|s| s.endpoints.len())
                .sum::<usize>();
        }
        counts
    }

    fn replace_services(&mut self, list: Vec<Service>, dirty: &mut Dirty) {
        self.services_listed = true;
        let mut gone: HashSet<_> = self
            .services()
            .map(|service| service.name.clone())
            .collect();
        for service in list {
            gone.remove(&service.name);
            self.put_service(service, dirty);
        }
        for name in gone {
            self.remove_service(&name, dirty);
        }
    }

    fn replace_slices(&mut self, list: Vec<EndpointSlice>, dirty: &mut Dirty) {
        self.slices_listed = true;
        let mut gone: HashSet<_> = self.owner.keys().cloned().collect();
        for slice in list {
            gone.remove(&slice.name);
            self.put_slice(slice, dirty);
        }
        for name in gone {
            self.remove_slice(&name, dirty);
        }
    }

    fn put_service(&mut self, mut service: Service, dirty: &mut Dirty) {
        if self.service(&service.name) == Some(&service) {
            return;
        }
        self.pool.share_service(&mut service);
        dirty.service(&service.name);
        let entry = self.entries.entry(service.name.clone()).or_default();
        entry.service = Some(Box::new(service));
    }

    fn remove_service(&mut self, name: &ServiceName, dirty: &mut Dirty) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        if entry.service.take().is_some() {
            dirty.service(name);
        }
        if entry.slices.is_empty() {
            self.entries.remove(name);
        }
    }

    fn put_slice(&mut self, mut slice: EndpointSlice, dirty: &mut Dirty) {
        match self.owner.get(&slice.name) {
            Some(owner) if *owner == slice.service => {}
            Some(_) => self.remove_slice(&slice.name.clone(), dirty),
            None => {}
        }
        let known = self.entries.get(&slice.service).and_then(|entry| {
            let at = entry.find(&slice.name).ok()?;
            entry.slices.get(at)
        });
        if known == Some(&slice) {
            return;
        }
        self.pool.share_slice(&mut slice);
        dirty.slice(&slice.service, slice.trigger_time);
        let entry = self.entries.entry(slice.service.clone()).or_default();
        match entry.find(&slice.name) {
            Ok(at) => entry.slices[at] = slice,
            Err(at) => {
                self.owner.insert(slice.name.clone(), slice.service.clone());
                entry.slices.reserve_exact(1);
                entry.slices.insert(at, slice);
            }
        }
    }

    fn remove_slice(&mut self, name: &SliceName, dirty: &mut Dirty) {
        let Some(owner) = self.owner.remove(name) else {
            return;
        };
        dirty.slice_gone(&owner);
        let Some(entry) = self.entries.get_mut(&owner) else {
            return;
        };
        if let Ok(at) = entry.find(name) {
            entry.slices.remove(at);
            entry.slices.shrink_to_fit();
        }
        if entry.slices.is_empty() && entry.service.is_none() {
            self.entries.remove(&owner);
        }
    }
}

impl Entry {
    fn find(&self, name: &SliceName) -> Result<usize, usize> {
        self.slices.binary_search_by(|slice| slice.name.cmp(name))
    }
}

/// An empty zone label says as little as none.
fn clean(mut node: Node) -> Node {
    node.zone = node.zone.filter(|zone| !zone.is_empty());
    node
}

#[cfg(test)]
mod tests;
