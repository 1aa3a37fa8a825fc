//! Both IP families.

use std::{collections::BTreeSet, net::SocketAddr};

use anyhow::{Context as _, ensure};
use lab::Host as _;
use serde_json::json;

use crate::{
    admin::slice,
    stage::{HTTP, Stage, backends, frontend, web},
};

pub(crate) fn a_dual_stack_service_answers_in_both_families_until_one_is_taken_away(
    stage: &mut Stage,
) -> anyhow::Result<()> {
    let tcp = [("http", HTTP, "TCP")];
    let space = stage.admin.namespace("families")?;
    let mut spec = web(80);
    spec["ipFamilyPolicy"] = json!("RequireDualStack");
    let created = space.create_service("web", &spec)?;
    let ips = created.spec.and_then(|spec| spec.cluster_ips);
    let ips = ips.context("no ClusterIPs")?;
    let at: Vec<SocketAddr> = ips
        .iter()
        .map(|ip| anyhow::Ok(SocketAddr::new(ip.parse()?, 80)))
        .collect::<Result<_, _>>()?;
    ensure!(
        at.len() == 2 && at[0].is_ipv4() && at[1].is_ipv6(),
        "ClusterIPs {ips:?} are not of both families"
    );
    // Different pods, so that it shows which list was used.
    let (four, six) = (stage.endpoints(&[1, 2]), stage.endpoints6(&[2, 3]));
    space.apply_slice(&slice("web", "IPv4", &tcp, &four))?;
    space.apply_slice(&slice("web", "IPv6", &tcp, &six))?;
    let mut lines = backends(&four, HTTP)?;
    lines.extend(backends(&six, HTTP)?);
    lines.extend(at.iter().map(|at| frontend("ClusterIP", *at)));
    stage.listed("families/web", &lines)?;
    stage.answers(at[0], &[1, 2])?;
    stage.answers(at[1], &[2, 3])?;
    let mapped = stage.client.connect(at[0]).mapped().count(40).run()?;
    let servers: BTreeSet<_> = mapped.summary.servers.keys().map(String::as_str).collect();
    ensure!(
        mapped.summary.failed == 0 && servers == BTreeSet::from(["web-1", "web-2"]),
        "connections of IPv6 sockets to {}: {:?}",
        at[0],
        mapped.summary
    );

    let single = json!({ "spec": {
        "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": [ips[0]],
    } });
    space.change_service("web", &single)?;
    let mut lines = backends(&four, HTTP)?;
    lines.push(frontend("ClusterIP", at[0]));
    stage.listed("families/web", &lines)?;
    stage.answers(at[0], &[1, 2])?;
    stage.untouched(at[1])?;
    space.clear()
}
