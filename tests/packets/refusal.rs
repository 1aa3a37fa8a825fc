//! Refusals: what the client gets back.
//!
//! Not on devices without Ethernet headers: the helper that makes room asks for the EtherType, which
//! a test run does not set there.

use std::net::SocketAddr;

use anyhow::ensure;
use etherparse::{
    IpDscp, IpFragOffset, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder,
    icmpv4::DestUnreachableHeader,
    icmpv6::DestUnreachableCode,
    {Icmpv4Type, Icmpv6Type},
};
use proxy_common::{Counter, Protocol};
use sidestep_tests::{
    frame::{ETHERNET, Frame},
    tests,
};

use crate::{
    both_ways::first_packets,
    stage::{Plan, Stage, plans},
};

tests! {
    the_client_is_told_from_the_address_that_it_asked,
    a_packet_with_options_is_quoted_with_them,
    a_large_packet_is_quoted_in_part,
    an_unknown_port_of_a_cluster_ip_is_refused,
    who_cannot_be_answered_is_not,
    a_flood_of_refused_packets_is_answered_in_part,
}

/// Octets of TCP and UDP headers that are quoted.
const TCP: usize = 20;
const UDP: usize = 8;

/// The ICMP error about a packet, from the address that it was for.
fn refusal(frame: &Frame, protocol: Protocol) -> anyhow::Result<Vec<u8>> {
    let sent = frame.bytes()?;
    let quoted = headers(frame)
        + match protocol {
            Protocol::Tcp => TCP,
            _ => UDP,
        };
    let quoted = &sent[ETHERNET..ETHERNET + quoted];
    let builder = PacketBuilder::ethernet2(frame.destination, [2, 0, 0, 0, 0, 1]);
    let mut bytes = Vec::new();
    match (frame.to, frame.from) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            let ip = Ipv4Header {
                dscp: IpDscp::try_new(48)?,
                time_to_live: 64,
                identification: 0,
                dont_fragment: true,
                fragment_offset: IpFragOffset::ZERO,
                protocol: IpNumber::ICMP,
                source: from.ip().octets(),
                destination: to.ip().octets(),
                ..Ipv4Header::default()
            };
            let kind = Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::Port);
            let builder = builder.ip(etherparse::IpHeaders::Ipv4(ip, Default::default()));
            builder.icmpv4(kind).write(&mut bytes, quoted)?;
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            let ip = Ipv6Header {
                hop_limit: 64,
                flow_label: Ipv6FlowLabel::ZERO,
                source: from.ip().octets(),
                destination: to.ip().octets(),
                ..Ipv6Header::default()
            };
            let kind = Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Port);
            let builder = builder.ip(etherparse::IpHeaders::Ipv6(ip, Default::default()));
            builder.icmpv6(kind).write(&mut bytes, quoted)?;
        }
        _ => anyhow::bail!("two families"),
    }
    Ok(bytes)
}

/// Octets of the IP header and what follows it before the transport.
fn headers(frame: &Frame) -> usize {
    match frame.from {
        SocketAddr::V4(_) => 20 + frame.options,
        SocketAddr::V6(_) => 40 + 2 * frame.options,
    }
}

/// A Service without endpoints, and for each protocol a packet for it.
fn unserved(plan: &Plan, protocol: Protocol) -> anyhow::Result<Stage> {
    let mut stage = Stage::new()?;
    stage.serve(plan, protocol, &[])?;
    Ok(stage)
}

fn the_client_is_told_from_the_address_that_it_asked() -> anyhow::Result<()> {
    for plan in plans() {
        for to in [plan.balancer, plan.external, plan.cluster_ip] {
            for (protocol, first) in first_packets(&plan, to) {
                let stage = unserved(&plan, protocol)?;
                let answer = refusal(&first, protocol)?;
                stage.ingress(&first)?.goes_back_as(&answer)?;
                stage.counts(Counter::PacketRefused, 1)?;
            }
        }
    }
    Ok(())
}

fn a_packet_with_options_is_quoted_with_them() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.balancer) {
            let stage = unserved(&plan, protocol)?;
            for options in [8, 40] {
                let first = first.with_options(options);
                let answer = refusal(&first, protocol)?;
                stage.ingress(&first)?.goes_back_as(&answer)?;
            }
        }
    }
    Ok(())
}

fn a_large_packet_is_quoted_in_part() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.balancer) {
            let stage = unserved(&plan, protocol)?;
            for length in [0, 1, 1400] {
                let first = first.with_payload(&vec![7; length]);
                let answer = refusal(&first, protocol)?;
                stage.ingress(&first)?.goes_back_as(&answer)?;
            }
        }
    }
    Ok(())
}

fn an_unknown_port_of_a_cluster_ip_is_refused() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.cluster_ip) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[plan.here])?;
            let unknown = first.to(SocketAddr::new(plan.cluster_ip.ip(), 81));
            let answer = refusal(&unknown, protocol)?;
            stage.ingress(&unknown)?.goes_back_as(&answer)?;
            stage.counts(Counter::PacketUnknownPort, 1)?;
            // The node's own ports are its own.
            let own = first.to(SocketAddr::new(plan.node, 81));
            stage.ingress(&own)?.passes_unchanged()?;
        }
    }
    Ok(())
}

fn who_cannot_be_answered_is_not() -> anyhow::Result<()> {
    let sources: [&[&str]; 2] = [
        &[
            "0.0.0.0:9",
            "127.0.0.1:9",
            "224.0.0.1:9",
            "255.255.255.255:9",
        ],
        &["[::]:9", "[::1]:9", "[ff02::1]:9"],
    ];
    for (plan, sources) in plans().into_iter().zip(sources) {
        for (protocol, first) in first_packets(&plan, plan.balancer) {
            let stage = unserved(&plan, protocol)?;
            for source in sources {
                stage.ingress(&first.from(source.parse()?))?.is_dropped()?;
            }
        }
    }
    Ok(())
}

fn a_flood_of_refused_packets_is_answered_in_part() -> anyhow::Result<()> {
    let [plan, _] = plans();
    let [(protocol, first), _] = first_packets(&plan, plan.balancer);
    let stage = unserved(&plan, protocol)?;
    for _ in 0..2_000 {
        stage.ingress(&first)?;
    }
    stage.counts(Counter::PacketRefused, 2_000)?;
    let silent = stage.counter(Counter::RefusalLimited)?;
    ensure!(
        silent > 0 && silent < 2_000,
        "{silent} of 2,000 got no answer"
    );
    Ok(())
}
