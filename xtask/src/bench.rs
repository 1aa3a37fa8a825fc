//! `bench`: builds the agent and the benches, and becomes the bench binary.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{binaries, demo, ebpf, setup, workspace::Workspace};

/// Returns only when the benches could not be started.
pub(crate) fn run(
    workspace: &Workspace,
    filter: Option<&str>,
    json: Option<&Path>,
    args: &[String],
) -> Result<()> {
    // The caller's folder counts, not the root of the workspace where the benches run.
    let json = json
        .map(std::path::absolute)
        .transpose()
        .context("find the file for --json")?;
    setup::lab(workspace)?;
    ebpf::build(workspace)?;
    binaries::build(
        workspace,
        "lab",
        &[binaries::LAB, &["sidestep-bench"]].concat(),
    )?;
    demo::become_program(workspace, "sidestep-bench", |command| {
        command.args(filter);
        if let Some(file) = json {
            command.arg("--json").arg(file);
        }
        command.args(args);
    })
}
