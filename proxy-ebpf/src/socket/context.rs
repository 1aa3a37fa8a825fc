//! What the hooks hand over: the address in question and the socket.

use aya_ebpf::{
    EbpfContext,
    bindings::{bpf_sock, bpf_sock_addr},
    helpers::{bpf_get_netns_cookie, bpf_get_socket_cookie, bpf_set_retval},
    programs::{SockAddrContext, SockContext},
};
use proxy_common::Protocol;

use crate::{
    address::{Endpoint, Words},
    settings,
};

/// TCP_ESTABLISHED (include/net/tcp_states.h), which is also the state of a connected UDP socket.
const ESTABLISHED: u32 = 1;

/// The family of a hook. The kernel lets a program see the address fields of its own only.
pub trait Family {
    /// The address that the hook is about.
    fn read(ctx: *const bpf_sock_addr) -> Words;
    /// Replaces it.
    fn write(ctx: *mut bpf_sock_addr, addr: Words);
    /// The address that a socket is bound to.
    fn bound(sock: *const bpf_sock) -> Words;
}

/// Hooks of IPv4.
pub enum V4 {}

/// Hooks of IPv6, which IPv6 sockets also pass with IPv4-mapped addresses.
pub enum V6 {}

// Accesses to a context are volatile: the verifier allows only whole fields, at constant offsets,
// which the compiler would otherwise merge and split as it likes.

// SAFETY of all accesses below: the pointers are a hook's context, and the verifier checks each.
impl Family for V4 {
    #[inline(always)]
    fn read(ctx: *const bpf_sock_addr) -> Words {
        Words::v4(unsafe { (&raw const (*ctx).user_ip4).read_volatile() })
    }

    #[inline(always)]
    fn write(ctx: *mut bpf_sock_addr, addr: Words) {
        unsafe { (&raw mut (*ctx).user_ip4).write_volatile(addr.words()[3]) }
    }

    #[inline(always)]
    fn bound(sock: *const bpf_sock) -> Words {
        Words::v4(unsafe { (&raw const (*sock).src_ip4).read_volatile() })
    }
}

impl Family for V6 {
    #[inline(always)]
    fn read(ctx: *const bpf_sock_addr) -> Words {
        Words::v6(unsafe {
            [
                (&raw const (*ctx).user_ip6[0]).read_volatile(),
                (&raw const (*ctx).user_ip6[1]).read_volatile(),
                (&raw const (*ctx).user_ip6[2]).read_volatile(),
                (&raw const (*ctx).user_ip6[3]).read_volatile(),
            ]
        })
    }

    #[inline(always)]
    fn write(ctx: *mut bpf_sock_addr, addr: Words) {
        let words = addr.words();
        unsafe {
            (&raw mut (*ctx).user_ip6[0]).write_volatile(words[0]);
            (&raw mut (*ctx).user_ip6[1]).write_volatile(words[1]);
            (&raw mut (*ctx).user_ip6[2]).write_volatile(words[2]);
            (&raw mut (*ctx).user_ip6[3]).write_volatile(words[3]);
        }
    }

    #[inline(always)]
    fn bound(sock: *const bpf_sock) -> Words {
        Words::v6(unsafe {
            [
                (&raw const (*sock).src_ip6[0]).read_volatile(),
                (&raw const (*sock).src_ip6[1]).read_volatile(),
                (&raw const (*sock).src_ip6[2]).read_volatile(),
                (&raw const (*sock).src_ip6[3]).read_volatile(),
            ]
        })
    }
}

/// The address and port that the hook is about: where to connect or send to, or where from.
#[inline(always)]
pub fn endpoint<F: Family>(ctx: &SockAddrContext) -> Endpoint {
    // The port is 16 bits in network order at the start of a 32-bit field.
    let port = unsafe { (&raw const (*ctx.sock_addr).user_port).read_volatile() };
    Endpoint {
        addr: F::read(ctx.sock_addr),
        port: u16::from_be(port as u16),
    }
}

/// Replaces the address and port that the hook is about.
#[inline(always)]
pub fn set_endpoint<F: Family>(ctx: &SockAddrContext, to: Endpoint) {
    F::write(ctx.sock_addr, to.addr);
    let port = u32::from(to.port.to_be());
    unsafe { (&raw mut (*ctx.sock_addr).user_port).write_volatile(port) }
}

/// The protocol of the socket, if a Service can have it and sockets of it are ours to translate.
/// UDP-Lite passes the same hooks and is no protocol of Services; SCTP belongs to the packet path.
#[inline(always)]
pub fn protocol(ctx: &SockAddrContext) -> Option<Protocol> {
    translated(unsafe { (&raw const (*ctx.sock_addr).protocol).read_volatile() })
}

#[inline(always)]
fn translated(number: u32) -> Option<Protocol> {
    match number {
        6 => Some(Protocol::Tcp),
        17 => Some(Protocol::Udp),
        _ => None,
    }
}

/// The socket.
#[inline(always)]
pub fn socket(ctx: &SockAddrContext) -> *mut bpf_sock {
    unsafe { (&raw const (*ctx.sock_addr).__bindgen_anon_1.sk).read_volatile() }
}

/// Whether the socket is connected.
#[inline(always)]
pub fn is_connected(ctx: &SockAddrContext) -> bool {
    unsafe { (&raw const (*socket(ctx)).state).read_volatile() == ESTABLISHED }
}

/// Cookie of the socket, which no other has while the machine runs.
#[inline(always)]
pub fn cookie(ctx: &SockAddrContext) -> u64 {
    unsafe { bpf_get_socket_cookie(ctx.as_ptr()) }
}

/// The same at the socket's release.
#[inline(always)]
pub fn released_cookie(ctx: &SockContext) -> u64 {
    unsafe { bpf_get_socket_cookie(ctx.as_ptr()) }
}

/// The protocol of a socket that is bound or released, as [`protocol`].
#[inline(always)]
pub fn own_protocol(ctx: &SockContext) -> Option<Protocol> {
    translated(unsafe { (&raw const (*ctx.sock).protocol).read_volatile() })
}

/// A context that knows its network namespace.
pub trait Namespace {
    /// Cookie of the namespace.
    fn netns(&self) -> u64;

    /// Whether it is the node's own.
    #[inline(always)]
    fn is_node(&self) -> bool {
        let node = match settings::node_netns() {
            Some(cookie) => cookie,
            // Of no socket, the kernel gives the cookie of the initial namespace (5.7).
            None => unsafe { bpf_get_netns_cookie(core::ptr::null_mut()) },
        };
        self.netns() == node
    }
}

impl Namespace for SockAddrContext {
    #[inline(always)]
    fn netns(&self) -> u64 {
        unsafe { bpf_get_netns_cookie(self.as_ptr()) }
    }
}

impl Namespace for SockContext {
    #[inline(always)]
    fn netns(&self) -> u64 {
        unsafe { bpf_get_netns_cookie(self.as_ptr()) }
    }
}

/// Verdict of a hook: fail with this error, or with EPERM before kernel 5.18. Not for `recvmsg` and
/// `getpeername`, which cannot fail.
#[inline(always)]
pub fn refuse(errno: i32) -> i32 {
    if settings::set_retval() {
        unsafe { bpf_set_retval(-errno) };
    }
    0
}
