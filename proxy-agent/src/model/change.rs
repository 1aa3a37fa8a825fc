//! What sources report.

use super::{EndpointSlice, Node, Service, ServiceName, SliceName};

/// One change of the cluster.
///
/// A source starts with one `Services` and one `Slices`, each a full list, and sends one again
/// whenever its watch had to start over: what the list lacks is gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// All Services, replacing what was known.
    Services(Vec<Service>),
    /// All EndpointSlices, replacing what was known.
    Slices(Vec<EndpointSlice>),
    /// A Service is new or has changed.
    Service(Service),
    /// A Service is gone or is no longer served by us.
    ServiceGone(ServiceName),
    /// An EndpointSlice is new or has changed.
    Slice(EndpointSlice),
    /// An EndpointSlice is gone.
    SliceGone(SliceName),
    /// Our own Node is new or has changed. Its deletion is not reported (kube-proxy ignores it).
    Node(Node),
}
