//! Following the node's addresses.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use proxy_agent::node::interfaces::{self, Addresses};

use crate::place::{PODS, PODS6, Place};

/// Reached only if a change is never heard of.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn addresses_are_listed_and_changes_followed() {
    let place = Place::named();
    place.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("start a runtime").block_on(async {
            let mut addresses = interfaces::spawn();
            let first = until(&mut addresses, |_| true).await;
            let expected = PODS
                .iter()
                .chain(&PODS6)
                .chain(&["127.0.0.1", "::1"])
                .map(|ip| parse(ip));
            assert_eq!(first, expected.collect());

            place.ip("addr add 10.9.9.9/32 dev lo\naddr add fd09::9/128 dev lo nodad\n");
            until(&mut addresses, |ips| {
                ips.contains(&parse("10.9.9.9")) && ips.contains(&parse("fd09::9"))
            })
            .await;

            place.ip("addr del 10.9.9.9/32 dev lo\n");
            until(&mut addresses, |ips| !ips.contains(&parse("10.9.9.9"))).await;
        });
    });
}

#[test]
fn addresses_go_with_their_link() {
    let place = Place::named();
    place.ip("link add v0 type veth peer name v1\naddr add 10.8.8.8/24 dev v0\naddr add fd08::8/64 dev v0 nodad\nlink set v0 up\n");
    place.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("start a runtime").block_on(async {
            let mut addresses = interfaces::spawn();
            let link = [parse("10.8.8.8"), parse("fd08::8")];
            until(&mut addresses, |ips| link.iter().all(|ip| ips.contains(ip))).await;
            place.ip("link del v0\n");
            until(&mut addresses, |ips| {
                !link.iter().any(|ip| ips.contains(ip))
            })
            .await;
        });
    });
}

/// The first list that fits.
async fn until(
    addresses: &mut Addresses,
    fits: impl Fn(&BTreeSet<IpAddr>) -> bool,
) -> BTreeSet<IpAddr> {
    let wait = addresses.wait_for(|ips| ips.as_ref().is_some_and(&fits));
    let ips = tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("word of a change");
    ips.expect("the watch goes on").clone().expect("a list")
}

fn parse(ip: &str) -> IpAddr {
    ip.parse().expect("an address")
}
