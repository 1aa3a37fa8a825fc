//! `getpeername`: a program that connected to a Service sees the address that it connected to.

use aya_ebpf::programs::SockAddrContext;

use crate::socket::{ALLOW, context, context::Family, memory};

/// Runs when a program asks whom its socket is connected to.
#[inline(always)]
pub fn name<F: Family>(ctx: &SockAddrContext) -> i32 {
    if let Some(memory) = memory::of(ctx)
        && let Some(connected) = memory.connected()
        && memory::got(connected).is(context::endpoint::<F>(ctx))
    {
        context::set_endpoint::<F>(ctx, memory::asked(connected));
    }
    ALLOW
}
