//! One watch that never ends.
//!
//! kube's watcher reconnects and starts over by itself; here it learns what the server at hand can
//! do, and tells when it is lost and when it is back.

use std::{fmt::Debug, time::Duration};

use futures::{
    StreamExt, future,
    stream::{self, BoxStream},
};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};

use super::{WatchState, pulse::Pulse};

/// A streaming list that says nothing for this long is taken for one that the server does not know
/// how to end: servers before 1.27 ignore the parameter.
const STALLED: Duration = Duration::from_secs(60);
/// A new watch counts as back when it has lived for this long.
const STEADY: Duration = Duration::from_secs(1);
/// Rest before a watch is made anew, which no back-off sees.
const REST: Duration = Duration::from_secs(1);

/// What a watch reports.
#[derive(Debug)]
pub(crate) enum Step<K> {
    Event(watcher::Event<K>),
    State(WatchState),
}

/// Which objects.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Label selector; empty: all.
    pub(crate) labels: &'static str,
    /// Field selector; empty: all.
    pub(crate) fields: String,
}

/// The watch of one resource.
pub(crate) struct Watch<K> {
    api: Api<K>,
    resource: String,
    selection: Selection,
    /// The server may be asked to send the initial list through the watch.
    streaming: bool,
    stream: Events<K>,
    /// Until when the next object of a streaming list must have come.
    stalled: Option<Instant>,
    pulse: Pulse,
    health: Health,
    /// What comes after the step that was returned last.
    next: Option<watcher::Event<K>>,
}

type Events<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Health {
    /// Nothing was heard yet.
    Unknown,
    Good,
    /// With the time at which it is back, if a new watch holds until then.
    Lost {
        back: Option<Instant>,
    },
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// A watch of the selected objects in all namespaces.
    pub(crate) fn new(client: &Client, selection: Selection) -> Self {
        let pulse = Pulse::default();
        let api = Api::all(pulse.observe(client.clone()));
        Self {
            stream: open(&api, &selection, true, Duration::ZERO),
            api,
            resource: K::plural(&()).into_owned(),
            selection,
            streaming: true,
            stalled: None,
            pulse,
            health: Health::Unknown,
            next: None,
        }
    }

    /// The next thing to know. Loses nothing if it is dropped before it is done.
    pub(crate) async fn next(&mut self) -> Step<K> {
        if let Some(event) = self.next.take() {
            return Step::Event(event);
        }
        loop {
            let (lost, back) = match self.health {
                Health::Lost { back } => (true, back),
                _ => (false, None),
            };
            tokio::select! {
                biased;
                item = self.stream.next() => match item {
                    Some(Ok(event)) => return self.take(event),
                    Some(Err(error)) => {
                        if let Some(step) = self.fail(&error) {
                            return step;
                        }
                    }
                    None => self.reopen(REST),
                },
                () = self.pulse.beat(), if lost => {
                    self.health = Health::Lost { back: Some(Instant::now() + STEADY) };
                }
                () = until(back) => return self.set_good(),
                () = until(self.stalled) => self.stop_streaming("it does not end the list"),
            }
        }
    }

    fn take(&mut self, event: watcher::Event<K>) -> Step<K> {
        self.stalled = match event {
            watcher::Event::Init | watcher::Event::InitApply(_) if self.streaming => {
                Some(Instant::now() + STALLED)
            }
            _ => None,
        };
        if self.health == Health::Good {
            return Step::Event(event);
        }
        self.next = Some(event);
        self.set_good()
    }

    /// Does what an error asks for, and returns it if it is news.
    fn fail(&mut self, error: &watcher::Error) -> Option<Step<K>> {
        let listing = self.stalled.take().is_some();
        match (refusal(error), error) {
            (Some(Refusal::Fields), _) if !self.selection.fields.is_empty() && self.optional() => {
                let (resource, fields) = (&self.resource, &self.selection.fields);
                tracing::info!(
                    resource,
                    fields,
                    "the server does not know the field selector"
                );
                self.selection.fields.clear();
                self.reopen(Duration::ZERO);
                return None;
            }
            (Some(_), watcher::Error::WatchStartFailed(_)) if self.streaming => {
                self.stop_streaming("it refuses them");
                return None;
            }
            (Some(_), watcher::Error::WatchError(_)) if self.streaming && listing => {
                self.stop_streaming("it refuses them");
                return None;
            }
            // kube would ask for the same version for ever.
            (None, watcher::Error::WatchStartFailed(kube::Error::Api(status)))
                if status.code == 410 =>
            {
                self.reopen(REST);
                return None;
            }
            _ => {}
        }
        self.pulse.forget();
        let news = !matches!(self.health, Health::Lost { .. });
        self.health = Health::Lost { back: None };
        news.then(|| {
            let reason = reason(error);
            tracing::warn!(
                resource = self.resource,
                reason,
                "the watch is lost; it is retried"
            );
            Step::State(WatchState {
                resource: self.resource.clone(),
                lost: Some(reason),
            })
        })
    }

    fn set_good(&mut self) -> Step<K> {
        if self.health != Health::Unknown {
            tracing::info!(resource = self.resource, "the watch is back");
        }
        self.health = Health::Good;
        Step::State(WatchState {
            resource: self.resource.clone(),
            lost: None,
        })
    }

    fn stop_streaming(&mut self, why: &str) {
        let resource = &self.resource;
        tracing::info!(
            resource,
            why,
            "the server has no streaming lists; listing in pages"
        );
        self.streaming = false;
        self.reopen(Duration::ZERO);
    }

    fn reopen(&mut self, rest: Duration) {
        self.stalled = None;
        self.stream = open(&self.api, &self.selection, self.streaming, rest);
    }

    /// Whether the field selector may be left out: it spares us objects that decoding leaves out
    /// anyway.
    fn optional(&self) -> bool {
        !self.selection.labels.is_empty()
    }
}

/// A new watch, which starts with a full list, after a rest.
fn open<K>(api: &Api<K>, selection: &Selection, streaming: bool, rest: Duration) -> Events<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = watcher::Config::default();
    if !selection.labels.is_empty() {
        config = config.labels(selection.labels);
    }
    if !selection.fields.is_empty() {
        config = config.fields(&selection.fields);
    }
    if streaming {
        config = config.streaming_lists();
    }
    let rest = stream::once(tokio::time::sleep(rest)).filter_map(|()| future::ready(None));
    let events = watcher::watcher(api.clone(), config).default_backoff();
    rest.chain(events).boxed()
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => future::pending().await,
    }
}

enum Refusal {
    /// The field selector is not known.
    Fields,
    /// Something else in the request.
    Request,
}

/// Whether the server understood the request but will never grant it in this form. Rights, load and
/// lost versions are other matters.
fn refusal(error: &watcher::Error) -> Option<Refusal> {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return None,
    };
    match status.code {
        401 | 403 | 404 | 408 | 409 | 410 | 429 => None,
        400..500 if status.message.contains("field label not supported") => Some(Refusal::Fields),
        400..500 => Some(Refusal::Request),
        _ => None,
    }
}

/// An error with all its causes, each said once.
fn reason(error: &watcher::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
