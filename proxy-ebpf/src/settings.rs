//! Load-time globals as typed switches. Their names are those of `proxy_common::setting::global`.
//!
//! The agent sets them before it loads the programs. They live in `.rodata`, which is frozen then:
//! the verifier takes them for constants and removes the branches that they turn off.

use aya_ebpf::Global;

#[unsafe(no_mangle)]
static NODE_NETNS: Global<u64> = Global::new(0);
#[unsafe(no_mangle)]
static SET_RETVAL: Global<u8> = Global::new(0);
#[unsafe(no_mangle)]
static PORT_GUARD: Global<u8> = Global::new(0);
#[unsafe(no_mangle)]
static SNAT_FIRST: Global<u16> = Global::new(61_000);
#[unsafe(no_mangle)]
static SNAT_COUNT: Global<u16> = Global::new(4_536);

/// Cookie of the node's network namespace; `None`: the initial namespace is the node's.
#[inline(always)]
pub fn node_netns() -> Option<u64> {
    match NODE_NETNS.load() {
        0 => None,
        cookie => Some(cookie),
    }
}

/// Whether the kernel has `bpf_set_retval` (5.18).
#[inline(always)]
pub fn set_retval() -> bool {
    SET_RETVAL.load() != 0
}

/// Whether the ports of NodePorts are kept from being bound.
#[inline(always)]
pub fn port_guard() -> bool {
    PORT_GUARD.load() != 0
}

/// First port and number of the ports that SNAT uses.
#[inline(always)]
pub fn snat_ports() -> (u16, u16) {
    (SNAT_FIRST.load(), SNAT_COUNT.load())
}
