//! Attempts counted into a summary.

use hdrhistogram::Histogram;
use lab::report::{Attempt, Summary};

/// Longest latency that is told apart, in nanoseconds: one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// The figures so far.
#[derive(Debug)]
pub(crate) struct Tally {
    summary: Summary,
    /// Nanoseconds.
    latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> anyhow::Result<Self> {
        // Three significant digits: a thousandth is finer than any bar of the benches.
        let latency = Histogram::new_with_bounds(1, LONGEST, 3)?;
        Ok(Self {
            summary: Summary::default(),
            latency,
        })
    }

    pub(crate) fn add(&mut self, attempt: &Attempt) {
        self.summary.n += 1;
        if attempt.ok {
            self.summary.ok += 1;
            let server = attempt.server.clone().unwrap_or_default();
            *self.summary.servers.entry(server).or_default() += 1;
            self.latency
                .saturating_record((attempt.latency_us * 1e3) as u64);
        } else {
            self.summary.failed += 1;
            let error = attempt.error.clone().unwrap_or_default();
            *self.summary.errors.entry(error).or_default() += 1;
        }
    }

    pub(crate) fn summary(self) -> Summary {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        Summary {
            p50_us: microseconds(self.latency.value_at_quantile(0.5)),
            p99_us: microseconds(self.latency.value_at_quantile(0.99)),
            max_us: microseconds(self.latency.max()),
            ..self.summary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_servers_errors_and_the_latency_of_answers_only() {
        let mut tally = Tally::new().expect("bounds are constants");
        for latency_us in [10.0, 20.0, 30.0] {
            let server = Some("web-1".to_owned());
            tally.add(&Attempt {
                ok: true,
                server,
                latency_us,
                ..Attempt::default()
            });
        }
        let error = Some("ECONNREFUSED".to_owned());
        tally.add(&Attempt {
            error,
            latency_us: 9000.0,
            ..Attempt::default()
        });
        let summary = tally.summary();
        assert_eq!((summary.n, summary.ok, summary.failed), (4, 3, 1));
        assert_eq!(summary.servers["web-1"], 3);
        assert_eq!(summary.errors["ECONNREFUSED"], 1);
        assert!((summary.p50_us - 20.0).abs() < 0.1, "{summary:?}");
        assert!((summary.max_us - 30.0).abs() < 0.1, "{summary:?}");
    }
}
