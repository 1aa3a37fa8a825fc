//! The two ends of a socket's life: `bind`, where the port guard stands, and its release.

use aya_ebpf::programs::SockContext;
use proxy_common::{Counter, Protocol};

use crate::{
    address::Words,
    balance::lookup::{answers_node_ports, node_port},
    report::count,
    settings,
    socket::{
        ALLOW, connection,
        context::{self, Family, Namespace, refuse},
        memory,
    },
};

/// include/uapi/asm-generic/errno.h
const EADDRINUSE: i32 = 98;

/// Runs when a socket has been bound. In the node's network namespace, the port of a NodePort is
/// taken: a server there would hear nothing of what comes through the NodePort's addresses.
///
/// A socket at `::` may be for IPv6 only, which a program cannot see. It is taken for one that is
/// not, as by default.
#[inline(always)]
pub fn guard<F: Family>(ctx: &SockContext) -> i32 {
    if !settings::port_guard() {
        return ALLOW;
    }
    let Some(protocol) = context::own_protocol(ctx) else {
        return ALLOW;
    };
    // SAFETY: a field of the hook's context, which the verifier checks.
    let port = unsafe { (&raw const (*ctx.sock).src_port).read_volatile() as u16 };
    let addr = F::bound(ctx.sock);
    let any = addr.unspecified();
    let taken = if !addr.is(any) {
        node_port(any, port, protocol).is_some() && answers_node_ports(addr, || true)
    } else {
        node_port(any, port, protocol).is_some()
            || !any.is_v4() && node_port(Words::v4(0), port, protocol).is_some()
    };
    if taken && ctx.is_node() {
        count(Counter::PortGuarded);
        return refuse(EADDRINUSE);
    }
    ALLOW
}

/// Runs when the last reference to a socket is closed. A socket that the kernel itself uses (NFS,
/// SMB) does not pass here (net/ipv4/af_inet.c `inet_release`).
#[inline(always)]
pub fn release(ctx: &SockContext) -> i32 {
    match context::own_protocol(ctx) {
        Some(Protocol::Tcp) => connection::release(ctx),
        Some(Protocol::Udp) => {
            if let Some(memory) = memory::of_released(ctx) {
                memory.connection().uncount();
            }
        }
        _ => {}
    }
    ALLOW
}
