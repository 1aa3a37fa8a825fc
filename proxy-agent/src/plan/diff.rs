//! From one state of a service to the next: the writes and the new mirror.
//!
//! Frontends are not compared here, since services compete for them; the planner does that with
//! [`Claims`](super::claims::Claims).

use proxy_common::ServiceRecord;

use super::{
    DesiredService, Op,
    draft::{Draft, Stage},
    entry::{Backend, Entry, Layout, Range, wanted_claims},
    ids::Ids,
    slots::{Run, Slots},
};

/// No run of this many slots is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRun(pub(super) u32);

/// Makes `old` what is desired. Nothing is handed out or written if there is no run.
pub(super) fn update(
    old: &Entry,
    desired: &DesiredService,
    ids: &mut Ids,
    slots: &mut Slots,
    draft: &mut Draft,
) -> Result<Entry, NoRun> {
    let (id, protocol) = (old.id, old.key.protocol);
    let mut backends = Backend::wanted(&desired.selection.candidates);
    let join = join(&old.backends, &mut backends);

    let mut layout = Layout::of(&backends, id);
    let count = layout.slots.len() as u32;
    let same_slots = !old.stale_slots && layout.slots == Layout::of(&old.backends, id).slots;
    let run = match count {
        0 => None,
        _ if same_slots => old.run,
        _ => Some(slots.take(count).ok_or(NoRun(count))?),
    };

    // Slots, record, name and a few frontends.
    let come = backends.iter().filter(|backend| backend.id == 0).count();
    draft.reserve(come + join.changed.len() + join.gone.len() + 6);
    for backend in backends.iter_mut().filter(|backend| backend.id == 0) {
        backend.id = ids.take();
        let op = Op::PutBackend(backend.value(id, protocol));
        draft.write(Stage::BackendsCome, op, Op::DeleteBackend(backend.id));
    }
    for (index, was) in join.changed {
        let backend = &mut backends[index];
        backend.generation = was.generation.wrapping_add(1);
        let stage = if backend.is_active() {
            Stage::BackendsCome
        } else {
            Stage::BackendsDrain
        };
        let op = Op::PutBackend(backend.value(id, protocol));
        draft.write(stage, op, Op::PutBackend(was.value(id, protocol)));
    }
    for was in join.gone {
        let undo = Op::PutBackend(was.value(id, protocol));
        draft.write(Stage::BackendsGo, Op::DeleteBackend(was.id), undo);
    }
    if let Some(Run { base, .. }) = run.filter(|_| !same_slots) {
        layout = Layout::of(&backends, id);
        let slots = layout.slots;
        draft.write(Stage::Slots, Op::WriteSlots { base, slots }, None);
    }

    let new = Entry {
        key: old.key.clone(),
        id,
        record: ServiceRecord {
            base: run.map_or(0, |run| run.base),
            local: layout.local,
            cluster: layout.cluster,
            affinity_seconds: desired.affinity_seconds,
            scheduler: desired.scheduler,
            has_any: desired.selection.has_any.into(),
            reserved: 0,
        },
        run,
        backends: backends.into(),
        claims: wanted_claims(&desired.frontends, protocol),
        ranges: Range::wanted(&desired.source_ranges, old.key.family, id),
        absent: false,
        stale_slots: false,
    };
    if old.absent || old.record != new.record {
        let undo = match old.absent {
            true => Op::DeleteService(id),
            false => Op::PutService(id, old.record),
        };
        draft.write(Stage::Service, Op::PutService(id, new.record), undo);
    }
    if old.absent
        && let Some(name) = new.name()
    {
        let op = Op::PutName(id, Box::new(name));
        draft.write(Stage::Name, op, Op::DeleteName(id));
    }
    write_ranges(&old.ranges, &new.ranges, draft);
    Ok(new)
}

/// Takes a service away, all but its frontends.
pub(super) fn delete(old: &Entry, draft: &mut Draft) {
    let id = old.id;
    write_ranges(&old.ranges, &[], draft);
    draft.write(
        Stage::ServiceGoes,
        Op::DeleteService(id),
        Op::PutService(id, old.record),
    );
    let name = old.name().map(|name| Op::PutName(id, Box::new(name)));
    draft.write(Stage::NameGoes, Op::DeleteName(id), name);
    for backend in &old.backends {
        let undo = Op::PutBackend(backend.value(id, old.key.protocol));
        draft.write(Stage::BackendsGo, Op::DeleteBackend(backend.id), undo);
    }
}

/// How two lists of backends differ, besides new ones.
#[derive(Default)]
struct Join {
    /// Index into the new list, and what it was.
    changed: Vec<(usize, Backend)>,
    gone: Vec<Backend>,
}

/// Gives new backends the ids of the old ones at the same endpoints. Both are sorted by endpoint;
/// a restored list may have an endpoint twice, of which the first is kept.
fn join(old: &[Backend], new: &mut [Backend]) -> Join {
    let mut join = Join::default();
    let mut next = 0;
    for was in old {
        while next < new.len() && new[next].endpoint() < was.endpoint() {
            next += 1;
        }
        match new.get_mut(next) {
            Some(is) if is.endpoint() == was.endpoint() => {
                is.id = was.id;
                is.generation = was.generation;
                if is != was {
                    join.changed.push((next, *was));
                }
                next += 1;
            }
            _ => join.gone.push(*was),
        }
    }
    join
}

/// Both are sorted.
fn write_ranges(old: &[Range], new: &[Range], draft: &mut Draft) {
    let lacks = |list: &[Range], range: &Range| {
        list.binary_search_by_key(&range.order(), Range::order)
            .is_err()
    };
    let put = |range: &Range| Op::PutRange(range.bits, range.key);
    let delete = |range: &Range| Op::DeleteRange(range.bits, range.key);
    for range in new.iter().filter(|range| lacks(old, range)) {
        draft.write(Stage::RangesCome, put(range), delete(range));
    }
    for range in old.iter().filter(|range| lacks(new, range)) {
        draft.write(Stage::RangesGo, delete(range), put(range));
    }
}
