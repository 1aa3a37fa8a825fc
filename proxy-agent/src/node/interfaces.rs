//! The addresses of this node, as the kernel has them, and word of every change.
//!
//! An address counts once the kernel delivers to it: IPv6 duplicate detection over and passed. What
//! an address is used for is decided elsewhere ([`node_port`](super::node_port)).
//!
//! Links need no watch of their own: an address that goes with its link is announced as deleted.

use std::{collections::BTreeSet, future::Future, net::IpAddr};

use futures::TryStreamExt as _;
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressMessage},
};
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::watch;

use super::listed::{self, Listed};

/// The node's addresses; `None` until they were listed for the first time.
pub type Addresses = watch::Receiver<Option<BTreeSet<IpAddr>>>;

/// Watches the addresses of the calling thread's network namespace, until the last receiver is
/// dropped.
///
/// A failure (no rtnetlink, no descriptors) is logged and tried again; meanwhile the receiver keeps
/// the last list. Call it inside a tokio runtime with IO and time enabled.
pub fn spawn() -> Addresses {
    listed::spawn()
}

impl Listed for BTreeSet<IpAddr> {
    const WHAT: &'static str = "node addresses";
    const WITHOUT: &'static str = "NodePorts answer at those known so far";
    const GROUPS: &'static [MulticastGroup] =
        &[MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];

    fn list(handle: &Handle) -> impl Future<Output = Result<Self, rtnetlink::Error>> + Send {
        let messages = handle.address().get().execute();
        messages
            .try_filter_map(|message| async move { Ok(usable(&message)) })
            .try_collect()
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// The address of a message, if the kernel delivers to it.
pub(super) fn usable(message: &AddressMessage) -> Option<IpAddr> {
    let (mut local, mut address) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link IFA_ADDRESS is the other end (linux/if_addr.h).
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let family = message.header.family;
    if family != AddressFamily::Inet && family != AddressFamily::Inet6 {
        return None;
    }
    let tentative =
        flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
    if tentative || flags.contains(AddressFlags::Dadfailed) {
        return None;
    }
    local.or(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attributes: Vec<AddressAttribute>) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.attributes = attributes;
        message
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn on_a_point_to_point_link_the_own_end_counts() {
        let addresses = vec![
            AddressAttribute::Address(ip("fd00::2")),
            AddressAttribute::Local(ip("fd00::1")),
        ];
        assert_eq!(usable(&message(addresses)), Some(ip("fd00::1")));
        let address = vec![AddressAttribute::Address(ip("fd00::1"))];
        assert_eq!(usable(&message(address)), Some(ip("fd00::1")));
    }

    #[test]
    fn an_address_counts_once_duplicate_detection_has_passed() {
        let with = |flags| {
            usable(&message(vec![
                AddressAttribute::Address(ip("fd00::1")),
                AddressAttribute::Flags(flags),
            ]))
        };
        assert_eq!(with(AddressFlags::Permanent), Some(ip("fd00::1")));
        assert_eq!(with(AddressFlags::Deprecated), Some(ip("fd00::1")));
        assert_eq!(with(AddressFlags::Tentative), None);
        assert_eq!(
            with(AddressFlags::Permanent | AddressFlags::Dadfailed),
            None
        );
        assert_eq!(
            with(AddressFlags::Tentative | AddressFlags::Optimistic),
            Some(ip("fd00::1"))
        );
    }
}
