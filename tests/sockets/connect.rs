//! `connect` and `getpeername`.

use std::{io, net::SocketAddr};

use anyhow::ensure;
use proxy_common::{Counter, Protocol};

use crate::{
    net::{PODS, PODS6, VIP, VIP6, at, call, mapped, tcp_server},
    stage::Stage,
    tests,
};

tests! {
    a_tcp_connection_to_a_service_reaches_a_backend_and_shows_the_service,
    an_unknown_port_of_a_cluster_ip_is_refused,
}

/// TCP servers on all pods of a family, one Service of them at `vip`.
fn serve(stage: &mut Stage, vip: SocketAddr, pods: &[&str]) -> anyhow::Result<u32> {
    let pods: Vec<_> = pods.iter().map(|pod| at(pod, 8080)).collect();
    for pod in &pods {
        tcp_server(*pod)?;
    }
    let service = stage.service(Protocol::Tcp, &pods)?;
    stage.cluster_ip(vip, Protocol::Tcp, service)?;
    Ok(service)
}

fn a_tcp_connection_to_a_service_reaches_a_backend_and_shows_the_service() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (vip, vip6) = (at(VIP, 80), at(VIP6, 80));
    serve(&mut stage, vip, &PODS)?;
    serve(&mut stage, vip6, &PODS6)?;
    for to in [vip, vip6, mapped(vip)] {
        let (stream, who) = call(to)?;
        ensure!(who.port() == 8080, "{who} answered");
        ensure!(
            stream.peer_addr()? == to,
            "{to} shows as {}",
            stream.peer_addr()?
        );
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 3);
    Ok(())
}

fn an_unknown_port_of_a_cluster_ip_is_refused() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    serve(&mut stage, at(VIP, 80), &PODS)?;
    let error = call(at(VIP, 81)).expect_err("nobody is there");
    ensure!(error.kind() == io::ErrorKind::ConnectionRefused, "{error}");
    ensure!(stage.counter(Counter::SocketUnknownPort)? == 1);
    Ok(())
}
