//! What the hooks hand over: a packet, and the kind of device that it is on.

use aya_ebpf::{
    bindings::{
        __sk_buff, BPF_F_INGRESS, BPF_F_INVALIDATE_HASH, BPF_F_RECOMPUTE_CSUM,
        bpf_adj_room_mode::BPF_ADJ_ROOM_MAC,
    },
    helpers::{
        bpf_clone_redirect, bpf_redirect, bpf_skb_adjust_room, bpf_skb_change_tail,
        bpf_skb_load_bytes, bpf_skb_pull_data, bpf_skb_store_bytes,
        generated::{bpf_csum_update, bpf_l4_csum_replace},
    },
};

/// `PACKET_HOST` (include/uapi/linux/if_packet.h).
const PACKET_HOST: u32 = 0;

/// How packets begin on a device. The kernel does not tell a program, so that there is one for
/// each, and the agent attaches the right one.
pub trait Device {
    /// Octets before the IP header. VLAN tags are beside the packet wherever tc sees it
    /// (net/core/dev.c, `__netif_receive_skb_core`; `validate_xmit_vlan` comes later).
    const HEADER: u32;
}

/// A device with Ethernet frames.
pub enum Ethernet {}

/// A device whose packets begin with the IP header: tun, WireGuard, IPIP.
pub enum Bare {}

impl Device for Ethernet {
    const HEADER: u32 = 14;
}

impl Device for Bare {
    const HEADER: u32 = 0;
}

/// A packet of the kernel.
#[derive(Clone, Copy)]
pub struct Buffer(*mut __sk_buff);

// SAFETY of all accesses below: the pointer is a hook's context, and the verifier checks each. They
// are volatile, since it allows only whole fields at constant offsets.
impl Buffer {
    /// The packet of a hook.
    #[inline(always)]
    pub fn new(skb: *mut __sk_buff) -> Self {
        Self(skb)
    }

    /// Length in octets, with the header of the device.
    #[inline(always)]
    pub fn len(self) -> u32 {
        unsafe { (&raw const (*self.0).len).read_volatile() }
    }

    /// Whether it is for this host, by the header of its device, and not merely passing by on a
    /// bridge port.
    #[inline(always)]
    pub fn is_for_host(self) -> bool {
        unsafe { (&raw const (*self.0).pkt_type).read_volatile() == PACKET_HOST }
    }

    /// Index of the interface that it is on.
    #[inline(always)]
    pub fn interface(self) -> u32 {
        unsafe { (&raw const (*self.0).ifindex).read_volatile() }
    }

    /// EtherType, host order.
    #[inline(always)]
    pub fn ether_type(self) -> u16 {
        u16::from_be(unsafe { (&raw const (*self.0).protocol).read_volatile() } as u16)
    }

    /// A part of the packet, if it is there and in the linear part of the buffer. Valid until a
    /// helper changes the packet.
    #[inline(always)]
    pub fn at<T>(self, offset: u32) -> Option<*mut T> {
        let (start, end) = unsafe {
            (
                (&raw const (*self.0).data).read_volatile() as usize,
                (&raw const (*self.0).data_end).read_volatile() as usize,
            )
        };
        let start = start + offset as usize;
        (start + size_of::<T>() <= end).then_some(start as *mut T)
    }

    /// Makes the first octets linear, as far as the packet has them.
    #[inline(always)]
    pub fn make_linear(self, wanted: u32) {
        let length = self.len();
        let wanted = if length < wanted { length } else { wanted };
        let (start, end) = unsafe {
            (
                (&raw const (*self.0).data).read_volatile(),
                (&raw const (*self.0).data_end).read_volatile(),
            )
        };
        if end.wrapping_sub(start) < wanted {
            // What is not linear then is not found where it is looked for.
            let _ = unsafe { bpf_skb_pull_data(self.0, wanted) };
        }
    }

    /// Copies octets out of the packet.
    #[inline(always)]
    pub fn load(self, offset: u32, to: *mut u8, length: u32) -> bool {
        unsafe { bpf_skb_load_bytes(self.0.cast(), offset, to.cast(), length) == 0 }
    }

    /// Copies octets into the packet.
    #[inline(always)]
    pub fn store(self, offset: u32, from: *const u8, length: u32) -> bool {
        let flags = u64::from(BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
        unsafe { bpf_skb_store_bytes(self.0, offset, from.cast(), length, flags) == 0 }
    }

    /// Lets a copy of the packet arrive at the interface, once more and after those that wait.
    #[inline(always)]
    pub fn arrive_again(self) -> bool {
        unsafe { bpf_clone_redirect(self.0, self.interface(), u64::from(BPF_F_INGRESS)) == 0 }
    }

    /// Cuts the packet off after so many octets, or makes it as long.
    #[inline(always)]
    pub fn cut(self, length: u32) -> bool {
        unsafe { bpf_skb_change_tail(self.0, length, 0) == 0 }
    }

    /// Makes room between the header of the device and that of IP.
    #[inline(always)]
    pub fn make_room(self, octets: u32) -> bool {
        unsafe { bpf_skb_adjust_room(self.0, octets as i32, BPF_ADJ_ROOM_MAC, 0) == 0 }
    }

    /// Swaps the addresses of an Ethernet header.
    #[inline(always)]
    pub fn swap_addresses(self) -> Option<()> {
        let at = self.at::<[u16; 6]>(0)?.cast::<u16>();
        for i in 0..3 {
            // SAFETY: inside the packet.
            unsafe {
                let (to, from) = (at.add(i), at.add(3 + i));
                let addresses = (to.read_volatile(), from.read_volatile());
                to.write_volatile(addresses.1);
                from.write_volatile(addresses.0);
            }
        }
        Some(())
    }

    /// Sends the packet out of the interface that it came in by; the verdict.
    #[inline(always)]
    pub fn send_back(self) -> i32 {
        unsafe { bpf_redirect(self.interface(), 0) as i32 }
    }

    /// Adds a difference to a checksum of the transport layer, in whatever state the kernel has it.
    #[inline(always)]
    pub fn add_to_checksum(self, offset: u32, difference: u32, flags: u64) -> bool {
        unsafe { bpf_l4_csum_replace(self.0, offset, 0, u64::from(difference), flags) == 0 }
    }

    /// Adds a difference to the sum over the whole packet, where a device has delivered one.
    #[inline(always)]
    pub fn add_to_sum(self, difference: u32) {
        // ENOTSUPP where there is none.
        let _ = unsafe { bpf_csum_update(self.0, difference) };
    }
}
