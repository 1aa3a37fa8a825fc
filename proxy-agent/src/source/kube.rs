//! The API server as the source.
//!
//! Three watches in one task: Services, EndpointSlices and our own Node, with the selectors of
//! kube-proxy and nothing that `system:node-proxier` does not allow (list and watch of these
//! three).

use kube::{Client, runtime::watcher};
use tokio::{sync::mpsc, task::JoinHandle};

use super::{
    Event, Settings,
    decoder::{Decoder, Origin},
    node::{self, SlimNode},
    service::{ServiceBody, SlimService},
    slice::{SliceBody, SlimSlice},
    tracker::Tracker,
    watch::{Selection, Step, Watch},
};
use crate::model::Change;

/// Services that are not another proxy's (W1).
pub(crate) const SERVICE_LABELS: &str = "!service.kubernetes.io/service-proxy-name";
/// Services that are not headless (W1).
pub(crate) const SERVICE_FIELDS: &str = "spec.clusterIP!=None";
/// EndpointSlices that are not a headless Service's (W2).
pub(crate) const SLICE_LABELS: &str = "!service.kubernetes.io/headless";

/// Starts the source. The task ends when the reader of `events` is gone.
///
/// Each watch asks for a streaming list first (KEP-3157). Where the server refuses, it lists in
/// pages of 500, read from etcd's quorum; a page is the most that is in memory as text.
pub fn spawn_kube(
    client: Client,
    settings: &Settings,
    events: mpsc::Sender<Event>,
) -> JoinHandle<()> {
    let source = Source::new(&client, settings, events);
    tokio::spawn(source.run())
}

struct Source {
    services: Watch<SlimService>,
    slices: Watch<SlimSlice>,
    nodes: Watch<SlimNode>,
    tracked_services: Tracker<ServiceBody>,
    tracked_slices: Tracker<SliceBody>,
    node_decoder: Decoder,
    node_name: String,
    events: mpsc::Sender<Event>,
}

impl Source {
    fn new(client: &Client, settings: &Settings, events: mpsc::Sender<Event>) -> Self {
        let Settings {
            node_name,
            external_ips,
        } = settings.clone();
        let services = Selection {
            labels: SERVICE_LABELS,
            fields: SERVICE_FIELDS.into(),
        };
        let slices = Selection {
            labels: SLICE_LABELS,
            fields: String::new(),
        };
        let nodes = Selection {
            labels: "",
            fields: format!("metadata.name={node_name}"),
        };
        Self {
            services: Watch::new(client, services),
            slices: Watch::new(client, slices),
            nodes: Watch::new(client, nodes),
            tracked_services: Tracker::new(external_ips),
            tracked_slices: Tracker::new(external_ips),
            node_decoder: Decoder::new(Origin::Server, external_ips),
            node_name,
            events,
        }
    }

    async fn run(mut self) {
        let mut events = Vec::new();
        loop {
            tokio::select! {
                step = self.services.next() => match step {
                    Step::Event(event) => self.tracked_services.take(event, &mut events),
                    Step::State(state) => events.push(Event::Watch(state)),
                },
                step = self.slices.next() => match step {
                    Step::Event(event) => self.tracked_slices.take(event, &mut events),
                    Step::State(state) => events.push(Event::Watch(state)),
                },
                step = self.nodes.next() => match step {
                    Step::Event(event) => self.take_node(event, &mut events),
                    Step::State(state) => events.push(Event::Watch(state)),
                },
                () = self.events.closed() => return,
            }
            for event in events.drain(..) {
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Our Node; that it is deleted changes nothing (kube-proxy, pkg/proxy/config).
    fn take_node(&mut self, event: watcher::Event<SlimNode>, events: &mut Vec<Event>) {
        if let watcher::Event::Apply(slim) | watcher::Event::InitApply(slim) = event {
            let node = node::decode(&mut self.node_decoder, &slim, None);
            events.append(&mut self.node_decoder.events);
            // A server that ignored the selector would send us every Node.
            let node = node.filter(|node| *node.name == *self.node_name);
            events.extend(node.map(|node| Event::Change(Change::Node(node))));
        }
    }
}

#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;
