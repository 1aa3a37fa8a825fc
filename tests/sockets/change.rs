//! Endpoints that change while clients connect.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use proxy_common::{Counter, Protocol};

use crate::{
    net::{PODS, VIP, answer, at, udp_client, udp_server},
    stage::{Endpoint, Policy, Stage},
    tests,
};

tests! {
    every_connection_gets_a_backend_of_the_list_of_its_time,
}

/// Changes of the one endpoint. Each takes slots that no earlier one had.
const CHANGES: u16 = 2_000;
/// Different endpoints; the list of change `n` is endpoint `n % PORTS`.
const PORTS: u16 = 16;

fn pod(change: u16) -> SocketAddr {
    at(PODS[0], 9000 + change % PORTS)
}

/// Connects once; the error says what was wrong.
fn connect(vip: SocketAddr, now: &AtomicU16) -> anyhow::Result<()> {
    let client = udp_client(vip)?;
    let before = now.load(SeqCst);
    client.connect(vip)?;
    let after = now.load(SeqCst);
    client.send(b"who")?;
    let (who, from) = answer(&client)?;
    ensure!(from == vip, "{who} answered as {from}");
    // `now` rises before its list is published, so that the list before may still be the one.
    ensure!(
        (before.saturating_sub(1)..=after).any(|change| pod(change) == who),
        "{who} answered at a time of changes {before} to {after}"
    );
    Ok(())
}

fn every_connection_gets_a_backend_of_the_list_of_its_time() -> anyhow::Result<()> {
    let mut stage = Stage::new()?;
    let vip = at(VIP, 53);
    for change in 0..PORTS {
        udp_server(pod(change))?;
    }
    let service = stage.id();
    let list = |stage: &mut Stage, change| {
        let endpoint = [Endpoint::cluster_only(pod(change))];
        stage.publish(service, Protocol::Udp, &endpoint, Policy::default())
    };
    let mut old = list(&mut stage, 0)?;
    stage.cluster_ip(vip, Protocol::Udp, service)?;
    let (now, connections, over) = (AtomicU16::new(0), AtomicU32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let clients = [0, 1].map(|_| {
            scope.spawn(|| -> anyhow::Result<()> {
                while !over.load(SeqCst) {
                    connect(vip, &now)?;
                    connections.fetch_add(1, SeqCst);
                }
                Ok(())
            })
        });
        let changes = || -> anyhow::Result<()> {
            for change in 1..CHANGES {
                now.store(change, SeqCst);
                let new = list(&mut stage, change)?;
                // At once, without the rest that the agent gives to those who still read.
                stage.remove_backend(old[0])?;
                old = new;
            }
            // A busy machine may have let the clients starve meanwhile.
            let patience = Instant::now() + Duration::from_secs(30);
            while connections.load(SeqCst) <= 100 && Instant::now() < patience {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let changed = { changes }();
        over.store(true, SeqCst);
        for client in clients {
            client.join().expect("the client does not panic")?;
        }
        changed
    })?;
    ensure!(
        connections.load(SeqCst) > 100,
        "only {connections:?} connections"
    );
    ensure!(stage.counter(Counter::SocketBroken)? == 0);
    ensure!(stage.counter(Counter::SocketTranslated)? >= u64::from(connections.load(SeqCst)));
    // All are closed, and none is counted any more.
    ensure!(stage.connections(old[0])? == 0);
    Ok(())
}
