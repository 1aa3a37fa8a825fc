//! Addresses of the test's network namespace, and Services there.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    process::Command,
};

use anyhow::{Context as _, ensure};
use proxy_common::Protocol;
pub(crate) use sidestep_tests::talk::{
    answer, ask, call, read_line, tcp_server, udp_client, udp_server,
};

use crate::stage::{Endpoint, Policy, Stage};

/// Addresses that "pods" listen on.
pub(crate) const PODS: [&str; 3] = ["10.1.0.1", "10.1.0.2", "10.1.0.3"];
/// The same for IPv6.
pub(crate) const PODS6: [&str; 3] = ["fd01::1", "fd01::2", "fd01::3"];
/// An address of the node.
pub(crate) const NODE: &str = "192.168.7.1";
/// The same for IPv6.
pub(crate) const NODE6: &str = "fd07::1";
/// A ClusterIP; on no interface.
pub(crate) const VIP: &str = "10.96.0.10";
/// The same for IPv6.
pub(crate) const VIP6: &str = "fd96::10";

/// Puts the addresses on the loopback interface.
pub(crate) fn set_up() -> anyhow::Result<()> {
    let mut lines = String::from("link set lo up\n");
    for addr in PODS.iter().chain([&NODE]) {
        lines += &format!("addr add {addr}/32 dev lo\n");
    }
    for addr in PODS6.iter().chain([&NODE6]) {
        lines += &format!("addr add {addr}/128 dev lo nodad\n");
    }
    sidestep_tests::talk::ip(&lines)
}

/// Puts one more address on the loopback interface.
pub(crate) fn add_addr(addr: &str) -> anyhow::Result<()> {
    let status = Command::new("ip")
        .args(["addr", "add", addr, "dev", "lo"])
        .status()?;
    ensure!(status.success(), "ip(8) failed to add {addr}");
    Ok(())
}

/// Writes a sysctl of the network namespace.
pub(crate) fn sysctl(path: &str, value: &str) -> anyhow::Result<()> {
    fs::write(format!("/proc/sys/{path}"), value).with_context(|| format!("write sysctl {path}"))
}

/// An address and port.
pub(crate) fn at(addr: &str, port: u16) -> SocketAddr {
    SocketAddr::new(addr.parse().expect("an address"), port)
}

/// The address as an IPv6 socket names it.
pub(crate) fn mapped(addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

/// The pods of the family of an address, at port 8080.
pub(crate) fn pods(to: SocketAddr) -> Vec<SocketAddr> {
    let pods = if to.ip().to_canonical().is_ipv4() {
        PODS
    } else {
        PODS6
    };
    pods.iter().map(|pod| at(pod, 8080)).collect()
}

/// The same as endpoints.
pub(crate) fn endpoints(to: SocketAddr) -> Vec<Endpoint> {
    pods(to).into_iter().map(Endpoint::cluster_only).collect()
}

/// Servers on all pods of the family of `vip`, and a Service of them at `vip`. Returns the backends.
pub(crate) fn serve(
    stage: &mut Stage,
    protocol: Protocol,
    vip: SocketAddr,
) -> anyhow::Result<Vec<u32>> {
    for pod in pods(vip) {
        match protocol {
            Protocol::Tcp => tcp_server(pod)?,
            _ => udp_server(pod)?,
        }
    }
    let service = stage.id();
    let backends = stage.publish(service, protocol, &endpoints(vip), Policy::default())?;
    stage.cluster_ip(vip, protocol, service)?;
    Ok(backends)
}
