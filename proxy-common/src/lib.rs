//! The contract between the node agent and the kernel programs.
//!
//! Everything that both sides read or write in a BPF map is laid out here and nowhere else: one
//! file per noun, `#[repr(C)]`, no implicit padding, plain fields that read as themselves in
//! `bpftool map dump`. No IO and no policy.
//!
//! # Conventions
//!
//! - Addresses are 16 bytes in network order, IPv4 as IPv4-mapped IPv6 (`::ffff:a.b.c.d`,
//!   RFC 4291 2.5.5.2), so that both families take one code path.
//! - Ports and ids are in host byte order: 443 prints as 443.
//! - Times are nanoseconds of `CLOCK_MONOTONIC` (`bpf_ktime_get_ns`), unless a field says otherwise.
//! - Elements can be reused or replaced while a program still reads them, so the values that matter
//!   start with their own `id` and a number that rises: read both, copy the rest, read both again.
//!
//! # Changing a layout
//!
//! Raise [`SCHEMA`]. The agent refuses to load over pins of another schema; `tests/layout.rs` holds
//! sizes and offsets and fails until it is changed too.

#![no_std]
#![warn(missing_docs)]

pub mod addr;
pub mod affinity;
pub mod backend;
pub mod counter;
pub mod event;
pub mod flow;
pub mod fragment;
pub mod frontend;
pub mod load;
pub mod map;
pub mod name;
pub mod node;
pub mod range;
pub mod service;
pub mod setting;
pub mod slot;
pub mod sock;

pub use addr::{Address, Protocol};
pub use affinity::{AffinityKey, AffinityScope, AffinityValue};
pub use backend::{BackendState, BackendValue};
pub use counter::Counter;
pub use event::{EventKind, EventRecord};
pub use flow::{FlowEnd, FlowKey, FlowStage, FlowState, FlowValue};
pub use fragment::{FragmentKey, FragmentValue};
pub use frontend::{FrontendKey, FrontendKind, FrontendValue};
pub use load::LoadValue;
pub use name::NameValue;
pub use node::{MasqValue, NodeAddrKey, NodeAddrValue};
pub use range::RangeKey;
pub use service::{Scheduler, ServiceRecord, ServiceValue, Window};
pub use setting::SettingValue;
pub use slot::SlotValue;
pub use sock::{
    ConnectionValue, OrphanRecord, PeerKey, PeerValue, SOCK_PEERS, SockValue, bpf_spin_lock,
};

/// Version of every layout in this crate. It stands in the `setting` map; pins that carry another
/// number are never loaded over.
pub const SCHEMA: u32 = 5;

/// Declares that a type may be copied byte by byte to and from a map by aya.
macro_rules! pod {
    ($($name:ty),* $(,)?) => {$(
        #[cfg(feature = "user")]
        #[expect(unsafe_code, reason = "aya::Pod is an unsafe marker")]
        // SAFETY: `repr(C)`, `Copy`, and `IntoBytes` proves that there is no padding. Enum fields
        // hold only values that the agent or the programs wrote, and the agent compares the schema
        // before it reads.
        unsafe impl aya::Pod for $name {}
    )*};
}
pub(crate) use pod;
