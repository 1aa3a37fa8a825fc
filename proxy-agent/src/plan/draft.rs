//! A unit in the making.
//!
//! Writes are collected in any order and sorted by [`Stage`], which is what makes every moment
//! between two writes one that programs may see.

use super::{Op, Unit, entry::Entry};
use crate::model::ServiceKey;

/// When a write is due within its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// New backends, and those that come into a window: nothing points to them yet.
    BackendsCome,
    /// The fresh run, which nothing points to yet either.
    Slots,
    /// The flip.
    Service,
    /// Backends that have left all windows, but still serve what they have.
    BackendsDrain,
    /// Names.
    Name,
    /// Sources that a frontend is about to ask for.
    RangesCome,
    /// The service can be reached from here on.
    FrontendsCome,
    /// And no longer, where it is not wanted.
    FrontendsGo,
    /// Sources that no frontend asks for any more.
    RangesGo,
    /// The record, which no frontend points to.
    ServiceGoes,
    /// Names.
    NameGoes,
    /// Backends that nothing points to.
    BackendsGo,
}

/// What a unit changes in the mirror.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) id: u32,
    /// What the service was; `None` if it was not there.
    pub(super) entry: Option<Box<Entry>>,
    /// It was no service that anybody wants.
    pub(super) orphan: bool,
}

/// Writes about one service, or several that have to go together.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) service: Option<ServiceKey>,
    pub(super) before: Vec<Before>,
    writes: Vec<(Stage, Op, Option<Op>)>,
}

impl Draft {
    /// Nothing yet.
    pub(super) fn new(service: Option<ServiceKey>) -> Self {
        Self {
            service,
            ..Self::default()
        }
    }

    /// Makes room for this many writes more.
    pub(super) fn reserve(&mut self, writes: usize) {
        self.writes.reserve(writes);
    }

    /// Adds a write and the one that takes it back.
    pub(super) fn write(&mut self, stage: Stage, op: Op, undo: impl Into<Option<Op>>) {
        self.writes.push((stage, op, undo.into()));
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Takes another draft's writes over. The unit is named after the first.
    pub(super) fn absorb(&mut self, other: Self) {
        self.service = self.service.take().or(other.service);
        self.before.extend(other.before);
        self.writes.extend(other.writes);
    }

    /// The unit, and what the mirror was before it.
    pub(super) fn finish(mut self) -> (Unit, Vec<Before>) {
        self.writes.sort_by_key(|(stage, _, _)| *stage);
        let count = self.writes.len();
        let (mut ops, mut undo) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (_, op, back) in self.writes {
            ops.push(op);
            undo.push(back);
        }
        let service = self.service;
        (Unit { service, ops, undo }, self.before)
    }
}
