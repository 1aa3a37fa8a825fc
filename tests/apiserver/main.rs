//! The agent against a real kube-apiserver with RBAC, with the rights of kube-proxy and no more.
//!
//! One control plane, one agent and a few pods in a lab serve all tests, which run one after the
//! other, each in a namespace of its own in the cluster. Endpoints are written by hand: there are
//! no controllers, kubelets or nodes behind these objects.
//! Needs root, the workspace's programs, and the binaries that `cargo xtask setup kubernetes`
//! makes: see [`binaries`]. `SIDESTEP_LONG=1` makes outages longer and kills more frequent.

mod admin;
mod binaries;
mod control_plane;
mod families;
mod kill;
mod many;
mod outage;
mod rights;
mod selection;
mod service;
mod stage;

use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use lab::{Host as _, Lab};
use libtest_mimic::{Arguments, Failed, Trial};

use stage::Stage;

/// What shows a sentence.
type Body = fn(&mut Stage) -> anyhow::Result<()>;

/// Pairs functions with their names.
macro_rules! tests {
    ($($module:ident: $($name:ident),* $(,)?;)*) => {
        const TESTS: &[(&str, Body)] = &[$($((stringify!($name), $module::$name as Body)),*),*];
    };
}

tests! {
    service:
        a_created_service_answers_on_tcp_and_udp,
        scaling_changes_who_answers,
        a_service_changes_its_port_and_its_type,
        a_deleted_service_is_left_to_the_network;
    selection:
        a_service_of_another_proxy_is_left_alone_until_its_label_is_removed,
        what_is_headless_is_not_served,
        the_api_servers_own_service_is_served;
    families:
        a_dual_stack_service_answers_in_both_families_until_one_is_taken_away;
    many:
        a_thousand_services_are_all_in_the_maps_and_gone_when_deleted;
    rights:
        the_agent_asks_only_for_what_node_proxier_may_and_is_never_forbidden,
        lists_come_as_streams;
    outage:
        services_are_served_while_etcd_and_the_api_server_are_down_and_followed_after,
        an_agent_that_starts_during_an_outage_serves_what_was_known;
    kill:
        an_agent_killed_at_any_moment_fails_no_connection_and_ends_with_the_maps_of_a_fresh_one;
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They share the agent, and some of them stop it or the control plane.
    arguments.test_threads = Some(1);
    let idle = TESTS.iter().map(|(name, _)| Trial::test(*name, || Ok(())));
    let idle: Vec<_> = idle.collect();
    if arguments.list || idle.iter().all(|trial| arguments.is_filtered_out(trial)) {
        return libtest_mimic::run(&arguments, idle).exit_code();
    }
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("the tests with an API server could not begin: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything on a thread in the control plane's network namespace: that is where the tests'
/// own client reaches the API server from. What this thread starts ends with it.
fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let binaries = binaries::Binaries::find()?;
    let lab = Lab::new("apiserver").context("bring up the lab")?;
    let control = lab.node("control")?;
    let place = control.place().clone();
    place.enter(|| {
        let stage = Arc::new(Mutex::new(Stage::build(lab, control, binaries)?));
        let trials = TESTS.iter().map(|(name, body)| {
            let stage = Arc::clone(&stage);
            Trial::test(*name, move || {
                // A test that panicked leaves objects behind, in its own namespace.
                let mut stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
                body(&mut stage).map_err(|error| Failed::from(stage.explain(&error)))
            })
        });
        Ok(libtest_mimic::run(arguments, trials.collect()).exit_code())
    })?
}
