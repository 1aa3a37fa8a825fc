//! The addresses of this node, as the kernel has them, and word of every change.
//!
//! An address counts once the kernel delivers to it: IPv6 duplicate detection over and passed. What
//! an address is used for is decided elsewhere ([`node_port`](super::node_port)).
//!
//! Notifications only say that something changed; the addresses are always listed anew. So a lost
//! notification costs nothing but a listing, and there is no second copy of the kernel's rules.
//! Links need no watch of their own: an address that goes with its link is announced as deleted.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use futures::{FutureExt, StreamExt, TryStreamExt};
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressMessage},
};
use rtnetlink::MulticastGroup;
use tokio::{sync::watch, task::JoinSet};

/// How long changes are gathered before the addresses are listed again.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// First and longest wait before a failed watch is started again.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The node's addresses; `None` until they were listed for the first time.
pub type Addresses = watch::Receiver<Option<BTreeSet<IpAddr>>>;

/// Watches the addresses of the calling thread's network namespace, until the last receiver is
/// dropped.
///
/// A failure (no rtnetlink, no descriptors) is logged and tried again; meanwhile the receiver keeps
/// the last list. Call it inside a tokio runtime with IO and time enabled.
pub fn spawn() -> Addresses {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(watch(sender));
    receiver
}

/// Why the addresses cannot be watched.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("open an rtnetlink socket")]
    Open(#[source] std::io::Error),
    #[error("list addresses by rtnetlink")]
    List(#[source] rtnetlink::Error),
    #[error("wait for address changes: the kernel closed the rtnetlink socket")]
    Closed,
}

async fn watch(sender: watch::Sender<Option<BTreeSet<IpAddr>>>) {
    let mut wait = RETRY.0;
    loop {
        let listed = sender.borrow().is_some();
        let error = tokio::select! {
            () = sender.closed() => return,
            error = follow(&sender) => error,
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            retry = ?wait,
            "cannot watch node addresses; NodePorts answer at those known so far"
        );
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let progress = !listed && sender.borrow().is_some();
        wait = if progress {
            RETRY.0
        } else {
            (wait * 2).min(RETRY.1)
        };
    }
}

/// Lists, then lists again after each change; returns only with an error.
async fn follow(sender: &watch::Sender<Option<BTreeSet<IpAddr>>>) -> Error {
    // Two sockets: an overflow of notifications must not lose the answer to a listing.
    let groups = [MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
    let (notifier, _, mut changes) = match rtnetlink::new_multicast_connection(&groups) {
        Ok(parts) => parts,
        Err(e) => return Error::Open(e),
    };
    let (lister, handle, _) = match rtnetlink::new_connection() {
        Ok(parts) => parts,
        Err(e) => return Error::Open(e),
    };
    let mut connections = JoinSet::new();
    connections.spawn(notifier);
    connections.spawn(lister);

    loop {
        let addresses = match list(&handle).await {
            Ok(addresses) => addresses,
            Err(e) => return Error::List(e),
        };
        sender.send_if_modified(|known| {
            let modified = known.as_ref() != Some(&addresses);
            if modified {
                tracing::info!(addresses = addresses.len(), "node addresses");
                *known = Some(addresses);
            }
            modified
        });
        // An overflow (ENOBUFS) arrives as one more message.
        if changes.next().await.is_none() {
            return Error::Closed;
        }
        tokio::time::sleep(DEBOUNCE).await;
        while let Some(Some(_)) = changes.next().now_or_never() {}
    }
}

async fn list(handle: &rtnetlink::Handle) -> Result<BTreeSet<IpAddr>, rtnetlink::Error> {
    let messages = handle.address().get().execute();
    messages
        .try_filter_map(|message| async move { Ok(usable(&message)) })
        .try_collect()
        .await
}

/// The address of a message, if the kernel delivers to it.
fn usable(message: &AddressMessage) -> Option<IpAddr> {
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
