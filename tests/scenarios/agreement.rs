//! The fake data plane and the kernel's, side by side: the same Transactions, the same maps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::ensure;
use proxy_agent::{
    datapath::{Dataplane, Error, Fake, Grace, Kernel, Outcome, Sizes},
    model::{
        Change, Endpoint, EndpointSlice, Family, Node, PodId, Policy, Service, ServiceName,
        ServicePort, SliceName, SlicePort,
    },
    plan::{Snapshot, Transaction},
    reconcile::Reconciler,
};
use proxy_common::{NodeAddrValue, Protocol, Scheduler, addr, map};
use sidestep_tests::{
    data_plane::{DataPlane, all_sizes},
    dice::Dice,
};

/// Name of the test.
pub(crate) const NAME: &str = "the_fake_and_the_kernel_agree_on_random_changes";
/// Changes of the cluster.
const STEPS: usize = 400;
/// Services that come and go.
const SERVICES: usize = 8;

/// To be called in the process of a test. The maps are so small that some Services are refused.
pub(crate) fn test() -> anyhow::Result<()> {
    let sizes = Sizes::from([
        (map::FRONTEND.name, 40),
        (map::BACKEND.name, 48),
        (map::NAME.name, 14),
        (map::RANGE.name, 6),
    ]);
    let data_plane = DataPlane::start(&sizes)?;
    let sizes = all_sizes(&sizes);
    let slots = sizes[map::SLOT.name];
    let twin = Twin {
        fake: Fake::with_sizes(sizes),
        kernel: data_plane.open()?,
        refused: 0,
        differences: Vec::new(),
    };
    let node = Node {
        name: "node-a".into(),
        zone: None,
    };
    let mut reconciler = Reconciler::new(node, twin, slots)?;
    reconciler.change(Change::Services(Vec::new()));
    reconciler.change(Change::Slices(Vec::new()));
    let mut dice = Dice::new(3);
    for step in 0..STEPS {
        for _ in 0..=dice.below(3) {
            match dice.below(20) {
                0 => reconciler.addresses(addresses(&mut dice)),
                1..=7 => reconciler.change(service(&mut dice)),
                _ => reconciler.change(slice(&mut dice)),
            }
        }
        sync(&mut reconciler, step)?;
        if step % 100 == 99
            && let Some((epoch, grace)) = reconciler.grace()
        {
            grace()?;
            reconciler.grace_passed(epoch);
        }
    }
    let refused = reconciler.dataplane().refused;
    ensure!(refused > 0, "the maps were never full");
    reconciler.change(Change::Services(Vec::new()));
    reconciler.change(Change::Slices(Vec::new()));
    reconciler.addresses([].into());
    sync(&mut reconciler, STEPS)?;
    let left = reconciler.dataplane().dump()?;
    ensure!(left == Snapshot::default(), "left over: {left:?}");
    Ok(())
}

fn sync(reconciler: &mut Reconciler<Twin>, step: usize) -> anyhow::Result<()> {
    // What was refused for want of room is tried again by every second step.
    reconciler.retry(step.is_multiple_of(2));
    reconciler.sync();
    let twin = reconciler.dataplane();
    let (fake, kernel) = (twin.fake.dump()?, twin.kernel.dump()?);
    ensure!(
        twin.differences.is_empty(),
        "step {step}: {:#?}",
        twin.differences
    );
    ensure!(
        fake == kernel,
        "step {step}: the fake holds\n{fake:#?}\nthe kernel\n{kernel:#?}"
    );
    let faults = kernel.check();
    ensure!(
        faults.is_empty(),
        "step {step}: the maps contradict themselves: {faults:#?}"
    );
    Ok(())
}

/// Both data planes.
struct Twin {
    fake: Fake,
    kernel: Kernel,
    refused: usize,
    differences: Vec<String>,
}

impl Dataplane for Twin {
    fn apply(&mut self, transaction: &Transaction) -> Outcome {
        let (fake, kernel) = (self.fake.apply(transaction), self.kernel.apply(transaction));
        let failures = |outcome: &Outcome| -> Vec<String> {
            let failed = outcome.failed.iter();
            failed
                .map(|f| format!("unit {}: {} (torn: {})", f.unit, f.error, f.torn))
                .collect()
        };
        let (of_fake, of_kernel) = (failures(&fake), failures(&kernel));
        self.refused += of_kernel.len();
        if of_fake != of_kernel {
            self.differences.push(format!(
                "the fake says {of_fake:?}, the kernel {of_kernel:?} of\n{transaction}"
            ));
        }
        kernel
    }

    fn dump(&mut self) -> Result<Snapshot, Error> {
        self.kernel.dump()
    }

    fn grace(&self) -> Grace {
        self.kernel.grace()
    }
}

fn name(dice: &mut Dice) -> String {
    format!("s{}", dice.below(SERVICES))
}

fn ip(family: Family, net: u8, last: usize) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, net, 0, last as u8).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, last as u16).into(),
    }
}

fn service(dice: &mut Dice) -> Change {
    let name = name(dice);
    let name = ServiceName::new("default", &name);
    if dice.once_in(4) {
        return Change::ServiceGone(name);
    }
    let number = 1 + dice.below(SERVICES);
    let families = match dice.below(3) {
        0 => vec![Family::V4],
        1 => vec![Family::V6],
        _ => vec![Family::V4, Family::V6],
    };
    let addresses = |net: u8| families.iter().map(|&f| ip(f, net, number)).collect();
    let policy = |dice: &mut Dice| *dice.one_of(&[Policy::Cluster, Policy::Local]);
    let ports = ["http", "dns"].into_iter().take(1 + dice.below(2));
    let ports = ports.enumerate().map(|(index, port)| ServicePort {
        name: port.into(),
        protocol: [Protocol::Tcp, Protocol::Udp][index],
        port: 80,
        node_port: if dice.once_in(2) {
            30_000 + number as u16
        } else {
            0
        },
    });
    let ports = ports.collect();
    Change::Service(Service {
        name,
        cluster_ips: addresses(96),
        external_ips: if dice.once_in(3) {
            addresses(99)
        } else {
            Vec::new()
        },
        balancer_ips: if dice.once_in(3) {
            addresses(98)
        } else {
            Vec::new()
        },
        source_ranges: if dice.once_in(3) {
            vec!["10.7.0.0/16".parse().expect("a net"); 1]
        } else {
            Vec::new()
        },
        internal_policy: policy(dice),
        external_policy: policy(dice),
        affinity_seconds: dice.once_in(4).then_some(60),
        health_check_node_port: 0,
        scheduler: Scheduler::Random,
        ports,
    })
}

fn slice(dice: &mut Dice) -> Change {
    let service = name(dice);
    let family = *dice.one_of(&Family::ALL);
    let name = SliceName::new("default", &format!("{service}-{family}"));
    if dice.once_in(5) {
        return Change::SliceGone(name);
    }
    let endpoints = (0..dice.below(5)).map(|_| {
        let state = dice.below(4);
        Endpoint {
            addr: ip(family, 1, 1 + dice.below(9)),
            ready: state < 2,
            serving: state < 3,
            terminating: state >= 2,
            pod: PodId::UNKNOWN,
            node: Some(if dice.once_in(2) { "node-a" } else { "node-b" }.into()),
            hints: None,
        }
    });
    Change::Slice(EndpointSlice {
        name,
        service: ServiceName::new("default", &service),
        family,
        endpoints: endpoints.collect(),
        ports: vec![
            SlicePort {
                name: "http".into(),
                protocol: Protocol::Tcp,
                port: 8080,
            },
            SlicePort {
                name: "dns".into(),
                protocol: Protocol::Udp,
                port: 5353,
            },
        ],
        trigger_time: 0,
    })
}

fn addresses(dice: &mut Dice) -> std::collections::BTreeMap<proxy_common::Address, u32> {
    let flags = NodeAddrValue::NODE_PORT;
    (0..dice.below(4))
        .map(|_| (addr::from_ip(ip(Family::V4, 50, dice.below(6))), flags))
        .collect()
}
