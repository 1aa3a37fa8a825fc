//! Terminating endpoints as the last resort (KEP-1669).

use super::merge::Merged;
use crate::model::Endpoint;

/// Whether an endpoint may serve where no ready one can: it is being deleted but still answers.
pub(super) const fn is_last_resort(endpoint: &Endpoint) -> bool {
    endpoint.serving && endpoint.terminating
}

/// Whether it may serve at all, somewhere.
pub(super) const fn is_usable(endpoint: &Endpoint) -> bool {
    endpoint.ready || is_last_resort(endpoint)
}

/// The members of a set: the ready endpoints that `prefer` admits, or, if there are none, the last
/// resorts that `fall_back` admits. Each policy falls back on its own.
pub(super) fn members<'a>(
    endpoints: &[Merged<'a>],
    prefer: impl Fn(&Merged<'a>) -> bool,
    fall_back: impl Fn(&Merged<'a>) -> bool,
) -> impl Fn(&Merged<'a>) -> bool {
    let first = move |e: &Merged<'a>| e.endpoint.ready && prefer(e);
    let has_first = endpoints.iter().any(&first);
    move |e| {
        if has_first {
            first(e)
        } else {
            is_last_resort(e.endpoint) && fall_back(e)
        }
    }
}
