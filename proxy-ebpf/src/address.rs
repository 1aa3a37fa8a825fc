//! Addresses as the programs work on them: four words in network order, IPv4 in IPv4-mapped form.
//!
//! Maps hold addresses as 16 bytes. Those are only byte-aligned, and BPF loads and stores must be
//! aligned, so that the compiler would handle them byte by byte.

use proxy_common::Address;

/// An address.
#[derive(Clone, Copy)]
pub struct Words([u32; 4]);

/// The third word of an IPv4-mapped address.
const MAPPED: u32 = 0xffff_u32.to_be();

impl Words {
    /// The IPv4-mapped form of an IPv4 address in network order.
    #[inline(always)]
    pub const fn v4(addr: u32) -> Self {
        Self([0, 0, MAPPED, addr])
    }

    /// An IPv6 address, which may be IPv4-mapped, in network order.
    #[inline(always)]
    pub const fn v6(addr: [u32; 4]) -> Self {
        Self(addr)
    }

    /// Reads an address out of a map value.
    ///
    /// # Safety
    ///
    /// `addr` is readable and aligned to four bytes, as in all values of `proxy_common`.
    #[inline(always)]
    pub unsafe fn read(addr: *const Address) -> Self {
        // SAFETY: promised by the caller.
        Self(unsafe { addr.cast::<[u32; 4]>().read() })
    }

    /// The form in which maps hold it.
    #[inline(always)]
    pub const fn bytes(self) -> Address {
        // SAFETY: both are 16 plain bytes.
        unsafe { core::mem::transmute(self.0) }
    }

    /// The four words, network order.
    #[inline(always)]
    pub const fn words(self) -> [u32; 4] {
        self.0
    }

    /// Whether both are the same address.
    #[inline(always)]
    pub const fn is(self, other: Self) -> bool {
        let (a, b) = (self.0, other.0);
        (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) == 0
    }

    /// Whether it is an IPv4 address.
    #[inline(always)]
    pub const fn is_v4(self) -> bool {
        self.0[0] | self.0[1] | (self.0[2] ^ MAPPED) == 0
    }

    /// `0.0.0.0` or `::`, whichever is the unspecified address of its family.
    #[inline(always)]
    pub const fn unspecified(self) -> Self {
        if self.is_v4() {
            Self::v4(0)
        } else {
            Self([0; 4])
        }
    }

    /// `127.0.0.1` or `::1`, whichever is the loopback address of its family.
    #[inline(always)]
    pub const fn loopback(self) -> Self {
        if self.is_v4() {
            Self::v4(u32::from_ne_bytes([127, 0, 0, 1]))
        } else {
            Self([0, 0, 0, 1_u32.to_be()])
        }
    }

    /// Whether packets to it stay in the sender's network namespace whatever is configured there:
    /// all of 127.0.0.0/8, `::1`, and the unspecified addresses, which the kernel replaces by a
    /// loopback address (net/ipv4/route.c `ip_route_output_key_hash_rcu`, net/ipv6/tcp_ipv6.c
    /// `tcp_v6_connect`).
    #[inline(always)]
    pub const fn is_loopback(self) -> bool {
        if self.is_v4() {
            self.0[3] == 0 || self.0[3].to_ne_bytes()[0] == 127
        } else {
            self.0[0] | self.0[1] | self.0[2] == 0 && u32::from_be(self.0[3]) <= 1
        }
    }
}

/// An address, a port in host order, and the protocol: one end of a conversation.
#[derive(Clone, Copy)]
pub struct Endpoint {
    /// Address.
    pub addr: Words,
    /// Port, host order.
    pub port: u16,
}

impl Endpoint {
    /// Whether both are the same.
    #[inline(always)]
    pub const fn is(self, other: Self) -> bool {
        self.port == other.port && self.addr.is(other.addr)
    }
}
