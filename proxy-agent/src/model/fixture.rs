//! Objects for tests, in as few words as a test needs.

use std::net::IpAddr;

use proxy_common::{Protocol, Scheduler};

use super::{
    Endpoint, EndpointSlice, Family, Node, PodId, Policy, Service, ServiceName, ServicePort,
    SliceName, SlicePort, Text,
};

/// An address from its text.
pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// `namespace/name`; the namespace is "default" if it is left out.
pub(crate) fn name(text: &str) -> ServiceName {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    ServiceName::new(namespace, name)
}

/// The same for a slice.
pub(crate) fn slice_name(text: &str) -> SliceName {
    let ServiceName { namespace, name } = name(text);
    SliceName { namespace, name }
}

/// Node "n1" in a zone; "": without the label.
pub(crate) fn node_in(zone: &str) -> Node {
    Node {
        name: "n1".into(),
        zone: (!zone.is_empty()).then(|| zone.into()),
    }
}

/// A ClusterIP Service with one unnamed TCP port 80.
pub(crate) fn service(text: &str) -> Service {
    Service {
        name: name(text),
        cluster_ips: vec![ip("10.96.0.1")],
        external_ips: Vec::new(),
        balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        internal_policy: Policy::Cluster,
        external_policy: Policy::Cluster,
        affinity_seconds: None,
        health_check_node_port: 0,
        scheduler: Scheduler::Random,
        ports: vec![service_port("", Protocol::Tcp, 80)],
    }
}

/// A port without a NodePort.
pub(crate) fn service_port(name: &str, protocol: Protocol, port: u16) -> ServicePort {
    ServicePort {
        name: name.into(),
        protocol,
        port,
        node_port: 0,
    }
}

/// An IPv4 slice of a Service in the namespace of both, with one unnamed TCP port 80.
pub(crate) fn slice(text: &str, service: &str, endpoints: &[Endpoint]) -> EndpointSlice {
    let slice = slice_name(text);
    EndpointSlice {
        service: ServiceName {
            namespace: slice.namespace.clone(),
            name: service.into(),
        },
        name: slice,
        family: Family::V4,
        ports: vec![slice_port("", Protocol::Tcp, 80)],
        endpoints: endpoints.to_vec(),
        trigger_time: 0,
    }
}

/// A port of a slice.
pub(crate) fn slice_port(name: &str, protocol: Protocol, port: u16) -> SlicePort {
    SlicePort {
        name: name.into(),
        protocol,
        port,
    }
}

/// A ready endpoint that names neither node nor pod.
pub(crate) fn endpoint(addr: &str) -> Endpoint {
    Endpoint {
        addr: ip(addr),
        ready: true,
        serving: true,
        terminating: false,
        pod: PodId::UNKNOWN,
        node: None,
        hints: None,
    }
}

impl Service {
    pub(crate) fn internal_local(mut self) -> Self {
        self.internal_policy = Policy::Local;
        self
    }

    pub(crate) fn external_local(mut self) -> Self {
        self.external_policy = Policy::Local;
        self
    }

    /// Gives every port a NodePort, from 30080 on.
    pub(crate) fn with_node_ports(mut self) -> Self {
        for (port, number) in self.ports.iter_mut().zip(30080..) {
            port.node_port = number;
        }
        self
    }
}

impl EndpointSlice {
    pub(crate) fn with_ports(mut self, ports: &[SlicePort]) -> Self {
        self.ports = ports.to_vec();
        self
    }

    pub(crate) fn of(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    pub(crate) fn triggered_at(mut self, time: i64) -> Self {
        self.trigger_time = time;
        self
    }
}

impl Endpoint {
    pub(crate) fn on(mut self, node: &str) -> Self {
        self.node = Some(node.into());
        self
    }

    pub(crate) fn pod(mut self, uid: &str) -> Self {
        self.pod = PodId::of(uid);
        self
    }

    /// Neither ready nor serving.
    pub(crate) fn unready(mut self) -> Self {
        self.ready = false;
        self.serving = false;
        self
    }

    /// Being deleted, still answers.
    pub(crate) fn terminating(mut self) -> Self {
        self.ready = false;
        self.terminating = true;
        self
    }

    pub(crate) fn zones(mut self, zones: &[&str]) -> Self {
        self.hints.get_or_insert_default().zones = texts(zones);
        self
    }

    pub(crate) fn nodes(mut self, nodes: &[&str]) -> Self {
        self.hints.get_or_insert_default().nodes = texts(nodes);
        self
    }
}

fn texts(texts: &[&str]) -> Vec<Text> {
    texts.iter().map(|&text| text.into()).collect()
}
