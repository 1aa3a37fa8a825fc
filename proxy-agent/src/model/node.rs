//! This node.

use super::name::Text;

/// What policies need to know of the node that the agent runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name, as endpoints carry it.
    pub name: Text,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<Text>,
}
