//! Many Services.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    time::Instant,
};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::{
    admin::{Endpoint, slice},
    stage::{PATIENCE, Stage, cluster_ip, frontend, lines_of, until, web},
};

const SERVICES: u16 = 1000;

pub(crate) fn a_thousand_services_are_all_in_the_maps_and_gone_when_deleted(
    stage: &mut Stage,
) -> anyhow::Result<()> {
    let space = stage.admin.namespace("many")?;
    let begin = Instant::now();
    let objects = (0..SERVICES).map(|number| {
        let (name, port) = (name(number), target_port(number));
        let slice = slice(&name, "IPv4", &[("http", port, "TCP")], &endpoints(number));
        (name, web(80), slice)
    });
    let created = space.create_all(objects.collect())?;
    eprintln!("{SERVICES} Services created in {:.1?}", begin.elapsed());
    ensure!(
        created.len() == usize::from(SERVICES),
        "not all were created"
    );

    let mut expected = BTreeMap::new();
    for service in &created {
        let name = service.metadata.name.clone().context("a name")?;
        let number: u16 = name.trim_start_matches("web-").parse()?;
        let at = SocketAddr::new(cluster_ip(service)?, 80);
        let mut lines = BTreeSet::from([frontend("ClusterIP", at)]);
        for endpoint in endpoints(number) {
            let at = SocketAddr::new(endpoint.address.parse()?, target_port(number));
            lines.insert(format!("-> {at} active"));
        }
        expected.insert(name, lines);
    }
    let mut missing = String::new();
    until(PATIENCE, || {
        let seen = listed(&stage.services()?);
        missing = expected
            .iter()
            .find(|(name, lines)| seen.get(*name) != Some(lines))
            .map(|(name, lines)| format!("{name} is {:?}, not {lines:?}", seen.get(name)))
            .unwrap_or_default();
        Ok((seen == expected).then_some(()))
    })
    .with_context(|| format!("wait for {SERVICES} Services in the maps: {missing}"))?;
    eprintln!("all in the maps after {:.1?}", begin.elapsed());

    for (name, lines) in expected.iter().step_by(250) {
        let Some(at) = lines
            .iter()
            .find_map(|line| line.strip_prefix("ClusterIP "))
        else {
            bail!("{name} has no address");
        };
        // Its endpoints do not exist: no answer, but no refusal in the Service's name either.
        stage.untouched(at.parse()?)?;
    }
    space.clear()?;
    until(PATIENCE, || {
        Ok(listed(&stage.services()?).is_empty().then_some(()))
    })
    .context("wait until all are gone")?;
    Ok(())
}

fn name(number: u16) -> String {
    format!("web-{number:04}")
}

fn target_port(number: u16) -> u16 {
    8000 + number
}

/// Two pods that nobody has.
fn endpoints(number: u16) -> Vec<Endpoint> {
    let [high, low] = number.to_be_bytes();
    let address = |pod| Ipv4Addr::new(10, 200 + high, low, pod).to_string();
    [1, 2]
        .into_iter()
        .map(|pod| Endpoint {
            address: address(pod),
            node: "node-b".to_owned(),
            ready: true,
        })
        .collect()
}

/// What is listed of this namespace, by name.
fn listed(services: &[Value]) -> BTreeMap<String, BTreeSet<String>> {
    let own = services
        .iter()
        .filter(|service| service["namespace"] == "many");
    own.map(|service| {
        let name = service["name"].as_str().unwrap_or_default();
        let lines = lines_of(std::slice::from_ref(service), &format!("many/{name}"));
        (name.to_owned(), lines)
    })
    .collect()
}
