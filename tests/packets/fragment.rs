//! Fragments, in order and out of it.
//!
//! A packet that is translated and then taken apart is the same as one that is taken apart and then
//! translated: that is what all of this is held against.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd as _, OwnedFd},
    process::Command,
};

use anyhow::{Context as _, ensure};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use proxy_common::{Counter, FragmentKey, FragmentValue, Protocol};

use sidestep_tests::frame::{ETHERNET, Frame};

use crate::{
    stage::{Plan, Stage, plans},
    tests,
};

tests![
    fragments_go_where_the_first_one_went,
    fragments_of_an_answer_come_from_the_address_that_the_client_asked,
    a_fragment_that_comes_before_the_first_is_held_until_that_has_come,
    fragments_of_a_stranger_are_left_alone_whatever_their_order,
    fragments_of_a_refused_packet_are_dropped,
    a_fragment_without_a_first_is_dropped_and_an_old_record_means_nothing,
    more_fragments_than_can_be_held_are_dropped_and_counted,
    a_fragment_that_would_overwrite_a_tcp_header_is_dropped,
    an_atomic_fragment_is_a_packet,
    a_fragment_that_is_cut_off_anywhere_does_no_harm,
];

/// Octets of an IP packet at most: Ethernet's.
const MTU: usize = 1500;

/// A datagram to each address of a Service with this endpoint.
fn datagrams(plan: &Plan, length: usize) -> Vec<Frame> {
    let payload: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
    [
        plan.node_port,
        plan.cluster_ip,
        plan.balancer,
        plan.external,
    ]
    .map(|to| Frame::udp(plan.client, to).with_payload(&payload))
    .to_vec()
}

/// A stage with one endpoint for UDP.
fn stage(plan: &Plan, endpoint: SocketAddr) -> anyhow::Result<Stage> {
    let mut stage = Stage::new()?;
    stage.serve(plan, Protocol::Udp, &[endpoint])?;
    Ok(stage)
}

/// Sends a datagram in fragments through both hooks to a pod elsewhere; the port that SNAT gave it.
fn leaves(stage: &Stage, plan: &Plan, frame: &Frame) -> anyhow::Result<SocketAddr> {
    let arrived = frame.to(plan.there);
    let mut snat = None;
    let pairs = frame
        .fragments(MTU)?
        .into_iter()
        .zip(arrived.fragments(MTU)?);
    for (i, (fragment, expected)) in pairs.enumerate() {
        stage.ingress_bytes(&fragment)?.becomes_bytes(&expected)?;
        let left = stage.egress_bytes(&expected)?;
        if i == 0 {
            snat = Some(SocketAddr::new(plan.node, left.first_ports()?.0));
        }
        let snat = snat.context("no first fragment")?;
        let expected = &arrived.from(snat).fragments(MTU)?[i];
        left.becomes_bytes(expected)?;
    }
    snat.context("no fragments")
}

fn fragments_go_where_the_first_one_went() -> anyhow::Result<()> {
    for plan in plans() {
        // Elsewhere, and on this node, where the client stays who it is.
        let (mut far, mut near) = (stage(&plan, plan.there)?, stage(&plan, plan.here)?);
        for length in [1_473, 4_096, 60_000] {
            for frame in datagrams(&plan, length) {
                // One port and two addresses of a Service would be two ports between the hooks.
                far.clear_flows()?;
                near.clear_flows()?;
                leaves(&far, &plan, &frame)?;
                let stage = &near;
                let arrived = frame.to(plan.here).fragments(MTU)?;
                for (fragment, expected) in frame.fragments(MTU)?.iter().zip(&arrived) {
                    stage.ingress_bytes(fragment)?.becomes_bytes(expected)?;
                    stage.egress_bytes(expected)?.passes_unchanged()?;
                }
            }
        }
    }
    Ok(())
}

fn fragments_of_an_answer_come_from_the_address_that_the_client_asked() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = stage(&plan, plan.there)?;
        for frame in datagrams(&plan, 4_096) {
            stage.clear_flows()?;
            let snat = leaves(&stage, &plan, &frame)?;
            let answer = frame.answer("");
            let (answered, arrived) = (
                answer.from(plan.there).to(snat).fragments(MTU)?,
                answer.from(plan.there).fragments(MTU)?,
            );
            for (i, left) in answer.fragments(MTU)?.iter().enumerate() {
                stage
                    .ingress_bytes(&answered[i])?
                    .becomes_bytes(&arrived[i])?;
                stage.egress_bytes(&arrived[i])?.becomes_bytes(left)?;
            }
        }
    }
    Ok(())
}

fn a_fragment_that_comes_before_the_first_is_held_until_that_has_come() -> anyhow::Result<()> {
    let arrivals = Arrivals::new()?;
    for plan in plans() {
        let (mut stage, mut held) = (stage(&plan, plan.here)?, 0);
        for (id, length) in [(1, 4_096), (2, 60_000)] {
            for frame in datagrams(&plan, length) {
                stage.clear_flows()?;
                let frame = frame.with_id(id);
                let sent = frame.fragments(MTU)?;
                let expected = frame.to(plan.here).fragments(MTU)?;
                let (first, later) = sent.split_first().context("no fragments")?;
                // The last is not late, but after the first.
                let (last, early) = later.split_last().context("one fragment")?;
                for fragment in early.iter().rev() {
                    stage.ingress_bytes(fragment)?.is_dropped()?;
                }
                held += early.len() as u64;
                stage.counts(Counter::FragmentHeld, held)?;
                ensure!(arrivals.next()?.is_none(), "held, and yet here");
                stage.ingress_bytes(first)?.becomes_bytes(&expected[0])?;
                stage
                    .ingress_bytes(last)?
                    .becomes_bytes(&expected[sent.len() - 1])?;
                for fragment in early.iter().rev() {
                    let again = arrivals.next()?.context("a fragment is lost")?;
                    ensure!(
                        again[ETHERNET..] == fragment[ETHERNET..],
                        "{again:02x?}\nwas {fragment:02x?}"
                    );
                }
                ensure!(arrivals.next()?.is_none(), "more than was held");
                for (fragment, expected) in sent.iter().zip(&expected) {
                    stage.ingress_bytes(fragment)?.becomes_bytes(expected)?;
                }
                ensure!(arrivals.next()?.is_none(), "released twice");
                stage.counts(Counter::FragmentLost, 0)?;
            }
        }
    }
    Ok(())
}

fn fragments_of_a_stranger_are_left_alone_whatever_their_order() -> anyhow::Result<()> {
    let arrivals = Arrivals::new()?;
    for plan in plans() {
        let stage = stage(&plan, plan.there)?;
        let payload = vec![7; 4_000];
        // To the node itself, at a port that no Service has: the kernel's.
        let to_node = SocketAddr::new(plan.node, 53);
        let frame = Frame::udp(plan.client, to_node).with_payload(&payload);
        let fragments = frame.fragments(MTU)?;
        for fragment in &fragments {
            stage
                .ingress_bytes(fragment)?
                .passes_unchanged()
                .context("in order")?;
        }
        let frame = frame.with_id(0x777);
        let fragments = frame.fragments(MTU)?;
        stage.ingress_bytes(&fragments[1])?.is_dropped()?;
        stage.ingress_bytes(&fragments[0])?.passes_unchanged()?;
        let again = arrivals.next()?.context("lost")?;
        stage.ingress_bytes(&again)?.passes_unchanged()?;
        stage.ingress_bytes(&fragments[2])?.passes_unchanged()?;
        // To somebody else: never held.
        for to in [plan.client, plan.here] {
            let frame = Frame::udp(plan.there, to).with_payload(&payload);
            for fragment in frame.fragments(MTU)?.iter().rev() {
                stage.ingress_bytes(fragment)?.passes_unchanged()?;
                stage.egress_bytes(fragment)?.passes_unchanged()?;
            }
        }
    }
    Ok(())
}

fn fragments_of_a_refused_packet_are_dropped() -> anyhow::Result<()> {
    let arrivals = Arrivals::new()?;
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Udp, &[])?;
        let [_, frame, ..] = &datagrams(&plan, 4_000)[..] else {
            anyhow::bail!("no addresses");
        };
        let fragments = frame.fragments(MTU)?;
        stage.ingress_bytes(&fragments[1])?.is_dropped()?;
        let refused = stage.ingress_bytes(&fragments[0])?;
        ensure!(refused.is_sent_back(), "no answer");
        stage.ingress_bytes(&fragments[2])?.is_dropped()?;
        ensure!(
            arrivals.next()?.is_none(),
            "what was held goes with the first"
        );
    }
    Ok(())
}

fn a_fragment_without_a_first_is_dropped_and_an_old_record_means_nothing() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = stage(&plan, plan.here)?;
        let [frame, ..] = &datagrams(&plan, 4_000)[..] else {
            anyhow::bail!("no addresses");
        };
        let fragments = frame.fragments(MTU)?;
        stage.ingress_bytes(&fragments[1])?.is_dropped()?;
        stage.ingress_bytes(&fragments[0])?;
        // The record grows old: the same number is another packet's.
        let mut map = stage.map::<FragmentKey, FragmentValue>("fragment")?;
        for entry in map.iter().collect::<Result<Vec<_>, _>>()? {
            let (key, value) = entry;
            let time = value.time.saturating_sub(FragmentValue::LIFETIME);
            map.insert(key, FragmentValue { time, ..value }, 0)?;
        }
        stage.ingress_bytes(&fragments[1])?.is_dropped()?;
        stage.counts(Counter::FragmentHeld, 2)?;
    }
    Ok(())
}

fn more_fragments_than_can_be_held_are_dropped_and_counted() -> anyhow::Result<()> {
    const MOST: u64 = 64;
    for plan in plans() {
        let stage = stage(&plan, plan.here)?;
        let [frame, ..] = &datagrams(&plan, 60_000)[..] else {
            anyhow::bail!("no addresses");
        };
        for fragment in frame.fragments(576)?.iter().skip(1).take(80) {
            stage.ingress_bytes(fragment)?.is_dropped()?;
        }
        stage.counts(Counter::FragmentHeld, MOST)?;
        stage.counts(Counter::FragmentLost, 80 - MOST)?;
    }
    Ok(())
}

fn a_fragment_that_would_overwrite_a_tcp_header_is_dropped() -> anyhow::Result<()> {
    let [plan, _] = plans();
    let mut stage = Stage::new()?;
    stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
    let frame = Frame::tcp("S", plan.client, plan.cluster_ip).with_payload(&[7; 4_000]);
    let fragments = frame.fragments(MTU)?;
    stage.ingress_bytes(&fragments[0])?;
    for units in [1, 2] {
        let mut bytes = fragments[1].clone();
        bytes[ETHERNET + 6..ETHERNET + 8].copy_from_slice(&(0x2000_u16 | units).to_be_bytes());
        stage.ingress_bytes(&bytes)?.is_dropped()?;
    }
    stage.counts(Counter::PacketBroken, 2)
}

fn an_atomic_fragment_is_a_packet() -> anyhow::Result<()> {
    // RFC 6946: a fragment header, and nothing more to come.
    let [_, plan] = plans();
    let stage = stage(&plan, plan.here)?;
    let frame = Frame::udp(plan.client, plan.cluster_ip);
    let atomic = |frame: &Frame| anyhow::Ok(frame.fragments(60_000)?.remove(0));
    stage
        .ingress_bytes(&atomic(&frame)?)?
        .becomes_bytes(&atomic(&frame.to(plan.here))?)?;
    let mut map = stage;
    let map = map.map::<FragmentKey, FragmentValue>("fragment")?;
    ensure!(map.iter().next().is_none(), "nothing else will come");
    Ok(())
}

fn a_fragment_that_is_cut_off_anywhere_does_no_harm() -> anyhow::Result<()> {
    for plan in plans() {
        let stage = stage(&plan, plan.there)?;
        let [frame, ..] = &datagrams(&plan, 4_000)[..] else {
            anyhow::bail!("no addresses");
        };
        for fragment in frame.fragments(MTU)? {
            for length in ETHERNET..ETHERNET + 60 {
                stage.ingress_bytes(&fragment[..length]).ok();
                stage.egress_bytes(&fragment[..length]).ok();
            }
        }
        leaves(&stage, &plan, frame)?;
        stage.counts(Counter::PacketBroken, 0)?;
    }
    Ok(())
}

/// What arrives at `lo`, where test runs play.
struct Arrivals(OwnedFd);

impl Arrivals {
    fn new() -> anyhow::Result<Self> {
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()?;
        ensure!(up.success(), "set lo up");
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_NONBLOCK,
            SockProtocol::EthAll,
        )
        .context("make a packet socket")?;
        setsockopt(&socket, sockopt::RcvBuf, &(4 << 20))?;
        Ok(Self(socket))
    }

    /// The next frame of IP that has a UDP datagram, or a part of one.
    fn next(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; 65_600];
        loop {
            match recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(length) if is_part(&bytes[..length]) => {
                    bytes.truncate(length);
                    return Ok(Some(bytes));
                }
                Ok(_) => {}
                Err(nix::Error::EAGAIN) => return Ok(None),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
}

/// The kernel has to say something about what it gets here as well, and is not meant.
fn is_part(frame: &[u8]) -> bool {
    match frame.get(ETHERNET) {
        Some(0x45) => frame.get(ETHERNET + 9) == Some(&17),
        Some(0x60..=0x6f) => frame.get(ETHERNET + 6) == Some(&44),
        _ => false,
    }
}
