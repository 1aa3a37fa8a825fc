//! Lists of the kernel's that are kept up to date: addresses, interfaces.
//!
//! Notifications only say that something changed; everything is always listed anew. So a lost
//! notification costs nothing but a listing, and there is no second copy of the kernel's rules.

use std::{future::Future, time::Duration};

use futures::{FutureExt as _, StreamExt as _};
use rtnetlink::{Handle, MulticastGroup};
use tokio::{sync::watch, task::JoinSet};

/// How long changes are gathered before there is another listing.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Time for the kernel to list them at the start.
const PATIENCE: Duration = Duration::from_secs(10);

/// First and longest wait before a failed watch is started again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Something that rtnetlink lists and tells changes of.
pub trait Listed: PartialEq + Send + Sync + Sized + 'static {
    /// What it is, in the plural.
    const WHAT: &'static str;
    /// What happens while it cannot be watched.
    const WITHOUT: &'static str;
    /// Notifications after which it is listed again.
    const GROUPS: &'static [MulticastGroup];

    /// Lists it.
    fn list(handle: &Handle) -> impl Future<Output = Result<Self, rtnetlink::Error>> + Send;

    /// How many they are, for the log.
    fn count(&self) -> usize;
}

/// Why something cannot be watched.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("open an rtnetlink socket")]
    Open(#[source] std::io::Error),
    #[error("list by rtnetlink")]
    List(#[source] rtnetlink::Error),
    #[error("wait for changes: the kernel closed the rtnetlink socket")]
    Closed,
}

/// Watches the calling thread's network namespace until the last receiver is dropped; `None` until
/// there was a first listing.
pub(super) fn spawn<T: Listed>() -> watch::Receiver<Option<T>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(watch(sender));
    receiver
}

/// Waits for the first listing, so that what is served first is served whole. If the kernel does not
/// give one in good time, that is logged, and what can be done without it goes on.
pub async fn first<T: Listed>(receiver: &mut watch::Receiver<Option<T>>) {
    let listed = receiver.wait_for(Option::is_some);
    if tokio::time::timeout(PATIENCE, listed).await.is_err() {
        tracing::warn!(
            "the kernel does not list its {}; until then {}",
            T::WHAT,
            T::WITHOUT
        );
    }
}

async fn watch<T: Listed>(sender: watch::Sender<Option<T>>) {
    let mut wait = RETRY.0;
    loop {
        let listed = sender.borrow().is_some();
        let error = tokio::select! {
            () = sender.closed() => return,
            error = follow(&sender) => error,
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            retry = ?wait,
            "cannot watch {}; {}", T::WHAT, T::WITHOUT
        );
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let progress = !listed && sender.borrow().is_some();
        wait = if progress {
            RETRY.0
        } else {
            (wait * 2).min(RETRY.1)
        };
    }
}

/// Lists, then lists again after each change; returns only with an error.
async fn follow<T: Listed>(sender: &watch::Sender<Option<T>>) -> Error {
    // Two sockets: an overflow of notifications must not lose the answer to a listing.
    let (notifier, _, mut changes) = match rtnetlink::new_multicast_connection(T::GROUPS) {
        Ok(parts) => parts,
        Err(e) => return Error::Open(e),
    };
    let (lister, handle, _) = match rtnetlink::new_connection() {
        Ok(parts) => parts,
        Err(e) => return Error::Open(e),
    };
    let mut connections = JoinSet::new();
    connections.spawn(notifier);
    connections.spawn(lister);

    loop {
        let list = match T::list(&handle).await {
            Ok(list) => list,
            Err(e) => return Error::List(e),
        };
        sender.send_if_modified(|known| {
            let modified = known.as_ref() != Some(&list);
            if modified {
                tracing::info!(count = list.count(), "{}", T::WHAT);
                *known = Some(list);
            }
            modified
        });
        // An overflow (ENOBUFS) arrives as one more message.
        if changes.next().await.is_none() {
            return Error::Closed;
        }
        tokio::time::sleep(DEBOUNCE).await;
        while let Some(Some(_)) = changes.next().now_or_never() {}
    }
}
