//! The `range` map, with errors that name it.

use std::io;

use aya::maps::{LpmTrie, Map, MapData, MapError, lpm_trie};
use proxy_common::{RangeKey, map::MapSpec};

use super::{
    Error,
    pins::open_map,
    start::StartError,
    table::{failure, os_error},
};

/// A trie of source ranges by Service. Prefix lengths are those of [`RangeKey`].
pub(super) struct Trie {
    spec: MapSpec,
    entries: u32,
    map: LpmTrie<MapData, RangeKey, u32>,
}

impl Trie {
    /// Wraps an open map.
    pub(super) fn new(map: Map, spec: &MapSpec) -> Result<Self, StartError> {
        let Map::LpmTrie(data) = map else {
            return Err(StartError::Missing {
                what: format!("trie {}", spec.name),
            });
        };
        let opened = |error| open_map(spec.name, error);
        let entries = data.info().map_err(opened)?.max_entries();
        Ok(Self {
            spec: *spec,
            entries,
            map: LpmTrie::try_from(Map::LpmTrie(data)).map_err(opened)?,
        })
    }

    /// Number of ranges that it has room for.
    pub(super) const fn entries(&self) -> u32 {
        self.entries
    }

    /// Inserts; a range that is there is no error.
    pub(super) fn put(&mut self, bits: u32, key: RangeKey) -> Result<(), Error> {
        self.map
            .insert(&lpm_trie::Key::new(bits, key), 1, 0)
            .map_err(|error| self.failure("write to", error))
    }

    /// Deletes; a range that is not there is no error.
    pub(super) fn delete(&mut self, bits: u32, key: RangeKey) -> Result<(), Error> {
        match self.map.remove(&lpm_trie::Key::new(bits, key)) {
            Err(error)
                if os_error(&error).map(io::Error::kind) != Some(io::ErrorKind::NotFound) =>
            {
                Err(self.failure("delete from", error))
            }
            _ => Ok(()),
        }
    }

    /// All ranges: prefix length and data of each key.
    pub(super) fn each(&self, mut entry: impl FnMut(u32, RangeKey)) -> Result<(), Error> {
        for result in self.map.iter() {
            let (key, _) = result.map_err(|error| self.failure("read", error))?;
            entry(key.prefix_len(), key.data());
        }
        Ok(())
    }

    fn failure(&self, what: &'static str, error: MapError) -> Error {
        failure(what, self.spec.name, self.entries, error)
    }
}
