//! Where a TCP socket remembers its connection.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use proxy_common::{ConnectionValue, Protocol, addr};
use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketType, connect, getpeername, socket, sockopt::socket_cookie},
};

use crate::{
    net::{PODS, VIP, VIP6, at, pods, serve, tcp_server},
    stage::Stage,
    tests,
};

tests! {
    a_tcp_socket_has_an_element_from_its_connection_to_its_end,
    a_tcp_socket_whose_element_is_taken_is_translated_and_counted_all_the_same,
    a_socket_that_connects_again_keeps_its_element,
    who_connects_to_no_service_has_no_element,
}

fn new_client(to: SocketAddr) -> anyhow::Result<(OwnedFd, u64)> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let client = socket(family, SocketType::STREAM, None)?;
    let cookie = socket_cookie(&client)?;
    Ok((client, cookie))
}

fn peer(client: &OwnedFd) -> anyhow::Result<SocketAddr> {
    Ok(getpeername(client)?.context("no peer")?.try_into()?)
}

fn connections(stage: &mut Stage, backends: &[u32]) -> anyhow::Result<i32> {
    let all = backends.iter().map(|&backend| stage.connections(backend));
    all.sum()
}

fn a_tcp_socket_has_an_element_from_its_connection_to_its_end() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    for vip in [at(VIP, 80), at(VIP6, 80)] {
        let backends = serve(&mut stage, Protocol::Tcp, vip)?;
        let (client, cookie) = new_client(vip)?;
        ensure!(stage.connection(cookie)? == ConnectionValue::default());
        connect(&client, &vip)?;
        let ConnectionValue {
            cookie: owner,
            connected,
            ..
        } = stage.connection(cookie)?;
        ensure!(owner == cookie);
        ensure!((connected.vip, connected.vip_port) == (addr::from_ip(vip.ip()), 80));
        let got = SocketAddr::new(addr::to_ip(&connected.addr), connected.port);
        ensure!(pods(vip).contains(&got));
        ensure!(backends.contains(&connected.backend));
        ensure!(connections(&mut stage, &backends)? == 1);
        ensure!(stage.load(connected.backend)? == 0);
        drop(client);
        ensure!(stage.connection(cookie)?.cookie == 0);
        ensure!(connections(&mut stage, &backends)? == 0);
    }
    Ok(())
}

fn a_tcp_socket_whose_element_is_taken_is_translated_and_counted_all_the_same() -> anyhow::Result<()>
{
    let mut stage = Stage::new()?;
    let vip = at(VIP, 80);
    let backends = serve(&mut stage, Protocol::Tcp, vip)?;
    let (client, cookie) = new_client(vip)?;
    let other = ConnectionValue {
        cookie: cookie + 1,
        ..ConnectionValue::default()
    };
    stage.set_connection(cookie, other)?;
    connect(&client, &vip)?;
    ensure!(peer(&client)? == vip);
    ensure!(connections(&mut stage, &backends)? == 1);
    let now = stage.connection(cookie)?;
    ensure!(now == other);
    // The element is free by now, but what the socket remembers is elsewhere.
    stage.set_connection(cookie, ConnectionValue::default())?;
    ensure!(peer(&client)? == vip);
    drop(client);
    ensure!(connections(&mut stage, &backends)? == 0);
    Ok(())
}

fn a_socket_that_connects_again_keeps_its_element() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (refused, vip) = (at(VIP, 81), at(VIP, 80));
    let service = stage.service(Protocol::Tcp, &[at(PODS[0], 9)])?;
    stage.cluster_ip(refused, Protocol::Tcp, service)?;
    let backends = serve(&mut stage, Protocol::Tcp, vip)?;
    let (client, cookie) = new_client(vip)?;
    // Nobody listens there.
    ensure!(connect(&client, &refused).is_err());
    ensure!(stage.connection(cookie)?.connected.vip_port == 81);
    connect(&client, &vip)?;
    let now = stage.connection(cookie)?;
    ensure!((now.cookie, now.connected.vip_port) == (cookie, 80));
    ensure!(connections(&mut stage, &backends)? == 1);
    ensure!(stage.connections(service + 1)? == 0);
    drop(client);
    ensure!(connections(&mut stage, &backends)? == 0);
    Ok(())
}

fn who_connects_to_no_service_has_no_element() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let pod = at(PODS[0], 8080);
    tcp_server(pod)?;
    let (client, cookie) = new_client(pod)?;
    connect(&client, &pod)?;
    ensure!(stage.connection(cookie)? == ConnectionValue::default());
    Ok(())
}
