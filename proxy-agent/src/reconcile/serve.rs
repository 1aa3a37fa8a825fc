//! The loop itself: channels, clocks, retries.

use std::{future::Future, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{Reconciler, Report};
use crate::{
    datapath::{Dataplane, Grace},
    node::{interfaces::Addresses, node_port::NodePortAddresses},
    source::Event,
};

/// First and longest wait before what was refused or has failed is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(30));

/// What the loop listens to.
pub struct Inputs {
    /// Events of the source.
    pub events: mpsc::Receiver<Event>,
    /// Addresses of the node.
    pub addresses: Addresses,
    /// Which of them answer NodePorts.
    pub node_ports: NodePortAddresses,
    /// Least time from the end of one sync to the begin of the next. The first change after a
    /// pause is written at once.
    pub min_sync_period: Duration,
}

/// Serves until `stop` is done or the source has ended. `seen` gets every event that is no change,
/// `synced` every sync with the reconciler after it.
pub async fn serve<D: Dataplane>(
    reconciler: &mut Reconciler<D>,
    inputs: Inputs,
    stop: impl Future<Output = ()>,
    mut seen: impl FnMut(Event),
    mut synced: impl FnMut(&mut Reconciler<D>, &Report),
) {
    let Inputs {
        mut events,
        mut addresses,
        node_ports,
        min_sync_period,
    } = inputs;
    let (graces, mut passed) = mpsc::channel(1);
    let mut waiting_for_grace = false;
    let mut grace_again = Retry::default();
    let mut buffer = Vec::new();
    let mut next_sync = Instant::now();
    let mut started = false;
    let mut retry = Retry::default();
    let mut retrying = false;
    // Those known already come before the first Services.
    if let Some(local) = addresses.borrow_and_update().as_ref() {
        reconciler.addresses(node_ports.entries(local));
    }
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            count = events.recv_many(&mut buffer, 1024) => {
                if count == 0 {
                    return;
                }
                for event in buffer.drain(..) {
                    match event {
                        Event::Change(change) => reconciler.change(change),
                        other => seen(other),
                    }
                }
            }
            Ok(()) = addresses.changed() => {
                if let Some(local) = addresses.borrow_and_update().as_ref() {
                    reconciler.addresses(node_ports.entries(local));
                }
            }
            Some(passed) = passed.recv() => {
                waiting_for_grace = false;
                match passed {
                    Some(epoch) => {
                        grace_again = Retry::default();
                        reconciler.grace_passed(epoch);
                        reconciler.retry(false);
                    }
                    None => grace_again.later(),
                }
            }
            () = grace_again.due() => grace_again.at = None,
            () = retry.due() => {
                retry.at = None;
                retrying = true;
            }
            () = sleep_until(next_sync), if retrying || reconciler.is_pending() => {
                if std::mem::take(&mut retrying) {
                    reconciler.retry(true);
                }
                let report = reconciler.sync();
                // The node's addresses alone do not put off the first Services.
                started |= report.first;
                if started {
                    next_sync = Instant::now() + min_sync_period;
                }
                retry.after(&report, reconciler.has_refused());
                synced(reconciler, &report);
                reconciler.retry(false);
            }
        }
        if !waiting_for_grace
            && grace_again.at.is_none()
            && let Some((epoch, grace)) = reconciler.grace()
        {
            waiting_for_grace = wait(epoch, grace, graces.clone());
            if !waiting_for_grace {
                grace_again.later();
            }
        }
    }
}

/// When to try again what was refused or has failed.
#[derive(Default)]
struct Retry {
    at: Option<Instant>,
    wait: Duration,
}

impl Retry {
    /// A sync was made; some of it, or of an earlier one, may still be refused.
    fn after(&mut self, report: &Report, refused: bool) {
        if !refused {
            *self = Self::default();
        } else if self.at.is_none() {
            match report.is_clean() {
                true => self.again(self.wait),
                false => self.later(),
            }
        }
    }

    /// It failed: waits twice as long as the last time.
    fn later(&mut self) {
        self.again(self.wait * 2);
    }

    fn again(&mut self, wait: Duration) {
        self.wait = wait.clamp(RETRY.0, RETRY.1);
        self.at = Some(Instant::now() + self.wait);
    }

    async fn due(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// Waits on a thread of its own and reports the epoch; `None` if the kernel did not say. Whether
/// such a thread was started.
fn wait(epoch: u64, grace: Grace, passed: mpsc::Sender<Option<u64>>) -> bool {
    let work = move || {
        let epoch = match grace() {
            Ok(()) => Some(epoch),
            Err(error) => {
                tracing::error!(%error, "replaced slots stay out of use");
                None
            }
        };
        // The loop may have ended meanwhile.
        let _ = passed.blocking_send(epoch);
    };
    match std::thread::Builder::new().name("grace".into()).spawn(work) {
        Ok(_) => true,
        Err(error) => {
            tracing::error!(%error, "start a thread to wait for readers; replaced slots wait on");
            false
        }
    }
}

#[cfg(test)]
mod tests;
