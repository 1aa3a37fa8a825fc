//! `connect` and `getpeername`.

use std::{
    collections::HashMap,
    net::{TcpListener, TcpStream, UdpSocket},
};

use anyhow::ensure;
use proxy_common::{Counter, Protocol, SlotValue, addr};
use rustix::net::{
    AddressFamily, SendFlags, SocketType, bind, connect, connect_unspec, sendto, socket,
};

use crate::{
    net::{
        NODE, NODE6, PODS, PODS6, VIP, VIP6, answer, ask, at, call, mapped, pods, read_line, serve,
        sysctl, udp_client,
    },
    stage::Stage,
    tests,
};

tests! {
    a_tcp_connection_to_a_service_reaches_a_backend_and_shows_the_service,
    a_tcp_connection_to_the_pod_itself_is_left_alone,
    a_udp_connection_to_a_service_reaches_a_backend_and_shows_the_service,
    connections_spread_evenly_over_the_backends,
    tcp_fast_open_reaches_a_backend,
    one_address_and_port_can_be_two_services_of_two_protocols,
    a_udp_socket_that_connects_to_the_pod_afterwards_shows_the_pod,
    a_dissolved_udp_connection_still_shows_the_service_for_what_it_asked_of_it,
    a_refused_connect_leaves_the_udp_connection_before_it,
    a_slot_that_another_service_has_by_now_is_passed_over,
    the_backend_sees_the_clients_own_address_e4,
}

/// MSG_FASTOPEN (include/linux/socket.h).
const FAST_OPEN: u32 = 0x2000_0000;

fn a_tcp_connection_to_a_service_reaches_a_backend_and_shows_the_service() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (vip, vip6) = (at(VIP, 80), at(VIP6, 80));
    serve(&mut stage, Protocol::Tcp, vip)?;
    serve(&mut stage, Protocol::Tcp, vip6)?;
    for to in [vip, vip6, mapped(vip)] {
        let (stream, who) = call(to)?;
        ensure!(pods(to).contains(&who), "{who} answered for {to}");
        ensure!(
            stream.peer_addr()? == to,
            "{to} shows as {}",
            stream.peer_addr()?
        );
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 3);
    Ok(())
}

fn a_tcp_connection_to_the_pod_itself_is_left_alone() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    serve(&mut stage, Protocol::Tcp, at(VIP, 80))?;
    serve(&mut stage, Protocol::Tcp, at(VIP6, 80))?;
    for pod in [
        at(PODS[1], 8080),
        at(PODS6[1], 8080),
        mapped(at(PODS[1], 8080)),
    ] {
        let (stream, _) = call(pod)?;
        ensure!(
            stream.peer_addr()? == pod,
            "{pod} shows as {}",
            stream.peer_addr()?
        );
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 0);
    Ok(())
}

fn a_udp_connection_to_a_service_reaches_a_backend_and_shows_the_service() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (vip, vip6) = (at(VIP, 53), at(VIP6, 53));
    serve(&mut stage, Protocol::Udp, vip)?;
    serve(&mut stage, Protocol::Udp, vip6)?;
    for to in [vip, vip6, mapped(vip)] {
        let client = udp_client(to)?;
        client.connect(to)?;
        client.send(b"who")?;
        let (who, from) = answer(&client)?;
        ensure!(pods(to).contains(&who), "{who} answered for {to}");
        ensure!(from == to, "{to} answers as {from}");
        ensure!(
            client.peer_addr()? == to,
            "{to} shows as {}",
            client.peer_addr()?
        );
    }
    Ok(())
}

fn connections_spread_evenly_over_the_backends() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 80);
    serve(&mut stage, Protocol::Tcp, vip)?;
    let mut counts = HashMap::new();
    for _ in 0..150 {
        *counts.entry(call(vip)?.1).or_insert(0) += 1;
    }
    // Fewer than 20 of 150 at one chance in three happen once in 10^7 runs.
    ensure!(
        counts.len() == 3 && counts.values().all(|n| *n >= 20),
        "{counts:?}"
    );
    Ok(())
}

fn tcp_fast_open_reaches_a_backend() -> anyhow::Result<()> {
    // Client and server, data without a cookie, all listeners
    // (Documentation/networking/ip-sysctl.rst).
    sysctl("net/ipv4/tcp_fastopen", "1543")?;
    let mut stage = Stage::new()?;
    for (vip, family) in [
        (at(VIP, 80), AddressFamily::INET),
        (at(VIP6, 80), AddressFamily::INET6),
    ] {
        serve(&mut stage, Protocol::Tcp, vip)?;
        let fd = socket(family, SocketType::STREAM, None)?;
        sendto(&fd, b"hello", SendFlags::from_bits_retain(FAST_OPEN), &vip)?;
        let mut stream = TcpStream::from(fd);
        let who = read_line(&mut stream)?;
        ensure!(pods(vip).contains(&who), "{who} answered for {vip}");
        ensure!(
            stream.peer_addr()? == vip,
            "{vip} shows as {}",
            stream.peer_addr()?
        );
    }
    Ok(())
}

fn one_address_and_port_can_be_two_services_of_two_protocols() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    let tcp = stage.service(Protocol::Tcp, &[at(PODS[0], 8080)])?;
    let udp = stage.service(Protocol::Udp, &[at(PODS[1], 8080)])?;
    stage.cluster_ip(vip, Protocol::Tcp, tcp)?;
    stage.cluster_ip(vip, Protocol::Udp, udp)?;
    crate::net::tcp_server(at(PODS[0], 8080))?;
    crate::net::udp_server(at(PODS[1], 8080))?;
    ensure!(call(vip)?.1 == at(PODS[0], 8080));
    ensure!(ask(&udp_client(vip)?, vip)? == (at(PODS[1], 8080), vip));
    Ok(())
}

fn a_udp_socket_that_connects_to_the_pod_afterwards_shows_the_pod() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    serve(&mut stage, Protocol::Udp, vip)?;
    let client = udp_client(vip)?;
    // Once unconnected, so that the translation is remembered in both ways.
    ask(&client, vip)?;
    client.connect(vip)?;
    client.send(b"who")?;
    let (pod, _) = answer(&client)?;
    client.connect(pod)?;
    ensure!(
        client.peer_addr()? == pod,
        "{pod} shows as {}",
        client.peer_addr()?
    );
    client.send(b"who")?;
    ensure!(answer(&client)? == (pod, pod));
    Ok(())
}

fn a_dissolved_udp_connection_still_shows_the_service_for_what_it_asked_of_it() -> anyhow::Result<()>
{
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    let backend = serve(&mut stage, Protocol::Udp, vip)?;
    let client = udp_client(vip)?;
    client.connect(vip)?;
    client.send(b"who")?;
    let mut buffer = [0; 64];
    // The answer is there before the connection is dissolved, and read after.
    client.peek(&mut buffer)?;
    connect_unspec(&client)?;
    let (pod, from) = answer(&client)?;
    ensure!(from == vip, "the answer came from {from}");
    // The next datagram is addressed to the pod, and so is its answer's source.
    ensure!(ask(&client, pod)? == (pod, pod));
    for id in backend {
        ensure!(stage.connections(id)? == 0, "backend {id} has a connection");
    }
    Ok(())
}

fn a_refused_connect_leaves_the_udp_connection_before_it() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    serve(&mut stage, Protocol::Udp, vip)?;
    let client: UdpSocket = udp_client(vip)?;
    client.connect(vip)?;
    client.connect(at(VIP, 54)).expect_err("an unknown port");
    ensure!(client.peer_addr()? == vip);
    client.send(b"who")?;
    ensure!(answer(&client)?.1 == vip);
    Ok(())
}

fn a_slot_that_another_service_has_by_now_is_passed_over() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 80);
    serve(&mut stage, Protocol::Tcp, vip)?;
    let first = stage.last_slot() + 1 - PODS.len() as u32;
    let other = SlotValue {
        addr: addr::from_ip(at(PODS[0], 8080).ip()),
        backend: stage.id(),
        service: stage.id(),
        port: 8080,
        reserved: [0; 3],
    };
    stage.set_slot(first, other)?;
    for _ in 0..30 {
        let (_, who) = call(vip)?;
        ensure!(who != at(PODS[0], 8080));
    }
    ensure!(stage.counter(Counter::SocketRetried)? > 0);
    ensure!(stage.counter(Counter::SocketBroken)? == 0);
    Ok(())
}

fn the_backend_sees_the_clients_own_address_e4() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    for (family, node, pod, vip) in [
        (AddressFamily::INET, NODE, PODS[0], VIP),
        (AddressFamily::INET6, NODE6, PODS6[0], VIP6),
    ] {
        let (node, pod, vip) = (at(node, 0), at(pod, 8080), at(vip, 80));
        let server = TcpListener::bind(pod)?;
        let service = stage.service(Protocol::Tcp, &[pod])?;
        stage.cluster_ip(vip, Protocol::Tcp, service)?;
        let client = socket(family, SocketType::STREAM, None)?;
        bind(&client, &node)?;
        connect(&client, &vip)?;
        let (_connection, from) = server.accept()?;
        let own = TcpStream::from(client).local_addr()?;
        ensure!(
            own.ip() == node.ip() && from == own,
            "{own} shows as {from}"
        );
    }
    Ok(())
}
