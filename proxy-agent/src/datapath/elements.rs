//! One array of the contract that is only read, as a whole.

use std::{
    marker::PhantomData,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::{
    Pod,
    maps::{Map, MapError},
};
use proxy_common::map::MapSpec;

use super::{Error, pins::open_map, start::StartError, sys};

/// An array that cannot be mapped into memory, since its elements have locks.
pub(super) struct Elements<V> {
    spec: MapSpec,
    fd: OwnedFd,
    value: PhantomData<V>,
}

impl<V: Pod> Elements<V> {
    /// Wraps an open map.
    pub(super) fn new(map: Map, spec: &MapSpec) -> Result<Self, StartError> {
        let Map::Array(data) = map else {
            return Err(StartError::Missing {
                what: format!("array {}", spec.name),
            });
        };
        let fd = data
            .fd()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| open_map(spec.name, MapError::IoError(error)))?;
        Ok(Self {
            spec: *spec,
            fd,
            value: PhantomData,
        })
    }

    /// All elements, in order; each may be changing while it is copied.
    pub(super) fn each(&self, element: impl FnMut(u32, V)) -> Result<(), Error> {
        sys::lookup_batch(self.fd.as_fd(), element).map_err(|source| Error::Map {
            what: "read",
            map: self.spec.name,
            source,
        })
    }
}
