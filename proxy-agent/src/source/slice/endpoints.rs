//! Endpoints of an EndpointSlice.

use std::{collections::HashSet, net::IpAddr};

use super::{Conditions, Named, SliceBody, SlimEndpoint};
use crate::{
    model::{Endpoint, Family, Hints, PodId, Text},
    source::{
        address,
        decoder::{Decoder, Review},
        field::{Field, First, quote},
    },
};

const ENDPOINT_SKIPPED: &str = "the endpoint is skipped";
const HINT_SKIPPED: &str = "the hint is skipped";

/// The endpoints that can be served, in the object's order.
pub(super) fn endpoints(
    decoder: &mut Decoder,
    review: &mut Review,
    body: &SliceBody,
    family: Family,
) -> Vec<Endpoint> {
    let slims = review.list(&body.endpoints, "endpoints", ENDPOINT_SKIPPED);
    let mut endpoints = Vec::with_capacity(slims.len());
    let mut running: HashSet<IpAddr> = HashSet::with_capacity(slims.len());
    for (i, slim) in slims {
        let Some(addr) = address(review, i, slim, family) else {
            continue;
        };
        let endpoint = endpoint(decoder, review, i, slim, addr);
        // A terminating pod whose address another has by now is no fault (W13).
        if !endpoint.terminating && !running.insert(addr) {
            review.warn(
                format_args!("endpoints[{i}].addresses[0]"),
                format_args!("{addr} is an earlier endpoint's already; it is served once"),
            );
        }
        endpoints.push(endpoint);
    }
    endpoints
}

/// The first address of an endpoint (W8).
fn address(review: &mut Review, i: usize, slim: &SlimEndpoint, family: Family) -> Option<IpAddr> {
    let list_path = format_args!("endpoints[{i}].addresses");
    let path = format_args!("endpoints[{i}].addresses[0]");
    let first = review.read(&slim.addresses, list_path, ENDPOINT_SKIPPED);
    let text = first.and_then(|First(text)| review.read(text, path, ENDPOINT_SKIPPED));
    let Some(text) = text else {
        if !slim.addresses.is_odd() && !first.is_some_and(|First(text)| text.is_odd()) {
            review.warn(list_path, format_args!("is empty; {ENDPOINT_SKIPPED}"));
        }
        return None;
    };
    let Some(ip) = address::ip(text) else {
        review.warn(
            path,
            format_args!("{} is no IP address; {ENDPOINT_SKIPPED}", quote(text)),
        );
        return None;
    };
    if Family::of(ip) != family {
        review.warn(
            path,
            format_args!("{ip} is not {family}, the slice's addressType; {ENDPOINT_SKIPPED}"),
        );
        return None;
    }
    if let Some(reason) = address::unfit_backend(ip) {
        review.warn(path, format_args!("{ip} is {reason}; {ENDPOINT_SKIPPED}"));
        return None;
    }
    Some(ip)
}

fn endpoint(
    decoder: &mut Decoder,
    review: &mut Review,
    i: usize,
    slim: &SlimEndpoint,
    addr: IpAddr,
) -> Endpoint {
    let none = Conditions::default();
    let path = format_args!("endpoints[{i}].conditions");
    let conditions = review
        .read(&slim.conditions, path, super::IGNORED)
        .unwrap_or(&none);
    let mut condition = |field: &Field<bool>, name: &str, nil: bool| {
        let path = format_args!("endpoints[{i}].conditions.{name}");
        let then = if nil {
            "it counts as true"
        } else {
            "it counts as false"
        };
        *review.read(field, path, then).unwrap_or(&nil)
    };
    let ready = condition(&conditions.ready, "ready", true);
    let serving = condition(&conditions.serving, "serving", true);
    let terminating = condition(&conditions.terminating, "terminating", false);
    let path = format_args!("endpoints[{i}].nodeName");
    let node = review.read(&slim.node_name, path, "it counts as on no node");
    let node = node.filter(|node| !node.is_empty());
    Endpoint {
        addr,
        ready,
        serving,
        terminating,
        pod: pod(slim),
        node: node.map(|node| decoder.names.text(node)),
        hints: hints(decoder, review, i, slim),
    }
}

fn pod(slim: &SlimEndpoint) -> PodId {
    let target = slim.target_ref.get();
    target
        .and_then(|target| target.uid.get().or(target.name.get()))
        .filter(|text| !text.is_empty())
        .map_or(PodId::UNKNOWN, |text| PodId::of(text))
}

fn hints(
    decoder: &mut Decoder,
    review: &mut Review,
    i: usize,
    slim: &SlimEndpoint,
) -> Option<Box<Hints>> {
    let path = format_args!("endpoints[{i}].hints");
    let slim = review.read(&slim.hints, path, "they are ignored")?;
    let hints = Hints {
        zones: named(
            decoder,
            review,
            &slim.for_zones,
            &format!("{path}.forZones"),
        ),
        nodes: named(
            decoder,
            review,
            &slim.for_nodes,
            &format!("{path}.forNodes"),
        ),
    };
    (hints != Hints::default()).then(|| Box::new(hints))
}

fn named(
    decoder: &mut Decoder,
    review: &mut Review,
    field: &Field<Vec<Field<Named>>>,
    path: &str,
) -> Vec<Text> {
    let mut names = Vec::new();
    for (i, named) in review.list(field, path, HINT_SKIPPED) {
        let path = format_args!("{path}[{i}].name");
        match review
            .read(&named.name, path, HINT_SKIPPED)
            .map(String::as_str)
        {
            Some("") | None if !named.name.is_odd() => {
                review.warn(path, format_args!("is missing; {HINT_SKIPPED}"));
            }
            None => {}
            Some(name) => names.push(decoder.names.text(name)),
        }
    }
    names.shrink_to_fit();
    names
}
