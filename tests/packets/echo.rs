//! Ping.

use std::net::IpAddr;

use anyhow::bail;
use etherparse::{IcmpEchoHeader, Icmpv4Type, Icmpv6Type, PacketBuilder};
use proxy_common::{Counter, Protocol};

use sidestep_tests::frame::ETHERNET;

use crate::{
    stage::{Plan, Stage, plans},
    tests,
};

tests![
    a_cluster_ip_answers_a_ping,
    other_addresses_and_other_messages_are_left_alone,
    who_cannot_be_answered_is_not,
    a_ping_that_is_cut_off_is_left_alone,
];

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const ID: IcmpEchoHeader = IcmpEchoHeader { id: 7, seq: 3 };

/// A question.
fn question(from: IpAddr, to: IpAddr, hops: u8, payload: usize) -> anyhow::Result<Vec<u8>> {
    message(([0; 6], MAC), (from, to), hops, payload, true)
}

/// The answer to it.
fn answer(from: IpAddr, to: IpAddr, payload: usize) -> anyhow::Result<Vec<u8>> {
    message((MAC, [0; 6]), (from, to), 64, payload, false)
}

fn message(
    (there, here): ([u8; 6], [u8; 6]),
    ends: (IpAddr, IpAddr),
    hops: u8,
    payload: usize,
    is_question: bool,
) -> anyhow::Result<Vec<u8>> {
    let builder = PacketBuilder::ethernet2(here, there);
    let payload = vec![0x5a; payload];
    let mut bytes = Vec::new();
    match ends {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let kind = match is_question {
                true => Icmpv4Type::EchoRequest(ID),
                false => Icmpv4Type::EchoReply(ID),
            };
            let builder = builder.ipv4(from.octets(), to.octets(), hops);
            builder.icmpv4(kind).write(&mut bytes, &payload)?;
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let kind = match is_question {
                true => Icmpv6Type::EchoRequest(ID),
                false => Icmpv6Type::EchoReply(ID),
            };
            let builder = builder.ipv6(from.octets(), to.octets(), hops);
            builder.icmpv6(kind).write(&mut bytes, &payload)?;
        }
        _ => bail!("two families"),
    }
    Ok(bytes)
}

fn served(plan: &Plan) -> anyhow::Result<Stage> {
    let mut stage = Stage::new()?;
    stage.serve(plan, Protocol::Tcp, &[plan.here])?;
    Ok(stage)
}

fn a_cluster_ip_answers_a_ping() -> anyhow::Result<()> {
    for plan in plans() {
        let stage = served(&plan)?;
        let (client, vip) = (plan.client.ip(), plan.cluster_ip.ip());
        for (hops, payload) in [(1, 0), (63, 1), (64, 56), (255, 1_400)] {
            stage
                .ingress_bytes(&question(client, vip, hops, payload)?)?
                .goes_back_as(&answer(vip, client, payload)?)?;
        }
        stage.counts(Counter::PacketEchoed, 4)?;
    }
    Ok(())
}

fn other_addresses_and_other_messages_are_left_alone() -> anyhow::Result<()> {
    for plan in plans() {
        let stage = served(&plan)?;
        let (client, vip) = (plan.client.ip(), plan.cluster_ip.ip());
        for other in [plan.node, plan.here.ip(), plan.external.ip()] {
            let asked = question(client, other, 64, 56)?;
            stage.ingress_bytes(&asked)?.passes_unchanged()?;
        }
        let said = answer(client, vip, 56)?;
        stage.ingress_bytes(&said)?.passes_unchanged()?;
        // What leaves is nobody's question to us.
        let asked = question(client, vip, 64, 56)?;
        stage.egress_bytes(&asked)?.passes_unchanged()?;
        stage.counts(Counter::PacketEchoed, 0)?;
    }
    Ok(())
}

fn who_cannot_be_answered_is_not() -> anyhow::Result<()> {
    let sources: [&[&str]; 2] = [
        &["0.0.0.0", "127.0.0.1", "224.0.0.1"],
        &["::", "::1", "ff02::1"],
    ];
    for (plan, sources) in plans().into_iter().zip(sources) {
        let stage = served(&plan)?;
        for source in sources {
            let asked = question(source.parse()?, plan.cluster_ip.ip(), 64, 56)?;
            stage.ingress_bytes(&asked)?.passes_unchanged()?;
        }
    }
    Ok(())
}

fn a_ping_that_is_cut_off_is_left_alone() -> anyhow::Result<()> {
    for plan in plans() {
        let stage = served(&plan)?;
        let asked = question(plan.client.ip(), plan.cluster_ip.ip(), 64, 0)?;
        // A test run wants a whole IP header.
        let shortest = ETHERNET + if plan.node.is_ipv4() { 20 } else { 40 };
        for length in shortest..asked.len() {
            stage.ingress_bytes(&asked[..length])?.passes_unchanged()?;
        }
    }
    Ok(())
}
