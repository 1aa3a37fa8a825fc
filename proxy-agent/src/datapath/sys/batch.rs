//! Many map entries in one call: four times as fast for dumps (aya#1124).

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use aya::Pod;

use super::bpf::{Command, bpf};

/// Entries of the first call. A hash lookup answers ENOSPC when one bucket does not fit; the size
/// is doubled then.
const FIRST: usize = 4096;

#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// A place in a hash or array map, from which reading goes on.
#[derive(Default)]
pub(crate) struct Cursor {
    token: Option<[u8; 64]>,
    /// At least as many entries as the largest bucket.
    size: usize,
}

impl Cursor {
    /// Reads on: about `wanted` entries. Whether there may be more; after the last the cursor is at
    /// the begin again. Minimum kernel 5.6 (kernel/bpf/hashtab.c,
    /// `__htab_map_lookup_and_delete_batch`); LPM tries and per-CPU arrays cannot.
    ///
    /// `K` and `V` must have the sizes of the map; the caller has compared its shape.
    ///
    /// # Errors
    ///
    /// Those of BPF_MAP_LOOKUP_BATCH.
    pub(crate) fn read<K: Pod, V: Pod>(
        &mut self,
        map: BorrowedFd<'_>,
        wanted: usize,
        entry: &mut impl FnMut(K, V),
    ) -> io::Result<bool> {
        self.size = self.size.max(wanted);
        loop {
            let size = self.size;
            let mut keys: Vec<MaybeUninit<K>> = Vec::with_capacity(size);
            let mut values: Vec<MaybeUninit<V>> = Vec::with_capacity(size);
            let mut next = [0u8; 64];
            let mut attr = BatchAttr {
                in_batch: self.token.as_ref().map_or(0, |token| token.as_ptr() as u64),
                out_batch: next.as_mut_ptr() as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: size as u32,
                map_fd: map.as_raw_fd() as u32,
                elem_flags: 0,
                flags: 0,
            };
            // SAFETY: the image of BPF_MAP_LOOKUP_BATCH; keys and values have room for `count`
            // entries of the map's sizes, the tokens for any key of ours (at most 40 bytes).
            let result = unsafe { bpf(Command::MapLookupBatch, &mut attr) };
            let last = match result {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    self.size *= 2;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let count = (attr.count as usize).min(size);
            // SAFETY: the kernel has written `count` keys and values, also when it answers ENOENT,
            // and `Pod` types are valid for what the map holds.
            unsafe {
                keys.set_len(count);
                values.set_len(count);
                for (key, value) in keys.iter().zip(&values) {
                    entry(key.assume_init(), value.assume_init());
                }
            }
            self.token = (!last).then_some(next);
            return Ok(!last);
        }
    }
}

/// Reads all entries of a hash or array map.
///
/// # Errors
///
/// As [`Cursor::read`].
pub(crate) fn lookup_batch<K: Pod, V: Pod>(
    map: BorrowedFd<'_>,
    mut entry: impl FnMut(K, V),
) -> io::Result<()> {
    let mut cursor = Cursor::default();
    while cursor.read(map, FIRST, &mut entry)? {}
    Ok(())
}
