//! The interfaces of this node that packets come and go by, and the addresses that SNAT takes there.
//!
//! All but `lo`: pods' ends of the node, bridges and their ports, tunnels, VLANs. Which address an
//! interface gives follows MASQUERADE (net/netfilter/nf_nat_masquerade.c): its own first one, and if
//! it has none, one of another interface.

use std::{
    collections::BTreeMap,
    future::Future,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use futures::TryStreamExt as _;
use netlink_packet_route::{
    address::{AddressFlags, AddressMessage, AddressScope},
    link::{LinkAttribute, LinkLayerType, LinkMessage},
};
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::watch;

use super::{
    interfaces,
    listed::{self, Listed},
};

/// How packets begin on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// With an Ethernet header.
    Ethernet,
    /// With the IP header.
    Bare,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// How its packets begin.
    pub kind: DeviceKind,
    /// The address that SNAT takes; `None` if the whole node has none.
    pub v4: Option<Ipv4Addr>,
    /// As `v4`.
    pub v6: Option<Ipv6Addr>,
}

/// The node's interfaces by index; `None` until they were listed for the first time.
pub type Devices = watch::Receiver<Option<Vec<Device>>>;

/// Watches the interfaces of the calling thread's network namespace, until the last receiver is
/// dropped. Failures are logged and tried again. Call it inside a tokio runtime with IO and time
/// enabled.
pub fn spawn() -> Devices {
    listed::spawn()
}

impl Listed for Vec<Device> {
    const WHAT: &'static str = "interfaces";
    const WITHOUT: &'static str = "packets are translated on those known so far";
    const GROUPS: &'static [MulticastGroup] = &[
        MulticastGroup::Link,
        MulticastGroup::Ipv4Ifaddr,
        MulticastGroup::Ipv6Ifaddr,
    ];

    fn list(handle: &Handle) -> impl Future<Output = Result<Self, rtnetlink::Error>> + Send {
        let handle = handle.clone();
        async move {
            let links = handle.link().get().execute();
            let links: Vec<LinkMessage> = links.try_collect().await?;
            // One listing at a time: a socket that is being answered refuses another (EBUSY).
            let addresses = handle.address().get().execute();
            let addresses: Vec<AddressMessage> = addresses.try_collect().await?;
            Ok(devices(&links, &addresses))
        }
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// The interfaces that have a kind, by index.
fn devices(links: &[LinkMessage], addresses: &[AddressMessage]) -> Vec<Device> {
    let (mut v4, mut v6) = (BTreeMap::new(), BTreeMap::new());
    for message in addresses.iter().filter(|message| is_global(message)) {
        let index = message.header.index;
        match interfaces::usable(message) {
            // The kernel lists primary addresses before the secondary ones of their networks, and
            // the newest IPv6 address first.
            Some(IpAddr::V4(ip)) => {
                v4.entry(index).or_insert(ip);
            }
            Some(IpAddr::V6(ip)) => {
                v6.entry(index).or_insert(ip);
            }
            None => {}
        }
    }
    let mut devices: Vec<Device> = links
        .iter()
        .filter_map(|link| {
            let index = link.header.index;
            Some(Device {
                index,
                name: name(link)?,
                kind: kind(link.header.link_layer_type)?,
                v4: v4.get(&index).copied(),
                v6: v6.get(&index).copied(),
            })
        })
        .collect();
    devices.sort_by_key(|device| device.index);
    // What stands on `lo` may be a Service's.
    let any_v4 = devices.iter().find_map(|device| device.v4);
    let any_v6 = devices.iter().find_map(|device| device.v6);
    for device in &mut devices {
        device.v4 = device.v4.or(any_v4);
        device.v6 = device.v6.or(any_v6);
    }
    devices
}

/// Whether others can answer to an address for good.
fn is_global(message: &AddressMessage) -> bool {
    use netlink_packet_route::address::AddressAttribute::Flags;
    let flags = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            Flags(flags) => Some(*flags),
            _ => None,
        });
    message.header.scope == AddressScope::Universe
        && !flags.is_some_and(|flags| flags.contains(AddressFlags::Deprecated))
}

fn name(link: &LinkMessage) -> Option<String> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })
}

/// `None`: nothing that IP packets of others come by, or with a header that we do not know.
fn kind(layer: LinkLayerType) -> Option<DeviceKind> {
    match layer {
        LinkLayerType::Ether => Some(DeviceKind::Ethernet),
        LinkLayerType::None
        | LinkLayerType::Rawip
        | LinkLayerType::Tunnel
        | LinkLayerType::Tunnel6
        | LinkLayerType::Sit => Some(DeviceKind::Bare),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::address::AddressAttribute;

    use super::*;

    fn link(index: u32, text: &str, layer: LinkLayerType) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.link_layer_type = layer;
        message.attributes = vec![LinkAttribute::IfName(text.to_owned())];
        message
    }

    fn address(index: u32, text: &str) -> AddressMessage {
        let ip: IpAddr = text.parse().unwrap();
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.family = match ip {
            IpAddr::V4(_) => netlink_packet_route::AddressFamily::Inet,
            IpAddr::V6(_) => netlink_packet_route::AddressFamily::Inet6,
        };
        message.attributes = vec![AddressAttribute::Address(ip)];
        message
    }

    #[test]
    fn every_interface_but_lo_is_a_device_and_has_the_form_of_its_packets() {
        let links = [
            link(3, "wg0", LinkLayerType::None),
            link(1, "lo", LinkLayerType::Loopback),
            link(2, "eth0", LinkLayerType::Ether),
        ];
        let kinds: Vec<_> = devices(&links, &[])
            .into_iter()
            .map(|device| (device.name, device.kind))
            .collect();
        assert_eq!(
            kinds,
            [
                ("eth0".to_owned(), DeviceKind::Ethernet),
                ("wg0".to_owned(), DeviceKind::Bare)
            ]
        );
    }

    #[test]
    fn an_interface_gives_its_own_first_address_or_one_of_another() {
        let links = [
            link(2, "eth0", LinkLayerType::Ether),
            link(3, "veth1", LinkLayerType::Ether),
        ];
        let mut local = address(3, "fe80::1");
        local.header.scope = AddressScope::Link;
        let addresses = [
            address(2, "192.0.2.1"),
            address(2, "192.0.2.2"),
            local,
            address(2, "2001:db8::1"),
            address(3, "10.0.0.1"),
        ];
        let found = devices(&links, &addresses);
        let v6 = Some("2001:db8::1".parse().unwrap());
        assert_eq!(found[0].v4, Some("192.0.2.1".parse().unwrap()));
        assert_eq!(found[1].v4, Some("10.0.0.1".parse().unwrap()));
        assert_eq!((found[0].v6, found[1].v6), (v6, v6));
    }
}
