//! Services: the fields that are read, and what the model makes of them.

use k8s_openapi::NamespaceResourceScope;
use proxy_common::{NameValue, Scheduler};
use serde::Deserialize;

use super::{
    decoder::{Decoded, Decoder, Review},
    field::{Field, object},
    slim::{Annotations, Kind, Metadata, Slim},
};
use crate::model::{Policy, Service, ServiceName, Text};

mod addresses;
#[cfg(test)]
mod faults;
mod ports;
#[cfg(test)]
mod tests;

use addresses::{Unreadable, addresses, balancer_ips, cluster_ips, source_ranges};
use ports::ports;

/// A v1 Service.
pub(crate) type SlimService = Slim<ServiceBody>;

/// `service.spec.sessionAffinityConfig.clientIP.timeoutSeconds` where nothing is given (A1).
const AFFINITY_SECONDS: u32 = 10_800;
/// The longest that the API allows (A1): a day.
const AFFINITY_LONGEST: i64 = 86_400;

/// Fields of a Service.
#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceBody {
    pub(crate) metadata: Field<Metadata>,
    pub(crate) spec: Field<Spec>,
    pub(crate) status: Field<Status>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    r#type: Field<String>,
    #[serde(rename = "clusterIP")]
    cluster_ip: Field<String>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Field<Vec<Field<String>>>,
    ip_families: Field<Vec<Field<String>>>,
    #[serde(rename = "externalIPs")]
    external_ips: Field<Vec<Field<String>>>,
    load_balancer_source_ranges: Field<Vec<Field<String>>>,
    internal_traffic_policy: Field<String>,
    external_traffic_policy: Field<String>,
    health_check_node_port: Field<i64>,
    session_affinity: Field<String>,
    session_affinity_config: Field<AffinityConfig>,
    ports: Field<Vec<Field<Port>>>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
struct AffinityConfig {
    #[serde(rename = "clientIP")]
    client_ip: Field<ClientIp>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClientIp {
    timeout_seconds: Field<i64>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Port {
    name: Field<String>,
    protocol: Field<String>,
    port: Field<i64>,
    node_port: Field<i64>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    load_balancer: Field<Balancer>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default)]
struct Balancer {
    ingress: Field<Vec<Field<Ingress>>>,
}

#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ingress {
    ip: Field<String>,
    ip_mode: Field<String>,
}

object!(
    ServiceBody,
    Spec,
    AffinityConfig,
    ClientIp,
    Port,
    Status,
    Balancer,
    Ingress
);

impl Kind for ServiceBody {
    type Scope = NamespaceResourceScope;
    const KIND: &'static str = "Service";
    const GROUP: &'static str = "";
    const PLURAL: &'static str = "services";
    const NAMESPACED: bool = true;
    const LONGEST_NAME: usize = NameValue::MAX;

    fn metadata(&self) -> &Field<Metadata> {
        &self.metadata
    }
}

/// Decodes a Service. `file` is the manifest it is from, for the warnings.
pub(crate) fn decode(
    decoder: &mut Decoder,
    slim: &SlimService,
    file: Option<&Text>,
) -> Decoded<Service, ServiceName> {
    let (mut review, names) = decoder.review(slim, file);
    let (Some((namespace, name)), Some(body)) = (names, slim.body.get()) else {
        review.finish(decoder);
        return Decoded::Keep(None);
    };
    let name = ServiceName { namespace, name };
    let decoded = if slim
        .labels()
        .is_some_and(|l| !l.service_proxy_name.is_absent())
    {
        Decoded::Leave(name)
    } else if let Some(spec) = review.read(&body.spec, "spec", KEPT) {
        decode_spec(
            decoder,
            &mut review,
            name,
            spec,
            &body.status,
            slim.annotations(),
        )
    } else {
        if body.spec.is_absent() {
            review.warn("spec", format_args!("is missing; {KEPT}"));
        }
        Decoded::Keep(Some(name))
    };
    review.finish(decoder);
    decoded
}

const KEPT: &str = "the Service keeps its last good state";

#[derive(Clone, Copy, PartialEq)]
enum Type {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

fn decode_spec(
    decoder: &mut Decoder,
    review: &mut Review,
    name: ServiceName,
    spec: &Spec,
    status: &Field<Status>,
    annotations: Option<&Annotations>,
) -> Decoded<Service, ServiceName> {
    let r#type = service_type(review, spec);
    if r#type == Type::ExternalName {
        return Decoded::Leave(name);
    }
    let cluster_ips = match cluster_ips(review, spec, decoder.origin) {
        Ok(ips) if ips.is_empty() => return Decoded::Leave(name),
        Ok(ips) => ips,
        Err(Unreadable) => return Decoded::Keep(Some(name)),
    };
    if review.read(&spec.ports, "spec.ports", KEPT).is_none() && spec.ports.is_odd() {
        return Decoded::Keep(Some(name));
    }
    let ports = ports(decoder, review, spec);
    if spec.ports.get().is_none_or(Vec::is_empty) {
        review.warn(
            "spec.ports",
            "is empty; nothing is served at the Service's addresses",
        );
    }

    let has_external_ips = spec.external_ips.get().is_some_and(|list| !list.is_empty());
    let external_ips = addresses(review, &spec.external_ips, "spec.externalIPs");
    let external_policy = policy(
        review,
        &spec.external_traffic_policy,
        "spec.externalTrafficPolicy",
    );
    let external_policy = match r#type {
        Type::NodePort | Type::LoadBalancer => external_policy,
        _ if has_external_ips => external_policy,
        _ => Policy::Cluster,
    };
    let health_check_node_port = if r#type == Type::LoadBalancer && external_policy == Policy::Local
    {
        health_check_node_port(review, spec)
    } else {
        0
    };
    Decoded::Serve(Service {
        name,
        cluster_ips,
        external_ips: if decoder.external_ips {
            external_ips
        } else {
            Vec::new()
        },
        balancer_ips: balancer_ips(review, status),
        source_ranges: source_ranges(review, spec),
        internal_policy: policy(
            review,
            &spec.internal_traffic_policy,
            "spec.internalTrafficPolicy",
        ),
        external_policy,
        affinity_seconds: affinity(review, spec),
        health_check_node_port,
        scheduler: scheduler(review, annotations),
        ports,
    })
}

fn service_type(review: &mut Review, spec: &Spec) -> Type {
    let then = "it is served as ClusterIP";
    match review
        .read(&spec.r#type, "spec.type", then)
        .map(String::as_str)
    {
        None | Some("ClusterIP" | "") => Type::ClusterIp,
        Some("NodePort") => Type::NodePort,
        Some("LoadBalancer") => Type::LoadBalancer,
        Some("ExternalName") => Type::ExternalName,
        Some(other) => {
            review.unknown("spec.type", other, "a type of Services", then);
            Type::ClusterIp
        }
    }
}

fn policy(review: &mut Review, field: &Field<String>, path: &str) -> Policy {
    let then = "it counts as Cluster";
    match review.read(field, path, then).map(String::as_str) {
        None | Some("Cluster" | "") => Policy::Cluster,
        Some("Local") => Policy::Local,
        Some(other) => {
            review.unknown(path, other, "Cluster or Local", then);
            Policy::Cluster
        }
    }
}

fn health_check_node_port(review: &mut Review, spec: &Spec) -> u16 {
    let path = "spec.healthCheckNodePort";
    let then = "the node answers no health checks for it";
    match review.read(&spec.health_check_node_port, path, then) {
        None | Some(0) => 0,
        Some(&number) => review.port(path, number, then).unwrap_or(0),
    }
}

/// Seconds of ClientIP affinity (A1).
fn affinity(review: &mut Review, spec: &Spec) -> Option<u32> {
    let path = "spec.sessionAffinity";
    let then = "there is no affinity";
    match review
        .read(&spec.session_affinity, path, then)
        .map(String::as_str)
    {
        None | Some("None" | "") => return None,
        Some("ClientIP") => {}
        Some(other) => {
            review.unknown(path, other, "ClientIP or None", then);
            return None;
        }
    }
    let path = "spec.sessionAffinityConfig";
    let then = format!("{AFFINITY_SECONDS} seconds are used");
    let config = review.read(&spec.session_affinity_config, path, &then);
    let path = "spec.sessionAffinityConfig.clientIP";
    let client = config.and_then(|config| review.read(&config.client_ip, path, &then));
    let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    let seconds = client.and_then(|client| review.read(&client.timeout_seconds, path, &then));
    Some(match seconds {
        None => AFFINITY_SECONDS,
        Some(&seconds @ 1..=AFFINITY_LONGEST) => seconds as u32,
        Some(seconds) => {
            review.warn(
                path,
                format_args!("{seconds} is not in 1 to {AFFINITY_LONGEST}; {then}"),
            );
            AFFINITY_SECONDS
        }
    })
}

fn scheduler(review: &mut Review, annotations: Option<&Annotations>) -> Scheduler {
    let path = "metadata.annotations[sidestep.io/scheduler]";
    let then = "random is used";
    if let Some(annotations) = annotations
        && let Some(name) = review.read(&annotations.scheduler, path, then)
        && name != Scheduler::Random.name()
    {
        review.unknown(path, name, "a scheduler of this version (random)", then);
    }
    Scheduler::Random
}
