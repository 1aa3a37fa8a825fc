//! `getpeername`: a program that connected to a Service sees the address that it connected to.

use aya_ebpf::programs::SockAddrContext;

use proxy_common::Protocol;

use crate::socket::{
    ALLOW, connection,
    context::{self, Family},
    memory::{self, Memory},
};

/// Runs when a program asks whom its socket is connected to.
#[inline(always)]
pub fn name<F: Family>(ctx: &SockAddrContext) -> i32 {
    let connection = match context::protocol(ctx) {
        Some(Protocol::Tcp) => connection::of(ctx),
        Some(Protocol::Udp) => memory::of(ctx).map(Memory::connection),
        _ => None,
    };
    if let Some(connection) = connection
        && let Some(connected) = connection.entry()
        && memory::got(connected).is(context::endpoint::<F>(ctx))
    {
        context::set_endpoint::<F>(ctx, memory::asked(connected));
    }
    ALLOW
}
