//! From slim objects to the model: what all kinds share.
//!
//! Decoding cannot fail. What cannot be served is left out and named in a [`Warning`]; an object
//! that says too little to be served at all is [`Decoded::Keep`], so that its last good state
//! stays.

use std::fmt;

use proxy_common::{NameValue, Protocol};

use super::{
    Event,
    field::{Field, Shape, quote},
    intern::Interner,
    report::Report,
    slim::{Kind, Metadata, Slim},
};
use crate::model::{Text, Warning};

const SKIPPED: &str = "the object is skipped";

/// Decodes objects of all kinds, and holds what their decoding shares.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Who wrote the objects.
    pub(crate) origin: Origin,
    /// Gate AllowServiceExternalIPs (S10).
    pub(crate) external_ips: bool,
    /// Names of the list that is being decoded.
    pub(crate) names: Interner,
    /// Warnings in force.
    pub(crate) report: Report,
    /// Warnings that are news, and what is resolved.
    pub(crate) events: Vec<Event>,
}

/// Who wrote the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The API server: valid, and defaults are filled in.
    Server,
    /// A person: what the API server would fill in is filled in here.
    Manifest,
}

/// What became of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decoded<T, N> {
    /// To be served.
    Serve(T),
    /// Not ours to serve: gone, if it was served before.
    Leave(N),
    /// Says too little. What was served before stays; `None` if even its name is unknown.
    Keep(Option<N>),
}

/// Collects the warnings about one object.
#[derive(Debug)]
pub(crate) struct Review {
    kind: &'static str,
    namespace: Option<Text>,
    name: Text,
    /// The file that the object is from.
    file: Option<Text>,
    warnings: Vec<Warning>,
}

/// An object as warnings name it: `Service default/web in web.yaml`.
pub(crate) fn object(
    kind: &str,
    namespace: Option<&Text>,
    name: &str,
    file: Option<&Text>,
) -> String {
    let mut object = format!("{kind} ");
    if let Some(namespace) = namespace {
        object.push_str(namespace);
        object.push('/');
    }
    object.push_str(if name.is_empty() { "?" } else { name });
    if let Some(file) = file {
        object.push_str(" in ");
        object.push_str(file);
    }
    object
}

impl Decoder {
    /// A decoder with empty memory.
    pub(crate) fn new(origin: Origin, external_ips: bool) -> Self {
        Self {
            origin,
            external_ips,
            names: Interner::default(),
            report: Report::default(),
            events: Vec::new(),
        }
    }

    /// Namespace and name of an object, unless it has none. Whether they can be used is not said.
    pub(crate) fn key<B: Kind>(&mut self, slim: &Slim<B>) -> Option<(Text, Text)> {
        let metadata = slim.metadata()?;
        let name = metadata.name.get().filter(|name| !name.is_empty())?;
        let namespace = match &metadata.namespace {
            Field::Is(namespace) if !namespace.is_empty() => namespace,
            Field::Odd(_) => return None,
            _ => "default",
        };
        Some((self.names.text(namespace), self.names.text(name)))
    }

    /// An object is gone, and with it its warnings.
    pub(crate) fn resolve(&mut self, object: impl FnOnce() -> String) {
        if !self.report.is_empty() {
            self.report.set(object(), Vec::new(), &mut self.events);
        }
    }

    /// Starts the review of an object: its namespace and name, if it has usable ones.
    pub(crate) fn review<B: Kind>(
        &mut self,
        slim: &Slim<B>,
        file: Option<&Text>,
    ) -> (Review, Option<(Text, Text)>) {
        let metadata = slim.metadata();
        let name = metadata
            .and_then(|m| m.name.get())
            .map_or("", String::as_str);
        let namespace = metadata
            .and_then(|m| m.namespace.get())
            .map_or("", String::as_str);
        let namespace = match (namespace, self.origin) {
            ("", Origin::Manifest) => "default",
            (namespace, _) => namespace,
        };
        let (namespace, name) = (self.names.text(namespace), self.names.text(name));
        let mut review = Review {
            kind: B::KIND,
            namespace: B::NAMESPACED.then(|| namespace.clone()),
            name: name.clone(),
            file: file.cloned(),
            warnings: Vec::new(),
        };
        if slim.body.get().is_none() {
            let found = match &slim.body {
                Field::Odd(found) => found,
                _ => "null",
            };
            review.warn("", format_args!("is {found}, not an object; it is skipped"));
            return (review, None);
        }
        let usable = match metadata {
            Some(metadata) => review.names::<B>(metadata, &namespace, &name),
            None => {
                review.warn("metadata", format_args!("is no object; {SKIPPED}"));
                false
            }
        };
        (review, usable.then_some((namespace, name)))
    }
}

impl Review {
    /// A warning about a field.
    pub(crate) fn warn(&mut self, field: impl fmt::Display + Copy, reason: impl fmt::Display) {
        let object = self.object();
        self.warnings
            .push(Warning::new(object, field.to_string(), reason.to_string()));
    }

    /// The value of a field. An odd one is warned of, with its consequence.
    pub(crate) fn read<'a, T: Shape>(
        &mut self,
        field: &'a Field<T>,
        path: impl fmt::Display + Copy,
        then: &str,
    ) -> Option<&'a T> {
        match field {
            Field::Is(value) => Some(value),
            Field::Absent => None,
            Field::Odd(found) => {
                self.warn(path, format_args!("is {found}, not {}; {then}", T::WANTED));
                None
            }
        }
    }

    /// The elements of a list that have the wanted type, with their index.
    pub(crate) fn list<'a, T: Shape>(
        &mut self,
        field: &'a Field<Vec<Field<T>>>,
        path: &str,
        then: &str,
    ) -> Vec<(usize, &'a T)> {
        let Some(list) = self.read(field, path, "it is ignored") else {
            return Vec::new();
        };
        let mut found = Vec::with_capacity(list.len());
        for (i, element) in list.iter().enumerate() {
            match element {
                Field::Is(value) => found.push((i, value)),
                Field::Absent => {
                    self.warn(format_args!("{path}[{i}]"), format_args!("is null; {then}"));
                }
                Field::Odd(what) => self.warn(
                    format_args!("{path}[{i}]"),
                    format_args!("is {what}, not {}; {then}", T::WANTED),
                ),
            }
        }
        found
    }

    /// A port number from 1 to 65535.
    pub(crate) fn port(
        &mut self,
        path: impl fmt::Display + Copy,
        number: i64,
        then: &str,
    ) -> Option<u16> {
        let port = u16::try_from(number).ok().filter(|&port| port != 0);
        if port.is_none() {
            self.warn(
                path,
                format_args!("{number} is no port (1 to 65535); {then}"),
            );
        }
        port
    }

    /// A protocol; TCP if there is none.
    pub(crate) fn protocol(
        &mut self,
        field: &Field<String>,
        path: impl fmt::Display + Copy,
        then: &str,
    ) -> Option<Protocol> {
        if field.is_absent() {
            return Some(Protocol::Tcp);
        }
        let name = self.read(field, path, then)?;
        let known = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
            .into_iter()
            .find(|protocol| protocol.name() == name);
        if known.is_none() {
            self.unknown(path, name, "TCP, UDP or SCTP", then);
        }
        known
    }

    /// A warning about a value that is none of those known.
    pub(crate) fn unknown(
        &mut self,
        path: impl fmt::Display + Copy,
        value: &str,
        known: &str,
        then: &str,
    ) {
        self.warn(
            path,
            format_args!("{} is not {known}; {then}", quote(value)),
        );
    }

    /// Whether a name can be used: not too long for the `name` map, and nothing in it that would
    /// make two names look alike.
    pub(crate) fn name(
        &mut self,
        path: impl fmt::Display + Copy,
        name: &str,
        longest: usize,
        then: &str,
    ) -> bool {
        if name.len() > longest {
            self.warn(
                path,
                format_args!("{} is longer than {longest} bytes; {then}", quote(name)),
            );
            false
        } else if !name
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'/' && b != b':')
        {
            self.warn(path, format_args!("{} is no name; {then}", quote(name)));
            false
        } else {
            true
        }
    }

    /// Whether namespace and name say which object this is.
    fn names<B: Kind>(&mut self, metadata: &Metadata, namespace: &str, name: &str) -> bool {
        let mut usable = true;
        if metadata.name.is_odd() {
            self.read(&metadata.name, "metadata.name", SKIPPED);
            usable = false;
        } else if name.is_empty() {
            self.warn("metadata.name", format_args!("is missing; {SKIPPED}"));
            usable = false;
        } else {
            usable &= self.name("metadata.name", name, B::LONGEST_NAME, SKIPPED);
        }
        if !B::NAMESPACED {
            return usable;
        }
        if metadata.namespace.is_odd() {
            self.read(&metadata.namespace, "metadata.namespace", SKIPPED);
            usable = false;
        } else if namespace.is_empty() {
            self.warn("metadata.namespace", format_args!("is missing; {SKIPPED}"));
            usable = false;
        } else {
            usable &= self.name("metadata.namespace", namespace, NameValue::MAX, SKIPPED);
        }
        usable
    }

    fn object(&self) -> String {
        object(
            self.kind,
            self.namespace.as_ref(),
            &self.name,
            self.file.as_ref(),
        )
    }

    /// Hands the warnings over to the report, which tells what of them is news.
    pub(crate) fn finish(self, decoder: &mut Decoder) {
        if !(self.warnings.is_empty() && decoder.report.is_empty()) {
            let object = self.object();
            decoder
                .report
                .set(object, self.warnings, &mut decoder.events);
        }
    }
}
