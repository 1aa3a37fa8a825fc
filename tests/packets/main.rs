//! The packet programs: a packet in, a verdict and a packet out, byte by byte.
//!
//! The real programs run on the real maps, by BPF_PROG_TEST_RUN; nothing is attached and nothing
//! sent. A packet that is not what it should be is written to a file for Wireshark. Needs root;
//! object file: see [`sidestep_tests::maps`].

mod both_ways;
mod checksum;
mod echo;
mod error;
mod foreign;
mod fragment;
mod life;
mod policy;
mod refusal;
mod stage;
mod test_run;

use std::process::ExitCode;

use sidestep_tests::{case, tests};

fn main() -> ExitCode {
    let tests: Vec<case::Test> = [
        both_ways::TESTS,
        policy::TESTS,
        refusal::TESTS,
        error::TESTS,
        echo::TESTS,
        life::TESTS,
        checksum::TESTS,
        fragment::TESTS,
        foreign::TESTS,
    ]
    .concat();
    if let Some(code) = case::run_inside(|| Ok(()), &tests) {
        return code;
    }
    let trials = tests.into_iter().map(case::Test::into_trial).collect();
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit_code()
}
