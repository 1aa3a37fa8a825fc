//! EndpointSlices: the fields that are read, and what the model makes of them.

use k8s_openapi::{NamespaceResourceScope, jiff};
use proxy_common::NameValue;
use serde::Deserialize;

use super::{
    decoder::{Decoded, Decoder, Origin, Review},
    field::{Field, First, object, quote},
    slim::{Kind, Metadata, Slim},
};
use crate::model::{EndpointSlice, Family, ServiceName, SliceName, SlicePort, Text};

mod endpoints;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;

use endpoints::endpoints;

/// A discovery.k8s.io/v1 EndpointSlice.
pub(crate) type SlimSlice = Slim<SliceBody>;

/// Fields of an EndpointSlice.
#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SliceBody {
    pub(crate) metadata: Field<Metadata>,
    pub(crate) address_type: Field<String>,
    pub(crate) endpoints: Field<Vec<Field<SlimEndpoint>>>,
    pub(crate) ports: Field<Vec<Field<Port>>>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SlimEndpoint {
    addresses: Field<First<String>>,
    conditions: Field<Conditions>,
    node_name: Field<String>,
    hints: Field<SlimHints>,
    target_ref: Field<TargetRef>,
}

/// What the endpoint is, for [`PodId`]. An odd one is not worth a warning: it only tells twins
/// apart.
#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
struct TargetRef {
    name: Field<String>,
    uid: Field<String>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Field<bool>,
    serving: Field<bool>,
    terminating: Field<bool>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimHints {
    for_zones: Field<Vec<Field<Named>>>,
    for_nodes: Field<Vec<Field<Named>>>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
struct Named {
    name: Field<String>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    name: Field<String>,
    protocol: Field<String>,
    port: Field<i64>,
}

object!(
    SliceBody,
    SlimEndpoint,
    TargetRef,
    Conditions,
    SlimHints,
    Named,
    Port
);

impl Kind for SliceBody {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "EndpointSlice";
    const GROUP: &'static str = "discovery.k8s.io";
    const PLURAL: &'static str = "endpointslices";
    const NAMESPACED: bool = true;
    // A DNS subdomain, RFC 1123.
    const LONGEST_NAME: usize = 253;

    fn metadata(&self) -> &Field<Metadata> {
        &self.metadata
    }
}

const KEPT: &str = "the slice keeps its last good state";
const SLICE_SKIPPED: &str = "the slice is skipped";
const PORT_SKIPPED: &str = "the port is skipped";
const IGNORED: &str = "it is ignored";

/// Decodes an EndpointSlice. `file` is the manifest it is from, for the warnings.
pub(crate) fn decode(
    decoder: &mut Decoder,
    slim: &SlimSlice,
    file: Option<&Text>,
) -> Decoded<EndpointSlice, SliceName> {
    let (mut review, names) = decoder.review(slim, file);
    let (Some((namespace, name)), Some(body)) = (names, slim.body.get()) else {
        review.finish(decoder);
        return Decoded::Keep(None);
    };
    let name = SliceName { namespace, name };
    let decoded = decode_body(decoder, &mut review, name, slim, body);
    review.finish(decoder);
    decoded
}

fn decode_body(
    decoder: &mut Decoder,
    review: &mut Review,
    name: SliceName,
    slim: &SlimSlice,
    body: &SliceBody,
) -> Decoded<EndpointSlice, SliceName> {
    if slim
        .labels()
        .is_some_and(|labels| !labels.headless.is_absent())
    {
        return Decoded::Leave(name);
    }
    let Some(service) = service(decoder, review, &name, slim) else {
        return Decoded::Leave(name);
    };
    let family = match review
        .read(&body.address_type, "addressType", KEPT)
        .map(String::as_str)
    {
        Some("IPv4") => Family::V4,
        Some("IPv6") => Family::V6,
        Some(other) => {
            review.unknown("addressType", other, "IPv4 or IPv6", SLICE_SKIPPED);
            return Decoded::Leave(name);
        }
        None => {
            if body.address_type.is_absent() {
                review.warn("addressType", format_args!("is missing; {KEPT}"));
            }
            return Decoded::Keep(Some(name));
        }
    };
    if body.ports.is_odd() || body.endpoints.is_odd() {
        review.read(&body.ports, "ports", KEPT);
        review.read(&body.endpoints, "endpoints", KEPT);
        return Decoded::Keep(Some(name));
    }
    let ports = ports(decoder, review, body);
    let endpoints = endpoints(decoder, review, body, family);
    if body.ports.get().is_none_or(Vec::is_empty) && !endpoints.is_empty() {
        review.warn("ports", "is empty; the endpoints serve nothing");
    }
    Decoded::Serve(EndpointSlice {
        name,
        service,
        family,
        ports,
        endpoints,
        trigger_time: trigger_time(review, slim),
    })
}

/// The Service that the slice belongs to (W6).
fn service(
    decoder: &mut Decoder,
    review: &mut Review,
    slice: &SliceName,
    slim: &SlimSlice,
) -> Option<ServiceName> {
    let path = "metadata.labels[kubernetes.io/service-name]";
    let label = slim.labels().map(|labels| &labels.service_name);
    let name = label.and_then(|field| review.read(field, path, SLICE_SKIPPED));
    match name.map(String::as_str) {
        None | Some("") => {
            if !label.is_some_and(Field::is_odd) {
                review.warn(path, format_args!("is missing; {SLICE_SKIPPED}"));
            }
            None
        }
        Some(name) => review
            .name(path, name, NameValue::MAX, SLICE_SKIPPED)
            .then(|| ServiceName {
                namespace: slice.namespace.clone(),
                name: decoder.names.text(name),
            }),
    }
}

fn ports(decoder: &mut Decoder, review: &mut Review, body: &SliceBody) -> Vec<SlicePort> {
    let mut ports: Vec<SlicePort> = Vec::new();
    for (i, slim) in review.list(&body.ports, "ports", PORT_SKIPPED) {
        let Some(port) = port(decoder, review, i, slim) else {
            continue;
        };
        let twin = |other: &SlicePort| other.name == port.name && other.protocol == port.protocol;
        if ports.iter().any(twin) {
            review.warn(
                format_args!("ports[{i}].name"),
                format_args!(
                    "{} is the name of an earlier {} port; {PORT_SKIPPED}",
                    quote(&port.name),
                    port.protocol.name()
                ),
            );
        } else {
            ports.push(port);
        }
    }
    ports.shrink_to_fit();
    ports
}

fn port(decoder: &mut Decoder, review: &mut Review, i: usize, slim: &Port) -> Option<SlicePort> {
    let name_path = format_args!("ports[{i}].name");
    let name = match &slim.name {
        // The API server fills in an empty name; where it did not, kube-proxy skips the port (W9).
        Field::Absent if decoder.origin == Origin::Manifest => "",
        Field::Absent => {
            review.warn(name_path, format_args!("is missing; {PORT_SKIPPED}"));
            return None;
        }
        name => review.read(name, name_path, PORT_SKIPPED)?,
    };
    if !review.name(name_path, name, NameValue::MAX, PORT_SKIPPED) {
        return None;
    }
    let protocol_path = format_args!("ports[{i}].protocol");
    let protocol = review.protocol(&slim.protocol, protocol_path, PORT_SKIPPED)?;
    let port_path = format_args!("ports[{i}].port");
    if slim.port.is_absent() {
        // "All ports" is not implemented, as in kube-proxy (W9).
        review.warn(port_path, format_args!("is missing; {PORT_SKIPPED}"));
    }
    let number = *review.read(&slim.port, port_path, PORT_SKIPPED)?;
    Some(SlicePort {
        name: decoder.names.text(name),
        protocol,
        port: review.port(port_path, number, PORT_SKIPPED)?,
    })
}

/// When the change behind this state of the slice happened, in Unix nanoseconds (T57).
fn trigger_time(review: &mut Review, slim: &SlimSlice) -> i64 {
    let path = "metadata.annotations[endpoints.kubernetes.io/last-change-trigger-time]";
    let Some(text) = slim
        .annotations()
        .and_then(|annotations| review.read(&annotations.trigger_time, path, IGNORED))
    else {
        return 0;
    };
    let time: Option<jiff::Timestamp> = text.parse().ok();
    let nanoseconds = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
    nanoseconds.unwrap_or_else(|| {
        review.warn(path, format_args!("{} is no time; {IGNORED}", quote(text)));
        0
    })
}
