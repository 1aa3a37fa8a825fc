//! `cargo xtask`: every task of the project, each with the set-up that it needs.
//!
//! One file per command. Tools that have to be built are kept in a cache folder outside the
//! workspace, so that a second run, and another clone, find them.
//! Must not hold logic of the product: what a command runs is a binary of another member.

mod apt;
mod bench;
mod binaries;
mod compiler;
mod demo;
mod ebpf;
mod go;
mod kubernetes;
mod linker;
mod setup;
mod stage;
mod test;
mod tidy;
mod workspace;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Tasks of the Sidestep workspace; each does the set-up that it needs",
    after_help = "As root on Debian, missing packages are installed by apt-get. Elsewhere, or \
                  without root, the exact commands are printed and nothing is changed.\n\n\
                  Environment:\n  \
                  SIDESTEP_CACHE        where built tools are kept (default ~/.cache/sidestep)\n  \
                  SIDESTEP_EBPF_CARGO   cargo that builds the kernel programs; rustc beside it\n  \
                  SIDESTEP_BPF_LINKER   bpf-linker to use instead of the one in the cache\n  \
                  KUBEBUILDER_ASSETS    folder with etcd and kube-apiserver to test against"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install or build the tools that are missing; the other commands do this by themselves
    Setup {
        /// What to set up [default: everything]
        what: Vec<setup::What>,
    },
    /// Build the kernel programs into one object file and check it
    BuildEbpf,
    /// Build the `sidestep` binary with the kernel programs inside
    Build {
        /// Build with full optimisation instead of the quicker `lab` profile
        #[arg(long)]
        release: bool,
    },
    /// Check and test everything (or run the tests whose name contains FILTER)
    Test {
        /// Part of a test's name; without it formatting, lints and house rules are checked too
        filter: Option<String>,
        /// Also run the long variants: more repetitions, more objects
        #[arg(long)]
        long: bool,
    },
    /// Show what Sidestep does, step by step, on a lab of network namespaces
    Demo {
        /// Leave the lab up at the end and print commands to try
        #[arg(long)]
        keep: bool,
        /// Arguments for the demo itself, after `--`
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Run the benches (or those whose name contains FILTER) and compare them with their bars
    Bench {
        /// Part of a bench's name
        filter: Option<String>,
        /// Also write the figures to this file
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Arguments for the bench binary itself, after `--`
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Check the house rules that a program can check
    Tidy,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = Workspace::find().and_then(|workspace| match cli.command {
        Command::Setup { what } => setup::run(&workspace, &what),
        Command::BuildEbpf => ebpf::run(&workspace),
        Command::Build { release } => binaries::run(&workspace, release),
        Command::Test { filter, long } => test::run(&workspace, filter.as_deref(), long),
        Command::Demo { keep, args } => demo::run(&workspace, keep, &args),
        Command::Bench { filter, json, args } => {
            bench::run(&workspace, filter.as_deref(), json.as_deref(), &args)
        }
        Command::Tidy => tidy::run(&workspace),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
