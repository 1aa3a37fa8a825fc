//! `sidestep`: parse, set up logs, do what was asked, say how it went.

use std::{
    io::{self, BufWriter},
    process::ExitCode,
};

use clap::Parser as _;
use proxy_agent::{cli::Cli, telemetry};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (verbosity, format) = cli.log();
    telemetry::init(verbosity, format);
    let mut out = BufWriter::new(io::stdout());
    match cli.execute(&mut out) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("sidestep: {}", proxy_agent::cli::sentence(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
