//! Who may use which address, and whom he gets.

use std::{collections::BTreeSet, net::SocketAddr};

use anyhow::ensure;
use aya::maps::{LpmTrie, lpm_trie::Key};
use proxy_common::{AffinityScope, Counter, FrontendKind, FrontendValue, Protocol, RangeKey, addr};
use sidestep_tests::{frame::Frame, maps::Policy};

use crate::{
    both_ways::first_packets,
    stage::{Plan, Stage, plans},
    tests,
};

tests![
    clients_are_spread_over_all_endpoints,
    policy_local_gives_outside_clients_endpoints_of_this_node_only,
    policy_local_without_endpoints_here_drops_what_comes_from_outside,
    a_service_that_nobody_serves_is_refused,
    node_ports_answer_only_where_they_are_to,
    a_source_outside_of_the_ranges_is_dropped,
    a_client_with_affinity_gets_one_backend_at_every_address,
    a_reply_to_a_client_whose_port_is_a_node_port_is_no_request,
    a_tcp_packet_in_the_middle_of_nothing_is_passed_on,
    loopback_addresses_mean_nothing_to_who_is_outside,
];

fn clients_are_spread_over_all_endpoints() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Tcp, &[plan.here, plan.there])?;
        let mut seen = BTreeSet::new();
        for port in 1000..1064 {
            let client = SocketAddr::new(plan.client.ip(), port);
            let first = Frame::tcp("S", client, plan.balancer);
            seen.insert(stage.ingress(&first)?.destination()?);
        }
        ensure!(seen == BTreeSet::from([plan.here, plan.there]), "{seen:?}");
    }
    Ok(())
}

/// A Service with policy Local at an address of each kind.
fn serve_locally(
    stage: &mut Stage,
    plan: &Plan,
    endpoints: &[SocketAddr],
) -> anyhow::Result<[SocketAddr; 4]> {
    let service = stage.id();
    let policy = Policy::default();
    stage.set_endpoints(plan, service, Protocol::Tcp, endpoints, policy)?;
    let any = if plan.node.is_ipv6() {
        "[::]"
    } else {
        "0.0.0.0"
    };
    let node_port: SocketAddr = format!("{any}:{}", plan.node_port.port()).parse()?;
    for (at, kind) in [
        (plan.cluster_ip, FrontendKind::Cluster),
        (node_port, FrontendKind::Node),
        (plan.balancer, FrontendKind::Balancer),
        (plan.external, FrontendKind::External),
    ] {
        stage.frontend(at, Protocol::Tcp, service, kind, FrontendValue::LOCAL)?;
    }
    Ok([
        plan.cluster_ip,
        plan.node_port,
        plan.balancer,
        plan.external,
    ])
}

fn policy_local_gives_outside_clients_endpoints_of_this_node_only() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let at = serve_locally(&mut stage, &plan, &[plan.there, plan.here])?;
        for (to, first) in at.into_iter().zip([1000, 2000, 3000, 4000]) {
            for port in first..first + 16 {
                let client = SocketAddr::new(plan.client.ip(), port);
                let first = Frame::tcp("S", client, to);
                let became = stage.ingress(&first)?.destination()?;
                ensure!(became == plan.here, "{to} gave {became}");
            }
        }
    }
    Ok(())
}

fn policy_local_without_endpoints_here_drops_what_comes_from_outside() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let at = serve_locally(&mut stage, &plan, &[plan.there])?;
        for to in at {
            let first = Frame::tcp("S", plan.client, to);
            stage.ingress(&first)?.is_dropped()?;
        }
        stage.counts(Counter::PacketDropped, 4)?;
        ensure!(stage.flows()?.is_empty(), "a dropped packet left a flow");
    }
    Ok(())
}

fn a_service_that_nobody_serves_is_refused() -> anyhow::Result<()> {
    for plan in plans() {
        for (protocol, first) in first_packets(&plan, plan.balancer) {
            let mut stage = Stage::new()?;
            stage.serve(&plan, protocol, &[])?;
            stage.ingress(&first)?;
            // No socket of the node has the port: the kernel refuses.
            stage
                .ingress(&first.to(plan.node_port))?
                .passes_unchanged()?;
            stage.counts(Counter::PacketRefused, 2)?;
            ensure!(stage.events()?.len() == 2, "no events");
            ensure!(stage.flows()?.is_empty(), "a refused packet left a flow");
        }
    }
    Ok(())
}

fn node_ports_answer_only_where_they_are_to() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
        stage.no_node_ports_at(plan.node)?;
        let first = Frame::tcp("S", plan.client, plan.node_port);
        stage.ingress(&first)?.passes_unchanged()?;
        let elsewhere = SocketAddr::new(plan.there.ip(), plan.node_port.port());
        stage.ingress(&first.to(elsewhere))?.passes_unchanged()?;
    }
    Ok(())
}

fn a_source_outside_of_the_ranges_is_dropped() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let service = stage.id();
        let policy = Policy::default();
        stage.set_endpoints(&plan, service, Protocol::Tcp, &[plan.here], policy)?;
        let flags = FrontendValue::SOURCE_RANGES;
        let kind = FrontendKind::Balancer;
        stage.frontend(plan.balancer, Protocol::Tcp, service, kind, flags)?;
        let map = stage.ebpf.map_mut("range").expect("map range");
        let mut ranges = LpmTrie::<_, RangeKey, u32>::try_from(map)?;
        // All but the last octet of the client's address.
        let key = RangeKey {
            service_be: service.to_be_bytes(),
            source: addr::from_ip(plan.client.ip()),
        };
        ranges.insert(&Key::new(32 + 120, key), 1, 0)?;
        let inside = Frame::tcp("S", plan.client, plan.balancer);
        stage.ingress(&inside)?.becomes(&inside.to(plan.here))?;
        let outside = inside.from(plan.external);
        stage.ingress(&outside)?.is_dropped()?;
        stage.counts(Counter::PacketDenied, 1)?;
    }
    Ok(())
}

fn a_client_with_affinity_gets_one_backend_at_every_address() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        let (service, _) = stage.serve(&plan, Protocol::Tcp, &[])?;
        let endpoints: Vec<_> = (0..16)
            .map(|n| SocketAddr::new(plan.there.ip(), 9000 + n))
            .collect();
        let policy = Policy {
            affinity_seconds: 60,
            ..Policy::default()
        };
        stage.set_endpoints(&plan, service, Protocol::Tcp, &endpoints, policy)?;
        let mut seen = BTreeSet::new();
        for (port, to) in (1000..).zip([plan.node_port, plan.balancer, plan.external].repeat(4)) {
            let client = SocketAddr::new(plan.client.ip(), port);
            let first = Frame::tcp("S", client, to);
            seen.insert(stage.ingress(&first)?.destination()?);
        }
        ensure!(seen.len() == 1, "{seen:?}");
        let records = stage.affinity()?;
        ensure!(records.len() == 1, "{records:?}");
        let key = records[0].0;
        ensure!(key.scope == AffinityScope::Address && key.service == service);
        ensure!(key.client == addr::from_ip(plan.client.ip()));
    }
    Ok(())
}

fn a_reply_to_a_client_whose_port_is_a_node_port_is_no_request() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Udp, &[plan.here])?;
        // The client is the node, from the number of the NodePort: say, another Service's server.
        let first = Frame::udp(plan.node_port, plan.cluster_ip);
        stage.ingress(&first)?.becomes(&first.to(plan.here))?;
        let answer = first.to(plan.here).answer("");
        stage.ingress(&answer)?.passes_unchanged()?;
        stage
            .egress(&answer)?
            .becomes(&answer.from(plan.cluster_ip))?;
        stage.counts(Counter::FlowMade, 1)?;
    }
    Ok(())
}

fn a_tcp_packet_in_the_middle_of_nothing_is_passed_on() -> anyhow::Result<()> {
    for plan in plans() {
        let mut stage = Stage::new()?;
        stage.serve(&plan, Protocol::Tcp, &[plan.here])?;
        for flags in ["A", "SA", "FA", "R", "RA", "SF", ""] {
            let frame = Frame::tcp(flags, plan.client, plan.node_port);
            stage.ingress(&frame)?.passes_unchanged()?;
        }
        ensure!(stage.flows()?.is_empty(), "a flow without its begin");
    }
    Ok(())
}

fn loopback_addresses_mean_nothing_to_who_is_outside() -> anyhow::Result<()> {
    for (plan, ip) in plans().iter().zip(["127.0.0.1", "::1"]) {
        let mut stage = Stage::new()?;
        stage.serve(plan, Protocol::Tcp, &[plan.here])?;
        stage.node_addr(ip)?;
        let to = SocketAddr::new(ip.parse()?, plan.node_port.port());
        let first = Frame::tcp("S", plan.client, to);
        stage.ingress(&first)?.passes_unchanged()?;
    }
    Ok(())
}
