//! The programs that the kernel runs: entry points only.

#![no_std]
#![no_main]
// The atomic addition in `report` is written in assembly.
#![feature(asm_experimental_arch)]

mod address;
mod balance;
mod maps;
mod packet;
mod report;
mod settings;
mod socket;

use aya_ebpf::{
    macros::{cgroup_sock, cgroup_sock_addr, classifier},
    programs::{SockAddrContext, SockContext, TcContext},
};

use crate::{
    packet::context::{Bare, Buffer, Ethernet},
    socket::context::{V4, V6},
};

#[cgroup_sock_addr(connect4)]
pub fn connect4(ctx: SockAddrContext) -> i32 {
    socket::connect::connect::<V4>(&ctx)
}

#[cgroup_sock_addr(connect6)]
pub fn connect6(ctx: SockAddrContext) -> i32 {
    socket::connect::connect::<V6>(&ctx)
}

#[cgroup_sock_addr(sendmsg4)]
pub fn sendmsg4(ctx: SockAddrContext) -> i32 {
    socket::datagram::send::<V4>(&ctx)
}

#[cgroup_sock_addr(sendmsg6)]
pub fn sendmsg6(ctx: SockAddrContext) -> i32 {
    socket::datagram::send::<V6>(&ctx)
}

#[cgroup_sock_addr(recvmsg4)]
pub fn recvmsg4(ctx: SockAddrContext) -> i32 {
    socket::datagram::receive::<V4>(&ctx)
}

#[cgroup_sock_addr(recvmsg6)]
pub fn recvmsg6(ctx: SockAddrContext) -> i32 {
    socket::datagram::receive::<V6>(&ctx)
}

#[cgroup_sock_addr(getpeername4)]
pub fn peername4(ctx: SockAddrContext) -> i32 {
    socket::peer::name::<V4>(&ctx)
}

#[cgroup_sock_addr(getpeername6)]
pub fn peername6(ctx: SockAddrContext) -> i32 {
    socket::peer::name::<V6>(&ctx)
}

#[cgroup_sock(post_bind4)]
pub fn post_bind4(ctx: SockContext) -> i32 {
    socket::bind::guard::<V4>(&ctx)
}

#[cgroup_sock(post_bind6)]
pub fn post_bind6(ctx: SockContext) -> i32 {
    socket::bind::guard::<V6>(&ctx)
}

#[cgroup_sock(sock_release)]
pub fn sock_release(ctx: SockContext) -> i32 {
    socket::bind::release(&ctx)
}

#[classifier]
pub fn tc_ingress(ctx: TcContext) -> i32 {
    packet::ingress::<Ethernet>(Buffer::new(ctx.skb.skb))
}

#[classifier]
pub fn tc_egress(ctx: TcContext) -> i32 {
    packet::egress::<Ethernet>(Buffer::new(ctx.skb.skb))
}

#[classifier]
pub fn tc_ingress_l3(ctx: TcContext) -> i32 {
    packet::ingress::<Bare>(Buffer::new(ctx.skb.skb))
}

#[classifier]
pub fn tc_egress_l3(ctx: TcContext) -> i32 {
    packet::egress::<Bare>(Buffer::new(ctx.skb.skb))
}

/// Lists sockets; attached to no hook. aya-ebpf has no attribute for iterators.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/udp")]
pub extern "C" fn orphans(ctx: *mut socket::orphan::Context) -> i32 {
    socket::orphan::show(ctx)
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
