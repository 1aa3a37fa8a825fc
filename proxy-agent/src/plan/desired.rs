//! What the maps should say about one ServicePort in one family.

use std::net::IpAddr;

use ipnet::IpNet;
use proxy_common::{FrontendKind, Scheduler};

use crate::{model::ServiceKey, policy::Selection};

/// Everything about one service id, in terms of the cluster and not of ids and slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredService {
    /// Which ServicePort, which family.
    pub key: ServiceKey,
    /// Addresses at which it answers, each with its port. A NodePort has the family's unspecified
    /// address. Sorted; no two with the same address and port.
    pub frontends: Vec<Frontend>,
    /// Its endpoints.
    pub selection: Selection,
    /// Seconds of ClientIP affinity; 0: none.
    pub affinity_seconds: u32,
    /// How to choose.
    pub scheduler: Scheduler,
    /// Sources that may use its LoadBalancer frontends, of its family, sorted; empty: all.
    pub source_ranges: Vec<IpNet>,
}

/// One address of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frontend {
    /// Kind of address; at the same address and port, the lower kind wins.
    pub kind: FrontendKind,
    /// Address.
    pub addr: IpAddr,
    /// Port, never 0.
    pub port: u16,
    /// Policy Local applies to this kind.
    pub local: bool,
    /// Source ranges apply to this address.
    pub source_ranges: bool,
}
