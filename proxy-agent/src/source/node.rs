//! This node: the fields that are read, and what the model makes of them.

use k8s_openapi::ClusterResourceScope;
use serde::Deserialize;

use super::{
    decoder::Decoder,
    field::{Field, object},
    slim::{Kind, Metadata, Slim},
};
use crate::model::{Node, Text};

/// A v1 Node.
pub(crate) type SlimNode = Slim<NodeBody>;

/// Fields of a Node: only its labels matter.
#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct NodeBody {
    pub(crate) metadata: Field<Metadata>,
}

object!(NodeBody);

impl Kind for NodeBody {
    type Scope = ClusterResourceScope;
    const KIND: &'static str = "Node";
    const GROUP: &'static str = "";
    const PLURAL: &'static str = "nodes";
    const NAMESPACED: bool = false;
    // A DNS subdomain, RFC 1123.
    const LONGEST_NAME: usize = 253;

    fn metadata(&self) -> &Field<Metadata> {
        &self.metadata
    }
}

/// Decodes a Node; `None` if even its name is unknown. An empty zone is none (T5).
pub(crate) fn decode(decoder: &mut Decoder, slim: &SlimNode, file: Option<&Text>) -> Option<Node> {
    let (mut review, names) = decoder.review(slim, file);
    let node = names.map(|(_, name)| {
        let path = "metadata.labels[topology.kubernetes.io/zone]";
        let zone = slim
            .labels()
            .and_then(|labels| review.read(&labels.zone, path, "the node has no zone"))
            .filter(|zone| !zone.is_empty());
        Node {
            name,
            zone: zone.map(|zone| decoder.names.text(zone)),
        }
    });
    review.finish(decoder);
    node
}
