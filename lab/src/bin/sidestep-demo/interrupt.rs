//! Ctrl-C and SIGTERM end the demo at the next check, so that the lab is removed. The second ends
//! it at once; the next lab removes what is left then.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Exit code of a program that SIGINT ended, as shells have it.
const EXIT: i32 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Notes the signals from now on instead of dying of them.
pub(crate) fn watch() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("watch for signals")?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    thread::spawn(move || {
        for already in [false, true] {
            runtime.block_on(async {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            });
            INTERRUPTED.store(true, Ordering::Relaxed);
            if already {
                std::process::exit(EXIT);
            }
        }
    });
    Ok(())
}

/// An error if the demo was told to end.
pub(crate) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}
