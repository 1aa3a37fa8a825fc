//! The command line: what `sidestep` can be told, and how each command answers.
//!
//! All commands but `run` and `cleanup` only read the kernel's state, and so work with the agent
//! down. Here and in `main` errors are `anyhow`: they end up as one line for a person.

mod cleanup;
mod dump;
mod duration;
mod generate;
mod packet_path;
pub mod run;
mod services;
mod status;
mod table;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::anyhow;
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use dump::DumpArgs;
pub use duration::{GoDuration, NoDuration};
pub use generate::Generate;
pub use services::{Filter, ServicesArgs};
pub use status::StatusArgs;

use crate::{datapath, telemetry::LogFormat};

/// Exit codes, for `--help` and the man page.
const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  failure; one line on standard error says what was attempted, why it failed and what to do
  2  wrong usage
  3  status only: something is degraded, missing or not serving";

/// A Kubernetes Service proxy in eBPF, instead of kube-proxy.
///
/// Connections to Services are balanced where they are made: at the socket. The maps and programs
/// stay in the kernel when the agent stops, and all commands but `run` work without it.
#[derive(Debug, Parser)]
#[command(name = "sidestep", version, propagate_version = true, after_long_help = EXIT_CODES)]
pub struct Cli {
    /// What all commands know.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of all commands.
#[derive(Args, Debug)]
pub struct CommonArgs {
    /// bpffs of the node; maps and programs are pinned in PATH/sidestep.
    #[arg(long, global = true, value_name = "PATH", default_value = datapath::DEFAULT_BPFFS)]
    pub bpffs: PathBuf,
    /// How to print.
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    pub output: Output,
}

/// How a command prints what it found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text for people.
    #[default]
    Table,
    /// JSON with stable names.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent: keep the maps as the cluster says.
    Run(Box<run::RunArgs>),
    /// Show whether this node's Services are served, and what is degraded.
    Status(StatusArgs),
    /// List Services, the addresses where they answer, and their backends.
    Services(ServicesArgs),
    /// Print the entries of a map, or which maps there are.
    Dump(DumpArgs),
    /// Detach all programs and remove all maps; Services no longer answer on this node.
    ///
    /// Nothing else removes them, least of all stopping the agent. Refuses while an agent runs.
    /// Prints what was removed; removing nothing is a success.
    Cleanup,
    /// Print shell completions, or make man pages.
    #[command(subcommand)]
    Generate(Generate),
    /// The client's side of the self-test; prints what differs.
    #[command(hide = true)]
    SelfTestClient {
        /// The scratch cgroup.
        folder: PathBuf,
    },
}

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0.
    Success,
    /// 3: `status` found something that does not serve as it should.
    Degraded,
}

impl Cli {
    /// Verbosity and format of the logs.
    pub fn log(&self) -> (u8, LogFormat) {
        match &self.command {
            Command::Run(args) => (args.verbosity, args.log_format),
            _ => Default::default(),
        }
    }

    /// Does what was asked, and prints to `out`. A reader that has seen enough (`| head`) is no
    /// failure.
    ///
    /// # Errors
    ///
    /// What was attempted and why it failed; [`sentence`] makes it one line.
    pub fn execute(&self, out: &mut dyn Write) -> anyhow::Result<Exit> {
        let result = self.perform(out).and_then(|exit| {
            out.flush()?;
            Ok(exit)
        });
        match result {
            Err(error) if is_broken_pipe(&error) => Ok(Exit::Success),
            result => result,
        }
    }

    fn perform(&self, out: &mut dyn Write) -> anyhow::Result<Exit> {
        match &self.command {
            Command::Run(args) => run::run(args, &self.common).map(|()| Exit::Success),
            Command::Status(args) => status::run(args, &self.common, out),
            Command::Services(args) => services::run(args, &self.common, out),
            Command::Dump(args) => dump::run(args, &self.common, out),
            Command::Cleanup => cleanup::run(&self.common, out),
            Command::Generate(what) => generate::run(what, out),
            Command::SelfTestClient { folder } => datapath::self_test_client(folder)
                .map(|()| Exit::Success)
                .map_err(|sentence| anyhow!(sentence)),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Degraded => 3.into(),
        }
    }
}

/// An error and its causes as `error: cause: cause`. A cause that its error's text already has is
/// not said again.
pub fn sentence(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let chain = std::iter::successors(Some(error), |error| error.source());
    for cause in chain.map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Prints a value as indented JSON.
fn json(out: &mut dyn Write, value: &impl serde::Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(error), _) => io::Error::kind(error),
        (_, Some(error)) => match serde_json::Error::io_error_kind(error) {
            Some(kind) => kind,
            None => return false,
        },
        _ => return false,
    };
    kind == io::ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn kube_proxys_spellings_of_flags_are_taken() {
        let cli = Cli::try_parse_from([
            "sidestep",
            "run",
            "--kubeconfig=/etc/kube/config",
            "--hostname-override=node-1",
            "--nodeport-addresses=10.0.0.0/8,fd00::/8",
            "--min-sync-period=1m30s",
            "--v=4",
        ])
        .unwrap();
        assert_eq!(cli.log(), (4, LogFormat::Text));
        let Command::Run(args) = cli.command else {
            panic!("not run");
        };
        assert_eq!(args.hostname_override.as_deref(), Some("node-1"));
        assert_eq!(args.nodeport_addresses.len(), 2);
        assert_eq!(args.min_sync_period.0.as_secs(), 90);
        assert!(args.port_guard && args.self_test);
    }

    #[test]
    fn a_switch_is_turned_off_with_false() {
        let cli = Cli::try_parse_from([
            "sidestep",
            "run",
            "--port-guard=false",
            "--self-test",
            "false",
        ])
        .unwrap();
        let Command::Run(args) = cli.command else {
            panic!("not run");
        };
        assert!(!args.port_guard && !args.self_test);
    }

    #[test]
    fn an_error_is_one_line_that_says_nothing_twice() {
        let error = Err::<(), _>(anyhow!("no such file"))
            .context("open /x: no such file")
            .context("read the manifests")
            .unwrap_err();
        assert_eq!(
            sentence(error.as_ref()),
            "read the manifests: open /x: no such file"
        );
    }
}
