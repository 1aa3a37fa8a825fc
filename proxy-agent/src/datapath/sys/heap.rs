//! Giving freed memory back to the kernel.

/// Returns what the C allocator keeps of freed memory, in all threads' arenas. Worth its time after
/// work that took much more than what stays: a start, a full list.
///
/// Without glibc there is nothing to do: others return memory by themselves, or cannot.
pub(crate) fn release_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes the allocator's own locks and moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
