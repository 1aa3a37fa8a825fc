//! What the files of a manifest folder say together.
//!
//! Takes parsed files in and pushes events out; reads nothing itself. Of an object only the name
//! and a fingerprint are remembered: its last good state is with the reader of the events.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use super::{
    Event,
    decoder::{Decoder, Origin},
    document::{Contents, ParseError},
    node,
    object::Object,
    service::ServiceBody,
    shelf::{Outcome, Shelf},
    slice::SliceBody,
};
use crate::model::{Change, Node, Text, Warning};

/// The files and what became of their objects.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    node: Text,
    decoder: Decoder,
    services: Shelf<ServiceBody>,
    slices: Shelf<SliceBody>,
    /// Our Node in each file that has it.
    nodes: BTreeMap<Text, Node>,
    reported_node: Option<Node>,
    listed: bool,
}

impl Folder {
    /// An empty folder, seen by this node.
    pub(crate) fn new(path: PathBuf, node: &str, external_ips: bool) -> Self {
        Self {
            path,
            node: node.into(),
            decoder: Decoder::new(Origin::Manifest, external_ips),
            services: Shelf::default(),
            slices: Shelf::default(),
            nodes: BTreeMap::new(),
            reported_node: None,
            listed: false,
        }
    }

    /// Takes in files that were read (again) and files that are gone. Pushes full lists the first
    /// time and single changes later. Returns the files that count now for objects which another
    /// file had: the caller reads them again and passes them in.
    pub(crate) fn update(
        &mut self,
        read: &BTreeMap<Text, Contents>,
        gone: &[Text],
        events: &mut Vec<Event>,
    ) -> BTreeSet<Text> {
        let decoder = &mut self.decoder;
        let services = self.services.update(decoder, read, |c| &c.services, gone);
        let slices = self.slices.update(decoder, read, |c| &c.slices, gone);
        for file in gone {
            self.nodes.remove(file);
            self.report_file(file, Vec::new());
        }
        for (file, contents) in read {
            self.take_node(file, contents);
            let twins = [&services.twins, &slices.twins];
            let twins = twins.into_iter().flatten().filter(|(of, _)| of == file);
            let mut warnings = self.describe(file, contents);
            warnings.extend(twins.map(|(_, warning)| warning.clone()));
            self.report_file(file, warnings);
        }
        self.decoder.names.clear();

        events.append(&mut self.decoder.events);
        if let Some(node) = self.nodes.values().next()
            && self.reported_node.as_ref() != Some(node)
        {
            self.reported_node = Some(node.clone());
            events.push(Event::Change(Change::Node(node.clone())));
        }
        let reread = &services.reread | &slices.reread;
        let first = !std::mem::replace(&mut self.listed, true);
        push::<ServiceBody>(services, first, events);
        push::<SliceBody>(slices, first, events);
        reread
    }

    /// A file cannot be read: its objects stay as they are.
    pub(crate) fn fail(&mut self, file: &Text, error: &ParseError, events: &mut Vec<Event>) {
        let path = self.path.join(&**file).display().to_string();
        let reason = format!("{error}; what it held before stays in force");
        self.report_file(file, vec![Warning::new(path, "", reason)]);
        events.append(&mut self.decoder.events);
    }

    fn take_node(&mut self, file: &Text, contents: &Contents) {
        self.nodes.remove(file);
        for slim in &contents.nodes {
            if let Some(node) = node::decode(&mut self.decoder, slim, Some(file))
                && node.name == self.node
            {
                self.nodes.entry(file.clone()).or_insert(node);
            }
        }
    }

    /// What of a file is not read at all.
    fn describe(&self, file: &Text, contents: &Contents) -> Vec<Warning> {
        let path = self.path.join(&**file).display().to_string();
        let mut warnings = Vec::new();
        if !contents.others.is_empty() {
            let others: Vec<&str> = contents.others.iter().map(String::as_str).collect();
            let reason = format!(
                "holds {}: ignored, as all but v1 Service, discovery.k8s.io/v1 EndpointSlice and \
                 v1 Node",
                others.join(", ")
            );
            warnings.push(Warning::new(path.as_str(), "", reason));
        }
        for odd in &contents.odd {
            let reason = format!("holds {odd}: ignored");
            warnings.push(Warning::new(path.as_str(), "", reason));
        }
        warnings
    }

    fn report_file(&mut self, file: &Text, warnings: Vec<Warning>) {
        let path = self.path.join(&**file).display().to_string();
        self.decoder
            .report
            .set(path, warnings, &mut self.decoder.events);
    }
}

fn push<B: Object>(outcome: Outcome<B>, first: bool, events: &mut Vec<Event>) {
    if first {
        events.push(Event::Change(B::all(outcome.changed)));
        return;
    }
    events.extend(
        outcome
            .changed
            .into_iter()
            .map(|model| Event::Change(B::one(model))),
    );
    events.extend(
        outcome
            .gone
            .into_iter()
            .map(|name| Event::Change(B::gone(name))),
    );
}
