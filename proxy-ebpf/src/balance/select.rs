//! From a Service to a backend: the window, the client's earlier choice, a slot.

use aya_ebpf::{bindings::BPF_ANY, helpers::bpf_ktime_get_ns};
use proxy_common::{
    AffinityKey, AffinityValue, BackendState, BackendValue, Counter, FrontendKind, FrontendValue,
    ServiceRecord, ServiceValue, Window,
};

use crate::{
    address::{Endpoint, Words},
    balance::lookup::Side,
    maps::{AFFINITY, BACKEND, SERVICE, SLOT},
    report::count,
};

/// How many slots are looked at. A slot is not of this Service if its run was reused after we had read
/// the Service, so that it is read anew before the next one. That is the following slot in the list,
/// never the same again, should it be the slot that is wrong.
const ATTEMPTS: u32 = 5;

/// Why a Service has no backend for a client.
#[derive(Clone, Copy)]
pub enum Closed {
    /// No usable endpoint exists.
    Refused,
    /// Usable endpoints exist, but the traffic policy forbids them.
    Dropped,
    /// The maps contradict themselves.
    Broken,
}

/// A Service with something to choose from.
pub struct Open {
    frontend: FrontendValue,
    service: ServiceRecord,
    window: Window,
    is_local: bool,
}

/// A backend that was chosen.
pub struct Backend {
    /// Its id.
    pub id: u32,
    /// Where it listens.
    pub at: Endpoint,
}

/// Who chooses.
pub trait Client {
    /// 32 bits that decide, evenly distributed over all clients.
    fn dice(&self) -> u32;
    /// By what affinity to a Service knows it.
    fn affinity(&self, service: u32) -> AffinityKey;
}

/// Reads the Service of a frontend and its window for clients of a side.
#[inline(always)]
pub fn open(frontend: FrontendValue, side: Side) -> Result<Open, Closed> {
    reopen(frontend, is_local(frontend, side))
}

#[inline(always)]
fn reopen(frontend: FrontendValue, is_local: bool) -> Result<Open, Closed> {
    let service = service(frontend.service).ok_or(Closed::Broken)?;
    let window = if is_local {
        service.local
    } else {
        service.cluster
    };
    match (window.count, service.has_any) {
        (0, 0) => Err(Closed::Refused),
        (0, _) => Err(Closed::Dropped),
        _ => Ok(Open {
            frontend,
            service,
            window,
            is_local,
        }),
    }
}

impl Open {
    /// Id of the Service.
    #[inline(always)]
    pub fn service(&self) -> u32 {
        self.frontend.service
    }

    /// Chooses a backend: the one of the client's affinity record, else any of the window.
    #[inline(always)]
    pub fn choose(mut self, client: &impl Client) -> Result<Backend, Closed> {
        let affinity = u64::from(self.service.affinity_seconds) * 1_000_000_000;
        if affinity != 0
            && let Some(backend) = self.remembered(&client.affinity(self.service()), affinity)
        {
            return Ok(backend);
        }
        let dice = client.dice();
        let mut chosen = None;
        for attempt in 0..ATTEMPTS {
            if attempt != 0 {
                count(Counter::SocketRetried);
                self = reopen(self.frontend, self.is_local)?;
            }
            let index = scale(dice, self.window.count) + attempt;
            chosen = self.slot(index.checked_rem(self.window.count).unwrap_or(0));
            if chosen.is_some() {
                break;
            }
        }
        let backend = chosen.ok_or(Closed::Broken)?;
        if affinity != 0 {
            let record = AffinityValue {
                // SAFETY: a helper without preconditions.
                last_used: unsafe { bpf_ktime_get_ns() },
                backend: backend.id,
                reserved: 0,
            };
            // An LRU map makes room for itself. Should that fail, the next choice is a new one.
            let _ = AFFINITY.insert(
                &client.affinity(self.service()),
                &record,
                u64::from(BPF_ANY),
            );
        }
        Ok(backend)
    }

    /// The backend in a slot, counted from the start of the window.
    #[inline(always)]
    fn slot(&self, index: u32) -> Option<Backend> {
        let slot = self
            .service
            .base
            .wrapping_add(self.window.offset)
            .wrapping_add(index);
        let slot = SLOT.get_ptr(slot)?;
        // SAFETY: an element of an array map.
        let slot = unsafe { slot.read_volatile() };
        let usable = slot.backend != 0 && slot.service == self.frontend.service;
        usable.then(|| Backend {
            id: slot.backend,
            at: Endpoint {
                // SAFETY: a field of a value on our stack.
                addr: unsafe { Words::read(&raw const slot.addr) },
                port: slot.port,
            },
        })
    }

    /// The backend that the client used last, if that is not too long ago and the backend is still
    /// in the window. Renews the record.
    #[inline(always)]
    fn remembered(&self, key: &AffinityKey, affinity: u64) -> Option<Backend> {
        let record = AFFINITY.get_ptr_mut(key)?;
        // SAFETY: a map value. It may become another client's while we read it, if the map is full:
        // then the backend is another Service's, or a choice as good as any.
        let (last_used, id) = unsafe {
            (
                (&raw const (*record).last_used).read_volatile(),
                (&raw const (*record).backend).read_volatile(),
            )
        };
        // SAFETY: a helper without preconditions.
        let now = unsafe { bpf_ktime_get_ns() };
        if now.saturating_sub(last_used) > affinity {
            return None;
        }
        let backend = self.backend(id)?;
        // SAFETY: as above.
        unsafe { (&raw mut (*record).last_used).write_volatile(now) };
        Some(backend)
    }

    /// A backend by id, if new connections of this frontend may use it.
    #[inline(always)]
    fn backend(&self, id: u32) -> Option<Backend> {
        let value = backend(id)?;
        let flag = if self.is_local {
            BackendValue::IN_LOCAL
        } else {
            BackendValue::IN_CLUSTER
        };
        let usable = value.service == self.frontend.service
            && value.state as u8 == BackendState::Active as u8
            && value.flags & flag != 0;
        usable.then(|| Backend {
            id,
            at: Endpoint {
                // SAFETY: a field of a value on our stack.
                addr: unsafe { Words::read(&raw const value.addr) },
                port: value.port,
            },
        })
    }
}

/// Whether a backend may keep clients that it has: active or draining, and of this Service.
#[inline(always)]
pub fn is_alive(id: u32, service: u32) -> bool {
    backend(id).is_some_and(|value| value.service == service)
}

/// Whether a backend runs on this node; `false` also if it is dead.
#[inline(always)]
pub fn is_on_node(id: u32) -> bool {
    backend(id).is_some_and(|value| value.flags & BackendValue::ON_NODE != 0)
}

/// Which window a client gets. Traffic policies of external addresses are about clients from
/// outside; who is inside gets the whole cluster, as in kube-proxy's short circuit.
#[inline(always)]
fn is_local(frontend: FrontendValue, side: Side) -> bool {
    let applies = match side {
        Side::Inside => frontend.kind as u8 == FrontendKind::Cluster as u8,
        Side::Outside(_) => true,
    };
    applies && frontend.flags & FrontendValue::LOCAL != 0
}

/// Brings 32 random bits down to `0..count` without preferring small numbers, as `%` would.
#[inline(always)]
fn scale(dice: u32, count: u32) -> u32 {
    ((u64::from(dice) * u64::from(count)) >> 32) as u32
}

/// Copies the record of one Service.
#[inline(always)]
fn service(id: u32) -> Option<ServiceRecord> {
    let value = SERVICE.get_ptr(ServiceValue::index(id))?;
    for _ in 0..2 {
        // SAFETY: an element of an array map. Volatile, so that the reads stay in this order.
        unsafe {
            let sequence = (&raw const (*value).sequence).read_volatile();
            let copy = match ServiceValue::latch(sequence) {
                0 => (&raw const (*value).records[0]).read_volatile(),
                _ => (&raw const (*value).records[1]).read_volatile(),
            };
            if (&raw const (*value).id).read_volatile() != id {
                return None;
            }
            if (&raw const (*value).sequence).read_volatile() == sequence {
                return Some(copy);
            }
        }
    }
    None
}

/// Copies one backend.
#[inline(always)]
fn backend(id: u32) -> Option<BackendValue> {
    let value = BACKEND.get_ptr(id)?;
    // SAFETY: a map value that starts with an id and a generation.
    unsafe { consistent(value, id) }
}

/// Copies a map value; `None` if its element was reused before the copy was done.
///
/// Elements of hash maps are reused without a grace period (kernel/bpf/memalloc.c). The kernel
/// writes a value from its start, so that the id and generation tell.
///
/// # Safety
///
/// `value` points to a map value that starts with a `u32` id and a `u32` generation.
#[inline(always)]
unsafe fn consistent<T: Copy>(value: *const T, id: u32) -> Option<T> {
    let stamp = value.cast::<u64>();
    // SAFETY: promised by the caller; map values are aligned to eight bytes. Volatile, so that the
    // three stay in this order.
    let (before, copy, after) = unsafe {
        (
            stamp.read_volatile(),
            value.read_volatile(),
            stamp.read_volatile(),
        )
    };
    (before == after && before as u32 == id).then_some(copy)
}
