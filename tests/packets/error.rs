//! ICMP errors about translated packets: who gets them, from whom, and what they quote.

use std::net::{IpAddr, SocketAddr};

use anyhow::bail;
use etherparse::{
    Icmpv4Type, Icmpv6Type, PacketBuilder,
    icmpv4::{DestUnreachableHeader, TimeExceededCode},
    icmpv6,
};
use proxy_common::{Counter, Protocol};

use sidestep_tests::frame::{ETHERNET, Frame};

use crate::{
    both_ways::{first_packets, leave},
    stage::{Plan, Stage, plans},
    tests,
};

tests![
    an_error_about_a_request_comes_from_the_address_that_the_client_asked,
    an_error_about_a_request_to_a_pod_of_this_node_does_too,
    an_error_about_an_answer_reaches_the_pod,
    all_kinds_of_errors_are_translated_and_nothing_else,
    errors_about_strangers_and_for_strangers_are_left_alone,
    an_error_that_is_cut_off_anywhere_does_no_harm,
];

/// Which error.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The packet is larger than this.
    TooBig(u16),
    /// A host is unreachable.
    Unreachable,
    /// A hop count is used up.
    Expired,
    /// No error, but a question.
    Echo,
}

/// How much of a packet is quoted after its IP header.
const QUOTED: [usize; 3] = [8, 20, 1_000];

/// An error about a packet.
fn error(
    kind: Kind,
    (from, to): (IpAddr, IpAddr),
    about: &Frame,
    quoted: usize,
) -> anyhow::Result<Vec<u8>> {
    let sent = about.bytes()?;
    let end = ETHERNET + if from.is_ipv4() { 20 } else { 40 } + quoted;
    let quoted = &sent[ETHERNET..end.min(sent.len())];
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], about.destination);
    let mut bytes = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let kind = match kind {
                Kind::TooBig(next_hop_mtu) => {
                    Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::FragmentationNeeded {
                        next_hop_mtu,
                    })
                }
                Kind::Unreachable => {
                    Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::Host)
                }
                Kind::Expired => Icmpv4Type::TimeExceeded(TimeExceededCode::TtlExceededInTransit),
                Kind::Echo => Icmpv4Type::EchoRequest(etherparse::IcmpEchoHeader { id: 1, seq: 1 }),
            };
            let builder = builder.ipv4(from.octets(), to.octets(), 61);
            builder.icmpv4(kind).write(&mut bytes, quoted)?;
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let kind = match kind {
                Kind::TooBig(mtu) => Icmpv6Type::PacketTooBig { mtu: mtu.into() },
                Kind::Unreachable => {
                    Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Address)
                }
                Kind::Expired => {
                    Icmpv6Type::TimeExceeded(icmpv6::TimeExceededCode::HopLimitExceeded)
                }
                Kind::Echo => Icmpv6Type::EchoRequest(etherparse::IcmpEchoHeader { id: 1, seq: 1 }),
            };
            let builder = builder.ipv6(from.octets(), to.octets(), 61);
            builder.icmpv6(kind).write(&mut bytes, quoted)?;
        }
        _ => bail!("an error of two families"),
    }
    Ok(bytes)
}

const TOO_BIG: Kind = Kind::TooBig(1_400);

/// A router on the way, of the family of a plan.
fn router(plan: &Plan) -> IpAddr {
    match plan.node {
        IpAddr::V4(_) => [100, 64, 0, 1].into(),
        IpAddr::V6(_) => [0xfd64, 0, 0, 0, 0, 0, 0, 1].into(),
    }
}

/// Does it for both families, both protocols, every address and amount that is quoted.
fn everywhere(
    show: impl Fn(Stage, &Plan, Protocol, &Frame, usize) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for plan in plans() {
        for to in [
            plan.node_port,
            plan.cluster_ip,
            plan.balancer,
            plan.external,
        ] {
            for (protocol, first) in first_packets(&plan, to) {
                for quoted in QUOTED {
                    show(Stage::new()?, &plan, protocol, &first, quoted)?;
                }
            }
        }
    }
    Ok(())
}

fn an_error_about_a_request_comes_from_the_address_that_the_client_asked() -> anyhow::Result<()> {
    everywhere(|mut stage, plan, protocol, first, quoted| {
        stage.serve(plan, protocol, &[plan.there])?;
        let outside = leave(&stage, plan, first)?;
        let about = |ends, frame: &Frame| error(TOO_BIG, ends, frame, quoted);
        let (router, client) = (router(plan), plan.client.ip());
        let inside = about((router, client), &first.to(plan.there))?;
        stage
            .ingress_bytes(&about((router, plan.node), &outside)?)?
            .becomes_bytes(&inside)?;
        stage
            .egress_bytes(&inside)?
            .becomes_bytes(&about((first.to.ip(), client), first)?)
    })
}

fn an_error_about_a_request_to_a_pod_of_this_node_does_too() -> anyhow::Result<()> {
    everywhere(|mut stage, plan, protocol, first, quoted| {
        stage.serve(plan, protocol, &[plan.here])?;
        let inside = first.to(plan.here);
        stage.ingress(first)?.becomes(&inside)?;
        stage.egress(&inside)?.passes_unchanged()?;
        let client = plan.client.ip();
        // The node itself says so, or the pod.
        for from in [plan.node, plan.here.ip()] {
            let said = error(TOO_BIG, (from, client), &inside, quoted)?;
            stage.ingress_bytes(&said)?.passes_unchanged()?;
            let heard = error(TOO_BIG, (first.to.ip(), client), first, quoted)?;
            stage.egress_bytes(&said)?.becomes_bytes(&heard)?;
        }
        Ok(())
    })
}

fn an_error_about_an_answer_reaches_the_pod() -> anyhow::Result<()> {
    everywhere(|mut stage, plan, protocol, first, quoted| {
        let router = router(plan);
        for pod in [plan.here, plan.there] {
            stage.clear_flows()?;
            stage.serve(plan, protocol, &[pod])?;
            let outside = match pod == plan.there {
                true => leave(&stage, plan, first)?,
                false => {
                    stage.ingress(first)?.becomes(&first.to(pod))?;
                    first.to(pod)
                }
            };
            let about = |ends, frame: &Frame| error(TOO_BIG, ends, frame, quoted);
            let answer = first.answer("SA");
            let inside = about((router, pod.ip()), &answer.from(pod))?;
            stage
                .ingress_bytes(&about((router, first.to.ip()), &answer)?)?
                .becomes_bytes(&inside)?;
            let leaves = stage.egress_bytes(&inside)?;
            // Elsewhere it knows this node alone.
            match pod == plan.there {
                true => {
                    let to_pod = about((plan.node, pod.ip()), &outside.answer("SA"))?;
                    leaves.becomes_bytes(&to_pod)?;
                }
                false => leaves.passes_unchanged()?,
            }
        }
        Ok(())
    })
}

fn all_kinds_of_errors_are_translated_and_nothing_else() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.balancer) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[plan.there])?;
            let outside = leave(&stage, &plan, &first)?;
            let (router, client) = (router(&plan), plan.client.ip());
            for kind in [TOO_BIG, Kind::Unreachable, Kind::Expired] {
                let said = error(kind, (router, plan.node), &outside, 8)?;
                let inside = error(kind, (router, client), &first.to(plan.there), 8)?;
                stage.ingress_bytes(&said)?.becomes_bytes(&inside)?;
            }
            let echo = error(Kind::Echo, (router, plan.node), &outside, 8)?;
            stage.ingress_bytes(&echo)?.passes_unchanged()?;
            // An error is no traffic of its flow.
            stage.counts(Counter::FlowMade, 1)?;
        }
    }
    Ok(())
}

fn errors_about_strangers_and_for_strangers_are_left_alone() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.balancer) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[plan.there])?;
            let outside = leave(&stage, &plan, &first)?;
            let router = router(&plan);
            let unknown = outside.from(SocketAddr::new(plan.node, 9));
            let about_stranger = error(TOO_BIG, (router, plan.node), &unknown, 8)?;
            // Not to who sent the packet that it quotes.
            let for_stranger = error(TOO_BIG, (router, plan.external.ip()), &outside, 8)?;
            for stranger in [about_stranger, for_stranger] {
                stage.ingress_bytes(&stranger)?.passes_unchanged()?;
                stage.egress_bytes(&stranger)?.passes_unchanged()?;
            }
        }
    }
    Ok(())
}

fn an_error_that_is_cut_off_anywhere_does_no_harm() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.balancer) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[plan.there])?;
            let outside = leave(&stage, &plan, &first)?;
            let said = error(TOO_BIG, (router(&plan), plan.node), &outside, 8)?;
            // With all but the last octet of what is quoted, a port is missing or the checksum.
            let ports = said.len() - 4;
            // A test run wants a whole IP header.
            let shortest = ETHERNET + if plan.node.is_ipv4() { 20 } else { 40 };
            for length in shortest..ports {
                stage.ingress_bytes(&said[..length])?.passes_unchanged()?;
            }
        }
    }
    Ok(())
}
