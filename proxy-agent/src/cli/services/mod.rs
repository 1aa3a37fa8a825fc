//! `sidestep services`: Services, where they answer, and who answers, from the maps alone.

mod filter;
mod listing;

use std::io::Write;

use anyhow::{Context as _, bail};
use clap::Args;

pub use filter::Filter;

use self::listing::Listing;
use super::{CommonArgs, Exit, Output};
use crate::datapath::{Dataplane as _, Kernel, Pins};

/// Flags of `sidestep services`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Columns:
  Each address of a Service is a row; the rows below it that begin with -> are its backends.
  KIND        of an address; with Local if its traffic policy is Local, with ranges if source
              ranges restrict it. Of a backend: local if it runs on this node, else remote
  SCHEDULER   how a backend is chosen; with the seconds of ClientIP affinity, if any
  STATE       of an address: serving, refused (no endpoint anywhere), dropped (policy Local and no
              endpoint here), or packet-path (sockets cannot check its source ranges and leave it
              alone). Of a backend: active, or draining (keeps what it has, gets nothing
              new)
  CONNECTIONS from this node's sockets now

Examples:
  sidestep services                      all
  sidestep services web                  Services named web in every namespace
  sidestep services default/web          one Service
  sidestep services default/web:http     one port of it
  sidestep services -o json | jq '.[] | select(.backends == [])'")]
pub struct ServicesArgs {
    /// Only these: NAME, NAMESPACE/NAME, each with :PORT if wanted.
    pub name: Option<Filter>,
}

/// Prints what the maps say.
pub(super) fn run(
    args: &ServicesArgs,
    common: &CommonArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let pins = Pins::new(&common.bpffs);
    let mut kernel = Kernel::open(&pins)?;
    let snapshot = kernel.dump().context("list Services")?;
    let connections = kernel.connections().context("count connections")?;
    let mut listing = Listing::new(&snapshot, &connections);
    if let Some(filter) = &args.name {
        listing.0.retain(|service| service.matches(filter));
        if listing.0.is_empty() {
            bail!("no Service matches {filter}: `sidestep services` lists all");
        }
    }
    match common.output {
        Output::Table => write!(out, "{listing}")?,
        Output::Json => super::json(out, &listing)?,
    }
    Ok(Exit::Success)
}
