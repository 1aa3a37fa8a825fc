//! What the maps hold: read back from the kernel or from the fake, compared, restored from.

use std::collections::BTreeMap;

use proxy_common::{BackendValue, FrontendKey, FrontendValue, NameValue, ServiceRecord, SlotValue};

/// All entries of the maps that the agent writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Map `frontend`.
    pub frontends: BTreeMap<FrontendKey, FrontendValue>,
    /// Map `service`.
    pub services: BTreeMap<u32, ServiceRecord>,
    /// Map `name`.
    pub names: BTreeMap<u32, NameValue>,
    /// Map `backend`.
    pub backends: BTreeMap<u32, BackendValue>,
    /// Map `slot`: runs by first slot, as far as service records point to them.
    pub slots: BTreeMap<u32, Vec<SlotValue>>,
    /// Map `range`: prefix length and data, as [`RangeKey`](proxy_common::RangeKey) says.
    pub ranges: BTreeMap<(u32, [u8; 4], [u8; 16]), ()>,
    /// Map `node_addr`.
    pub node_addrs: BTreeMap<[u8; 16], u32>,
}
