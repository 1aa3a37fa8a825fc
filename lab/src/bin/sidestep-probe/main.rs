//! `sidestep-probe`: the lab's traffic. It serves, connects, sends and binds, and prints what came
//! of it as JSON lines (see `lab::report`). It knows nothing of Services: it asks the kernel for
//! an address as any program would.

mod bind;
mod client;
mod connect;
mod datagram;
mod errno;
mod serve;
mod tally;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use lab::report::Line;

/// Makes test traffic and prints what came of it as JSON lines.
///
/// Servers answer each connection, each line and each datagram with their name, so that a client
/// knows whom it reached. Exit code 0 means that the attempts were made, not that they succeeded.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Listen, and answer with a name. Prints a ready line, and runs until it is killed.
    Serve(serve::Args),
    /// Make TCP connections; each waits for the server's name.
    Connect(connect::Args),
    /// Send UDP datagrams; each waits for its answer.
    Datagram(datagram::Args),
    /// Try to bind a port.
    Bind(bind::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Connect(args) => connect::run(&args),
        Command::Datagram(args) => datagram::run(&args),
        Command::Bind(args) => bind::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sidestep-probe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints one line, at once.
fn print(line: &Line) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&text)?;
    stdout.flush()?;
    Ok(())
}
