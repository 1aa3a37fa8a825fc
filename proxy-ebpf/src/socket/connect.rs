//! `connect`: the backend is chosen before the first packet, and the connection is to it from the
//! start. TCP Fast Open (`sendto` with MSG_FASTOPEN) passes here too (net/ipv4/tcp.c
//! `tcp_sendmsg_fastopen`).

use aya_ebpf::{helpers::bpf_get_prandom_u32, programs::SockAddrContext};
use proxy_common::{AffinityKey, Counter, Protocol};

use crate::{
    address::Endpoint,
    balance::{
        lookup::{self, Found, Side},
        select::Client,
    },
    report::count,
    socket::{
        ALLOW, connection,
        context::{self, Family, Namespace},
        memory::{self, Memory},
        refusal,
    },
};

/// Runs when a TCP or UDP socket connects.
///
/// For TCP the kernel comes here only with a socket that is not connected and not about to be
/// (net/ipv4/af_inet.c `__inet_stream_connect`), so a second call while one is under way changes
/// nothing.
#[inline(always)]
pub fn connect<F: Family>(ctx: &SockAddrContext) -> i32 {
    let Some(protocol) = context::protocol(ctx) else {
        return ALLOW;
    };
    let destination = context::endpoint::<F>(ctx);
    // Port 0 is what resolvers connect to, to learn a source address.
    let found = if destination.port == 0 {
        Found::Nothing
    } else {
        lookup::find(destination, protocol, Side::Inside, || ctx.is_node())
    };
    let open = match found {
        Found::Open(open) => open,
        Found::Nothing => {
            leave(ctx, protocol, destination);
            return ALLOW;
        }
        Found::Ranged | Found::Denied => {
            count(Counter::SocketLeft);
            leave(ctx, protocol, destination);
            return ALLOW;
        }
        Found::UnknownPort => {
            fail(ctx, protocol);
            return refusal::unknown_port(destination, protocol);
        }
        Found::Closed(why, service) => {
            fail(ctx, protocol);
            return refusal::closed(why, service, destination, protocol);
        }
    };
    let service = open.service();
    let backend = match open.choose(&Connecting(ctx)) {
        Ok(backend) => backend,
        Err(why) => {
            fail(ctx, protocol);
            return refusal::closed(why, service, destination, protocol);
        }
    };
    let connection = match protocol {
        Protocol::Tcp => connection::make(ctx),
        _ => memory::make(ctx).map(Memory::connection),
    };
    let Some(mut connection) = connection else {
        return refusal::no_memory();
    };
    connection.connect(memory::translation(destination, service, &backend));
    context::set_endpoint::<F>(ctx, backend.at);
    count(Counter::SocketTranslated);
    ALLOW
}

/// A client whose every connection is a new choice.
struct Connecting<'a>(&'a SockAddrContext);

impl Client for Connecting<'_> {
    #[inline(always)]
    fn dice(&self) -> u32 {
        // SAFETY: a helper without preconditions.
        unsafe { bpf_get_prandom_u32() }
    }

    #[inline(always)]
    fn affinity(&self, service: u32) -> AffinityKey {
        AffinityKey::namespace(service, self.0.netns())
    }
}

/// The socket connects to an address that is no Service's.
#[inline(always)]
fn leave(ctx: &SockAddrContext, protocol: Protocol, destination: Endpoint) {
    if let Protocol::Tcp = protocol {
        if let Some(mut connection) = connection::of(ctx) {
            connection.disconnect();
        }
    } else if let Some(mut memory) = memory::of(ctx) {
        memory.disconnect();
        memory.address_directly(ctx, destination);
    }
}

/// The call fails. A UDP socket that was connected before stays so, with its translation.
#[inline(always)]
fn fail(ctx: &SockAddrContext, protocol: Protocol) {
    if context::is_connected(ctx) {
        return;
    }
    let connection = match protocol {
        Protocol::Tcp => connection::of(ctx),
        _ => memory::of(ctx).map(Memory::connection),
    };
    if let Some(mut connection) = connection {
        connection.disconnect();
    }
}
