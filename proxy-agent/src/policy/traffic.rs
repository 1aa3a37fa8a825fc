//! Traffic policies: which sets of endpoints a ServicePort needs, and which of them an address uses.

use std::net::IpAddr;

use proxy_common::FrontendKind;

use crate::model::{Family, Policy, Service, ServicePort};

/// The sets of endpoints that a ServicePort uses in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Some traffic has policy Cluster.
    pub(super) cluster: bool,
    /// Some traffic has policy Local.
    pub(super) local: bool,
}

impl Traffic {
    /// kube-proxy's `UsesClusterEndpoints` and `UsesLocalEndpoints` (pkg/proxy/serviceport.go).
    ///
    /// A Service that is reachable from outside needs the Cluster set even if both policies are
    /// Local: pods and the node itself use it at external addresses (T4, T5).
    pub(super) fn of(service: &Service, port: &ServicePort, family: Family) -> Self {
        let external = port.node_port != 0
            || of_family(&service.balancer_ips, family).next().is_some()
            || of_family(&service.external_ips, family).next().is_some();
        let internal_local = service.internal_policy == Policy::Local;
        let external_local = service.external_policy == Policy::Local;
        Self {
            cluster: !internal_local || external,
            local: internal_local || (external_local && external),
        }
    }
}

/// Whether policy Local governs an address of this kind: internalTrafficPolicy ClusterIPs and
/// nothing else, externalTrafficPolicy all others and no ClusterIP (T2).
pub fn is_local(service: &Service, kind: FrontendKind) -> bool {
    let policy = match kind {
        FrontendKind::Cluster => service.internal_policy,
        FrontendKind::Node | FrontendKind::Balancer | FrontendKind::External => {
            service.external_policy
        }
    };
    policy == Policy::Local
}

/// The addresses of one family (W18), IPv4-mapped ones as the IPv4 addresses that they stand for.
pub fn of_family(addresses: &[IpAddr], family: Family) -> impl Iterator<Item = IpAddr> {
    addresses
        .iter()
        .map(IpAddr::to_canonical)
        .filter(move |&addr| Family::of(addr) == family)
}
