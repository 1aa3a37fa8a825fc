//! Under which tuples a flow is found.

use aya_ebpf::bindings::{BPF_EXIST, BPF_NOEXIST};
use proxy_common::{FlowKey, FlowStage, FlowValue, Protocol};

use super::record::{backend, client, frontend, protocol, snat, stack_client};
use crate::{address::Endpoint, maps::FLOW};

const EEXIST: i32 = -17;

/// A key, aligned so that it is written and compared by the word.
#[repr(C, align(8))]
pub struct Key(FlowKey);

impl Key {
    /// Becomes the key of a packet that arrives.
    #[inline(always)]
    pub fn wire(&mut self, src: Endpoint, dst: Endpoint, protocol: Protocol) -> &mut Self {
        self.set(src, dst, protocol, FlowStage::Wire)
    }

    /// Becomes the key of a packet that leaves, the same in both directions: as
    /// [`FlowKey::stack`].
    #[inline(always)]
    pub fn stack(&mut self, one: Endpoint, other: Endpoint, protocol: Protocol) -> &mut Self {
        if is_higher(one, other) {
            self.set(other, one, protocol, FlowStage::Stack)
        } else {
            self.set(one, other, protocol, FlowStage::Stack)
        }
    }

    /// Becomes the key of a record's requests that arrive.
    #[inline(always)]
    pub fn request_of(&mut self, record: *const FlowValue) -> &mut Self {
        fill_request(self, record);
        self
    }

    /// Becomes the key of a record's packets that leave.
    #[inline(always)]
    pub fn stack_of(&mut self, record: *const FlowValue) -> &mut Self {
        fill_stack(self, record);
        self
    }

    /// Becomes the key of a record's replies that arrive at the SNAT address.
    #[inline(always)]
    pub fn reply_of(&mut self, record: *const FlowValue) -> &mut Self {
        fill_reply(self, record);
        self
    }

    #[inline(always)]
    fn set(
        &mut self,
        src: Endpoint,
        dst: Endpoint,
        protocol: Protocol,
        stage: FlowStage,
    ) -> &mut Self {
        let key = &mut self.0;
        (key.src, key.dst) = (src.addr.bytes(), dst.addr.bytes());
        (key.src_port, key.dst_port) = (src.port, dst.port);
        (key.protocol, key.stage) = (protocol, stage);
        self
    }

    /// Puts a record under the key.
    #[inline(always)]
    fn put(&self, record: &FlowValue, flags: u32) -> Result<(), i32> {
        FLOW.insert(&self.0, record, u64::from(flags))
    }

    /// Reserves the key with a record. `Err(true)`: somebody has it.
    #[inline(always)]
    pub fn reserve(&self, record: &FlowValue) -> Result<(), bool> {
        self.put(record, BPF_NOEXIST).map_err(|code| code == EEXIST)
    }

    /// Replaces the record of a key that is there.
    #[inline(always)]
    pub fn replace(&self, record: &FlowValue) {
        // One that is gone was ended meanwhile.
        let _ = self.put(record, BPF_EXIST);
    }

    /// Frees the key. Whether it was there.
    #[inline(always)]
    pub fn free(&self) -> bool {
        FLOW.remove(&self.0).is_ok()
    }

    /// The record under the key.
    #[inline(always)]
    pub fn find(&self) -> Option<*mut FlowValue> {
        FLOW.get_ptr_mut(&self.0)
    }
}

// Functions of their own, so that what they need on the stack is free again afterwards.

#[inline(never)]
fn fill_request(key: &mut Key, record: *const FlowValue) {
    key.wire(client(record), frontend(record), protocol(record));
}

#[inline(never)]
fn fill_stack(key: &mut Key, record: *const FlowValue) {
    key.stack(stack_client(record), backend(record), protocol(record));
}

#[inline(never)]
fn fill_reply(key: &mut Key, record: *const FlowValue) {
    key.wire(backend(record), snat(record), protocol(record));
}

/// The order of ends in keys: address, then port.
#[inline(always)]
fn is_higher(one: Endpoint, other: Endpoint) -> bool {
    let (a, b) = (one.addr.words(), other.addr.words());
    for i in 0..4 {
        if a[i] != b[i] {
            return u32::from_be(a[i]) > u32::from_be(b[i]);
        }
    }
    one.port > other.port
}
