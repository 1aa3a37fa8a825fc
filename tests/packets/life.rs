//! How flows begin, change and end.

use std::net::SocketAddr;

use anyhow::ensure;
use proxy_common::{Counter, FlowState, Protocol};
use sidestep_tests::{frame::Frame, maps::Policy};

use crate::{
    both_ways::leave,
    stage::{Plan, SNAT, Stage, plans},
    tests,
};

tests![
    a_syn_that_is_repeated_stays_with_its_backend,
    a_syn_on_a_finished_flow_starts_anew,
    a_syn_whose_backend_has_died_gets_another,
    an_established_connection_stays_with_a_backend_that_is_gone,
    datagrams_never_stick_to_the_dead,
    a_datagram_that_met_nobody_is_not_remembered,
    connections_are_counted_once_a_flow,
    the_state_of_a_connection_follows_its_flags,
    a_full_map_refuses_new_flows_and_leaves_the_old_alone,
    snat_ports_that_are_used_up_refuse_new_flows_and_are_counted,
    snat_ports_of_finished_flows_are_used_again,
    an_interface_without_an_address_has_no_snat,
];

/// A TCP connection to a pod of this node, up to the state that these answers bring it to.
fn connect(stage: &Stage, plan: &Plan, rest: &[(&'static str, bool)]) -> anyhow::Result<Frame> {
    let first = Frame::tcp("S", plan.client, plan.node_port);
    stage.ingress(&first)?.becomes(&first.to(plan.here))?;
    stage.egress(&first.to(plan.here))?.passes_unchanged()?;
    for &(flags, is_reply) in rest {
        let inside = first.then(flags).to(plan.here);
        if is_reply {
            let answer = inside.answer(flags);
            stage
                .egress(&answer)?
                .becomes(&answer.from(plan.node_port))?;
        } else {
            stage.ingress(&first.then(flags))?.becomes(&inside)?;
            stage.egress(&inside)?.passes_unchanged()?;
        }
    }
    Ok(first)
}

const HANDSHAKE: [(&str, bool); 2] = [("SA", true), ("A", false)];

/// Replaces the endpoint of a Service by the one at `to`, and its backend dies.
fn replace(
    stage: &mut Stage,
    plan: &Plan,
    protocol: Protocol,
    (service, old): (u32, u32),
    to: SocketAddr,
) -> anyhow::Result<u32> {
    let new = stage.set_endpoints(plan, service, protocol, &[to], Policy::default())?;
    stage.remove_backend(old)?;
    Ok(new[0])
}

fn a_syn_that_is_repeated_stays_with_its_backend() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let endpoints: Vec<_> = (0..16)
            .map(|n| SocketAddr::new(plan.here.ip(), 9000 + n))
            .collect();
        stage.serve(&plan, Protocol::Tcp, &endpoints)?;
        let first = Frame::tcp("S", plan.client, plan.node_port);
        let chosen = stage.ingress(&first)?.destination()?;
        for _ in 0..10 {
            stage.ingress(&first)?.becomes(&first.to(chosen))?;
        }
        stage.counts(Counter::FlowMade, 1)?;
    }
    Ok(())
}

fn a_syn_on_a_finished_flow_starts_anew() -> anyhow::Result<()> {
    let closings: [&[(&str, bool)]; 3] = [
        &[("FA", false), ("FA", true), ("A", false)],
        &[("R", false)],
        &[("RA", true)],
    ];
    for plan in plans() {
        for closing in closings {
            let mut stage = Stage::new()?;
            let (service, ids) = stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
            let first = connect(&stage, &plan, &[&HANDSHAKE, closing].concat())?;
            ensure!(stage.load(ids[0])? == 1);
            let other = SocketAddr::new(plan.here.ip(), 9999);
            let new =
                stage.set_endpoints(&plan, service, Protocol::Tcp, &[other], Policy::default())?;
            // The last words of the old connection still go to the old backend.
            let late = first.then("A");
            stage.ingress(&late)?.becomes(&late.to(plan.here))?;
            stage.ingress(&first)?.becomes(&first.to(other))?;
            ensure!(stage.load(ids[0])? == 0, "the old one counts");
            ensure!(stage.load(new[0])? == 1, "the new one does not");
            ensure!(stage.flows()?.len() == 2, "the old one has keys");
        }
    }
    Ok(())
}

fn a_syn_whose_backend_has_died_gets_another() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let (service, ids) = stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
        let first = connect(&stage, &plan, &[])?;
        let other = SocketAddr::new(plan.here.ip(), 9999);
        replace(&mut stage, &plan, Protocol::Tcp, (service, ids[0]), other)?;
        stage.ingress(&first)?.becomes(&first.to(other))?;
        ensure!(stage.flows()?.len() == 2, "the old one has keys");
    }
    Ok(())
}

fn an_established_connection_stays_with_a_backend_that_is_gone() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let (service, ids) = stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
        let first = connect(&stage, &plan, &HANDSHAKE)?;
        let other = SocketAddr::new(plan.here.ip(), 9999);
        replace(&mut stage, &plan, Protocol::Tcp, (service, ids[0]), other)?;
        for address in [plan.balancer, plan.external] {
            let mut map =
                stage.map::<proxy_common::FrontendKey, proxy_common::FrontendValue>("frontend")?;
            let ip = proxy_common::addr::from_ip(address.ip());
            map.remove(&proxy_common::FrontendKey::new(
                ip,
                address.port(),
                Protocol::Tcp,
            ))?;
        }
        for flags in ["A", "S", "FA"] {
            let next = first.then(flags);
            stage.ingress(&next)?.becomes(&next.to(plan.here))?;
        }
        let answer = first.to(plan.here).answer("A");
        stage
            .egress(&answer)?
            .becomes(&answer.from(plan.node_port))?;
    }
    Ok(())
}

fn datagrams_never_stick_to_the_dead() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let (service, ids) = stage.serve(&plan, Protocol::Udp, &[plan.there])?;
        let first = Frame::udp(plan.client, plan.node_port);
        leave(&stage, &plan, &first)?;
        let flow = (service, ids[0]);
        let new = replace(&mut stage, &plan, Protocol::Udp, flow, plan.here)?;
        let inside = first.to(plan.here);
        stage.ingress(&first)?.becomes(&inside)?;
        stage.egress(&inside)?.passes_unchanged()?;
        let answer = inside.answer("");
        stage
            .egress(&answer)?
            .becomes(&answer.from(plan.node_port))?;
        ensure!(stage.flows()?.len() == 2, "the old one has keys");
        ensure!(stage.load(new)? == 1);
    }
    Ok(())
}

fn a_datagram_that_met_nobody_is_not_remembered() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let (service, _) = stage.serve(&plan, Protocol::Udp, &[])?;
        let first = Frame::udp(plan.client, plan.balancer);
        stage.ingress(&first)?;
        stage.counts(Counter::PacketRefused, 1)?;
        let policy = Policy::default();
        stage.set_endpoints(&plan, service, Protocol::Udp, &[plan.here], policy)?;
        stage.ingress(&first)?.becomes(&first.to(plan.here))?;
    }
    Ok(())
}

fn connections_are_counted_once_a_flow() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let (_, ids) = stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
        connect(&stage, &plan, &HANDSHAKE)?;
        ensure!(stage.load(ids[0])? == 1);
        for port in 1..11 {
            let client = SocketAddr::new(plan.client.ip(), port);
            stage.ingress(&Frame::tcp("S", client, plan.balancer))?;
        }
        ensure!(stage.load(ids[0])? == 11);
    }
    Ok(())
}

fn the_state_of_a_connection_follows_its_flags() -> anyhow::Result<()> {
    let steps: [(&[(&str, bool)], FlowState); 7] = [
        (&[], FlowState::Open),
        (&[("SA", true)], FlowState::Open),
        (&HANDSHAKE, FlowState::Established),
        (
            &[("SA", true), ("A", false), ("FA", true)],
            FlowState::HalfClosed,
        ),
        (
            &[("SA", true), ("A", false), ("FA", false)],
            FlowState::HalfClosed,
        ),
        (
            &[("SA", true), ("A", false), ("FA", false), ("FA", true)],
            FlowState::Closed,
        ),
        (&[("RA", true)], FlowState::Reset),
    ];
    for plan in plans() {
        for (rest, expected) in steps {
            let mut stage = Stage::new()?;
            stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
            connect(&stage, &plan, rest)?;
            let flows = stage.flows()?;
            let mut record = flows[0].1;
            flows.iter().for_each(|(_, other)| record.merge(other));
            ensure!(record.state() == expected, "{rest:?}: {record:?}");
        }
    }
    Ok(())
}

fn a_full_map_refuses_new_flows_and_leaves_the_old_alone() -> anyhow::Result<()> {
    const ENTRIES: u32 = 64;
    for plan in plans() {
        let mut stage = Stage::with_flows(ENTRIES)?;
        let (_, ids) = stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
        let first = |port| {
            let client = SocketAddr::new(plan.client.ip(), port);
            Frame::tcp("S", client, plan.node_port)
        };
        let mut made = Vec::new();
        let mut refused = 0;
        for port in 1000..1100 {
            if stage.ingress(&first(port))?.is_dropped().is_ok() {
                refused += 1;
            } else {
                made.push(port);
            }
        }
        ensure!(refused > 0 && !made.is_empty(), "{refused} were refused");
        stage.counts(Counter::FlowFull, refused)?;
        ensure!(stage.load(ids[0])? == i32::try_from(made.len())?);
        let flows = stage.flows()?.len();
        ensure!(flows == 2 * made.len(), "{flows} keys of {}", made.len());
        for port in made {
            let next = first(port).then("A");
            let inside = next.to(plan.here);
            stage.ingress(&next)?.becomes(&inside)?;
            let answer = inside.answer("SA");
            stage
                .egress(&answer)?
                .becomes(&answer.from(plan.node_port))?;
        }
    }
    Ok(())
}

/// Sends from one port more than SNAT has; returns how many found none.
fn use_up(stage: &Stage, plan: &Plan, from: u16) -> anyhow::Result<u32> {
    let mut refused = 0;
    for port in from..from + 40 {
        let client = SocketAddr::new(plan.client.ip(), port);
        let first = Frame::tcp("S", client, plan.node_port);
        let inside = first.to(plan.there);
        stage.ingress(&first)?.becomes(&inside)?;
        if stage.egress(&inside)?.is_dropped().is_ok() {
            refused += 1;
        }
    }
    Ok(refused)
}

fn snat_ports_that_are_used_up_refuse_new_flows_and_are_counted() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Tcp, &[plan.there])?;
        let refused = use_up(&stage, &plan, 1000)?;
        ensure!(refused >= 40 - SNAT.len() as u32, "only {refused} refused");
        stage.counts(Counter::SnatExhausted, refused.into())?;
        ensure!(stage.counter(Counter::SnatRetried)? >= u64::from(refused));
    }
    Ok(())
}

fn snat_ports_of_finished_flows_are_used_again() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let (_, ids) = stage.serve(&plan, Protocol::Tcp, &[plan.there])?;
        // Ten times as many connections as there are ports, each reset by the client.
        let count = 10 * SNAT.len() as u16;
        for port in 1000..1000 + count {
            let client = SocketAddr::new(plan.client.ip(), port);
            let first = Frame::tcp("S", client, plan.node_port);
            let outside = leave(&stage, &plan, &first)?;
            let answer = outside.answer("SA");
            stage.ingress(&answer)?.becomes(&answer.to(client))?;
            let end = first.then("R");
            let inside = end.to(plan.there);
            stage.ingress(&end)?.becomes(&inside)?;
            stage
                .egress(&inside)?
                .becomes(&end.to(plan.there).from(outside.from))?;
        }
        stage.counts(Counter::SnatExhausted, 0)?;
        let reused = stage.counter(Counter::SnatReused)?;
        ensure!(reused >= u64::from(count) - SNAT.len() as u64, "{reused}");
        let now = stage.load(ids[0])?;
        ensure!(now <= SNAT.len() as i32, "{now}");
        ensure!(stage.flows()?.len() == 3 * now as usize, "keys were left");
    }
    Ok(())
}

fn an_interface_without_an_address_has_no_snat() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Tcp, &[plan.there])?;
        let none = ["::".parse()?, "::".parse()?];
        stage.set_masq(1, none)?;
        let first = Frame::tcp("S", plan.client, plan.node_port);
        stage.ingress(&first)?.becomes(&first.to(plan.there))?;
        stage.egress(&first.to(plan.there))?.is_dropped()?;
        stage.counts(Counter::SnatNoAddress, 1)?;
        // It comes right when there is one.
        stage.set_masq(1, plans().map(|plan| plan.node))?;
        leave(&stage, &plan, &first)?;
    }
    Ok(())
}
