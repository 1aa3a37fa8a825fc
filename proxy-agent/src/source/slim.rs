//! Slim Kubernetes types: what is read of an object, and nothing else.
//!
//! A tenth of the memory of the full types while a list is decoded, and lenient (see [`Field`]).
//! Nothing is judged here.

use std::{borrow::Cow, fmt::Debug, hash::Hash};

use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Deserializer};

use super::field::{Field, Shape, object};

/// The fields of one Kubernetes kind.
pub(crate) trait Kind: Shape + Clone + Debug + Hash + Send + Sync + 'static {
    /// `k8s_openapi`'s marker: in namespaces or not.
    type Scope;
    const KIND: &'static str;
    const GROUP: &'static str;
    const PLURAL: &'static str;
    /// Whether its objects are in namespaces.
    const NAMESPACED: bool;
    /// Most bytes of a name.
    const LONGEST_NAME: usize;

    /// Its field `metadata`.
    fn metadata(&self) -> &Field<Metadata>;
}

/// An object of kind `B`.
#[derive(Clone, Debug)]
pub(crate) struct Slim<B> {
    /// Name, namespace and resource version: what kube's watcher looks at.
    meta: ObjectMeta,
    /// All its fields; odd if the object is no object.
    pub(crate) body: Field<B>,
}

/// `metadata`.
#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: Field<String>,
    pub(crate) namespace: Field<String>,
    resource_version: Field<String>,
    pub(crate) labels: Field<Labels>,
    pub(crate) annotations: Field<Annotations>,
}

/// The labels that are read.
#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct Labels {
    /// On an EndpointSlice: the Service it belongs to (W6).
    #[serde(rename = "kubernetes.io/service-name")]
    pub(crate) service_name: Field<String>,
    /// On a Service, with any value: another proxy's (W1).
    #[serde(rename = "service.kubernetes.io/service-proxy-name")]
    pub(crate) service_proxy_name: Field<String>,
    /// On an EndpointSlice, with any value: of a headless Service (W2).
    #[serde(rename = "service.kubernetes.io/headless")]
    pub(crate) headless: Field<String>,
    /// On a Node: its zone.
    #[serde(rename = "topology.kubernetes.io/zone")]
    pub(crate) zone: Field<String>,
}

/// The annotations that are read.
#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct Annotations {
    /// On an EndpointSlice: when the change behind it happened.
    #[serde(rename = "endpoints.kubernetes.io/last-change-trigger-time")]
    pub(crate) trigger_time: Field<String>,
    /// On a Service: how its backends are chosen.
    #[serde(rename = "sidestep.io/scheduler")]
    pub(crate) scheduler: Field<String>,
}

object!(Metadata, Labels, Annotations);

impl<B: Kind> Slim<B> {
    /// The labels that are read; none if they are odd.
    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.metadata()?.labels.get()
    }

    /// The annotations that are read; none if they are odd.
    pub(crate) fn annotations(&self) -> Option<&Annotations> {
        self.metadata()?.annotations.get()
    }

    /// `metadata`; none if it is odd.
    pub(crate) fn metadata(&self) -> Option<&Metadata> {
        self.body.get()?.metadata().get()
    }
}

impl<B: Kind> From<Field<B>> for Slim<B> {
    fn from(body: Field<B>) -> Self {
        let metadata = body.get().and_then(|body| body.metadata().get());
        Self {
            meta: metadata.map(object_meta).unwrap_or_default(),
            body,
        }
    }
}

impl<'de, B: Kind> Deserialize<'de> for Slim<B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Field::deserialize(deserializer).map(Self::from)
    }
}

impl<B: Kind> Resource for Slim<B> {
    type DynamicType = ();
    type Scope = B::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        B::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        B::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        B::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

/// What kube's watcher wants to know of an object.
fn object_meta(metadata: &Metadata) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.get().cloned(),
        namespace: metadata.namespace.get().cloned(),
        resource_version: metadata.resource_version.get().cloned(),
        ..ObjectMeta::default()
    }
}
