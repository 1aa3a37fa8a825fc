//! Which addresses of this node answer NodePorts.
//!
//! kube-proxy's `nodePortAddresses` (pkg/proxy/util/nodeport_addresses.go), decided here so that
//! programs only look an address up. Pure: addresses in, map entries out.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use proxy_common::{Address, NodeAddrValue, addr};

/// The configured selection of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePortAddresses {
    v4: Vec<IpNet>,
    v6: Vec<IpNet>,
    localhost: bool,
}

impl Default for NodePortAddresses {
    /// Every address of the node, those of loopback included.
    fn default() -> Self {
        Self::new(&[], true)
    }
}

impl NodePortAddresses {
    /// Splits `nodePortAddresses` by family. A family without a CIDR has no restriction, even when
    /// the other one has; `0.0.0.0/0` and `::/0` lift it as well.
    ///
    /// `localhost` is `iptables.localhostNodePorts`: whether loopback addresses answer where the
    /// CIDRs cover them. The word `primary` is the caller's to replace by the node's own addresses.
    pub fn new(cidrs: &[IpNet], localhost: bool) -> Self {
        let of = |v4| {
            cidrs
                .iter()
                .filter(|cidr| cidr.addr().is_ipv4() == v4)
                .copied()
                .collect()
        };
        Self {
            v4: of(true),
            v6: of(false),
            localhost,
        }
    }

    /// Whether all addresses of a family answer.
    pub fn is_all(&self, v4: bool) -> bool {
        let cidrs = if v4 { &self.v4 } else { &self.v6 };
        cidrs.is_empty() || cidrs.iter().any(|cidr| cidr.prefix_len() == 0)
    }

    /// The entries of map `node_addr`: flags by address.
    ///
    /// Loopback means `127.0.0.1` and `::1` alone; other addresses of 127.0.0.0/8 do not answer.
    /// IPv6 link-local addresses do not answer either: they mean something only together with an
    /// interface, which a map key has no room for. An address that is not selected has no entry.
    pub fn entries(&self, local: &BTreeSet<IpAddr>) -> BTreeMap<Address, u32> {
        local
            .iter()
            .filter_map(|&ip| Some((addr::from_ip(ip), self.flags(ip)?)))
            .collect()
    }

    fn flags(&self, ip: IpAddr) -> Option<u32> {
        let unusable = match ip {
            IpAddr::V4(v4) => v4.is_unspecified() || v4.is_multicast(),
            IpAddr::V6(v6) => {
                v6.is_unspecified() || v6.is_multicast() || v6.is_unicast_link_local()
            }
        };
        let cidrs = if ip.is_ipv4() { &self.v4 } else { &self.v6 };
        let selected = self.is_all(ip.is_ipv4()) || cidrs.iter().any(|cidr| cidr.contains(&ip));
        if unusable || !selected {
            return None;
        }
        if !ip.is_loopback() {
            return Some(NodeAddrValue::NODE_PORT);
        }
        let canonical = ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST;
        (self.localhost && canonical).then_some(NodeAddrValue::NODE_PORT | NodeAddrValue::LOOPBACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: [&str; 9] = [
        "127.0.0.1",
        "127.0.0.53",
        "192.168.0.2",
        "192.168.1.2",
        "172.17.0.1",
        "::1",
        "2001:db8::1",
        "2001:db8:1::2",
        "fe80::1",
    ];

    fn answering(cidrs: &[&str], localhost: bool) -> Vec<String> {
        let cidrs: Vec<IpNet> = cidrs.iter().map(|c| c.parse().unwrap()).collect();
        let local = NODE.iter().map(|ip| ip.parse().unwrap()).collect();
        NodePortAddresses::new(&cidrs, localhost)
            .entries(&local)
            .into_iter()
            .map(|(address, flags)| {
                assert_ne!(flags & NodeAddrValue::NODE_PORT, 0);
                let ip = addr::to_ip(&address);
                assert_eq!(flags & NodeAddrValue::LOOPBACK != 0, ip.is_loopback());
                ip.to_string()
            })
            .collect()
    }

    const ALL_V4: [&str; 4] = ["127.0.0.1", "172.17.0.1", "192.168.0.2", "192.168.1.2"];
    const ALL_V6: [&str; 3] = ["::1", "2001:db8::1", "2001:db8:1::2"];

    /// Sorted as map keys are: `::1`, then IPv4 as IPv4-mapped, then the rest of IPv6.
    fn sorted(ips: &[&[&str]]) -> Vec<String> {
        let mut ips: Vec<_> = ips
            .concat()
            .iter()
            .map(|ip| addr::from_ip(ip.parse().unwrap()))
            .collect();
        ips.sort_unstable();
        ips.iter().map(|ip| addr::to_ip(ip).to_string()).collect()
    }

    #[test]
    fn without_cidrs_every_address_but_link_local_answers() {
        assert_eq!(answering(&[], true), sorted(&[&ALL_V4, &ALL_V6]));
    }

    #[test]
    fn a_cidr_restricts_its_own_family_only() {
        assert_eq!(
            answering(&["192.168.0.0/24"], true),
            sorted(&[&["192.168.0.2"], &ALL_V6])
        );
        assert_eq!(
            answering(&["2001:db8::/64"], true),
            sorted(&[&ALL_V4, &["2001:db8::1"]])
        );
    }

    #[test]
    fn several_cidrs_add_up() {
        assert_eq!(
            answering(&["192.168.0.0/24", "192.168.1.0/24", "2001:db8::/48"], true),
            sorted(&[&["192.168.0.2", "192.168.1.2"], &["2001:db8::1"]])
        );
    }

    #[test]
    fn a_zero_cidr_beside_others_lifts_the_restriction() {
        assert_eq!(
            answering(&["192.168.0.0/24", "0.0.0.0/0", "::/0"], true),
            sorted(&[&ALL_V4, &ALL_V6])
        );
    }

    #[test]
    fn cidrs_that_match_nothing_select_nothing() {
        assert_eq!(
            answering(&["10.0.0.0/8", "fd00::/8"], true),
            Vec::<String>::new()
        );
    }

    #[test]
    fn loopback_answers_where_a_cidr_covers_it() {
        assert_eq!(
            answering(&["127.0.0.0/8", "::1/128"], true),
            sorted(&[&["127.0.0.1", "::1"]])
        );
        assert_eq!(
            answering(&["127.0.0.1/32", "fd00::/8"], true),
            sorted(&[&["127.0.0.1"]])
        );
    }

    #[test]
    fn loopback_does_not_answer_where_it_is_switched_off() {
        assert_eq!(
            answering(&[], false),
            sorted(&[&ALL_V4[1..], &["2001:db8::1", "2001:db8:1::2"]])
        );
        assert_eq!(
            answering(&["192.168.0.0/24", "127.0.0.1/32", "fd00::/8"], false),
            sorted(&[&["192.168.0.2"]])
        );
    }

    #[test]
    fn link_local_addresses_do_not_answer_even_when_listed() {
        assert_eq!(
            answering(&["10.0.0.0/8", "fe80::/10"], true),
            Vec::<String>::new()
        );
    }
}
