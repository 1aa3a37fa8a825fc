//! From the events of one watch to changes of the cluster.

use std::collections::{HashMap, HashSet};

use kube::runtime::watcher;

use super::{
    Event,
    decoder::{Decoded, Decoder, Origin},
    object::Object,
    slim::Slim,
};

/// What is known of one kind of object: the names of those that are served, and no more.
#[derive(Debug)]
pub(crate) struct Tracker<B: Object> {
    decoder: Decoder,
    served: HashSet<B::Name>,
    /// The full list that is being received.
    list: Option<Listing<B>>,
}

#[derive(Debug)]
struct Listing<B: Object> {
    models: HashMap<B::Name, B::Model>,
    /// Objects that are there but cannot be read.
    unread: HashSet<B::Name>,
}

impl<B: Object> Tracker<B> {
    pub(crate) fn new(external_ips: bool) -> Self {
        Self {
            decoder: Decoder::new(Origin::Server, external_ips),
            served: HashSet::new(),
            list: None,
        }
    }

    /// Takes in what the watch said and pushes what it means, warnings first. A full list is pushed when it is
    /// complete; one that breaks off never was.
    pub(crate) fn take(&mut self, event: watcher::Event<Slim<B>>, events: &mut Vec<Event>) {
        let mut changes = Vec::new();
        match event {
            watcher::Event::Init => {
                self.decoder.report.start_list();
                self.list = Some(Listing {
                    models: HashMap::new(),
                    unread: HashSet::new(),
                });
            }
            watcher::Event::InitApply(slim) => self.take_listed(&slim),
            watcher::Event::InitDone => {
                self.decoder.report.end_list(&mut self.decoder.events);
                self.finish_list(&mut changes);
            }
            watcher::Event::Apply(slim) => self.take_changed(&slim, &mut changes),
            watcher::Event::Delete(slim) => {
                if let Some((namespace, name)) = self.decoder.key(&slim) {
                    let name = B::named(namespace, name);
                    self.decoder.resolve(|| B::display(&name, None));
                    self.remove(name, &mut changes);
                }
            }
        }
        events.append(&mut self.decoder.events);
        events.append(&mut changes);
        if self.list.is_none() {
            self.decoder.names.clear();
        }
    }

    fn take_listed(&mut self, slim: &Slim<B>) {
        let decoded = B::decode(&mut self.decoder, slim, None);
        let Some(list) = &mut self.list else {
            return;
        };
        match decoded {
            Decoded::Serve(model) => {
                list.models.insert(B::name(&model).clone(), model);
            }
            // An object that changed while it was listed can come twice.
            Decoded::Leave(name) => drop(list.models.remove(&name)),
            Decoded::Keep(Some(name)) => drop(list.unread.insert(name)),
            Decoded::Keep(None) => {}
        }
    }

    fn take_changed(&mut self, slim: &Slim<B>, events: &mut Vec<Event>) {
        match B::decode(&mut self.decoder, slim, None) {
            Decoded::Serve(model) => {
                self.served.insert(B::name(&model).clone());
                events.push(Event::Change(B::one(model)));
            }
            Decoded::Leave(name) => self.remove(name, events),
            Decoded::Keep(_) => {}
        }
    }

    fn remove(&mut self, name: B::Name, events: &mut Vec<Event>) {
        if self.served.remove(&name) {
            events.push(Event::Change(B::gone(name)));
        }
    }

    fn finish_list(&mut self, events: &mut Vec<Event>) {
        let Some(Listing { models, unread }) = self.list.take() else {
            return;
        };
        let served: HashSet<B::Name> = models.keys().cloned().collect();
        let keep: HashSet<B::Name> = unread
            .into_iter()
            .filter(|name| self.served.contains(name) && !served.contains(name))
            .collect();
        if keep.is_empty() {
            self.served = served;
            events.push(Event::Change(B::all(models.into_values().collect())));
            return;
        }
        // A full list would take away what must keep its last good state: say it one by one.
        events.extend(
            models
                .into_values()
                .map(|model| Event::Change(B::one(model))),
        );
        let gone = self.served.iter();
        let gone = gone.filter(|name| !served.contains(name) && !keep.contains(name));
        events.extend(gone.map(|name| Event::Change(B::gone(name.clone()))));
        self.served = &served | &keep;
    }
}
