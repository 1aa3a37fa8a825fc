//! A conversation from its first packet to the answer, at both hooks.

use std::net::SocketAddr;

use anyhow::ensure;
use proxy_common::{Counter, FlowStage, Protocol};

use sidestep_tests::frame::Frame;

use crate::{
    stage::{Plan, SNAT, Stage, plans},
    tests,
};

tests![
    a_pod_of_this_node_sees_the_client_and_the_client_sees_what_it_asked_for,
    a_pod_of_another_node_sees_this_node_and_the_client_sees_what_it_asked_for,
    a_packet_that_meets_a_second_hook_is_left_as_it_is,
    a_flow_keeps_its_backend_and_its_snat_port,
    two_clients_with_one_port_get_two_snat_ports,
    a_server_in_the_nodes_own_network_answers_as_the_node_port,
    a_pod_that_calls_itself_sees_the_node,
    a_pod_whose_source_port_is_its_own_service_port_can_call_itself,
    one_client_port_to_two_addresses_of_a_service_is_two_flows,
    packets_of_nobody_are_left_alone,
    a_device_without_ethernet_headers_is_served_the_same,
];

/// The first packet and the answer of both protocols to an address.
pub(crate) fn first_packets(plan: &Plan, to: SocketAddr) -> [(Protocol, Frame); 2] {
    [
        (Protocol::Tcp, Frame::tcp("S", plan.client, to)),
        (Protocol::Udp, Frame::udp(plan.client, to)),
    ]
}

/// Every address of a Service.
fn addresses(plan: &Plan) -> [SocketAddr; 4] {
    [
        plan.node_port,
        plan.cluster_ip,
        plan.balancer,
        plan.external,
    ]
}

/// Does it for both families, both protocols and every address.
fn everywhere(
    show: impl Fn(Stage, &Plan, Protocol, &Frame, SocketAddr) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for plan in plans() {
        for to in addresses(&plan) {
            for (protocol, first) in first_packets(&plan, to) {
                show(Stage::new()?, &plan, protocol, &first, to)?;
            }
        }
    }
    Ok(())
}

/// Sends a first packet on its way to a pod elsewhere; returns it as it left.
pub(crate) fn leave(stage: &Stage, plan: &Plan, first: &Frame) -> anyhow::Result<Frame> {
    let inside = first.to(plan.there);
    stage.ingress(first)?.becomes(&inside)?;
    let left = stage.egress(&inside)?;
    let port = left.source_port()?;
    ensure!(SNAT.contains(&port), "SNAT port {port}");
    let outside = inside.from(SocketAddr::new(plan.node, port));
    left.becomes(&outside)?;
    Ok(outside)
}

fn a_pod_of_this_node_sees_the_client_and_the_client_sees_what_it_asked_for() -> anyhow::Result<()>
{
    everywhere(|mut stage, plan, protocol, first, to| {
        stage.serve(plan, protocol, &[plan.here])?;
        let inside = first.to(plan.here);
        stage.ingress(first)?.becomes(&inside)?;
        stage.egress(&inside)?.passes_unchanged()?;
        let answer = inside.answer("SA");
        stage.ingress(&answer)?.passes_unchanged()?;
        stage.egress(&answer)?.becomes(&answer.from(to))?;
        stage.counts(Counter::FlowMade, 1)
    })
}

fn a_pod_of_another_node_sees_this_node_and_the_client_sees_what_it_asked_for() -> anyhow::Result<()>
{
    everywhere(|mut stage, plan, protocol, first, to| {
        stage.serve(plan, protocol, &[plan.there])?;
        let outside = leave(&stage, plan, first)?;
        let answer = outside.answer("SA");
        let inside = answer.to(plan.client);
        stage.ingress(&answer)?.becomes(&inside)?;
        stage.egress(&inside)?.becomes(&inside.from(to))
    })
}

fn a_packet_that_meets_a_second_hook_is_left_as_it_is() -> anyhow::Result<()> {
    everywhere(|mut stage, plan, protocol, first, to| {
        stage.serve(plan, protocol, &[plan.there])?;
        let outside = leave(&stage, plan, first)?;
        stage.ingress(&first.to(plan.there))?.passes_unchanged()?;
        stage.egress(&outside)?.passes_unchanged()?;
        let answer = outside.answer("SA");
        let inside = answer.to(plan.client);
        stage.ingress(&answer)?.becomes(&inside)?;
        stage.ingress(&inside)?.passes_unchanged()?;
        let last = inside.from(to);
        stage.egress(&inside)?.becomes(&last)?;
        stage.egress(&last)?.passes_unchanged()
    })
}

fn a_flow_keeps_its_backend_and_its_snat_port() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.node_port) {
            let mut stage = Stage::new()?;
            let others: Vec<_> = (1..9)
                .map(|n| SocketAddr::new(plan.there.ip(), plan.there.port() + n))
                .collect();
            stage.serve(&plan, protocol, &others)?;
            let chosen = stage.ingress(&first)?.destination()?;
            let port = stage.egress(&first.to(chosen))?.source_port()?;
            for _ in 0..20 {
                let next = first.then("A");
                let inside = next.to(chosen);
                stage.ingress(&next)?.becomes(&inside)?;
                let outside = inside.from(SocketAddr::new(plan.node, port));
                stage.egress(&inside)?.becomes(&outside)?;
            }
            stage.counts(Counter::FlowMade, 1)?;
        }
    }
    Ok(())
}

fn two_clients_with_one_port_get_two_snat_ports() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.node_port) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[plan.there])?;
            // Both would like the same port of the range, which they have themselves.
            let port = SNAT.start + 3;
            let one = SocketAddr::new(plan.client.ip(), port);
            let other = SocketAddr::new(plan.external.ip(), port);
            let one = leave(&stage, &plan, &first.from(one))?;
            ensure!(one.from.port() == port, "{one:?} lost its port");
            let two = leave(&stage, &plan, &first.from(other))?;
            ensure!(one.from != two.from, "{one:?}, {two:?}");
            let answer = two.answer("SA");
            stage.ingress(&answer)?.becomes(&answer.to(other))?;
        }
    }
    Ok(())
}

fn a_server_in_the_nodes_own_network_answers_as_the_node_port() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.node_port) {
            let mut stage = Stage::new()?;
            let server = SocketAddr::new(plan.node, 8443);
            stage.serve(&plan, protocol, &[server])?;
            stage.ingress(&first)?.becomes(&first.to(server))?;
            let answer = first.to(server).answer("SA");
            stage
                .egress(&answer)?
                .becomes(&answer.from(plan.node_port))?;
        }
    }
    Ok(())
}

fn a_pod_that_calls_itself_sees_the_node() -> anyhow::Result<()> {
    for plan in plans() {
        let pod = SocketAddr::new(plan.here.ip(), 50_001);
        for (protocol, first) in first_packets(&plan, plan.cluster_ip) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[plan.here])?;
            let first = first.from(pod);
            let inside = first.to(plan.here);
            stage.ingress(&first)?.becomes(&inside)?;
            let port = stage.egress(&inside)?.source_port()?;
            let outside = inside.from(SocketAddr::new(plan.node, port));
            stage.egress(&inside)?.becomes(&outside)?;
            let answer = outside.answer("SA");
            let back = answer.to(pod);
            stage.ingress(&answer)?.becomes(&back)?;
            stage.egress(&back)?.becomes(&back.from(plan.cluster_ip))?;
        }
    }
    Ok(())
}

fn a_pod_whose_source_port_is_its_own_service_port_can_call_itself() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Udp, &[plan.here])?;
        let first = Frame::udp(plan.here, plan.cluster_ip);
        let port = stage.ingress(&first)?.source_port()?;
        ensure!(port != plan.here.port(), "it cannot be told from the pod");
        let inside = first
            .to(plan.here)
            .from(SocketAddr::new(plan.here.ip(), port));
        stage.ingress(&first)?.becomes(&inside)?;
        let port = stage.egress(&inside)?.source_port()?;
        let answer = inside.from(SocketAddr::new(plan.node, port)).answer("");
        let back = answer.to(inside.from);
        stage.ingress(&answer)?.becomes(&back)?;
        let last = back.from(plan.cluster_ip).to(plan.here);
        stage.egress(&back)?.becomes(&last)?;
    }
    Ok(())
}

fn one_client_port_to_two_addresses_of_a_service_is_two_flows() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.balancer) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[plan.here])?;
            stage.ingress(&first)?.becomes(&first.to(plan.here))?;
            let second = first.to(plan.external);
            let port = stage.ingress(&second)?.source_port()?;
            ensure!(SNAT.contains(&port), "port {port}");
            stage.counts(Counter::FlowCollided, 1)?;
            let inside = second
                .to(plan.here)
                .from(SocketAddr::new(plan.client.ip(), port));
            stage.ingress(&second)?.becomes(&inside)?;
            stage.egress(&inside)?.passes_unchanged()?;
            let answer = inside.answer("SA");
            let last = answer.from(plan.external).to(plan.client);
            stage.egress(&answer)?.becomes(&last)?;
            let answer = first.to(plan.here).answer("SA");
            stage
                .egress(&answer)?
                .becomes(&answer.from(plan.balancer))?;
            let stacks = stage.flows()?;
            let stacks = stacks
                .iter()
                .filter(|(key, _)| key.stage == FlowStage::Stack);
            ensure!(stacks.count() == 2, "not two flows");
        }
    }
    Ok(())
}

fn packets_of_nobody_are_left_alone() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.here) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[plan.here])?;
            for frame in [&first, &first.answer("SA")] {
                stage.ingress(frame)?.passes_unchanged()?;
                stage.egress(frame)?.passes_unchanged()?;
            }
            ensure!(stage.flows()?.is_empty(), "a flow of nobody");
        }
    }
    Ok(())
}

fn a_device_without_ethernet_headers_is_served_the_same() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.node_port) {
            let mut stage = Stage::new()?.on_bare_device();
            stage.serve(&plan, protocol, &[plan.here])?;
            let inside = first.to(plan.here);
            stage.ingress(&first)?.becomes(&inside)?;
            stage.egress(&inside)?.passes_unchanged()?;
            let answer = inside.answer("SA");
            stage
                .egress(&answer)?
                .becomes(&answer.from(plan.node_port))?;
        }
    }
    Ok(())
}
