//! `sidestep-demo`: Sidestep at work on a two-node cluster of network namespaces, step by step.
//! Each step says what it shows, does it, and checks it; the first that does not hold ends the
//! demo with exit code 1. It touches nothing outside its lab, and the lab goes at the end.

mod interrupt;
mod manifests;
mod show;
mod stage;
mod steps;

use std::process::ExitCode;

use clap::Parser;
use lab::Lab;

use crate::{show::Show, stage::Stage};

/// Shows what Sidestep does, on a two-node cluster of network namespaces on this kernel.
///
/// Needs root. Exit code 0 means that every step did what it says.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Leave the lab up at the end, and print commands to try.
    #[arg(long)]
    keep: bool,
    /// Remove the labs that were left up, and do nothing else.
    #[arg(long, conflicts_with = "keep")]
    remove: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = if cli.remove { remove() } else { demo(cli.keep) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Show::new().fails(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn remove() -> anyhow::Result<()> {
    for tag in Lab::remove_kept()? {
        println!("removed {tag}");
    }
    Ok(())
}

fn demo(keep: bool) -> anyhow::Result<()> {
    interrupt::watch()?;
    let mut show = Show::new();
    println!("Sidestep: Kubernetes Services in the kernel, balanced where connections are made.");
    let mut stage = Stage::build(&mut show, keep)?;
    if let Err(error) = steps::run(&mut show, &mut stage) {
        stage.print_logs(&show);
        return Err(error);
    }
    if keep {
        return stage.leave(&show);
    }
    stage.end(&mut show)
}
