//! Reading pinned maps without knowing what they are for: all entries of one, and how full each is.
//!
//! Only reads, so it works beside a running agent and without one.

use aya::maps::{Array, MapData, PerCpuArray};
use proxy_common::{
    AffinityKey, AffinityValue, BackendValue, ConnectionValue, Counter, FlowKey, FlowValue,
    FragmentKey, FragmentValue, FrontendKey, FrontendValue, LoadValue, MasqValue, NameValue,
    NodeAddrKey, NodeAddrValue, PeerKey, PeerValue, SettingValue, SlotValue,
    map::{self, MapSpec},
};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    maps::{Origin, elements, memory, services, table, trie, typed},
    memory::Memory,
    pins::{Pins, open_map},
    record::{Field, Record},
    shape::{SHAPES, Shape},
    start::StartError,
    table::Table,
};

/// Why a map could not be dumped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] StartError),
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] super::Error),
    /// The kernel has no way to list it.
    #[error("map {map} cannot be listed: {instead}")]
    Unlisted {
        /// Its name.
        map: &'static str,
        /// Why, and what to use instead.
        instead: &'static str,
    },
}

/// How full a map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapUsage {
    /// Which map.
    pub spec: MapSpec,
    /// Its pin; `None` if there is none.
    pub pinned: Option<MapSize>,
}

/// Room in a pinned map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSize {
    /// Map id.
    pub id: u32,
    /// Entries in use, where they can be counted.
    pub used: Option<usize>,
    /// Entries that it has room for.
    pub entries: u32,
}

/// All entries of a map, sorted by key. Array elements that were never written are left out.
///
/// # Errors
///
/// [`DumpError`]; nothing was given to `entry` then.
pub fn dump(pins: &Pins, spec: &MapSpec, entry: &mut dyn FnMut(Record)) -> Result<(), DumpError> {
    if shape(spec)
        .map(|shape| pins.checked(shape))
        .transpose()?
        .flatten()
        .is_none()
    {
        return Err(StartError::NoPins {
            path: pins.map(spec.name),
        }
        .into());
    }
    let origin = &mut Origin::Pins(pins);
    match *spec {
        map::SETTING => setting(typed(origin, spec)?, entry),
        map::SLOT => {
            let mut slots = memory(origin, spec)?;
            used(
                &mut slots,
                |slot: &SlotValue| slot.backend != 0,
                entry,
                Record::slot,
            )
        }
        map::LOAD => {
            let mut loads = memory(origin, spec)?;
            used(
                &mut loads,
                |load: &LoadValue| load.backend != 0,
                entry,
                Record::load,
            )
        }
        map::SERVICE => Ok(services(origin)?.each(|index, value| {
            entry(Record::service(index, value));
        })?),
        map::CONNECTION => Ok(
            elements(origin, spec)?.each(|index, value: ConnectionValue| {
                if value.cookie != 0 {
                    entry(Record::connection(index, value));
                }
            })?,
        ),
        map::RANGE => Ok(trie(origin, spec)?.each(|bits, key| entry(Record::range(bits, key)))?),
        map::COUNTER => counter(typed(origin, spec)?, entry),
        map::SOCK => Err(DumpError::Unlisted {
            map: spec.name,
            instead: "socket storage belongs to its sockets; `ss --bpf-maps` of iproute2 6.9 or newer shows it per socket, `sidestep services` counts connections per backend",
        }),
        map::EVENT => Err(DumpError::Unlisted {
            map: spec.name,
            instead: "reading a ring buffer takes its records from their reader; `sidestep dump counter` has the sums",
        }),
        _ => hash(origin, spec, &mut Rows(entry)),
    }
}

/// How full each map is, in the order of the contract.
///
/// # Errors
///
/// If a pin cannot be opened or has another shape.
pub fn usage(pins: &Pins) -> Result<Vec<MapUsage>, DumpError> {
    SHAPES
        .iter()
        .map(|shape| {
            let spec = shape.spec;
            let pinned = match pins.checked(shape)? {
                None => None,
                Some(info) => Some(MapSize {
                    id: info.id(),
                    used: count(&mut Origin::Pins(pins), &spec)?,
                    entries: info.max_entries(),
                }),
            };
            Ok(MapUsage { spec, pinned })
        })
        .collect()
}

fn count(origin: &mut Origin<'_>, spec: &MapSpec) -> Result<Option<usize>, DumpError> {
    match *spec {
        map::SETTING
        | map::SLOT
        | map::LOAD
        | map::CONNECTION
        | map::COUNTER
        | map::SOCK
        | map::EVENT => Ok(None),
        map::SERVICE => {
            let mut count = 0;
            services(origin)?.each(|_, _| count += 1)?;
            Ok(Some(count))
        }
        map::RANGE => {
            let mut count = 0;
            trie(origin, spec)?.each(|_, _| count += 1)?;
            Ok(Some(count))
        }
        _ => {
            let mut count = Count(0);
            hash(origin, spec, &mut count)?;
            Ok(Some(count.0))
        }
    }
}

fn shape(spec: &MapSpec) -> Option<&'static Shape> {
    SHAPES.iter().find(|shape| shape.spec == *spec)
}

/// What is done with a hash map, whatever the sizes of its keys and values.
trait Visit {
    fn visit<const K: usize, const V: usize>(
        &mut self,
        spec: &MapSpec,
        table: &Table<[u8; K], [u8; V]>,
    ) -> Result<(), DumpError>;
}

/// Sorts and decodes.
struct Rows<'a>(&'a mut dyn FnMut(Record));

/// Counts.
struct Count(usize);

impl Visit for Rows<'_> {
    fn visit<const K: usize, const V: usize>(
        &mut self,
        spec: &MapSpec,
        table: &Table<[u8; K], [u8; V]>,
    ) -> Result<(), DumpError> {
        let mut rows = Vec::new();
        table.each(|key, value| rows.push((key, value)))?;
        // Ids are numbers in host order, all other keys begin with what people sort by.
        rows.sort_unstable_by_key(|(key, _)| {
            let id = <[u8; 4]>::try_from(key.as_slice()).map_or(0, u32::from_ne_bytes);
            (id, *key)
        });
        for (key, value) in rows {
            let record = Record::decode(spec.name, &key, &value);
            (self.0)(record.unwrap_or_else(|| Record::raw(&key, &value)));
        }
        Ok(())
    }
}

impl Visit for Count {
    fn visit<const K: usize, const V: usize>(
        &mut self,
        _: &MapSpec,
        table: &Table<[u8; K], [u8; V]>,
    ) -> Result<(), DumpError> {
        Ok(table.each(|_, _| self.0 += 1)?)
    }
}

/// Opens a hash map as bytes, of the sizes that its shape was compared with.
fn hash(origin: &mut Origin<'_>, spec: &MapSpec, visit: &mut impl Visit) -> Result<(), DumpError> {
    macro_rules! visit {
        ($key:ty, $value:ty) => {
            visit.visit::<{ size_of::<$key>() }, { size_of::<$value>() }>(
                spec,
                &table(origin, spec)?,
            )
        };
    }
    match *spec {
        map::FRONTEND => visit!(FrontendKey, FrontendValue),
        map::NAME => visit!(u32, NameValue),
        map::BACKEND => visit!(u32, BackendValue),
        map::AFFINITY => visit!(AffinityKey, AffinityValue),
        map::PEER => visit!(PeerKey, PeerValue),
        map::FLOW => visit!(FlowKey, FlowValue),
        map::FRAGMENT => visit!(FragmentKey, FragmentValue),
        map::NODE_ADDR => visit!(NodeAddrKey, NodeAddrValue),
        map::MASQ => visit!(u32, MasqValue),
        _ => Err(DumpError::Unlisted {
            map: spec.name,
            instead: "it is no hash map",
        }),
    }
}

/// Elements of an array that are in use.
fn used<V: FromBytes + IntoBytes + Immutable>(
    array: &mut Memory<V>,
    is_used: impl Fn(&V) -> bool,
    entry: &mut dyn FnMut(Record),
    record: impl Fn(u32, V) -> Record,
) -> Result<(), DumpError> {
    for index in 0..array.entries() {
        let value = array.read(index)?;
        if is_used(&value) {
            entry(record(index, value));
        }
    }
    Ok(())
}

/// Through the system call: what has a lock cannot be mapped (kernel/bpf/syscall.c `bpf_map_mmap`).
fn setting(
    map: Array<MapData, SettingValue>,
    entry: &mut dyn FnMut(Record),
) -> Result<(), DumpError> {
    let value = map
        .get(&0, 0)
        .map_err(|error| open_map(map::SETTING.name, error))?;
    entry(Record(vec![
        ("schema", value.schema.into()),
        ("agent", value.agent.into()),
        ("nodeNetns", value.node_netns.into()),
        ("startedUnixNs", value.started.into()),
        ("lastSyncUnixNs", value.last_sync.into()),
        ("snatFirst", value.snat_first.into()),
        ("snatLast", value.snat_last.into()),
        ("snatReserved", value.snat_reserved.into()),
    ]));
    Ok(())
}

fn counter(map: PerCpuArray<MapData, u64>, entry: &mut dyn FnMut(Record)) -> Result<(), DumpError> {
    for &counter in Counter::ALL {
        let values = map
            .get(&(counter as u32), 0)
            .map_err(|error| open_map(map::COUNTER.name, error))?;
        entry(Record(vec![
            ("index", (counter as u32).into()),
            ("counter", Field::Text(counter.name().to_owned())),
            ("value", values.iter().sum::<u64>().into()),
        ]));
    }
    Ok(())
}
