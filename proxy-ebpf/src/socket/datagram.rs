//! Datagrams of sockets that name an address with each: there and back.
//!
//! A socket stays with the backend that it got for a Service as long as that lives. Without this a
//! protocol of more than one datagram would be spread over the backends.

use aya_ebpf::programs::SockAddrContext;
use proxy_common::{AffinityKey, Counter, Protocol};

use crate::{
    address::Endpoint,
    balance::{
        lookup::{self, Found, Side},
        select::{self, Client},
    },
    report::count,
    socket::{
        ALLOW,
        context::{self, Family, Namespace},
        memory, refusal,
    },
};

/// Runs when a UDP socket sends to an address that it names, be it connected or not.
#[inline(always)]
pub fn send<F: Family>(ctx: &SockAddrContext) -> i32 {
    let Some(protocol @ Protocol::Udp) = context::protocol(ctx) else {
        return ALLOW;
    };
    let destination = context::endpoint::<F>(ctx);
    let open = match lookup::find(destination, protocol, Side::Inside, || ctx.is_node()) {
        Found::Open(open) => open,
        Found::Nothing => {
            leave(ctx, destination);
            return ALLOW;
        }
        Found::Ranged | Found::Denied => {
            count(Counter::SocketLeft);
            leave(ctx, destination);
            return ALLOW;
        }
        Found::UnknownPort => return refusal::unknown_port(destination, protocol),
        Found::Closed(why, service) => {
            forget(ctx, destination);
            return refusal::closed(why, service, destination, protocol);
        }
    };
    let service = open.service();
    if let Some(mut memory) = memory::of(ctx) {
        memory.settle(ctx);
        if let Some(backend) = kept(&mut memory, destination, service) {
            context::set_endpoint::<F>(ctx, backend);
            return ALLOW;
        }
    }
    let backend = match open.choose(&Sending { ctx, service }) {
        Ok(backend) => backend,
        Err(why) => return refusal::closed(why, service, destination, protocol),
    };
    let Some(mut memory) = memory::make(ctx) else {
        return refusal::no_memory();
    };
    memory.remember(ctx, memory::translation(destination, service, &backend));
    context::set_endpoint::<F>(ctx, backend.at);
    count(Counter::SocketTranslated);
    ALLOW
}

/// Runs when a UDP socket has received and its program asks from whom.
#[inline(always)]
pub fn receive<F: Family>(ctx: &SockAddrContext) -> i32 {
    let Some(memory) = memory::of(ctx) else {
        return ALLOW;
    };
    let source = context::endpoint::<F>(ctx);
    if let Some(connected) = memory.connected()
        && memory::got(connected).is(source)
    {
        context::set_endpoint::<F>(ctx, memory::asked(connected));
        return ALLOW;
    }
    for index in 0..memory::PEERS {
        if let Some(peer) = memory.peer(index)
            && memory::got(peer).is(source)
        {
            context::set_endpoint::<F>(ctx, memory::asked(peer));
            return ALLOW;
        }
    }
    if let Some(asked) = memory.spilled(ctx, source) {
        context::set_endpoint::<F>(ctx, asked);
    }
    ALLOW
}

/// The backend that the socket already has for an address.
///
/// A connected socket only receives from the one that it is connected to, so that one comes first.
#[inline(always)]
fn kept(memory: &mut memory::Memory, destination: Endpoint, service: u32) -> Option<Endpoint> {
    if let Some(connected) = memory.connected()
        && connected.service == service
        && memory::asked(connected).is(destination)
        && select::is_alive(connected.backend, service)
    {
        return Some(memory::got(connected));
    }
    for index in 0..memory::PEERS {
        let Some(peer) = memory.peer(index) else {
            continue;
        };
        if !memory::asked(peer).is(destination) {
            continue;
        }
        if peer.service != service || !select::is_alive(peer.backend, service) {
            memory.clear(index);
            return None;
        }
        let got = memory::got(peer);
        memory.promote(index);
        return Some(got);
    }
    None
}

/// A client whose choice follows from who it is: should its socket have to forget the choice, the
/// next one is the same as long as the list of backends is.
struct Sending<'a> {
    ctx: &'a SockAddrContext,
    service: u32,
}

impl Client for Sending<'_> {
    #[inline(always)]
    fn dice(&self) -> u32 {
        let key = context::cookie(self.ctx) ^ u64::from(self.service).rotate_left(32);
        // The finaliser of MurmurHash3: every bit of the key moves every bit of the result.
        let mut hash = key ^ (key >> 33);
        hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 33;
        hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        (hash >> 32) as u32
    }

    #[inline(always)]
    fn affinity(&self, service: u32) -> AffinityKey {
        AffinityKey::namespace(service, self.ctx.netns())
    }
}

/// The socket sends to an address that is no Service's.
#[inline(always)]
fn leave(ctx: &SockAddrContext, destination: Endpoint) {
    if let Some(mut memory) = memory::of(ctx) {
        memory.settle(ctx);
        memory.address_directly(ctx, destination);
    }
}

/// The Service that the socket sends to has nobody left: whoever comes back is a new choice.
#[inline(always)]
fn forget(ctx: &SockAddrContext, destination: Endpoint) {
    if let Some(mut memory) = memory::of(ctx) {
        for index in 0..memory::PEERS {
            if let Some(peer) = memory.peer(index)
                && memory::asked(peer).is(destination)
            {
                memory.clear(index);
            }
        }
    }
}
