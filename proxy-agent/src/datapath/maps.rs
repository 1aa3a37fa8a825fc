//! Typed handles to the pinned maps.

use aya::{
    Ebpf, Pod,
    maps::{Array, Map, MapData, MapError, PerCpuArray},
};
use proxy_common::{
    AffinityKey, AffinityValue, BackendValue, ConnectionValue, FrontendKey, FrontendValue,
    LoadValue, NameValue, NodeAddrKey, NodeAddrValue, SettingValue, SlotValue,
    map::{self, MapSpec},
};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    elements::Elements,
    memory::Memory,
    pins::{Pins, open_map},
    services::Services,
    start::StartError,
    table::Table,
    trie::Trie,
};

/// All maps that the agent reads or writes.
pub(super) struct Maps {
    pub(super) setting: Array<MapData, SettingValue>,
    pub(super) frontend: Table<FrontendKey, FrontendValue>,
    pub(super) service: Services,
    pub(super) name: Table<u32, NameValue>,
    pub(super) slot: Memory<SlotValue>,
    pub(super) backend: Table<u32, BackendValue>,
    pub(super) load: Memory<LoadValue>,
    pub(super) connection: Elements<ConnectionValue>,
    pub(super) affinity: Table<AffinityKey, AffinityValue>,
    pub(super) range: Trie,
    pub(super) node_addr: Table<NodeAddrKey, NodeAddrValue>,
    pub(super) counter: PerCpuArray<MapData, u64>,
}

/// Where maps come from.
pub(super) enum Origin<'a> {
    /// Their pins, whose shapes have been checked.
    Pins(&'a Pins),
    /// An object that was just loaded, without pins.
    Object(&'a mut Ebpf),
}

impl Maps {
    /// Opens all maps.
    ///
    /// # Errors
    ///
    /// [`StartError::OpenMap`], [`StartError::NoRights`] or [`StartError::Missing`].
    pub(super) fn open(mut origin: Origin<'_>) -> Result<Self, StartError> {
        Ok(Self {
            setting: typed(&mut origin, &map::SETTING)?,
            frontend: table(&mut origin, &map::FRONTEND)?,
            service: services(&mut origin)?,
            name: table(&mut origin, &map::NAME)?,
            slot: memory(&mut origin, &map::SLOT)?,
            backend: table(&mut origin, &map::BACKEND)?,
            load: memory(&mut origin, &map::LOAD)?,
            connection: elements(&mut origin, &map::CONNECTION)?,
            affinity: table(&mut origin, &map::AFFINITY)?,
            range: trie(&mut origin, &map::RANGE)?,
            node_addr: table(&mut origin, &map::NODE_ADDR)?,
            counter: typed(&mut origin, &map::COUNTER)?,
        })
    }
}

/// As [`Maps::open`], one map.
pub(super) fn typed<T: TryFrom<Map, Error = MapError>>(
    origin: &mut Origin<'_>,
    spec: &MapSpec,
) -> Result<T, StartError> {
    untyped(origin, spec)?
        .try_into()
        .map_err(|error| open_map(spec.name, error))
}

/// As [`Maps::open`], one map.
pub(super) fn table<K: Pod, V: Pod>(
    origin: &mut Origin<'_>,
    spec: &MapSpec,
) -> Result<Table<K, V>, StartError> {
    Table::new(untyped(origin, spec)?, spec)
}

/// As [`Maps::open`], one trie.
pub(super) fn trie(origin: &mut Origin<'_>, spec: &MapSpec) -> Result<Trie, StartError> {
    Trie::new(untyped(origin, spec)?, spec)
}

/// As [`Maps::open`], the services.
pub(super) fn services(origin: &mut Origin<'_>) -> Result<Services, StartError> {
    Services::new(untyped(origin, &map::SERVICE)?, &map::SERVICE)
}

/// As [`Maps::open`], one array that is only read.
pub(super) fn elements<V: Pod>(
    origin: &mut Origin<'_>,
    spec: &MapSpec,
) -> Result<Elements<V>, StartError> {
    Elements::new(untyped(origin, spec)?, spec)
}

fn untyped(origin: &mut Origin<'_>, spec: &MapSpec) -> Result<Map, StartError> {
    match origin {
        Origin::Pins(pins) => MapData::from_pin(pins.map(spec.name))
            .and_then(Map::from_map_data)
            .map_err(|error| open_map(spec.name, error)),
        Origin::Object(object) => object
            .take_map(spec.name)
            .ok_or_else(|| StartError::Missing {
                what: format!("map {}", spec.name),
            }),
    }
}

/// As [`Maps::open`], one array that is mapped into memory.
pub(super) fn memory<V: FromBytes + IntoBytes + Immutable>(
    origin: &mut Origin<'_>,
    spec: &MapSpec,
) -> Result<Memory<V>, StartError> {
    Memory::new(untyped(origin, spec)?, spec)
}
