//! Addresses and ranges as Kubernetes has always read them: leniently (W16).

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

/// An address. Leading zeros of IPv4 numbers are decimal ("010.000.0.1" is 10.0.0.1), and an
/// IPv4-mapped IPv6 address is the IPv4 address: what Go's ParseIPSloppy makes of both
/// (k8s.io/utils/net/parse.go).
pub(crate) fn ip(text: &str) -> Option<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    let start = text.rfind(':').map_or(0, |colon| colon + 1);
    let (head, dotted) = text.split_at(start);
    let mut plain = String::from(head);
    for (i, number) in dotted.split('.').enumerate() {
        if i > 0 {
            plain.push('.');
        }
        let short = number.trim_start_matches('0');
        plain.push_str(if short.is_empty() && !number.is_empty() {
            "0"
        } else {
            short
        });
    }
    plain.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// A range, white space around it trimmed, host bits cleared.
pub(crate) fn range(text: &str) -> Option<IpNet> {
    let (addr, length) = text.trim().split_once('/')?;
    if !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length: u8 = length.parse().ok()?;
    let mapped = addr.contains(':');
    let net = match (ip(addr)?, mapped) {
        // The IPv4 part of an IPv4-mapped range.
        (IpAddr::V4(v4), true) => Ipv4Net::new(v4, length.checked_sub(96)?).ok()?.into(),
        (ip, _) => IpNet::new(ip, length).ok()?,
    };
    Some(net.trunc())
}

/// Why an address cannot be a Service's, whoever wrote it there: traffic to it means something
/// else on every host.
pub(crate) fn unfit_frontend(ip: IpAddr) -> Option<&'static str> {
    if ip.is_loopback() {
        Some("a loopback address")
    } else {
        unfit_backend(ip)
    }
}

/// Why nothing can be sent to an address.
pub(crate) fn unfit_backend(ip: IpAddr) -> Option<&'static str> {
    if ip.is_unspecified() {
        Some("the unspecified address")
    } else if ip.is_multicast() || is_broadcast(ip) {
        Some("a multicast or broadcast address")
    } else {
        None
    }
}

fn is_broadcast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6 == Ipv6Addr::from([0xff; 16]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        ip(text).map_or("-".into(), |ip| ip.to_string())
    }

    fn range_shown(text: &str) -> String {
        range(text).map_or("-".into(), |net| net.to_string())
    }

    #[test]
    fn leading_zeros_of_ipv4_are_decimal_w16() {
        assert_eq!(shown("010.000.001.08"), "10.0.1.8");
        assert_eq!(shown("192.168.00.255"), "192.168.0.255");
        assert_eq!(shown("::ffff:010.0.0.1"), "10.0.0.1");
        assert_eq!(range_shown("010.001.0.0/016"), "10.1.0.0/16");
    }

    #[test]
    fn what_is_no_address_is_none() {
        for text in [
            "",
            ".",
            "...",
            "1.2.3",
            "1.2.3.256",
            "1.2.3.4.5",
            "a.b.c.d",
            " 1.2.3.4",
            "1.2.3.4 ",
        ] {
            assert_eq!(shown(text), "-", "{text:?}");
        }
        for text in [
            "fe80::1%eth0",
            "1::2::3",
            "12345::",
            "10.0.0.1:80",
            "[::1]",
            "1..2.3",
        ] {
            assert_eq!(shown(text), "-", "{text:?}");
        }
    }

    #[test]
    fn a_mapped_ipv6_address_is_the_ipv4_address() {
        assert_eq!(shown("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(range_shown("::ffff:10.1.2.3/120"), "10.1.2.0/24");
        assert_eq!(range_shown("::ffff:10.1.2.3/90"), "-");
    }

    #[test]
    fn blanks_around_ranges_are_trimmed_t65() {
        assert_eq!(range_shown(" 10.0.0.0/8 "), "10.0.0.0/8");
        assert_eq!(range_shown("\t2001:db8::/32\n"), "2001:db8::/32");
    }

    #[test]
    fn ranges_are_canonical() {
        assert_eq!(range_shown("10.1.2.3/8"), "10.0.0.0/8");
        assert_eq!(range_shown("2001:DB8:0::5/32"), "2001:db8::/32");
    }

    #[test]
    fn what_is_no_range_is_none() {
        for text in [
            "",
            "/",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "::/129",
            "x/8",
        ] {
            assert_eq!(range_shown(text), "-", "{text:?}");
        }
    }

    #[test]
    fn addresses_that_mean_something_else_on_every_host_are_unfit() {
        for text in [
            "0.0.0.0",
            "::",
            "127.0.0.1",
            "::1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ] {
            let ip = ip(text).expect("an address");
            assert!(unfit_frontend(ip).is_some(), "{text}");
        }
        for text in ["10.0.0.1", "169.254.20.10", "2001:db8::1", "fd00::1"] {
            let ip = ip(text).expect("an address");
            assert_eq!(unfit_frontend(ip).or(unfit_backend(ip)), None, "{text}");
        }
        for text in ["0.0.0.0", "::", "224.0.0.1"] {
            assert!(
                unfit_backend(ip(text).expect("an address")).is_some(),
                "{text}"
            );
        }
    }
}
