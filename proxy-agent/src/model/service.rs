//! Services.

use std::net::IpAddr;

use ipnet::IpNet;
use proxy_common::{Protocol, Scheduler};

use super::name::{ServiceName, Text};

/// A Service that this node serves, already cleaned of what cannot be served.
///
/// `source` never makes one for headless or ExternalName Services, nor for Services without a
/// ClusterIP (kube-proxy.md W5): those arrive as deletions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub name: ServiceName,
    /// At most one per family; a family without one has no frontends at all (W17).
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`, of both families.
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip` with ipMode VIP or none (S8, S9).
    pub balancer_ips: Vec<IpAddr>,
    /// `spec.loadBalancerSourceRanges`, of both families, canonical.
    pub source_ranges: Vec<IpNet>,
    /// `spec.internalTrafficPolicy`.
    pub internal_policy: Policy,
    /// `spec.externalTrafficPolicy`, [`Policy::Cluster`] where the type does not have it (T1).
    pub external_policy: Policy,
    /// Seconds of ClientIP affinity.
    pub affinity_seconds: Option<u32>,
    /// `spec.healthCheckNodePort`; 0: none.
    pub health_check_node_port: u16,
    /// How backends are chosen.
    pub scheduler: Scheduler,
    /// In the order of the object; names are unique per protocol.
    pub ports: Vec<ServicePort>,
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Name; empty if there is one port without a name.
    pub name: Text,
    /// Protocol.
    pub protocol: Protocol,
    /// Port at the Service's addresses.
    pub port: u16,
    /// Port at the node's addresses; 0: none.
    pub node_port: u16,
}

/// Traffic policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Every endpoint may serve.
    #[default]
    Cluster,
    /// Only endpoints of this node may.
    Local,
}
