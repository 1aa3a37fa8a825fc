//! Logs: one subscriber that writes to standard error, and klog's verbosity.
//!
//! Set up once by `main`; no other global state. Standard output belongs to the commands.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to standard error. A second call changes nothing.
pub fn init(verbosity: u8, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let registry = tracing_subscriber::registry().with(filter(verbosity));
    // The only error is that a subscriber is there already.
    let _ = match format {
        LogFormat::Text => registry
            .with(lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())))
            .try_init(),
        LogFormat::Json => registry
            .with(lines.json().flatten_event(true).with_ansi(false))
            .try_init(),
    };
}

/// What a klog verbosity (`-v N` of kube-proxy) lets through: levels of our own code, and of the
/// libraries below it, which are chattier than klog's.
fn filter(verbosity: u8) -> Targets {
    let (ours, others) = match verbosity {
        0..=1 => (LevelFilter::INFO, LevelFilter::WARN),
        2..=3 => (LevelFilter::INFO, LevelFilter::INFO),
        4..=5 => (LevelFilter::DEBUG, LevelFilter::INFO),
        _ => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    Targets::new()
        .with_default(others)
        .with_target(env!("CARGO_CRATE_NAME"), ours)
        .with_target("sidestep", ours)
        // It warns at every attempt to get a watch back; sources say once that one is lost.
        .with_target(
            "kube_runtime",
            if verbosity < 4 {
                LevelFilter::ERROR
            } else {
                others
            },
        )
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn verbosity_raises_our_own_level_before_that_of_libraries() {
        let ours = "proxy_agent::reconcile";
        let cases = [
            (0, Level::INFO, Level::WARN),
            (1, Level::INFO, Level::WARN),
            (2, Level::INFO, Level::INFO),
            (4, Level::DEBUG, Level::INFO),
            (6, Level::TRACE, Level::DEBUG),
            (10, Level::TRACE, Level::DEBUG),
        ];
        for (verbosity, own, others) in cases {
            let filter = filter(verbosity);
            for level in [Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                assert_eq!(
                    filter.would_enable(ours, &level),
                    level <= own,
                    "-v {verbosity}, our {level}"
                );
                assert_eq!(
                    filter.would_enable("kube_client", &level),
                    level <= others,
                    "-v {verbosity}, others' {level}"
                );
            }
        }
    }
}
