//! The `service` map: how a record is replaced under readers who cannot wait.

use aya::maps::Map;
use proxy_common::{Scheduler, ServiceRecord, ServiceValue, Window, map::MapSpec};
use zerocopy::{FromZeros as _, IntoBytes as _, TryFromBytes as _};

use super::{Error, memory::Memory, start::StartError};

/// An element as the words that it is written by.
type Words = [u32; size_of::<ServiceValue>() / size_of::<u32>()];

const NO_WINDOW: Window = Window {
    offset: 0,
    count: 0,
};

const NOTHING: ServiceRecord = ServiceRecord {
    base: 0,
    local: NO_WINDOW,
    cluster: NO_WINDOW,
    affinity_seconds: 0,
    scheduler: Scheduler::Random,
    has_any: 0,
    reserved: 0,
};

/// All services, by id.
pub(super) struct Services {
    spec: MapSpec,
    memory: Memory<Words>,
}

impl Services {
    /// Wraps an open map.
    pub(super) fn new(map: Map, spec: &MapSpec) -> Result<Self, StartError> {
        Ok(Self {
            spec: *spec,
            memory: Memory::new(map, spec)?,
        })
    }

    /// Number of services that it has room for.
    pub(super) const fn entries(&self) -> u32 {
        self.memory.entries()
    }

    /// Inserts or replaces the record of a service, at once for all readers.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if another service has the element.
    pub(super) fn put(&mut self, id: u32, record: &ServiceRecord) -> Result<(), Error> {
        let mut value = self.read(ServiceValue::index(id))?;
        if value.id != 0 && value.id != id {
            return Err(Error::Full {
                map: self.spec.name,
                entries: self.entries(),
            });
        }
        // Words are written one after the other, first to last; what does not change is written as
        // it was. So readers see each of these three steps only after the one before.
        let sequence = value.sequence.wrapping_add(1);
        value.records[ServiceValue::latch(sequence)] = *record;
        self.write(id, &value)?;
        value.sequence = sequence;
        self.write(id, &value)?;
        if value.id == 0 {
            value.id = id;
            self.write(id, &value)?;
        }
        Ok(())
    }

    /// Deletes; a service that is not there is no error.
    pub(super) fn delete(&mut self, id: u32) -> Result<(), Error> {
        let mut value = self.read(ServiceValue::index(id))?;
        if value.id != id {
            return Ok(());
        }
        value.id = 0;
        self.write(id, &value)
    }

    /// All services, by the place of their element.
    pub(super) fn each(&mut self, mut entry: impl FnMut(u32, ServiceValue)) -> Result<(), Error> {
        for index in 0..self.entries() {
            // Most are nobody's.
            if self.memory.first_word(index)? != 0 {
                entry(index, self.read(index)?);
            }
        }
        Ok(())
    }

    /// Unmaps everything until it is used again.
    pub(super) fn unmap(&mut self) {
        self.memory.unmap();
    }

    fn read(&mut self, index: u32) -> Result<ServiceValue, Error> {
        Ok(value(&self.memory.read(index)?))
    }

    fn write(&mut self, id: u32, value: &ServiceValue) -> Result<(), Error> {
        let mut words = Words::new_zeroed();
        words.as_mut_bytes().copy_from_slice(value.as_bytes());
        self.memory.write(ServiceValue::index(id), &words)
    }
}

/// A damaged element is nobody's: it is written anew by who comes next.
fn value(words: &Words) -> ServiceValue {
    ServiceValue::try_read_from_bytes(words.as_bytes()).unwrap_or(ServiceValue {
        id: 0,
        sequence: words[1],
        records: [NOTHING; 2],
    })
}
