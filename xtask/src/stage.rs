//! Stages of a command: says what starts, and at the end how long each took.
//!
//! Here, because a task of ten minutes must show where it is and where the time went.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Runs stages one after the other and remembers their times.
#[derive(Default)]
pub(crate) struct Stages {
    done: Vec<(String, Duration)>,
}

impl Stages {
    /// Announces and runs one stage.
    pub(crate) fn run<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("\n==> {name}");
        let start = Instant::now();
        let outcome = work();
        self.done.push((name.to_owned(), start.elapsed()));
        outcome.with_context(|| name.to_owned())
    }

    /// One line per stage, and the sum.
    pub(crate) fn table(&self) -> String {
        let width = self
            .done
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0)
            .max(5);
        let total: Duration = self.done.iter().map(|(_, time)| *time).sum();
        let rows = self.done.iter().map(|(name, time)| (name.as_str(), *time));
        rows.chain([("total", total)])
            .map(|(name, time)| format!("{name:width$}  {:>7.1} s\n", time.as_secs_f64()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_stage_is_named_in_the_error_and_still_timed() {
        let mut stages = Stages::default();
        let outcome: Result<()> = stages.run("measure", || anyhow::bail!("no ruler"));
        assert_eq!(format!("{:#}", outcome.unwrap_err()), "measure: no ruler");
        assert!(stages.table().starts_with("measure "));
    }

    #[test]
    fn the_table_ends_with_the_sum() {
        let stages = Stages {
            done: vec![
                ("a".into(), Duration::from_secs(1)),
                ("b".into(), Duration::from_secs(2)),
            ],
        };
        assert_eq!(
            stages.table(),
            "a          1.0 s\nb          2.0 s\ntotal      3.0 s\n"
        );
    }
}
