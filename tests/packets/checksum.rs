//! Checksums, however they are computed, and headers of every length.

use anyhow::ensure;
use proxy_common::Protocol;

use sidestep_tests::frame::Frame;

use crate::{
    both_ways::{first_packets, leave},
    stage::{Plan, Stage, plans},
    tests,
};

tests![
    checksums_are_right_for_payloads_of_every_length,
    checksums_are_right_whatever_the_ports_are,
    a_sum_over_the_whole_packet_stays_right,
    a_udp_checksum_of_zero_stays_zero,
    a_udp_checksum_that_becomes_zero_is_written_as_its_other_form,
    a_checksum_that_was_wrong_stays_wrong,
    options_and_extension_headers_are_walked_over,
];

/// A conversation through both hooks and back, to a pod here and to one elsewhere.
fn converse(
    stage: &mut Stage,
    plan: &Plan,
    protocol: Protocol,
    first: &Frame,
) -> anyhow::Result<()> {
    let to = first.to;
    stage.serve(plan, protocol, &[plan.here])?;
    let inside = first.to(plan.here);
    stage.ingress(first)?.becomes(&inside)?;
    stage.egress(&inside)?.passes_unchanged()?;
    let answer = inside.answer("SA");
    stage.egress(&answer)?.becomes(&answer.from(to))?;
    stage.serve(plan, protocol, &[plan.there])?;
    let first = first.from(std::net::SocketAddr::new(
        plan.client.ip(),
        plan.client.port() ^ 0x1001,
    ));
    let outside = leave(stage, plan, &first)?;
    let answer = outside.answer("SA");
    let inside = answer.to(first.from);
    stage.ingress(&answer)?.becomes(&inside)?;
    stage.egress(&inside)?.becomes(&inside.from(to))
}

fn checksums_are_right_for_payloads_of_every_length() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        for length in (0..40).chain([1399, 1400]) {
            let payload: Vec<u8> = (0..length).map(|n| (n * 37 % 251) as u8).collect();
            for (protocol, first) in first_packets(&plan, plan.node_port) {
                stage.clear_flows()?;
                converse(&mut stage, &plan, protocol, &first.with_payload(&payload))?;
            }
        }
    }
    Ok(())
}

fn checksums_are_right_whatever_the_ports_are() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
        stage.serve(&plan, Protocol::Udp, &[plan.here])?;
        for port in (1..=u16::MAX).step_by(97).chain([u16::MAX]) {
            let client = std::net::SocketAddr::new(plan.client.ip(), port);
            for (_, first) in first_packets(&plan, plan.node_port) {
                let first = first.from(client);
                let inside = first.to(plan.here);
                stage.ingress(&first)?.becomes(&inside)?;
                let answer = inside.answer("SA");
                stage
                    .egress(&answer)?
                    .becomes(&answer.from(plan.node_port))?;
            }
        }
    }
    Ok(())
}

fn a_sum_over_the_whole_packet_stays_right() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.node_port) {
            let mut stage = Stage::new()?.with_complete_sums();
            converse(&mut stage, &plan, protocol, &first)?;
        }
    }
    Ok(())
}

fn a_udp_checksum_of_zero_stays_zero() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let first = Frame::udp(plan.client, plan.node_port).without_checksum();
        converse(&mut stage, &plan, Protocol::Udp, &first)?;
    }
    Ok(())
}

fn a_udp_checksum_that_becomes_zero_is_written_as_its_other_form() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Udp, &[plan.here])?;
        // The payload that makes the sum of what the packet becomes come out as zero: the checksum
        // with a payload of zero is what is still missing.
        let inside = Frame::udp(plan.client, plan.here).with_payload(&[0, 0]);
        let bytes = inside.bytes()?;
        let at = bytes.len() - 4;
        let payload = [bytes[at], bytes[at + 1]];
        let inside = inside.with_payload(&payload);
        let bytes = inside.bytes()?;
        ensure!(bytes[at..at + 2] == [0xff, 0xff], "the payload is wrong");
        stage
            .ingress(&inside.to(plan.node_port))?
            .becomes(&inside)?;
    }
    Ok(())
}

fn a_checksum_that_was_wrong_stays_wrong() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
        let first = Frame::tcp("S", plan.client, plan.node_port);
        let mut bytes = first.bytes()?;
        let last = bytes.len() - 1;
        bytes[last] ^= 0x10;
        let mut expected = first.to(plan.here).bytes()?;
        expected[last] ^= 0x10;
        stage.ingress_bytes(&bytes)?.becomes_bytes(&expected)?;
    }
    Ok(())
}

fn options_and_extension_headers_are_walked_over() -> anyhow::Result<()> {
    for plan in plans() {
        let lengths: &[usize] = if plan.node.is_ipv6() {
            &[8, 16, 64]
        } else {
            &[4, 8, 40]
        };
        for &length in lengths {
            for (protocol, first) in first_packets(&plan, plan.node_port) {
                let mut stage = Stage::new()?;
                converse(&mut stage, &plan, protocol, &first.with_options(length))?;
            }
        }
    }
    Ok(())
}
