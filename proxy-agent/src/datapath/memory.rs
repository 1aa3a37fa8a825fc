//! One array of the contract that is mapped into memory, with errors that name it.

use std::{io, marker::PhantomData, os::fd::AsFd as _};

use aya::maps::{Map, MapError};
use proxy_common::map::MapSpec;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Error, pins::open_map, start::StartError, sys::ArrayMapping};

/// An array of values of some whole number of 4-byte words.
pub(super) struct Memory<V> {
    spec: MapSpec,
    mapping: ArrayMapping,
    value: PhantomData<V>,
}

impl<V: FromBytes + IntoBytes + Immutable> Memory<V> {
    /// Wraps an open map. Nothing is mapped before it is used.
    pub(super) fn new(map: Map, spec: &MapSpec) -> Result<Self, StartError> {
        let Map::Array(data) = map else {
            return Err(StartError::Missing {
                what: format!("array {}", spec.name),
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
            .map_err(|error| open_map(spec.name, MapError::IoError(error)))?;
        Ok(Self {
            spec: *spec,
            mapping: ArrayMapping::new(fd, entries, size_of::<V>()),
            value: PhantomData,
        })
    }

    /// Number of elements.
    pub(super) const fn entries(&self) -> u32 {
        self.mapping.entries()
    }

    /// Copies one element; it may be changing.
    pub(super) fn read(&mut self, index: u32) -> Result<V, Error> {
        let mut value = V::new_zeroed();
        self.mapping
            .read(index, value.as_mut_bytes())
            .map_err(|source| self.error("read", source))?;
        Ok(value)
    }

    /// The first word of one element.
    pub(super) fn first_word(&mut self, index: u32) -> Result<u32, Error> {
        let mut word = [0; size_of::<u32>()];
        self.mapping
            .read(index, &mut word)
            .map_err(|source| self.error("read", source))?;
        Ok(u32::from_ne_bytes(word))
    }

    /// Writes one element. Not at once: for what nobody reads yet.
    pub(super) fn write(&mut self, index: u32, value: &V) -> Result<(), Error> {
        self.mapping
            .write(index, value.as_bytes())
            .map_err(|source| self.error("write to", source))
    }

    /// Adds to the number at an offset in one element, at once: for what programs change too.
    pub(super) fn add(&mut self, index: u32, offset: usize, by: u32) -> Result<(), Error> {
        self.mapping
            .add(index, offset / size_of::<u32>(), by)
            .map_err(|source| self.error("write to", source))
    }

    /// Unmaps everything until it is used again.
    pub(super) fn unmap(&mut self) {
        self.mapping.unmap();
    }

    const fn error(&self, what: &'static str, source: io::Error) -> Error {
        Error::Map {
            what,
            map: self.spec.name,
            source,
        }
    }
}
