//! The socket programs on the running kernel, loaded by aya alone, without the agent.
//!
//! Each test runs in a process of its own with a network namespace and a cgroup of its own, fills
//! the maps by hand, and uses real sockets. Needs root, `ip` and `unshare`; object file: see
//! [`sidestep_tests::maps`].

mod affinity;
mod change;
mod connect;
mod connection;
mod datagram;
mod load;
mod net;
mod node_port;
mod refusal;
mod stage;

use std::process::ExitCode;

use sidestep_tests::{case, tests};

fn main() -> ExitCode {
    let tests: Vec<case::Test> = [
        connect::TESTS,
        connection::TESTS,
        datagram::TESTS,
        refusal::TESTS,
        node_port::TESTS,
        affinity::TESTS,
        load::TESTS,
        change::TESTS,
    ]
    .concat();
    if let Some(code) = case::run_inside(net::set_up, &[&tests, node_port::ROLES].concat()) {
        return code;
    }
    let trials = tests.into_iter().map(case::Test::into_trial).collect();
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit_code()
}
