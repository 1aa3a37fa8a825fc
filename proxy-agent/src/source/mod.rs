//! Where the cluster's state comes from: the API server, or a folder of manifests.
//!
//! A source runs by itself and sends [`Event`]s into a bounded channel. When the reader is slow the
//! source waits, and the API server or the file system keep what comes meanwhile; the reader takes
//! many at once with `recv_many`. Nothing here knows what is done with a change, and nothing
//! Kubernetes-shaped leaves this module.
//!
//! # What a reader can rely on
//!
//! - The first two [`Change`]s that are not about the Node are one `Services` and one `Slices`, in
//!   either order: full lists. Before both have come, nothing that is missing may be taken for
//!   gone.
//! - After that, changes of one object come in the order in which they happened. A watch that had
//!   to start over sends a full list again, or the same as single changes.
//! - An object that cannot be read keeps its last good state: no change, only a warning.
//! - Sources never end by themselves, unless the reader is gone.

use tokio::sync::mpsc;

use crate::model::{Change, Warning};

mod address;
mod client;
mod decoder;
mod document;
#[cfg(test)]
mod fault;
mod field;
mod folder;
mod intern;
mod kube;
mod manifests;
mod node;
mod object;
mod pulse;
mod report;
mod service;
mod shelf;
mod slice;
mod slim;
mod tracker;
mod watch;

pub use self::kube::spawn_kube;
pub use client::{ClientError, connect};
pub use manifests::{ManifestError, ManifestReader, spawn_manifests};

/// What a source has to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the node that the agent runs on, as its Node object has it.
    pub node_name: String,
    /// Gate AllowServiceExternalIPs: serve `spec.externalIPs` (S10).
    pub external_ips: bool,
}

/// What sources report.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The cluster changed.
    Change(Change),
    /// Something cannot be served, until [`Event::Resolved`]. Sent once, not at every new list.
    Warning(Warning),
    /// All warnings of this object ([`Warning::object`]) no longer hold; what still does follows.
    Resolved(String),
    /// A watch was lost or is back. Sent when that changes, not at every attempt.
    Watch(WatchState),
}

/// State of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchState {
    /// What is watched: `services`, `endpointslices`, `nodes`, or a folder's path.
    pub resource: String,
    /// Why it is not working; `None`: it is.
    pub lost: Option<String>,
}

/// A channel for events, of the usual size: enough to keep a source busy while the reader
/// publishes, small enough that a burst waits at the server instead of here.
pub fn channel() -> (mpsc::Sender<Event>, mpsc::Receiver<Event>) {
    mpsc::channel(1024)
}
