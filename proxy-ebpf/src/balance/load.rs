//! Connection counts of backends (docs/decisions/0009). Those that stand in `connection` are not counted: who wants to
//! know counts the elements, so that a connection need not touch the count of its backend.

use proxy_common::{Counter, LoadValue};

use crate::{
    maps::LOAD,
    report::{add_half, count},
};

/// Counts a connection to a backend. `false`: it could not be counted.
#[inline(always)]
pub fn count_up(backend: u32) -> bool {
    let Some(load) = of(backend) else {
        count(Counter::LoadUncounted);
        return false;
    };
    // SAFETY: a map value; only its address is taken here.
    add_half(unsafe { (&raw mut (*load).connections).cast() }, 1);
    true
}

/// Takes back one that was counted.
#[inline(always)]
pub fn count_down(backend: u32) {
    if let Some(load) = of(backend) {
        // SAFETY: a map value; only its address is taken here.
        add_half(unsafe { (&raw mut (*load).connections).cast() }, u32::MAX);
    }
}

/// The element of a backend that has one.
#[inline(always)]
fn of(backend: u32) -> Option<*mut LoadValue> {
    let load = LOAD.get_ptr_mut(LoadValue::index(backend))?;
    // SAFETY: a map value.
    let owner = unsafe { (&raw const (*load).backend).read_volatile() };
    (owner == backend).then_some(load)
}
