//! The two ends of a socket's life: `bind`, where the port guard stands, and its release.

use aya_ebpf::programs::SockContext;

use crate::socket::{ALLOW, memory};

/// Runs when the last reference to a socket is closed. A socket that the kernel itself uses (NFS,
/// SMB) does not pass here (net/ipv4/af_inet.c `inet_release`).
#[inline(always)]
pub fn release(ctx: &SockContext) -> i32 {
    if let Some(mut memory) = memory::of_released(ctx) {
        memory.uncount();
    }
    ALLOW
}
