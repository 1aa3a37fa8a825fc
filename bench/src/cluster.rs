//! A cluster of any size: Services with one port and ten ready endpoints each, as objects of the
//! model and as manifests.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    path::Path,
    time::{Duration, SystemTime},
};

use proxy_agent::model::{
    Change, Endpoint, EndpointSlice, Family, Node, PodId, Policy, Service, ServiceName,
    ServicePort, SliceName, SlicePort,
};
use proxy_common::{Protocol, Scheduler};
use serde_json::{Value, json};

/// Endpoints of every Service.
pub(crate) const ENDPOINTS: u32 = 10;

/// Where the endpoints' addresses are: a namespace in which the network is local answers for all.
pub(crate) const POD_NETWORK: &str = "100.64.0.0/10";

const SERVICE_PORT: u16 = 80;
/// Port of the endpoints.
pub(crate) const POD_PORT: u16 = 8080;
const NODES: u32 = 500;
/// How old manifests look.
const AGE: Duration = Duration::from_secs(3_600);
const PER_NAMESPACE: u32 = 100;

/// A cluster with this many Services.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    pub(crate) services: u32,
}

impl Cluster {
    /// The full lists, as a source reports them.
    pub(crate) fn lists(self) -> (Change, Change) {
        let services = (0..self.services)
            .map(|number| service(number, Protocol::Tcp))
            .collect();
        let slices = (0..self.services)
            .map(|number| slice(number, &endpoints(number)))
            .collect();
        (Change::Services(services), Change::Slices(slices))
    }

    /// Writes one file for each namespace into a folder.
    ///
    /// # Errors
    ///
    /// Why a file could not be written.
    pub(crate) fn write(self, folder: &Path) -> io::Result<()> {
        let all: Vec<u32> = (0..self.services).collect();
        for (file, numbers) in all.chunks(PER_NAMESPACE as usize).enumerate() {
            let path = folder.join(format!("namespace-{file}.json"));
            let mut out = BufWriter::new(File::create(path)?);
            let items: Vec<Value> = numbers
                .iter()
                .flat_map(|&number| [service_manifest(number), slice_manifest(number)])
                .collect();
            serde_json::to_writer(
                &mut out,
                &json!({ "apiVersion": "v1", "kind": "List", "items": items }),
            )?;
            out.flush()?;
            // Not just written: the agent would read it once more, to be sure.
            out.get_ref().set_modified(SystemTime::now() - AGE)?;
        }
        Ok(())
    }
}

/// This node: the agent's view of it.
pub(crate) fn node() -> Node {
    Node {
        name: node_name(0).as_str().into(),
        zone: None,
    }
}

/// One more Service, whose port is UDP, with its endpoints.
pub(crate) fn udp_service(number: u32) -> [Change; 2] {
    let mut slice = slice(number, &endpoints(number));
    for port in &mut slice.ports {
        port.protocol = Protocol::Udp;
    }
    let service = service(number, Protocol::Udp);
    [Change::Service(service), Change::Slice(slice)]
}

/// ClusterIP and port of a Service.
pub(crate) fn service_address(number: u32) -> SocketAddrV4 {
    SocketAddrV4::new(after([10, 96, 0, 0], number + 1), SERVICE_PORT)
}

/// Address and port of the pod of this number; `ENDPOINTS` in a row belong to one Service.
pub(crate) fn pod_address(number: u32) -> SocketAddrV4 {
    SocketAddrV4::new(after([100, 64, 0, 0], number + 1), POD_PORT)
}

/// Numbers of a Service's pods.
pub(crate) fn endpoints(service: u32) -> Vec<u32> {
    (service * ENDPOINTS..(service + 1) * ENDPOINTS).collect()
}

/// The EndpointSlice of a Service with these pods.
pub(crate) fn slice(service: u32, pods: &[u32]) -> EndpointSlice {
    EndpointSlice {
        name: SliceName::new(&namespace(service), &slice_name(service)),
        service: name(service),
        family: Family::V4,
        ports: vec![SlicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: POD_PORT,
        }],
        endpoints: pods.iter().map(|&pod| endpoint(pod)).collect(),
        trigger_time: 0,
    }
}

fn service(number: u32, protocol: Protocol) -> Service {
    Service {
        name: name(number),
        cluster_ips: vec![IpAddr::V4(*service_address(number).ip())],
        external_ips: Vec::new(),
        balancer_ips: Vec::new(),
        source_ranges: Vec::new(),
        internal_policy: Policy::Cluster,
        external_policy: Policy::Cluster,
        affinity_seconds: None,
        health_check_node_port: 0,
        scheduler: Scheduler::Random,
        ports: vec![ServicePort {
            name: "http".into(),
            protocol,
            port: SERVICE_PORT,
            node_port: 0,
        }],
    }
}

fn endpoint(pod: u32) -> Endpoint {
    Endpoint {
        addr: IpAddr::V4(*pod_address(pod).ip()),
        ready: true,
        serving: true,
        terminating: false,
        pod: PodId::of(&uid(pod)),
        node: Some(node_name(pod).as_str().into()),
        hints: None,
    }
}

fn service_manifest(number: u32) -> Value {
    let ip = service_address(number).ip().to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(number),
            "namespace": namespace(number),
            "labels": { "app": service_name(number) },
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": ip,
            "clusterIPs": [ip],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
            "selector": { "app": service_name(number) },
            "sessionAffinity": "None",
            "ports": [{
                "name": "http", "protocol": "TCP", "port": SERVICE_PORT, "targetPort": POD_PORT,
            }],
        },
    })
}

fn slice_manifest(number: u32) -> Value {
    let endpoints: Vec<Value> = endpoints(number)
        .into_iter()
        .map(|pod| {
            json!({
                "addresses": [pod_address(pod).ip().to_string()],
                "conditions": { "ready": true, "serving": true, "terminating": false },
                "nodeName": node_name(pod),
                "targetRef": {
                    "kind": "Pod",
                    "name": format!("{}-{pod}", service_name(number)),
                    "namespace": namespace(number),
                    "uid": uid(pod),
                },
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(number),
            "namespace": namespace(number),
            "labels": { "kubernetes.io/service-name": service_name(number) },
        },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "protocol": "TCP", "port": POD_PORT }],
        "endpoints": endpoints,
    })
}

fn name(service: u32) -> ServiceName {
    ServiceName::new(&namespace(service), &service_name(service))
}

fn namespace(service: u32) -> String {
    format!("team-{}", service / PER_NAMESPACE)
}

fn service_name(service: u32) -> String {
    format!("backend-{service}")
}

fn slice_name(service: u32) -> String {
    format!("backend-{service}-x7k2q")
}

fn node_name(pod: u32) -> String {
    format!("worker-{}.example.internal", pod % NODES)
}

fn uid(pod: u32) -> String {
    format!("5b0d6a3e-8a52-4c1e-9f43-{pod:012x}")
}

fn after(base: [u8; 4], offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from_be_bytes(base) + offset)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_services_and_no_two_pods_share_an_address() {
        let services: HashSet<_> = (0..100_000).map(service_address).collect();
        assert_eq!(services.len(), 100_000);
        let pods: HashSet<_> = (0..1_000).flat_map(endpoints).map(pod_address).collect();
        assert_eq!(pods.len(), 10_000);
    }
}
