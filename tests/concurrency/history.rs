//! Which list was published when, and whether a connection fits.

use std::{collections::BTreeSet, net::SocketAddr, time::Instant};

use anyhow::{Context as _, ensure};

/// All lists, in order.
#[derive(Debug, Default)]
pub(crate) struct History(Vec<List>);

#[derive(Debug)]
struct List {
    /// Before the first map write.
    begin: Instant,
    /// After the last.
    end: Instant,
    pods: BTreeSet<SocketAddr>,
}

/// One connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connected {
    /// Before connect(2).
    pub(crate) before: Instant,
    /// After it.
    pub(crate) after: Instant,
    /// Who answered.
    pub(crate) who: SocketAddr,
}

impl History {
    /// A list stands in the maps.
    pub(crate) fn published(&mut self, begin: Instant, end: Instant, pods: BTreeSet<SocketAddr>) {
        self.0.push(List { begin, end, pods });
    }

    /// How many there were.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The answer came from a pod of a list that was in force at some moment between the two times:
    /// the last one that was complete before, or one whose writing had begun.
    ///
    /// # Errors
    ///
    /// If not: who answered, and which lists were in force.
    pub(crate) fn check(&self, connected: &Connected) -> anyhow::Result<()> {
        let complete = self.0.partition_point(|list| list.end <= connected.before);
        let begun = self.0.partition_point(|list| list.begin <= connected.after);
        let first = complete.checked_sub(1).context("no list was complete")?;
        let in_force = &self.0[first..begun];
        ensure!(
            in_force
                .iter()
                .any(|list| list.pods.contains(&connected.who)),
            "{connected:?}, but in force were, from number {first}, {in_force:#?}"
        );
        Ok(())
    }
}
