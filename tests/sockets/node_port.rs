//! NodePorts on the node's addresses, and the guard of their ports.

use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    process::Command,
};

use anyhow::ensure;
use proxy_common::{Counter, Protocol};

use crate::{
    case,
    net::{NODE, NODE6, PODS, PODS6, at, call, mapped, pods, tcp_server},
    stage::{Settings, Stage},
    tests,
};

tests! {
    a_node_port_answers_on_the_addresses_of_the_node,
    a_node_port_answers_on_loopback_in_the_namespace_of_the_node,
    a_node_port_does_not_answer_on_loopback_unless_told_to,
    a_node_port_answers_pods_on_the_nodes_address_but_not_on_their_loopback,
    the_port_of_a_node_port_cannot_be_bound,
    the_port_of_a_node_port_can_be_bound_where_it_does_not_answer,
    the_guard_can_be_switched_off,
}

/// What runs in a further network namespace.
pub(crate) const ROLES: &[case::Test] = &[case::Test::new("pod", pod)];

const PORT: u16 = 30080;

/// A NodePort of TCP in both families, with servers.
fn publish(stage: &mut Stage) -> anyhow::Result<()> {
    for v6 in [false, true] {
        let at = pods(at(if v6 { NODE6 } else { NODE }, 0));
        for pod in &at {
            tcp_server(*pod)?;
        }
        let service = stage.service(Protocol::Tcp, &at)?;
        stage.node_port(PORT, Protocol::Tcp, service, v6)?;
    }
    Ok(())
}

fn check(to: SocketAddr) -> anyhow::Result<()> {
    let (stream, who) = call(to).map_err(|e| anyhow::anyhow!("connect to {to}: {e}"))?;
    ensure!(pods(to).contains(&who), "{who} answered for {to}");
    ensure!(
        stream.peer_addr()? == to,
        "{to} shows as {}",
        stream.peer_addr()?
    );
    Ok(())
}

/// Untouched, a connection to a port where nobody listens is refused by the kernel.
fn check_untouched(to: SocketAddr) -> anyhow::Result<()> {
    let error = call(to).err().map(|e| e.raw_os_error());
    ensure!(error == Some(Some(libc::ECONNREFUSED)), "{to}: {error:?}");
    Ok(())
}

fn a_node_port_answers_on_the_addresses_of_the_node() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    publish(&mut stage)?;
    stage.node_addr(NODE)?;
    stage.node_addr(NODE6)?;
    let node = at(NODE, PORT);
    for to in [node, at(NODE6, PORT), mapped(node)] {
        check(to)?;
    }
    // Addresses of others, and ports that are no NodePorts.
    for to in [
        at(PODS[0], PORT),
        at(PODS6[0], PORT),
        at(NODE, PORT + 1),
        at(NODE6, PORT + 1),
    ] {
        check_untouched(to)?;
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 3);
    Ok(())
}

fn a_node_port_answers_on_loopback_in_the_namespace_of_the_node() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    publish(&mut stage)?;
    stage.node_addr("127.0.0.1")?;
    stage.node_addr("::1")?;
    for ip in [
        "127.0.0.1",
        "127.0.0.9",
        "::1",
        "0.0.0.0",
        "::",
        "::ffff:127.0.0.1",
    ] {
        check(at(ip, PORT))?;
    }
    Ok(())
}

fn a_node_port_does_not_answer_on_loopback_unless_told_to() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    publish(&mut stage)?;
    stage.node_addr(NODE)?;
    stage.node_addr(NODE6)?;
    // The last two are also the keys of the NodePort itself.
    for ip in ["127.0.0.1", "::1", "0.0.0.0", "::"] {
        check_untouched(at(ip, PORT))?;
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 0);
    Ok(())
}

fn a_node_port_answers_pods_on_the_nodes_address_but_not_on_their_loopback() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    publish(&mut stage)?;
    for ip in ["127.0.0.1", "::1", NODE, NODE6] {
        stage.node_addr(ip)?;
    }
    run(case::elsewhere("pod")?)?;
    ensure!(stage.counter(Counter::SocketTranslated)? == 2);
    Ok(())
}

fn run(mut command: Command) -> anyhow::Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "the pod: {status}");
    Ok(())
}

/// A pod on this node, in whose namespace the addresses of backends lead to its own servers.
fn pod() -> anyhow::Result<()> {
    for pod in pods(at(NODE, 0)).into_iter().chain(pods(at(NODE6, 0))) {
        tcp_server(pod)?;
    }
    for ip in ["127.0.0.1", "::1", "0.0.0.0", "::"] {
        check_untouched(at(ip, PORT))?;
    }
    check(at(NODE, PORT))?;
    check(at(NODE6, PORT))?;
    // The guard is for the node's namespace.
    TcpListener::bind(at("0.0.0.0", PORT))?;
    Ok(())
}

fn the_port_of_a_node_port_cannot_be_bound() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    publish(&mut stage)?;
    for ip in ["127.0.0.1", NODE, NODE6] {
        stage.node_addr(ip)?;
    }
    let places = [
        "0.0.0.0",
        "::",
        "127.0.0.1",
        NODE,
        NODE6,
        &format!("::ffff:{NODE}"),
    ];
    for ip in places {
        let error = TcpListener::bind(at(ip, PORT))
            .err()
            .map(|e| e.raw_os_error());
        ensure!(error == Some(Some(libc::EADDRINUSE)), "{ip}: {error:?}");
    }
    ensure!(stage.counter(Counter::PortGuarded)? == places.len() as u64);
    // A NodePort of one family is in the way of a socket of both.
    let service = stage.service(Protocol::Udp, &[at(PODS[0], 8080)])?;
    stage.node_port(PORT + 5, Protocol::Udp, service, false)?;
    let error = UdpSocket::bind(at("::", PORT + 5))
        .err()
        .map(|e| e.raw_os_error());
    ensure!(error == Some(Some(libc::EADDRINUSE)), "{error:?}");
    Ok(())
}

fn the_port_of_a_node_port_can_be_bound_where_it_does_not_answer() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    publish(&mut stage)?;
    stage.node_addr(NODE)?;
    // Another port, another protocol, an address that NodePorts do not answer on, any free port.
    TcpListener::bind(at("0.0.0.0", PORT + 1))?;
    UdpSocket::bind(at("0.0.0.0", PORT))?;
    TcpListener::bind(at(PODS[0], PORT))?;
    TcpListener::bind(at("0.0.0.0", 0))?;
    ensure!(stage.counter(Counter::PortGuarded)? == 0);
    Ok(())
}

fn the_guard_can_be_switched_off() -> anyhow::Result<()> {
    let mut stage = Stage::with(Settings {
        port_guard: false,
        ..Settings::default()
    })?;
    publish(&mut stage)?;
    TcpListener::bind(at("0.0.0.0", PORT))?;
    Ok(())
}
