//! The loop under a clock that stands still while something is to be done and jumps to the next
//! wait when nothing is.

use std::cell::Cell;

use tokio::{sync::watch, time::sleep};

use super::*;
use crate::{
    datapath::{
        Error, Outcome,
        fake::{Fake, Faults},
    },
    model::{
        Change,
        fixture::{endpoint, node_in, service, slice},
    },
    plan::{Snapshot, Transaction},
};

/// A data plane in memory whose readers' end cannot be waited for.
#[derive(Default)]
struct NoGrace {
    maps: Fake,
    asked: std::sync::Arc<std::sync::atomic::AtomicU32>,
}

impl Dataplane for NoGrace {
    fn apply(&mut self, transaction: &Transaction) -> Outcome {
        self.maps.apply(transaction)
    }

    fn dump(&mut self) -> Result<Snapshot, Error> {
        self.maps.dump()
    }

    fn grace(&self) -> Grace {
        let asked = self.asked.clone();
        Box::new(move || {
            asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Err(Error::Map {
                what: "wait for readers of",
                map: "slot",
                source: std::io::Error::other("no"),
            })
        })
    }
}

/// Service `web` with one endpoint.
fn lists() -> [Event; 2] {
    let endpoints = [endpoint("10.1.0.1")];
    [
        Event::Change(Change::Services(vec![service("web")])),
        Event::Change(Change::Slices(vec![slice("web-1", "web", &endpoints)])),
    ]
}

/// The slice of `web` with another endpoint.
fn changed(last: u8) -> Event {
    let endpoints = [endpoint(&format!("10.1.0.{last}"))];
    Event::Change(Change::Slice(slice("web-1", "web", &endpoints)))
}

/// Runs the loop beside a script that sends events, to the script's end. Returns when each sync
/// was, in milliseconds from the start, and the reconciler after it.
async fn syncs<D: Dataplane>(
    dataplane: D,
    min_sync_period: Duration,
    script: impl AsyncFnOnce(mpsc::Sender<Event>),
) -> (Vec<u128>, Reconciler<D>) {
    let mut reconciler = Reconciler::new(node_in(""), dataplane, 1024).expect("empty maps");
    let (sender, events) = mpsc::channel(64);
    let (_addresses, addresses) = watch::channel(None);
    let inputs = Inputs {
        events,
        addresses,
        node_ports: NodePortAddresses::new(&[], true),
        min_sync_period,
    };
    let start = Instant::now();
    let mut times = Vec::new();
    let note = |_: &mut Reconciler<D>, _: &Report| times.push(start.elapsed().as_millis());
    serve(&mut reconciler, inputs, script(sender), |_| {}, note).await;
    (times, reconciler)
}

async fn send(sender: &mpsc::Sender<Event>, events: impl IntoIterator<Item = Event>) {
    for event in events {
        sender.send(event).await.expect("the loop runs");
    }
}

const PERIOD: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn the_first_sync_is_immediate_and_later_ones_keep_the_period_t78() {
    let (times, _) = syncs(Fake::new(), PERIOD, async |sender| {
        send(&sender, lists()).await;
        for last in 2..=11 {
            sleep(Duration::from_millis(15)).await;
            send(&sender, [changed(last)]).await;
        }
        sleep(Duration::from_secs(1)).await;
    })
    .await;
    // Changes at 15, 30 … 150: those of the first 100 ms are one sync, the rest another.
    assert_eq!(times, [0, 100, 200]);
}

#[tokio::test(start_paused = true)]
async fn the_nodes_addresses_are_in_the_maps_before_the_first_services_t78() {
    let node = node_in("");
    let mut reconciler = Reconciler::new(node, Fake::new(), 1024).expect("empty maps");
    let (sender, events) = mpsc::channel(64);
    let local = ["192.0.2.1".parse().expect("an address")].into();
    let (_addresses, addresses) = watch::channel(Some(local));
    let inputs = Inputs {
        events,
        addresses,
        node_ports: NodePortAddresses::new(&[], true),
        min_sync_period: PERIOD,
    };
    let stop = async {
        send(&sender, lists()).await;
        sleep(Duration::from_secs(1)).await;
    };
    let start = Instant::now();
    let mut first = None;
    let note = |reconciler: &mut Reconciler<Fake>, report: &Report| {
        if report.first {
            let maps = reconciler.dataplane().dump().expect("the maps can be read");
            first = Some((start.elapsed(), maps.node_addrs.len()));
        }
    };
    serve(&mut reconciler, inputs, stop, |_| {}, note).await;
    assert_eq!(first, Some((Duration::ZERO, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_change_after_a_pause_is_written_at_once_t78() {
    let (times, _) = syncs(Fake::new(), PERIOD, async |sender| {
        send(&sender, lists()).await;
        sleep(Duration::from_millis(750)).await;
        send(&sender, [changed(2)]).await;
        sleep(Duration::from_secs(1)).await;
    })
    .await;
    assert_eq!(times, [0, 750]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_both_lists_have_come_t78() {
    let (times, _) = syncs(Fake::new(), PERIOD, async |sender| {
        let [services, slices] = lists();
        send(&sender, [services]).await;
        sleep(Duration::from_millis(300)).await;
        send(&sender, [slices]).await;
        sleep(Duration::from_secs(1)).await;
    })
    .await;
    assert_eq!(times, [300]);
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_tried_again_at_growing_waits_t78() {
    // Waits for readers end on a clock of their own, and would bring syncs in between.
    let mut dataplane = NoGrace::default();
    dataplane.maps.set_faults(Faults::Percent {
        percent: 100,
        seed: 1,
    });
    let period = Duration::from_millis(1);
    let (times, _) = syncs(dataplane, period, async |sender| {
        send(&sender, lists()).await;
        sleep(Duration::from_millis(700)).await;
    })
    .await;
    assert_eq!(times, [0, 10, 30, 70, 150, 310, 630]);
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_the_period_and_a_success_ends_it_t78() {
    let mut fake = Fake::new();
    fake.set_faults(Faults::After(0));
    let (times, reconciler) = syncs(fake, PERIOD, async |sender| {
        send(&sender, lists()).await;
        sleep(Duration::from_secs(60)).await;
    })
    .await;
    assert_eq!(times, [0, 100]);
    assert_eq!(reconciler.usage().services, 1);
    assert!(!reconciler.has_refused());
}

#[tokio::test(start_paused = true)]
async fn a_failed_wait_for_readers_is_tried_again_at_growing_waits() {
    let dataplane = NoGrace::default();
    let asked = dataplane.asked.clone();
    let period = Duration::from_millis(1);
    syncs(dataplane, period, async |sender| {
        send(&sender, lists()).await;
        sleep(Duration::from_millis(50)).await;
        // The old list is unpublished here. Its readers are waited for on a thread, so the clock is
        // moved on by hand, a little at a time.
        send(&sender, [changed(2)]).await;
        for _ in 0..100 {
            sleep(Duration::from_millis(1)).await;
            std::thread::sleep(Duration::from_millis(2));
        }
    })
    .await;
    let asked = asked.load(std::sync::atomic::Ordering::Relaxed);
    assert!(
        (2..=5).contains(&asked),
        "{asked} times in 100 ms, with waits of 10, 20, 40, 80 ms between"
    );
}

#[tokio::test(start_paused = true)]
async fn maps_that_cannot_be_read_back_are_tried_at_the_pace_of_retries() {
    let dataplane = Torn {
        maps: Fake::new(),
        dumps: Cell::new(0),
    };
    let (times, _) = syncs(dataplane, Duration::ZERO, async |sender| {
        send(&sender, lists()).await;
        sleep(Duration::from_millis(100)).await;
        send(&sender, [changed(2)]).await;
        sleep(Duration::from_millis(600)).await;
    })
    .await;
    assert!((5..=9).contains(&times.len()), "{times:?}");
}

/// Every unit is torn, and only the first dump works.
struct Torn {
    maps: Fake,
    dumps: Cell<u32>,
}

impl Dataplane for Torn {
    fn apply(&mut self, transaction: &Transaction) -> Outcome {
        self.maps.set_faults(Faults::AfterWithUndo(1));
        self.maps.apply(transaction)
    }

    fn dump(&mut self) -> Result<Snapshot, Error> {
        let dumps = self.dumps.get();
        self.dumps.set(dumps + 1);
        match dumps {
            0 => self.maps.dump(),
            _ => Err(Error::Map {
                what: "read",
                map: "service",
                source: std::io::Error::other("no"),
            }),
        }
    }

    fn grace(&self) -> Grace {
        self.maps.grace()
    }
}
