//! `sendto` and `recvfrom`.

use std::{collections::HashMap, net::SocketAddr};

use anyhow::ensure;
use proxy_common::{BackendState, Counter, Protocol};

use crate::{
    net::{
        PODS, VIP, VIP6, answer, ask, at, endpoints, mapped, pods, serve, udp_client, udp_server,
    },
    stage::{Endpoint, Policy, Stage},
    tests,
};

tests! {
    a_datagram_to_a_service_is_answered_by_a_backend_as_the_service,
    a_datagram_to_a_pod_is_left_alone,
    an_unconnected_socket_stays_with_its_backend,
    sockets_spread_over_the_backends,
    a_dead_backend_is_replaced_at_the_next_datagram,
    a_draining_backend_keeps_its_sockets_and_gets_no_new_ones,
    answers_of_more_services_than_a_socket_remembers_show_the_right_service,
    a_socket_that_talks_to_the_service_and_to_the_pod_sees_each_as_it_named_it,
    of_two_services_with_one_backend_the_one_addressed_last_is_shown,
    a_service_that_loses_its_endpoints_refuses_and_comes_back,
    a_deleted_service_is_left_alone_at_the_next_datagram,
    a_connected_socket_that_names_the_service_again_keeps_its_backend,
}

fn a_datagram_to_a_service_is_answered_by_a_backend_as_the_service() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (vip, vip6) = (at(VIP, 53), at(VIP6, 53));
    serve(&mut stage, Protocol::Udp, vip)?;
    serve(&mut stage, Protocol::Udp, vip6)?;
    for to in [vip, vip6, mapped(vip)] {
        let (who, from) = ask(&udp_client(to)?, to)?;
        ensure!(pods(to).contains(&who), "{who} answered for {to}");
        ensure!(from == to, "{to} answers as {from}");
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 3);
    Ok(())
}

fn a_datagram_to_a_pod_is_left_alone() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    serve(&mut stage, Protocol::Udp, at(VIP, 53))?;
    serve(&mut stage, Protocol::Udp, at(VIP6, 53))?;
    for pod in [
        pods(at(VIP, 0))[1],
        pods(at(VIP6, 0))[1],
        mapped(pods(at(VIP, 0))[1]),
    ] {
        ensure!(ask(&udp_client(pod)?, pod)?.1 == pod);
    }
    ensure!(stage.counter(Counter::SocketTranslated)? == 0);
    Ok(())
}

fn an_unconnected_socket_stays_with_its_backend() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    let old = serve(&mut stage, Protocol::Udp, vip)?;
    let client = udp_client(vip)?;
    let (first, _) = ask(&client, vip)?;
    for _ in 0..20 {
        ensure!(ask(&client, vip)?.0 == first);
    }
    ensure!(
        stage.counter(Counter::SocketTranslated)? == 1,
        "chosen more than once"
    );
    ensure!(
        old.iter()
            .map(|id| stage.load(*id))
            .all(|l| l.is_ok_and(|l| l == 0))
    );
    Ok(())
}

fn sockets_spread_over_the_backends() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    serve(&mut stage, Protocol::Udp, vip)?;
    let mut counts = HashMap::new();
    for _ in 0..150 {
        *counts.entry(ask(&udp_client(vip)?, vip)?.0).or_insert(0) += 1;
    }
    ensure!(
        counts.len() == 3 && counts.values().all(|n| *n >= 20),
        "{counts:?}"
    );
    Ok(())
}

fn a_dead_backend_is_replaced_at_the_next_datagram() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    let backends = serve(&mut stage, Protocol::Udp, vip)?;
    let client = udp_client(vip)?;
    let (first, _) = ask(&client, vip)?;
    let place = pods(vip)
        .iter()
        .position(|pod| *pod == first)
        .expect("a pod");
    let mut rest = endpoints(vip);
    rest.remove(place);
    let service = backends[0] - 1;
    stage.take_away(service, backends[place], &rest, Policy::default())?;
    for _ in 0..5 {
        let (who, from) = ask(&client, vip)?;
        ensure!(who != first && from == vip, "{who} answered as {from}");
    }
    Ok(())
}

fn a_draining_backend_keeps_its_sockets_and_gets_no_new_ones() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    let (old, new) = (at(PODS[0], 8080), at(PODS[1], 8080));
    udp_server(old)?;
    udp_server(new)?;
    let service = stage.service(Protocol::Udp, &[old])?;
    stage.cluster_ip(vip, Protocol::Udp, service)?;
    let client = udp_client(vip)?;
    ask(&client, vip)?;
    // The new list, and then the old backend, which the first `id` after the Service's was.
    let nowhere = Endpoint {
        at: old,
        local: false,
        cluster: false,
    };
    stage.publish(
        service,
        Protocol::Udp,
        &[Endpoint::cluster_only(new)],
        Policy::default(),
    )?;
    stage.set_backend(
        service + 1,
        service,
        Protocol::Udp,
        nowhere,
        BackendState::Draining,
    )?;
    ensure!(ask(&client, vip)? == (old, vip), "the socket was moved");
    ensure!(
        ask(&udp_client(vip)?, vip)? == (new, vip),
        "a new socket got the old backend"
    );
    Ok(())
}

fn answers_of_more_services_than_a_socket_remembers_show_the_right_service() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let mut expected: HashMap<SocketAddr, SocketAddr> = HashMap::new();
    for n in 0..7 {
        let (vip, pod) = (at(VIP, 1000 + n), at(PODS[0], 9000 + n));
        udp_server(pod)?;
        let service = stage.service(Protocol::Udp, &[pod])?;
        stage.cluster_ip(vip, Protocol::Udp, service)?;
        expected.insert(pod, vip);
    }
    let client = udp_client(at(VIP, 1000))?;
    // All are asked before the first answer is read.
    for vip in expected.values() {
        client.send_to(b"who", vip)?;
    }
    for _ in 0..expected.len() {
        let (who, from) = answer(&client)?;
        ensure!(expected[&who] == from, "{who} answered as {from}");
    }
    // One that has left the socket's memory is now named by the program itself.
    for (pod, vip) in &expected {
        ensure!(
            ask(&client, *pod)? == (*pod, *pod),
            "{pod} was shown as a Service"
        );
        ensure!(
            ask(&client, *vip)? == (*pod, *vip),
            "{vip} was not shown as a Service"
        );
    }
    Ok(())
}

fn a_socket_that_talks_to_the_service_and_to_the_pod_sees_each_as_it_named_it() -> anyhow::Result<()>
{
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    serve(&mut stage, Protocol::Udp, vip)?;
    let client = udp_client(vip)?;
    let (pod, from) = ask(&client, vip)?;
    ensure!(from == vip);
    for _ in 0..3 {
        ensure!(ask(&client, pod)? == (pod, pod));
        ensure!(ask(&client, vip)? == (pod, vip), "the choice did not last");
    }
    Ok(())
}

fn of_two_services_with_one_backend_the_one_addressed_last_is_shown() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let pod = at(PODS[0], 8080);
    udp_server(pod)?;
    let vips = [at(VIP, 53), at(VIP, 54)];
    for vip in vips {
        let service = stage.service(Protocol::Udp, &[pod])?;
        stage.cluster_ip(vip, Protocol::Udp, service)?;
    }
    let client = udp_client(vips[0])?;
    for vip in [vips[0], vips[1], vips[0], vips[0], vips[1]] {
        ensure!(ask(&client, vip)? == (pod, vip));
    }
    ensure!(
        stage.counter(Counter::SocketTranslated)? == 2,
        "chosen more than once each"
    );
    Ok(())
}

fn a_service_that_loses_its_endpoints_refuses_and_comes_back() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let (vip, pod) = (at(VIP, 53), at(PODS[0], 8080));
    udp_server(pod)?;
    let service = stage.service(Protocol::Udp, &[pod])?;
    stage.cluster_ip(vip, Protocol::Udp, service)?;
    let client = udp_client(vip)?;
    ask(&client, vip)?;
    stage.publish(service, Protocol::Udp, &[], Policy::default())?;
    let error = client.send_to(b"who", vip).expect_err("nobody is there");
    ensure!(error.raw_os_error() == Some(libc::ECONNREFUSED), "{error}");
    let back = [Endpoint::cluster_only(pod)];
    stage.publish(service, Protocol::Udp, &back, Policy::default())?;
    ensure!(ask(&client, vip)? == (pod, vip));
    // Had the socket kept its old choice, it would not have chosen again.
    ensure!(stage.counter(Counter::SocketTranslated)? == 2);
    Ok(())
}

fn a_deleted_service_is_left_alone_at_the_next_datagram() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    serve(&mut stage, Protocol::Udp, vip)?;
    let client = udp_client(vip)?;
    ask(&client, vip)?;
    stage.forget_address(vip, Protocol::Udp)?;
    // There is no route to the address in this namespace.
    let error = client.send_to(b"who", vip).expect_err("no route");
    ensure!(error.raw_os_error() == Some(libc::ENETUNREACH), "{error}");
    Ok(())
}

fn a_connected_socket_that_names_the_service_again_keeps_its_backend() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    serve(&mut stage, Protocol::Udp, vip)?;
    for _ in 0..10 {
        let client = udp_client(vip)?;
        client.connect(vip)?;
        client.send(b"who")?;
        let (who, _) = answer(&client)?;
        // From any other backend the answer would not arrive.
        ensure!(ask(&client, vip)? == (who, vip));
    }
    Ok(())
}
