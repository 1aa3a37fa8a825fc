//! Settings: the one record of the `setting` map, and the globals set at load.
//!
//! Here a node's maps say what they are and how fresh they are, also with the agent down.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Value of the one entry of the `setting` map.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, IntoBytes, FromBytes, Immutable, KnownLayout,
)]
pub struct SettingValue {
    /// [`SCHEMA`](crate::SCHEMA) of the pins; 0: nothing was written yet.
    pub schema: u32,
    /// Process id of the last agent, in its own process-id namespace.
    pub agent: u32,
    /// Network-namespace cookie of the node itself; 0: unknown.
    pub node_netns: u64,
    /// When the last agent started, nanoseconds since the Unix epoch; 0: never.
    pub started: u64,
    /// When an agent last had all maps as they should be, nanoseconds since the Unix epoch; 0:
    /// never. An older time than `started` is an earlier agent's.
    pub last_sync: u64,
    /// First port that SNAT uses, host order; 0: the packet path was never on.
    pub snat_first: u16,
    /// Last port that SNAT uses, host order.
    pub snat_last: u16,
    /// 1: the ports of SNAT were added to `net.ipv4.ip_local_reserved_ports`, so that cleanup gives
    /// them back; 0: some of them had been reserved before, by somebody else.
    pub snat_reserved: u32,
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
    /// `u16`: first port that SNAT uses.
    pub const SNAT_FIRST: &str = "SNAT_FIRST";
    /// `u16`: number of ports that SNAT uses.
    pub const SNAT_COUNT: &str = "SNAT_COUNT";
}

crate::pod!(SettingValue);
