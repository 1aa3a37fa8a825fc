//! What is no packet of ours, or none at all, goes on as it came.

use anyhow::{Context as _, ensure};
use proxy_common::{Counter, Protocol};

use sidestep_tests::frame::{ETHERNET, Frame};

use crate::{
    both_ways::first_packets,
    stage::{Stage, plans},
    tests,
};

tests![
    a_packet_that_is_cut_off_anywhere_is_passed_on,
    a_header_that_contradicts_itself_is_passed_on,
    other_protocols_are_passed_on,
    a_frame_for_another_host_is_passed_on,
    random_octets_do_no_harm,
];

/// A stage on which the packets of a plan would be translated.
fn stage() -> anyhow::Result<Stage> {
    let mut stage = Stage::new()?;
    for plan in plans() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            stage.serve(&plan, protocol, &[plan.here])?;
        }
    }
    Ok(stage)
}

/// The kernel makes no buffer of less than an IP header (net/bpf/test_run.c,
/// `bpf_prog_test_run_skb`).
fn shortest(frame: &Frame) -> usize {
    ETHERNET + if frame.from.is_ipv4() { 20 } else { 40 }
}

/// Octets that go on as they came, at both hooks, and leave nothing behind.
fn are_left_alone(stage: &mut Stage, bytes: &[u8]) -> anyhow::Result<()> {
    let what = || format!("{bytes:02x?}");
    let outcome = stage.ingress_bytes(bytes)?;
    outcome.passes_unchanged().with_context(what)?;
    let outcome = stage.egress_bytes(bytes)?;
    outcome.passes_unchanged().with_context(what)?;
    ensure!(stage.flows()?.is_empty(), "a flow of {bytes:02x?}");
    Ok(())
}

fn a_packet_that_is_cut_off_anywhere_is_passed_on() -> anyhow::Result<()> {
    let mut stage = stage()?;
    for plan in plans() {
        for (_, first) in first_packets(&plan, plan.node_port) {
            for first in [first.clone(), first.with_options(8)] {
                let bytes = first.bytes()?;
                for length in shortest(&first)..bytes.len() {
                    are_left_alone(&mut stage, &bytes[..length])?;
                }
            }
        }
    }
    Ok(())
}

fn a_header_that_contradicts_itself_is_passed_on() -> anyhow::Result<()> {
    let mut stage = stage()?;
    let [v4, v6] = plans();
    let tcp = |plan: &crate::stage::Plan| Frame::tcp("S", plan.client, plan.node_port).bytes();
    // Offset from the IP header, and octets there.
    let v4_faults: [(usize, &[u8]); 9] = [
        (0, &[0x65]),
        (0, &[0x44]),
        (0, &[0x40]),
        (0, &[0x4f]),
        (2, &[0, 19]),
        (2, &[0, 39]),
        (2, &[0xff, 0xff]),
        // Length of the TCP header.
        (32, &[0x40]),
        (32, &[0x00]),
    ];
    for (offset, octets) in v4_faults {
        let mut bytes = tcp(&v4)?;
        let at = ETHERNET + offset;
        bytes[at..at + octets.len()].copy_from_slice(octets);
        // Options up to behind the packet's end are no options.
        if offset == 0 && octets == [0x4f] {
            bytes.truncate(ETHERNET + 60);
        }
        are_left_alone(&mut stage, &bytes)?;
    }
    let v6_faults: [(usize, &[u8]); 5] = [
        (0, &[0x40]),
        (4, &[0, 19]),
        (4, &[0xff, 0xff]),
        (52, &[0x40]),
        // Hop-by-hop options that the TCP header is taken for, and longer than the packet.
        (6, &[0]),
    ];
    for (offset, octets) in v6_faults {
        let mut bytes = tcp(&v6)?;
        let at = ETHERNET + offset;
        bytes[at..at + octets.len()].copy_from_slice(octets);
        are_left_alone(&mut stage, &bytes)?;
    }
    // A routing header.
    let mut bytes = Frame::tcp("S", v6.client, v6.node_port)
        .with_options(8)
        .bytes()?;
    bytes[ETHERNET + 6] = 43;
    are_left_alone(&mut stage, &bytes)?;
    Ok(())
}

fn other_protocols_are_passed_on() -> anyhow::Result<()> {
    let mut stage = stage()?;
    for (plan, at) in plans().iter().zip([9, 6]) {
        // ICMP, IGMP, IPIP, GRE, ESP, AH, ICMPv6, no next header, SCTP.
        for protocol in [1, 2, 4, 47, 50, 51, 58, 59, 132] {
            let mut bytes = Frame::udp(plan.client, plan.node_port).bytes()?;
            bytes[ETHERNET + at] = protocol;
            are_left_alone(&mut stage, &bytes)?;
        }
        // ARP, MPLS, PPPoE, a VLAN tag inside the packet.
        for ether_type in [0x0806u16, 0x8847, 0x8864, 0x9100] {
            let mut bytes = Frame::udp(plan.client, plan.node_port).bytes()?;
            bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
            are_left_alone(&mut stage, &bytes)?;
        }
    }
    Ok(())
}

fn a_frame_for_another_host_is_passed_on() -> anyhow::Result<()> {
    let mut stage = stage()?;
    for plan in plans() {
        for (_, first) in first_packets(&plan, plan.node_port) {
            for destination in [[2, 0, 0, 0, 0, 9], [1, 0, 0x5e, 0, 0, 1], [0xff; 6]] {
                let first = Frame {
                    destination,
                    ..first.clone()
                };
                are_left_alone(&mut stage, &first.bytes()?)?;
            }
        }
    }
    Ok(())
}

fn random_octets_do_no_harm() -> anyhow::Result<()> {
    let stage = stage()?;
    let mut dice = sidestep_tests::dice::Dice::new(4);
    for plan in plans() {
        for (_, first) in first_packets(&plan, plan.node_port) {
            let bytes = first.with_options(16).bytes()?;
            for _ in 0..5_000 {
                let mut bytes = bytes.clone();
                for _ in 0..=dice.below(6) {
                    let at = ETHERNET + dice.below(bytes.len() - ETHERNET);
                    bytes[at] = u8::try_from(dice.below(256))?;
                }
                let shortest = shortest(&first);
                let length = shortest + dice.below(bytes.len() - shortest + 1);
                stage.ingress_bytes(&bytes[..length])?;
                stage.egress_bytes(&bytes[..length])?;
            }
        }
    }
    stage.counts(Counter::PacketBroken, 0)
}
