//! A BPF array as plain memory.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a word.
const WORD: usize = size_of::<u32>();

/// Bytes in one piece. Pieces are mapped when they are first used, since every mapped page counts as
/// the agent's memory.
const PIECE: usize = 256 << 10;

/// The mapped array. Minimum kernel 5.5 (BPF_F_MMAPABLE).
pub(crate) struct ArrayMapping {
    fd: OwnedFd,
    entries: u32,
    /// Bytes of an element, and from one to the next: these are rounded up to 8
    /// (kernel/bpf/arraymap.c, `array_map_alloc`).
    bytes: usize,
    stride: usize,
    pieces: BTreeMap<usize, Piece>,
}

struct Piece {
    start: NonNull<core::ffi::c_void>,
    bytes: usize,
}

// SAFETY: the mapping is shared kernel memory that is only touched through atomics; it is not tied
// to a thread.
unsafe impl Send for ArrayMapping {}
// SAFETY: whoever shares it can ask for its size and nothing else.
unsafe impl Sync for ArrayMapping {}

impl ArrayMapping {
    /// A mapping of an array with so many elements of so many bytes, a multiple of 4.
    pub(crate) fn new(fd: OwnedFd, entries: u32, bytes: usize) -> Self {
        Self {
            fd,
            entries,
            bytes,
            stride: bytes.next_multiple_of(8),
            pieces: BTreeMap::new(),
        }
    }

    /// Number of elements.
    pub(crate) const fn entries(&self) -> u32 {
        self.entries
    }

    /// Writes one element, word by word.
    ///
    /// # Errors
    ///
    /// If the index is beyond the array or its piece cannot be mapped.
    pub(crate) fn write(&mut self, index: u32, value: &[u8]) -> io::Result<()> {
        for (cell, word) in self.cells(index)?.iter().zip(value.chunks_exact(WORD)) {
            let word = word.try_into().map_or(0, u32::from_ne_bytes);
            cell.store(word, Ordering::Release);
        }
        Ok(())
    }

    /// Reads one element, or the begin of it, word by word.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub(crate) fn read(&mut self, index: u32, value: &mut [u8]) -> io::Result<()> {
        for (cell, word) in self.cells(index)?.iter().zip(value.chunks_exact_mut(WORD)) {
            word.copy_from_slice(&cell.load(Ordering::Acquire).to_ne_bytes());
        }
        Ok(())
    }

    /// Adds to one word of an element, at once.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub(crate) fn add(&mut self, index: u32, word: usize, by: u32) -> io::Result<()> {
        if let Some(cell) = self.cells(index)?.get(word) {
            cell.fetch_add(by, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Unmaps everything until it is used again.
    pub(crate) fn unmap(&mut self) {
        self.pieces.clear();
    }

    /// The words of one element.
    fn cells(&mut self, index: u32) -> io::Result<&[AtomicU32]> {
        if index >= self.entries {
            return Err(io::Error::other(format!(
                "element {index} of an array of {} entries",
                self.entries
            )));
        }
        // Pieces begin at pages, elements do not: a piece has those that begin in it, and room for
        // the rest of its last one.
        let start = index as usize * self.stride;
        let number = start / PIECE;
        if !self.pieces.contains_key(&number) {
            let piece = self.map(number)?;
            self.pieces.insert(number, piece);
        }
        let piece = &self.pieces[&number];
        let words = self.bytes / WORD;
        // SAFETY: the element lies within the piece, see `map`; the memory stays mapped as long as
        // `self`, and kernel and agent touch it by aligned accesses only, of 4 or 8 bytes.
        Ok(unsafe {
            let first = piece.start.cast::<u8>().add(start % PIECE);
            std::slice::from_raw_parts(first.cast::<AtomicU32>().as_ptr(), words)
        })
    }

    fn map(&self, number: usize) -> io::Result<Piece> {
        let first = number * PIECE;
        let all = self.entries as usize * self.stride;
        let page = rustix::param::page_size();
        let bytes = (all - first)
            .min(PIECE + self.stride)
            .next_multiple_of(page);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                self.fd.as_fd(),
                first as u64,
            )
        }?;
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Piece { start, bytes })
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives the `ArrayMapping` or the call
        // that made it. A failure leaves it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}
