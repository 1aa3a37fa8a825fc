//! One hash map of the contract, with errors that name it.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::{
    Pod,
    maps::{HashMap, Map, MapData, MapError},
};
use proxy_common::map::MapSpec;

use super::{Error, pins::open_map, start::StartError, sys};

/// A hash map.
pub(super) struct Table<K, V> {
    spec: MapSpec,
    entries: u32,
    fd: OwnedFd,
    map: HashMap<MapData, K, V>,
}

impl<K: Pod, V: Pod> Table<K, V> {
    /// Wraps an open map.
    pub(super) fn new(map: Map, spec: &MapSpec) -> Result<Self, StartError> {
        let (Map::HashMap(data) | Map::LruHashMap(data)) = map else {
            return Err(StartError::Missing {
                what: format!("hash map {}", spec.name),
            });
        };
        let entries = data
            .info()
            .map_err(|error| open_map(spec.name, error))?
            .max_entries();
        let fd = data
            .fd()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| open_map(spec.name, error.into()))?;
        let map =
            HashMap::try_from(Map::HashMap(data)).map_err(|error| open_map(spec.name, error))?;
        Ok(Self {
            spec: *spec,
            entries,
            fd,
            map,
        })
    }

    /// Number of entries that it has room for.
    pub(super) const fn entries(&self) -> u32 {
        self.entries
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &K) -> Result<Option<V>, Error> {
        match self.map.get(key, 0) {
            Ok(value) => Ok(Some(value)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(failure("read", self.spec.name, self.entries, error)),
        }
    }

    /// Inserts or replaces.
    pub(super) fn put(&mut self, key: &K, value: &V) -> Result<(), Error> {
        self.map
            .insert(key, value, 0)
            .map_err(|error| failure("write to", self.spec.name, self.entries, error))
    }

    /// Deletes; a key that is not there is no error.
    pub(super) fn delete(&mut self, key: &K) -> Result<(), Error> {
        self.take(key).map(drop)
    }

    /// Inserts what is not there. Whether it was not.
    pub(super) fn insert_new(&mut self, key: &K, value: &V) -> Result<bool, Error> {
        const NOEXIST: u64 = 1;
        match self.map.insert(key, value, NOEXIST) {
            Ok(()) => Ok(true),
            Err(error)
                if os_error(&error).map(io::Error::kind) == Some(io::ErrorKind::AlreadyExists) =>
            {
                Ok(false)
            }
            Err(error) => Err(failure("write to", self.spec.name, self.entries, error)),
        }
    }

    /// Deletes. Whether it was there: of several who delete a key, one is told so.
    pub(super) fn take(&mut self, key: &K) -> Result<bool, Error> {
        match self.map.remove(key) {
            Ok(()) => Ok(true),
            Err(error)
                if os_error(&error).map(io::Error::kind) == Some(io::ErrorKind::NotFound) =>
            {
                Ok(false)
            }
            Err(error) => Err(failure("delete from", self.spec.name, self.entries, error)),
        }
    }

    /// Reads on from a place: about `wanted` entries. Whether there may be more.
    pub(super) fn some(
        &self,
        cursor: &mut sys::Cursor,
        wanted: usize,
        entry: &mut impl FnMut(K, V),
    ) -> Result<bool, Error> {
        cursor
            .read(self.fd.as_fd(), wanted, entry)
            .map_err(|source| Error::Map {
                what: "read",
                map: self.spec.name,
                source,
            })
    }

    /// All entries, in no order.
    pub(super) fn each(&self, entry: impl FnMut(K, V)) -> Result<(), Error> {
        sys::lookup_batch(self.fd.as_fd(), entry).map_err(|source| Error::Map {
            what: "read",
            map: self.spec.name,
            source,
        })
    }
}

/// The kernel's error inside aya's.
pub(super) fn os_error(error: &MapError) -> Option<&io::Error> {
    match error {
        MapError::SyscallError(call) => Some(&call.io_error),
        MapError::IoError(error) => Some(error),
        _ => None,
    }
}

/// An error that names the map. A hash map without room answers E2BIG (kernel/bpf/hashtab.c,
/// `alloc_htab_elem`), an LPM trie ENOSPC (kernel/bpf/lpm_trie.c).
pub(super) fn failure(
    what: &'static str,
    map: &'static str,
    entries: u32,
    error: MapError,
) -> Error {
    let code = os_error(&error).and_then(io::Error::raw_os_error);
    if matches!(code, Some(libc::E2BIG | libc::ENOSPC)) {
        return Error::Full { map, entries };
    }
    let source = match code {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error),
    };
    Error::Map { what, map, source }
}
