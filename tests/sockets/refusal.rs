//! What fails, with which error, and what is left alone.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, ensure};
use proxy_common::{
    Counter, EventKind, EventRecord, FrontendKind, FrontendValue, Protocol, SlotValue, addr,
};
use rustix::net::{AddressFamily, SocketType, connect, getpeername, socket};
use zerocopy::TryFromBytes as _;

use crate::{
    net::{PODS, PODS6, VIP, VIP6, add_addr, at, call, mapped, serve, tcp_server, udp_client},
    stage::{Endpoint, Policy, Settings, Stage},
    tests,
};

tests! {
    a_service_without_endpoints_is_refused,
    a_local_policy_without_local_endpoints_fails_at_once_with_another_error,
    an_unknown_port_of_a_cluster_ip_is_refused,
    before_bpf_set_retval_refusals_are_eperm,
    a_frontend_without_a_service_is_refused_and_counted_as_broken,
    port_zero_is_left_alone,
    udp_lite_is_left_alone,
    source_ranges_are_left_to_the_packet_path,
    a_refusal_is_told_with_address_and_service,
    a_flood_of_refusals_is_counted_and_told_in_part,
}

/// The errors of TCP connect, UDP connect and UDP send, each as number.
fn errors(to: SocketAddr) -> anyhow::Result<[Option<i32>; 3]> {
    let tcp = TcpStream::connect(to).err().context("TCP connects")?;
    let udp = udp_client(to)?.connect(to).err().context("UDP connects")?;
    let datagram = udp_client(to)?
        .send_to(b"who", to)
        .err()
        .context("UDP sends")?;
    Ok([
        tcp.raw_os_error(),
        udp.raw_os_error(),
        datagram.raw_os_error(),
    ])
}

/// A TCP and a UDP Service of no endpoints.
fn empty(stage: &mut Stage, at: SocketAddr, has_any: bool, flags: u8) -> anyhow::Result<()> {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let service = stage.id();
        stage.publish(
            service,
            protocol,
            &[],
            Policy {
                has_any,
                ..Policy::default()
            },
        )?;
        stage.frontend(at, protocol, service, FrontendKind::Cluster, flags)?;
    }
    Ok(())
}

fn a_service_without_endpoints_is_refused() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (vip, vip6) = (at(VIP, 80), at(VIP6, 80));
    empty(&mut stage, vip, false, 0)?;
    empty(&mut stage, vip6, false, 0)?;
    for to in [vip, vip6, mapped(vip)] {
        ensure!(
            errors(to)? == [Some(libc::ECONNREFUSED); 3],
            "{to}: {:?}",
            errors(to)?
        );
    }
    ensure!(stage.counter(Counter::SocketRefused)? == 9);
    Ok(())
}

fn a_local_policy_without_local_endpoints_fails_at_once_with_another_error() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 80);
    empty(&mut stage, vip, true, FrontendValue::LOCAL)?;
    ensure!(errors(vip)? == [Some(libc::EHOSTUNREACH); 3]);
    ensure!(stage.counter(Counter::SocketDropped)? == 3);
    // The window counts, not the list: an endpoint elsewhere is none here.
    let service = stage.id();
    let elsewhere = [Endpoint::cluster_only(at(PODS[0], 8080))];
    stage.publish(service, Protocol::Tcp, &elsewhere, Policy::default())?;
    let local = FrontendValue::LOCAL;
    stage.frontend(vip, Protocol::Tcp, service, FrontendKind::Cluster, local)?;
    ensure!(errors(vip)?[0] == Some(libc::EHOSTUNREACH));
    // With external addresses the policy is about clients from outside.
    for kind in [FrontendKind::Balancer, FrontendKind::External] {
        stage.frontend(vip, Protocol::Tcp, service, kind, local)?;
        // Nobody listens on the pod, and that is who refuses.
        ensure!(errors(vip)?[0] == Some(libc::ECONNREFUSED));
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 2);
    Ok(())
}

fn an_unknown_port_of_a_cluster_ip_is_refused() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    serve(&mut stage, Protocol::Tcp, at(VIP, 80))?;
    serve(&mut stage, Protocol::Tcp, at(VIP6, 80))?;
    for to in [at(VIP, 81), at(VIP6, 81), mapped(at(VIP, 81))] {
        ensure!(errors(to)? == [Some(libc::ECONNREFUSED); 3]);
    }
    ensure!(stage.counter(Counter::SocketUnknownPort)? == 9);
    Ok(())
}

fn before_bpf_set_retval_refusals_are_eperm() -> anyhow::Result<()> {
    let mut stage = Stage::with(Settings {
        set_retval: false,
        ..Settings::default()
    })?;
    empty(&mut stage, at(VIP, 80), false, 0)?;
    ensure!(errors(at(VIP, 80))? == [Some(libc::EPERM); 3]);
    Ok(())
}

fn a_frontend_without_a_service_is_refused_and_counted_as_broken() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    stage.frontend(at(VIP, 80), Protocol::Tcp, 77, FrontendKind::Cluster, 0)?;
    // A Service whose slots lead nowhere.
    let service = stage.service(Protocol::Tcp, &[at(PODS[0], 8080)])?;
    let slot = stage.last_slot();
    stage.set_slot(slot, SlotValue::default())?;
    stage.frontend(
        at(VIP, 81),
        Protocol::Tcp,
        service,
        FrontendKind::Cluster,
        0,
    )?;
    for port in [80, 81] {
        let error = call(at(VIP, port)).expect_err("nobody is there");
        ensure!(error.raw_os_error() == Some(libc::ECONNREFUSED), "{error}");
    }
    ensure!(stage.counter(Counter::SocketBroken)? == 2);
    Ok(())
}

fn port_zero_is_left_alone() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    add_addr(&format!("{VIP}/32"))?;
    serve(&mut stage, Protocol::Udp, at(VIP, 53))?;
    // As getaddrinfo(3) does to learn which source address would be used.
    udp_client(at(VIP, 0))?.connect(at(VIP, 0))?;
    Ok(())
}

fn udp_lite_is_left_alone() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    add_addr(&format!("{VIP}/32"))?;
    serve(&mut stage, Protocol::Udp, at(VIP, 53))?;
    let protocol = rustix::net::ipproto::UDPLITE;
    let fd = socket(AddressFamily::INET, SocketType::DGRAM, Some(protocol))?;
    for port in [53, 54] {
        connect(&fd, &at(VIP, port))?;
        let peer = SocketAddr::try_from(getpeername(&fd)?.context("no peer")?)?;
        ensure!(peer == at(VIP, port), "connected to {peer}");
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 0);
    Ok(())
}

fn source_ranges_are_left_to_the_packet_path() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    add_addr(&format!("{VIP}/32"))?;
    let vip = at(VIP, 80);
    // What stands for the packet path: a server at the address itself.
    tcp_server(vip)?;
    let service = stage.service(Protocol::Tcp, &[at(PODS[0], 8080)])?;
    let ranges = FrontendValue::SOURCE_RANGES;
    stage.frontend(vip, Protocol::Tcp, service, FrontendKind::Balancer, ranges)?;
    ensure!(call(vip)?.1 == vip);
    ensure!(stage.counter(Counter::SocketLeft)? == 1);
    ensure!(stage.counter(Counter::SocketTranslated)? == 0);
    Ok(())
}

fn a_refusal_is_told_with_address_and_service() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip6 = at(VIP6, 80);
    let service = stage.id();
    let policy = Policy {
        has_any: true,
        ..Policy::default()
    };
    stage.publish(service, Protocol::Tcp, &[], policy)?;
    stage.cluster_ip(vip6, Protocol::Tcp, service)?;
    call(vip6).expect_err("nobody is there");
    udp_client(vip6)?
        .connect(vip6)
        .expect_err("an unknown port");
    let events = stage.events()?;
    ensure!(events.len() == 2, "{} events", events.len());
    let [first, second] = [0, 1].map(|n| EventRecord::try_read_from_bytes(&events[n]));
    let first = first.map_err(|e| anyhow::anyhow!("{e:?}"))?;
    ensure!(first.kind == EventKind::Dropped && first.service == service);
    ensure!(first.addr == addr::from_ip(vip6.ip()) && first.port == 80);
    ensure!(first.protocol == Protocol::Tcp && first.time > 0);
    let second = second.map_err(|e| anyhow::anyhow!("{e:?}"))?;
    ensure!(second.kind == EventKind::Refused && second.service == 0);
    ensure!(second.protocol == Protocol::Udp && second.time >= first.time);
    Ok(())
}

fn a_flood_of_refusals_is_counted_and_told_in_part() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    empty(&mut stage, at(PODS6[0], 80), false, 0)?;
    let client = udp_client(at(VIP6, 0))?;
    for _ in 0..20_000 {
        client
            .send_to(b"who", at(PODS6[0], 80))
            .expect_err("nobody is there");
    }
    ensure!(stage.counter(Counter::SocketRefused)? == 20_000);
    // 32 KiB of records of 40 bytes is the most that can wait, however long the loop took.
    let events = stage.events()?.len();
    ensure!((1..=820).contains(&events), "{events} events");
    Ok(())
}
