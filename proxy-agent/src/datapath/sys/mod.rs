//! All raw system calls of the agent, and so nearly all of its `unsafe`.
//!
//! What aya 0.14 has goes through aya; here stand only the calls that it lacks.

#![expect(
    unsafe_code,
    reason = "raw bpf(2), mmap(2), malloc_trim(3); each use says why it is sound"
)]

mod array;
mod batch;
mod bpf;
mod heap;
mod iter;
mod link;

pub(crate) use array::ArrayMapping;
pub(crate) use batch::{Cursor, lookup_batch};
pub(crate) use bpf::object_get;
pub(crate) use heap::release_freed_memory;
pub(crate) use iter::{iter_link, iterate};
pub(crate) use link::{
    detach as link_detach, device_facts, facts as link_facts, update as link_update,
};
