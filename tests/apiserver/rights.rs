//! What the agent asks the API server for, as that has noted it.
//!
//! Before any outage: an API server that has just started forbids everything to everybody until it
//! has read its roles, and the agent asks again.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};

use crate::{
    admin::Admin,
    control_plane::{KUBE_PROXY, Request},
    stage::Stage,
};

pub(crate) fn the_agent_asks_only_for_what_node_proxier_may_and_is_never_forbidden(
    stage: &mut Stage,
) -> anyhow::Result<()> {
    let mut asked = BTreeSet::new();
    for request in requests(stage)? {
        let code = request.response.as_ref().and_then(|response| response.code);
        ensure!(
            code.is_some_and(|code| code != 401 && code != 403),
            "refused: {request:?}"
        );
        ensure!(
            ["list", "watch"].contains(&request.verb.as_str()),
            "neither list nor watch: {request:?}"
        );
        let resource = request.object.and_then(|object| object.resource);
        asked.insert(resource.unwrap_or_default());
    }
    let expected = ["services", "endpointslices", "nodes"].map(str::to_owned);
    ensure!(asked == BTreeSet::from(expected), "asked for {asked:?}");
    let log = stage.log();
    ensure!(
        !log.to_lowercase().contains("forbidden"),
        "the log says forbidden"
    );

    // The same token gets no further: the rights above were really needed.
    let proxy = Admin::new(&stage.control.kubeconfig(KUBE_PROXY))?;
    ensure!(proxy.list_code("/api/v1/services")? == 200);
    for path in [
        "/api/v1/secrets",
        "/api/v1/pods",
        "/apis/apps/v1/deployments",
    ] {
        ensure!(proxy.list_code(path)? == 403, "{path} is not forbidden");
    }
    Ok(())
}

pub(crate) fn lists_come_as_streams(stage: &mut Stage) -> anyhow::Result<()> {
    let requests = requests(stage)?;
    let lists: Vec<_> = requests.iter().filter(|r| r.verb == "list").collect();
    ensure!(lists.is_empty(), "listed instead of streamed: {lists:?}");
    for resource in ["services", "endpointslices", "nodes"] {
        let streamed = requests.iter().any(|request| {
            let object = request.object.as_ref();
            object.and_then(|object| object.resource.as_deref()) == Some(resource)
                && request.uri.contains("sendInitialEvents=true")
                && request.response.as_ref().and_then(|r| r.code) == Some(200)
        });
        ensure!(streamed, "no streaming list of {resource} in {requests:?}");
    }
    let log = stage.log();
    ensure!(
        !log.contains("no streaming lists"),
        "the agent fell back to pages"
    );
    Ok(())
}

/// The agent's own requests.
fn requests(stage: &Stage) -> anyhow::Result<Vec<Request>> {
    let all = stage.control.requests()?;
    let own = all.into_iter().filter(|request| {
        request.user.username == KUBE_PROXY
            && request
                .user_agent
                .as_deref()
                .is_some_and(|agent| agent.starts_with("sidestep/"))
    });
    let own: Vec<_> = own.collect();
    (!own.is_empty())
        .then_some(own)
        .context("the API server has noted no request of the agent")
}
