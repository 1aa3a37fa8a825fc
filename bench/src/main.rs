//! `sidestep-bench`: measures what the design promises, each figure against what it stands beside.
//!
//! A bar that is missed is a row of the table, not a failure: the exit code is 0 unless something
//! could not be measured.

mod cluster;
mod cold_start;
mod connect;
mod figure;
mod hook;
mod memory;
mod plane;
mod quiet;
mod slice_change;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Parser;

use figure::Sheet;

/// Measures Sidestep against its bars.
#[derive(Parser)]
#[command(name = "sidestep-bench", version)]
struct Args {
    /// Run only the benches whose name holds this text.
    filter: Option<String>,
    /// Also write the figures to a file, as a list of objects.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Say what there is and measure nothing.
    #[arg(long)]
    list: bool,
    /// What a process that connects is told by the one that measures.
    #[arg(long, value_name = "JSON", hide = true)]
    client: Option<String>,
}

/// One bench.
struct Bench {
    name: &'static str,
    what: &'static str,
    run: fn(&mut Sheet) -> anyhow::Result<()>,
}

const BENCHES: [Bench; 5] = [
    Bench {
        name: "connect",
        what: "connect and accept: ClusterIP against pod address, over numbers of Services",
        run: connect::run,
    },
    Bench {
        name: "hook",
        what: "time of one run of a kernel program",
        run: hook::run,
    },
    Bench {
        name: "slice-change",
        what: "one EndpointSlice changes: decoded to published",
        run: slice_change::run,
    },
    Bench {
        name: "cold-start",
        what: "full lists to all maps written",
        run: cold_start::run,
    },
    Bench {
        name: "memory",
        what: "memory and idle CPU of the agent",
        run: memory::run,
    },
];

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.client {
        Some(work) => connect::client::run(work),
        None => run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let filter = args.filter.as_deref().unwrap_or_default();
    let chosen = BENCHES.iter().filter(|bench| bench.name.contains(filter));
    if args.list {
        for Bench { name, what, .. } in chosen {
            println!("{name:14}{what}");
        }
        return Ok(());
    }
    let mut sheet = Sheet::default();
    let mut failed = Vec::new();
    for bench in chosen {
        eprintln!("{}: {} ...", bench.name, bench.what);
        if let Err(error) = (bench.run)(&mut sheet) {
            eprintln!("{}: could not be measured: {error:#}", bench.name);
            failed.push(bench.name);
        }
    }
    if let Some(file) = &args.json {
        sheet
            .write(file)
            .with_context(|| format!("write {}", file.display()))?;
    }
    anyhow::ensure!(
        failed.is_empty(),
        "could not be measured: {}",
        failed.join(", ")
    );
    Ok(())
}
