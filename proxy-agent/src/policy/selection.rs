//! The outcome for one ServicePort in one family.

use std::net::IpAddr;

/// Endpoints of one ServicePort in one family as this node may use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// All serving endpoints, sorted by address and port, no duplicates.
    pub candidates: Vec<Candidate>,
    /// A usable endpoint exists anywhere in the cluster (rule 7 of 1.6): an empty set then means
    /// drop, else refuse.
    pub has_any: bool,
}

/// One endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Candidate {
    /// Address.
    pub addr: IpAddr,
    /// Port.
    pub port: u16,
    /// In the set of policy Local.
    pub local: bool,
    /// In the set of policy Cluster.
    pub cluster: bool,
    /// Runs on this node.
    pub on_node: bool,
}
