//! Settings: the one record of the `setting` map, and the globals set at load.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Value of the one entry of the `setting` map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoBytes, FromBytes, Immutable, KnownLayout)]
pub struct SettingValue {
    /// [`SCHEMA`](crate::SCHEMA) of the pins; 0: nothing was written yet.
    pub schema: u32,
    /// Zero.
    pub reserved: u32,
    /// Network-namespace cookie of the node itself.
    pub node_netns: u64,
}

/// Names of the load-time globals (`.rodata`) of the kernel programs. The verifier sees them as
/// constants and drops the branches that they turn off.
pub mod global {
    /// `u64`: network-namespace cookie of the node; 0: unknown, then the initial namespace counts.
    pub const NODE_NETNS: &str = "NODE_NETNS";
    /// `u8`: `bpf_set_retval` exists (5.18), refusals carry ECONNREFUSED and not EPERM.
    pub const SET_RETVAL: &str = "SET_RETVAL";
    /// `u8`: binding a NodePort's port in the node's namespace fails with EADDRINUSE.
    pub const PORT_GUARD: &str = "PORT_GUARD";
}

crate::pod!(SettingValue);
