//! Connection counts.

use std::net::SocketAddr;

use anyhow::ensure;
use proxy_common::{Counter, Protocol};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket, socket_with},
};

use crate::{
    net::{PODS, VIP, VIP6, at, call, pods, serve, tcp_server, udp_client},
    stage::Stage,
    tests,
};

tests! {
    connections_are_counted_until_they_are_closed,
    a_udp_socket_that_connects_again_is_counted_once,
    a_failed_connection_is_not_counted_after_its_socket,
    a_second_connect_call_while_the_first_is_under_way_changes_nothing,
    a_connection_that_cannot_be_counted_is_reported_and_never_counted_down,
}

/// One Service with one backend, which is returned.
fn single(stage: &mut Stage, p: Protocol, vip: SocketAddr, pod: SocketAddr) -> anyhow::Result<u32> {
    let service = stage.service(p, &[pod])?;
    stage.cluster_ip(vip, p, service)?;
    Ok(service + 1)
}

fn connections_are_counted_until_they_are_closed() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (vip, vip6) = (at(VIP, 80), at(VIP6, 80));
    for to in [vip, vip6] {
        let pod = pods(to)[0];
        tcp_server(pod)?;
        let backend = single(&mut stage, Protocol::Tcp, to, pod)?;
        let mut streams = Vec::new();
        for n in 1..=3 {
            streams.push(call(to)?.0);
            ensure!(stage.connections(backend)? == n);
        }
        drop(streams.pop());
        ensure!(stage.connections(backend)? == 2);
        drop(streams);
        ensure!(stage.connections(backend)? == 0);
        // Who connects to the pod itself is no client of the Service.
        let direct = call(pod)?;
        ensure!(stage.connections(backend)? == 0);
        drop(direct);
        ensure!(stage.connections(backend)? == 0);
    }
    Ok(())
}

fn a_udp_socket_that_connects_again_is_counted_once() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (vip, other) = (at(VIP, 53), at(VIP, 54));
    let first = single(&mut stage, Protocol::Udp, vip, at(PODS[0], 8080))?;
    let second = single(&mut stage, Protocol::Udp, other, at(PODS[1], 8080))?;
    let client = udp_client(vip)?;
    client.connect(vip)?;
    ensure!((stage.connections(first)?, stage.connections(second)?) == (1, 0));
    client.connect(vip)?;
    ensure!((stage.connections(first)?, stage.connections(second)?) == (1, 0));
    client.connect(other)?;
    ensure!((stage.connections(first)?, stage.connections(second)?) == (0, 1));
    client.connect(at(PODS[2], 8080))?;
    ensure!((stage.connections(first)?, stage.connections(second)?) == (0, 0));
    client.connect(other)?;
    drop(client);
    ensure!((stage.connections(first)?, stage.connections(second)?) == (0, 0));
    Ok(())
}

fn a_failed_connection_is_not_counted_after_its_socket() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 80);
    // Nobody listens on the pod.
    let backend = single(&mut stage, Protocol::Tcp, vip, at(PODS[0], 8080))?;
    call(vip).expect_err("nobody listens");
    ensure!(stage.connections(backend)? == 0);
    // The same socket, again and again.
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    for _ in 0..5 {
        ensure!(connect(&fd, &vip) == Err(Errno::CONNREFUSED));
        ensure!(stage.connections(backend)? == 1);
    }
    // And then to an address that it does not have.
    ensure!(connect(&fd, &at(VIP, 81)) == Err(Errno::CONNREFUSED));
    ensure!(stage.connections(backend)? == 0);
    drop(fd);
    ensure!(stage.connections(backend)? == 0);
    Ok(())
}

fn a_second_connect_call_while_the_first_is_under_way_changes_nothing() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 80);
    let backends = serve(&mut stage, Protocol::Tcp, vip)?;
    let fd = socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::NONBLOCK,
        None,
    )?;
    // The loopback interface may be so quick that the connection stands at once.
    let first = connect(&fd, &vip);
    ensure!(
        matches!(first, Ok(()) | Err(Errno::INPROGRESS)),
        "{first:?}"
    );
    for _ in 0..3 {
        let again = connect(&fd, &vip);
        ensure!(
            matches!(again, Ok(()) | Err(Errno::ALREADY | Errno::ISCONN)),
            "{again:?}"
        );
    }
    let chosen = stage.counter(Counter::SocketTranslated)?;
    ensure!(chosen == 1, "chosen {chosen} times");
    drop(fd);
    for backend in &backends {
        ensure!(stage.connections(*backend)? == 0);
    }
    Ok(())
}

fn a_connection_that_cannot_be_counted_is_reported_and_never_counted_down() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (counted, full) = (at(VIP, 53), at(VIP, 54));
    let first = single(&mut stage, Protocol::Udp, counted, at(PODS[0], 8080))?;
    let second = single(&mut stage, Protocol::Udp, full, at(PODS[1], 8080))?;
    // Another living backend has the element.
    let other = stage.id();
    stage.count_in(second, other)?;
    let clients = (udp_client(counted)?, udp_client(full)?);
    clients.0.connect(counted)?;
    clients.1.connect(full)?;
    ensure!((stage.connections(first)?, stage.connections(second)?) == (1, 0));
    ensure!(stage.counter(Counter::LoadUncounted)? == 1);
    drop(clients);
    ensure!(stage.connections(first)? == 0);
    stage.count_in(second, second)?;
    ensure!(stage.connections(second)? == 0);
    Ok(())
}
