//! Client affinity: by network namespace, per ServicePort.

use std::net::SocketAddr;

use anyhow::ensure;
use proxy_common::{AffinityScope, FrontendKind, FrontendValue, Protocol};

use crate::{
    net::{PODS, VIP, ask, at, call, endpoints, pods, tcp_server, udp_client, udp_server},
    stage::{Endpoint, Policy, Stage},
    tests,
};

tests! {
    a_client_stays_with_its_backend_at_all_addresses_of_the_service,
    datagram_sockets_of_a_client_share_its_backend,
    a_record_older_than_the_timeout_does_not_count,
    a_record_whose_backend_left_the_window_does_not_count,
    a_record_whose_backend_is_gone_does_not_count,
    every_new_connection_renews_the_record,
}

const TIMEOUT: Policy = Policy {
    affinity_seconds: 600,
    has_any: true,
};

fn sticky(stage: &mut Stage, p: Protocol, at: &[SocketAddr]) -> anyhow::Result<(u32, Vec<u32>)> {
    let service = stage.id();
    let endpoints: Vec<_> = at.iter().map(|pod| Endpoint::cluster_only(*pod)).collect();
    let backends = stage.publish(service, p, &endpoints, TIMEOUT)?;
    Ok((service, backends))
}

fn tcp(stage: &mut Stage) -> anyhow::Result<(u32, Vec<u32>)> {
    let at = pods(at(VIP, 0));
    for pod in &at {
        tcp_server(*pod)?;
    }
    sticky(stage, Protocol::Tcp, &at)
}

fn a_client_stays_with_its_backend_at_all_addresses_of_the_service() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (service, backends) = tcp(&mut stage)?;
    let (vip, external) = (at(VIP, 80), at("192.0.2.1", 80));
    stage.cluster_ip(vip, Protocol::Tcp, service)?;
    stage.frontend(external, Protocol::Tcp, service, FrontendKind::External, 0)?;
    let (_, first) = call(vip)?;
    for to in [vip, external].repeat(10) {
        ensure!(call(to)?.1 == first);
    }
    let records = stage.affinity()?;
    ensure!(records.len() == 1, "{records:?}");
    let (key, value) = records[0];
    ensure!(key.service == service && key.scope == AffinityScope::Namespace);
    ensure!(backends.contains(&value.backend));
    Ok(())
}

fn datagram_sockets_of_a_client_share_its_backend() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    for pod in pods(vip) {
        udp_server(pod)?;
    }
    let (service, _) = sticky(&mut stage, Protocol::Udp, &pods(vip))?;
    stage.cluster_ip(vip, Protocol::Udp, service)?;
    let (first, _) = ask(&udp_client(vip)?, vip)?;
    for _ in 0..20 {
        ensure!(ask(&udp_client(vip)?, vip)? == (first, vip));
    }
    Ok(())
}

fn a_record_older_than_the_timeout_does_not_count() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (service, _) = tcp(&mut stage)?;
    let vip = at(VIP, 80);
    stage.cluster_ip(vip, Protocol::Tcp, service)?;
    let (_, first) = call(vip)?;
    let (key, mut value) = stage.affinity()?[0];
    // The machine may not have been up for 600 s.
    let short = Policy {
        affinity_seconds: 1,
        ..TIMEOUT
    };
    let endpoints: Vec<_> = pods(vip).into_iter().map(Endpoint::cluster_only).collect();
    let backends = stage.publish(service, Protocol::Tcp, &endpoints, short)?;
    let place = pods(vip)
        .iter()
        .position(|pod| *pod == first)
        .expect("a pod");
    (value.backend, value.last_used) = (backends[place], value.last_used - 1_500_000_000);
    let mut others = 0;
    // That the first comes again 40 times happens once in 10^19 runs.
    for _ in 0..40 {
        stage.set_affinity(key, value)?;
        others += i32::from(call(vip)?.1 != first);
    }
    ensure!(others > 0, "the old record was used");
    Ok(())
}

fn a_record_whose_backend_left_the_window_does_not_count() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let [here, there] = [at(PODS[0], 8080), at(PODS[1], 8080)];
    tcp_server(here)?;
    tcp_server(there)?;
    let service = stage.id();
    let local = Endpoint {
        at: here,
        local: true,
        cluster: false,
    };
    let endpoints = [local, Endpoint::cluster_only(there)];
    stage.publish(service, Protocol::Tcp, &endpoints, TIMEOUT)?;
    let (inside, outside) = (at(VIP, 80), at("192.0.2.1", 80));
    stage.cluster_ip(inside, Protocol::Tcp, service)?;
    let flags = FrontendValue::LOCAL;
    stage.frontend(inside, Protocol::Tcp, service, FrontendKind::Cluster, flags)?;
    stage.frontend(
        outside,
        Protocol::Tcp,
        service,
        FrontendKind::External,
        flags,
    )?;
    // One record, two windows with nothing in common.
    for _ in 0..3 {
        ensure!(call(inside)?.1 == here);
        ensure!(call(outside)?.1 == there);
    }
    Ok(())
}

fn a_record_whose_backend_is_gone_does_not_count() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (service, backends) = tcp(&mut stage)?;
    let vip = at(VIP, 80);
    stage.cluster_ip(vip, Protocol::Tcp, service)?;
    let (_, first) = call(vip)?;
    let place = pods(vip)
        .iter()
        .position(|pod| *pod == first)
        .expect("a pod");
    let mut rest = endpoints(vip);
    rest.remove(place);
    stage.take_away(service, backends[place], &rest, TIMEOUT)?;
    let (_, second) = call(vip)?;
    ensure!(second != first);
    for _ in 0..10 {
        ensure!(call(vip)?.1 == second, "the new choice was not remembered");
    }
    Ok(())
}

fn every_new_connection_renews_the_record() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (service, _) = tcp(&mut stage)?;
    let vip = at(VIP, 80);
    stage.cluster_ip(vip, Protocol::Tcp, service)?;
    let mut last = 0;
    for _ in 0..3 {
        call(vip)?;
        let used = stage.affinity()?[0].1.last_used;
        ensure!(used > last);
        last = used;
    }
    Ok(())
}
