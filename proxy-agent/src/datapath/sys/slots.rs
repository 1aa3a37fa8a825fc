//! The `slot` array as plain memory.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Array elements are rounded up to 8 bytes (kernel/bpf/arraymap.c, `array_map_alloc`).
const STRIDE: usize = 8;

/// Slots in one piece: 256 KiB. Pieces are mapped when they are first used, since every mapped page
/// counts as the agent's memory.
const PIECE: u32 = 32_768;

/// The mapped array. Minimum kernel 5.5 (BPF_F_MMAPABLE).
pub(crate) struct SlotMapping {
    fd: OwnedFd,
    entries: u32,
    pieces: BTreeMap<u32, Piece>,
}

struct Piece {
    start: NonNull<core::ffi::c_void>,
    bytes: usize,
}

// SAFETY: the mapping is shared kernel memory that is only touched through atomics; it is not tied
// to a thread.
unsafe impl Send for SlotMapping {}
// SAFETY: whoever shares it can ask for its size and nothing else.
unsafe impl Sync for SlotMapping {}

impl SlotMapping {
    /// A mapping of a `slot` map with so many entries.
    pub(crate) fn new(fd: OwnedFd, entries: u32) -> Self {
        Self {
            fd,
            entries,
            pieces: BTreeMap::new(),
        }
    }

    /// Number of slots.
    pub(crate) const fn entries(&self) -> u32 {
        self.entries
    }

    /// Writes one slot.
    ///
    /// # Errors
    ///
    /// If the index is beyond the array or its piece cannot be mapped.
    pub(crate) fn write(&mut self, index: u32, backend: u32) -> io::Result<()> {
        self.cell(index)?.store(backend, Ordering::Release);
        Ok(())
    }

    /// Reads one slot.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub(crate) fn read(&mut self, index: u32) -> io::Result<u32> {
        Ok(self.cell(index)?.load(Ordering::Acquire))
    }

    /// Unmaps everything until it is used again.
    pub(crate) fn unmap(&mut self) {
        self.pieces.clear();
    }

    fn cell(&mut self, index: u32) -> io::Result<&AtomicU32> {
        if index >= self.entries {
            return Err(io::Error::other(format!(
                "slot {index} of an array of {} entries",
                self.entries
            )));
        }
        let number = index / PIECE;
        if !self.pieces.contains_key(&number) {
            let piece = self.map(number)?;
            self.pieces.insert(number, piece);
        }
        let piece = &self.pieces[&number];
        let offset = (index % PIECE) as usize * STRIDE;
        // SAFETY: `offset + 4 <= piece.bytes` since the piece holds all slots of its number that
        // are below `entries`; the memory stays mapped as long as `self`, and kernel and agent
        // touch it by aligned 4-byte accesses only.
        Ok(unsafe {
            piece
                .start
                .cast::<u8>()
                .add(offset)
                .cast::<AtomicU32>()
                .as_ref()
        })
    }

    fn map(&self, number: u32) -> io::Result<Piece> {
        let first = number * PIECE;
        let slots = (self.entries - first).min(PIECE) as usize;
        let bytes = (slots * STRIDE).next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                self.fd.as_fd(),
                u64::from(first) * STRIDE as u64,
            )
        }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Piece { start, bytes })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives the `SlotMapping` or the call
        // that made it. A failure leaves it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}
