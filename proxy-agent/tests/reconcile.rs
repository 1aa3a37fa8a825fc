//! The reconciler on the fake data plane: what was refused comes in, what is gone goes.

use proxy_agent::{
    datapath::{Dataplane, Fake, fake::Faults},
    model::{
        Change, Endpoint, EndpointSlice, Family, Node, PodId, Policy, Service, ServiceName,
        ServicePort, SliceName, SlicePort,
    },
    reconcile::Reconciler,
};
use proxy_common::{Protocol, Scheduler};

const WEB: &str = "default/web";

fn service(ports: &[(&str, u16)]) -> Service {
    let port = |&(name, port): &(&str, u16)| ServicePort {
        name: name.into(),
        protocol: Protocol::Tcp,
        port,
        node_port: 0,
    };
    Service {
        name: ServiceName::new("default", "web"),
        cluster_ips: vec!["10.96.0.1".parse().expect("an address")],
        external_ips: Vec::new(),
        balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        internal_policy: Policy::Cluster,
        external_policy: Policy::Cluster,
        affinity_seconds: None,
        health_check_node_port: 0,
        scheduler: Scheduler::Random,
        ports: ports.iter().map(port).collect(),
    }
}

fn slice(ports: &[&str]) -> EndpointSlice {
    let port = |&name: &&str| SlicePort {
        name: name.into(),
        protocol: Protocol::Tcp,
        port: 8080,
    };
    EndpointSlice {
        name: SliceName::new("default", "web-1"),
        service: ServiceName::new("default", "web"),
        family: Family::V4,
        ports: ports.iter().map(port).collect(),
        endpoints: vec![Endpoint {
            addr: "10.0.0.1".parse().expect("an address"),
            ready: true,
            serving: true,
            terminating: false,
            pod: PodId::UNKNOWN,
            node: None,
            hints: None,
        }],
        trigger_time: 0,
    }
}

/// Two ports, written.
fn started() -> Reconciler<Fake> {
    let node = Node {
        name: "node-1".into(),
        zone: None,
    };
    let mut reconciler = Reconciler::new(node, Fake::new(), 64).expect("the fake can be read");
    let ports = [("http", 80), ("https", 443)];
    reconciler.change(Change::Services(vec![service(&ports)]));
    reconciler.change(Change::Slices(vec![slice(&["http", "https"])]));
    let report = reconciler.sync();
    assert!(report.first && report.is_clean());
    assert!(text(&mut reconciler).contains(&format!("SVC   {WEB}:https/TCP/IPv4")));
    reconciler
}

fn text(reconciler: &mut Reconciler<Fake>) -> String {
    let maps = reconciler.dataplane().dump().expect("the fake can be read");
    maps.normalized()
}

/// Lets every write fail once, then tries again without faults.
fn sync_with_a_failure(reconciler: &mut Reconciler<Fake>) {
    reconciler.dataplane().set_faults(Faults::Percent {
        percent: 100,
        seed: 0,
    });
    let before = text(reconciler);
    assert!(!reconciler.sync().is_clean());
    assert_eq!(text(reconciler), before, "all or nothing");
    assert!(reconciler.has_refused());
    reconciler.dataplane().set_faults(Faults::Never);
    reconciler.retry(true);
    assert!(reconciler.sync().is_clean());
    assert!(!reconciler.has_refused());
}

#[test]
fn a_service_whose_removal_fails_is_removed_by_the_next_try() {
    let mut reconciler = started();
    reconciler.change(Change::ServiceGone(ServiceName::new("default", "web")));
    sync_with_a_failure(&mut reconciler);
    assert_eq!(text(&mut reconciler), "");
}

#[test]
fn a_port_whose_removal_fails_is_removed_by_the_next_try() {
    let mut reconciler = started();
    reconciler.change(Change::Service(service(&[("http", 80)])));
    sync_with_a_failure(&mut reconciler);
    let text = text(&mut reconciler);
    assert!(
        text.contains("web:http/") && !text.contains("web:https/"),
        "{text}"
    );
}

#[test]
fn a_renamed_port_that_fails_is_renamed_by_the_next_try() {
    let mut reconciler = started();
    reconciler.change(Change::Slice(slice(&["web", "https"])));
    reconciler.change(Change::Service(service(&[("web", 80), ("https", 443)])));
    sync_with_a_failure(&mut reconciler);
    let text = text(&mut reconciler);
    assert!(
        text.contains("web:web/") && !text.contains("web:http/"),
        "{text}"
    );
}
