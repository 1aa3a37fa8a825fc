//! Addresses of a Service: where it answers, and to whom.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Spec, Status};
use crate::{
    model::Family,
    source::{
        address,
        decoder::{Origin, Review},
        field::{Field, quote},
    },
};

const ADDRESS_SKIPPED: &str = "the address is skipped";

/// The Service has addresses, but they cannot be read.
pub(super) struct Unreadable;

/// At most one ClusterIP per family (W17); none if the Service is not ours to serve (W5).
pub(super) fn cluster_ips(
    review: &mut Review,
    spec: &Spec,
    origin: Origin,
) -> Result<Vec<IpAddr>, Unreadable> {
    let mut texts: Vec<(usize, String, &str)> = review
        .list(&spec.cluster_ips, "spec.clusterIPs", ADDRESS_SKIPPED)
        .into_iter()
        .map(|(i, text)| (i, format!("spec.clusterIPs[{i}]"), text.as_str()))
        .collect();
    let then = if texts.is_empty() {
        super::KEPT
    } else {
        "spec.clusterIPs counts"
    };
    let first = review.read(&spec.cluster_ip, "spec.clusterIP", then);
    if texts.is_empty() {
        match first {
            Some(text) => texts.push((0, "spec.clusterIP".into(), text)),
            None if spec.cluster_ip.is_odd() || spec.cluster_ips.is_odd() => {
                return Err(Unreadable);
            }
            None => {}
        }
    }
    // kube-proxy asks only the first (IsServiceIPSet, pkg/apis/core/v1/helper).
    match first
        .map(String::as_str)
        .or(texts.first().map(|(_, _, text)| *text))
    {
        Some("None") => return Ok(Vec::new()),
        None | Some("") => {
            if origin == Origin::Manifest {
                review.warn(
                    "spec.clusterIP",
                    "is missing and nobody assigns one to a manifest; the Service is not served",
                );
            }
            return Ok(Vec::new());
        }
        Some(_) => {}
    }

    let families = families(review, spec);
    let listed = spec.ip_families.get().map_or(0, Vec::len);
    let mut ips: Vec<IpAddr> = Vec::with_capacity(texts.len());
    for (i, path, text) in texts {
        let Some(ip) = frontend_address(review, &path, text) else {
            continue;
        };
        let family = Family::of(ip);
        let wanted = families
            .iter()
            .find(|(at, _)| *at == i)
            .map(|(_, family)| *family);
        let wrong = if listed != 0 && i >= listed {
            format!("is not in spec.ipFamilies, which has {listed}")
        } else if let Some(wanted) = wanted.filter(|wanted| *wanted != family) {
            format!("is not {wanted}, which spec.ipFamilies[{i}] says")
        } else if ips.iter().any(|known| Family::of(*known) == family) {
            format!("is a second {family} address")
        } else {
            ips.push(ip);
            continue;
        };
        review.warn(
            path.as_str(),
            format_args!("{ip} {wrong}; {ADDRESS_SKIPPED}"),
        );
    }
    if ips.is_empty() {
        Err(Unreadable)
    } else {
        Ok(ips)
    }
}

/// `spec.ipFamilies`, with the index of each.
fn families(review: &mut Review, spec: &Spec) -> Vec<(usize, Family)> {
    let then = "it is ignored";
    let mut families = Vec::new();
    for (i, name) in review.list(&spec.ip_families, "spec.ipFamilies", then) {
        match name.as_str() {
            "IPv4" => families.push((i, Family::V4)),
            "IPv6" => families.push((i, Family::V6)),
            other => {
                let path = format!("spec.ipFamilies[{i}]");
                review.unknown(path.as_str(), other, "IPv4 or IPv6", then);
            }
        }
    }
    families
}

/// An address of the Service. Empty texts are ignored without a word (W16).
fn frontend_address(review: &mut Review, path: &str, text: &str) -> Option<IpAddr> {
    if text.is_empty() {
        return None;
    }
    let Some(ip) = address::ip(text) else {
        review.warn(
            path,
            format_args!("{} is no IP address; {ADDRESS_SKIPPED}", quote(text)),
        );
        return None;
    };
    if let Some(reason) = address::unfit_frontend(ip) {
        review.warn(path, format_args!("{ip} is {reason}; {ADDRESS_SKIPPED}"));
        return None;
    }
    Some(ip)
}

/// Addresses of both families, each once.
pub(super) fn addresses(
    review: &mut Review,
    field: &Field<Vec<Field<String>>>,
    path: &str,
) -> Vec<IpAddr> {
    let mut ips = Vec::new();
    for (i, text) in review.list(field, path, ADDRESS_SKIPPED) {
        if let Some(ip) = frontend_address(review, &format!("{path}[{i}]"), text)
            && !ips.contains(&ip)
        {
            ips.push(ip);
        }
    }
    ips
}

/// VIPs of the load balancer that this node answers (S8); those of ipMode Proxy are left to it (S9).
pub(super) fn balancer_ips(review: &mut Review, status: &Field<Status>) -> Vec<IpAddr> {
    let path = "status.loadBalancer.ingress";
    let mut ips = Vec::new();
    let Some(status) = review.read(status, "status", "it is ignored") else {
        return ips;
    };
    let Some(balancer) = review.read(
        &status.load_balancer,
        "status.loadBalancer",
        "it is ignored",
    ) else {
        return ips;
    };
    for (i, ingress) in review.list(&balancer.ingress, path, ADDRESS_SKIPPED) {
        let mode_path = format!("{path}[{i}].ipMode");
        let mode = review.read(&ingress.ip_mode, mode_path.as_str(), ADDRESS_SKIPPED);
        match mode.map(String::as_str) {
            None if ingress.ip_mode.is_odd() => continue,
            None | Some("VIP") => {}
            Some("Proxy") => continue,
            Some(other) => {
                review.unknown(mode_path.as_str(), other, "VIP or Proxy", ADDRESS_SKIPPED);
                continue;
            }
        }
        let ip_path = format!("{path}[{i}].ip");
        if let Some(text) = review.read(&ingress.ip, ip_path.as_str(), ADDRESS_SKIPPED)
            && let Some(ip) = frontend_address(review, &ip_path, text)
            && !ips.contains(&ip)
        {
            ips.push(ip);
        }
    }
    ips
}

/// Source ranges of both families, canonical, each once (L8, W16).
pub(super) fn source_ranges(review: &mut Review, spec: &Spec) -> Vec<IpNet> {
    let path = "spec.loadBalancerSourceRanges";
    let then = "the range is skipped";
    let mut ranges = Vec::new();
    for (i, text) in review.list(&spec.load_balancer_source_ranges, path, then) {
        if text.trim().is_empty() {
            continue;
        }
        match address::range(text) {
            Some(range) if ranges.contains(&range) => {}
            Some(range) => ranges.push(range),
            None => review.warn(
                format_args!("{path}[{i}]"),
                format_args!("{} is no range; {then}", quote(text)),
            ),
        }
    }
    ranges
}
