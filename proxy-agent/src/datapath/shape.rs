//! What every pinned map must look like, and the check of what is there.
//!
//! aya takes whatever map stands at a pin, whatever its sizes (create_pinned_by_name); a read would
//! then let the kernel write past our buffer. So every pin is compared before anything is loaded.

use aya::maps::MapInfo;
use aya_obj::generated::bpf_map_type::{self, *};
use proxy_common::{
    AffinityKey, AffinityValue, BackendValue, ConnectionValue, FlowKey, FlowValue, FragmentKey,
    FragmentValue, FrontendKey, FrontendValue, LoadValue, MasqValue, NameValue, NodeAddrKey,
    NodeAddrValue, PeerKey, PeerValue, RangeKey, ServiceValue, SettingValue, SlotValue, SockValue,
    map::{self, MapSpec},
};

/// `BPF_F_NO_PREALLOC` (include/uapi/linux/bpf.h).
const NO_PREALLOC: u32 = 1;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// Type and sizes of one map.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Name and default size.
    pub spec: MapSpec,
    kind: bpf_map_type,
    key: usize,
    value: usize,
    flags: u32,
}

/// A difference between a pinned map and what this version expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("map {map} has {property} {found}, this version of sidestep needs {expected}")]
pub struct Mismatch {
    /// Name of the map.
    pub map: &'static str,
    /// Which property.
    pub property: &'static str,
    /// What is pinned.
    pub found: u32,
    /// What is needed.
    pub expected: u32,
}

const fn shape(spec: MapSpec, kind: bpf_map_type, key: usize, value: usize, flags: u32) -> Shape {
    Shape {
        spec,
        kind,
        key,
        value,
        flags,
    }
}

const fn array<V>(spec: MapSpec, flags: u32) -> Shape {
    shape(
        spec,
        BPF_MAP_TYPE_ARRAY,
        size_of::<u32>(),
        size_of::<V>(),
        flags,
    )
}

const fn hash<K, V>(spec: MapSpec) -> Shape {
    shape(
        spec,
        BPF_MAP_TYPE_HASH,
        size_of::<K>(),
        size_of::<V>(),
        NO_PREALLOC,
    )
}

const fn lru<K, V>(spec: MapSpec) -> Shape {
    shape(
        spec,
        BPF_MAP_TYPE_LRU_HASH,
        size_of::<K>(),
        size_of::<V>(),
        0,
    )
}

/// All maps of the contract.
pub const SHAPES: [Shape; map::ALL.len()] = [
    array::<SettingValue>(map::SETTING, 0),
    hash::<FrontendKey, FrontendValue>(map::FRONTEND),
    array::<ServiceValue>(map::SERVICE, MMAPABLE),
    hash::<u32, NameValue>(map::NAME),
    array::<SlotValue>(map::SLOT, MMAPABLE),
    hash::<u32, BackendValue>(map::BACKEND),
    array::<LoadValue>(map::LOAD, MMAPABLE),
    lru::<AffinityKey, AffinityValue>(map::AFFINITY),
    array::<ConnectionValue>(map::CONNECTION, MMAPABLE),
    shape(
        map::SOCK,
        BPF_MAP_TYPE_SK_STORAGE,
        4,
        size_of::<SockValue>(),
        NO_PREALLOC,
    ),
    lru::<PeerKey, PeerValue>(map::PEER),
    hash::<FlowKey, FlowValue>(map::FLOW),
    lru::<FragmentKey, FragmentValue>(map::FRAGMENT),
    shape(
        map::RANGE,
        BPF_MAP_TYPE_LPM_TRIE,
        4 + size_of::<RangeKey>(),
        4,
        NO_PREALLOC,
    ),
    hash::<NodeAddrKey, NodeAddrValue>(map::NODE_ADDR),
    hash::<u32, MasqValue>(map::MASQ),
    shape(map::COUNTER, BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 0),
    shape(map::EVENT, BPF_MAP_TYPE_RINGBUF, 0, 0, 0),
];

impl Shape {
    /// Compares a map of the kernel. The number of entries may differ where the map is resizable:
    /// an agent keeps the size that its pins have.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub fn check(&self, info: &MapInfo) -> Result<(), Mismatch> {
        let kind = info.map_type().map_or(u32::MAX, |kind| kind as u32);
        let pairs = [
            ("type", kind, self.kind as u32),
            ("key size", info.key_size(), self.key as u32),
            ("value size", info.value_size(), self.value as u32),
            ("flags", info.map_flags(), self.flags),
            (
                "max_entries",
                if self.spec.resizable {
                    self.spec.entries
                } else {
                    info.max_entries()
                },
                self.spec.entries,
            ),
        ];
        for (property, found, expected) in pairs {
            if found != expected {
                return Err(Mismatch {
                    map: self.spec.name,
                    property,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }
}
