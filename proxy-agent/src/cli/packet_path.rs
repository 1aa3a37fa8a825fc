//! The packet path of `sidestep run`: programs on every interface, ports for SNAT, ends of flows.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use proxy_common::SettingValue;

use super::sentence;
use crate::{
    datapath::{Attachments, Flows, Kernel, Method, Pins, Timeouts, Walked},
    node::{
        self,
        devices::{self, Devices},
        reserved_ports::{self, PortRange},
    },
};

/// How long a walk over all flows takes: at rest, and when the map is more than half full.
const WALK: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(2));
/// The shortest pause between two slices.
const PAUSE: Duration = Duration::from_millis(1);

/// Keeps the ports of SNAT from being given to sockets, and notes that, so that cleanup can give
/// them back. Ports of an earlier agent that are no longer used are given back at once.
pub(super) fn reserve(kernel: &mut Kernel, ports: PortRange) -> anyhow::Result<()> {
    let before = kernel.setting()?;
    let is_same = (before.snat_first, before.snat_last) == (ports.first, ports.last);
    if !is_same {
        give_back(&before);
    }
    let is_ours = match reserved_ports::reserve(ports) {
        Ok(is_new) => is_new || (is_same && before.snat_reserved != 0),
        Err(error) => {
            tracing::warn!(
                %error, %ports,
                "degraded: the ports of SNAT cannot be reserved; a local socket that is given one of them and talks to an endpoint itself gets no answers"
            );
            false
        }
    };
    kernel
        .sign_snat(ports, is_ours)
        .context("note the ports of SNAT")
}

/// Gives back the ports that a record says were reserved; what it says to the user.
pub(super) fn give_back(setting: &SettingValue) -> Option<String> {
    let ports = PortRange {
        first: setting.snat_first,
        last: setting.snat_last,
    };
    if setting.snat_reserved == 0 || ports.first == 0 || ports.last < ports.first {
        return None;
    }
    match reserved_ports::give_back(ports) {
        Ok(()) => Some(format!("reserved ports {ports}")),
        Err(error) => {
            tracing::warn!(%error, %ports, "reserved ports could not be given back");
            None
        }
    }
}

/// Attaches to every interface, and from then on to those that come.
pub(super) async fn attach(mut attachments: Attachments) -> anyhow::Result<()> {
    let mut devices = devices::spawn();
    // Services are served before the first of them is written, as at the sockets.
    node::first_listing(&mut devices).await;
    follow(&mut attachments, &mut devices);
    tokio::spawn(async move {
        while devices.changed().await.is_ok() {
            follow(&mut attachments, &mut devices);
        }
    });
    Ok(())
}

fn follow(attachments: &mut Attachments, devices: &mut Devices) {
    let devices = devices.borrow_and_update();
    let Some(devices) = devices.as_ref() else {
        return;
    };
    attachments.follow(devices, |device, error| {
        tracing::warn!(
            interface = device.name,
            error = sentence(&error),
            "packets are not translated on an interface"
        );
    });
}

/// How programs are attached on this kernel.
pub(super) const fn method(has_tcx: bool) -> Method {
    if has_tcx { Method::Tcx } else { Method::Clsact }
}

/// Ends flows, on a thread of its own, as long as the agent runs.
pub(super) fn end_flows(pins: &Pins) -> anyhow::Result<()> {
    let mut flows = Flows::open(pins, Timeouts::default())?;
    let work = move || {
        let mut last = Walked::default();
        loop {
            last = walk(&mut flows, last);
        }
    };
    thread::Builder::new()
        .name("flows".into())
        .spawn(work)
        .context("start a thread that ends flows")?;
    Ok(())
}

/// One walk over all flows, spread over its time by what the last one has found.
fn walk(flows: &mut Flows, last: Walked) -> Walked {
    let time = if last.keys > flows.room() / 2 {
        WALK.1
    } else {
        WALK.0
    };
    let start = Instant::now();
    let mut walked = Walked::default();
    loop {
        let more = match now().map(|now| flows.walk(now, &mut walked)) {
            Some(Ok(more)) => more,
            Some(Err(error)) => {
                tracing::error!(error = sentence(&error), "flows are not ended");
                false
            }
            None => false,
        };
        if !more {
            break;
        }
        let share = walked.keys as f64 / last.keys.max(walked.keys) as f64;
        let due = time.mul_f64(share * 0.9);
        thread::sleep(due.saturating_sub(start.elapsed()).max(PAUSE));
    }
    flows.rest();
    if walked.ended + walked.mended > 0 {
        tracing::debug!(
            keys = walked.keys,
            ended = walked.ended,
            mended = walked.mended,
            "flows"
        );
    }
    thread::sleep(time.saturating_sub(start.elapsed()).max(PAUSE));
    walked
}

/// `CLOCK_MONOTONIC`, which is what `bpf_ktime_get_ns` gives.
fn now() -> Option<Duration> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).ok()
}
