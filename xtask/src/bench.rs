//! `bench`: builds the agent and the benches as they ship, and becomes the bench binary.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{binaries, demo, ebpf, setup, workspace::Workspace};

/// What ships: profile `lab` is quick to build and slow to run.
const PROFILE: &str = "release";

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
        PROFILE,
        &[binaries::LAB, &["sidestep-bench"]].concat(),
    )?;
    let folder = workspace.target.join(PROFILE);
    demo::become_program(workspace, &folder, "sidestep-bench", |command| {
        command.args(filter);
        if let Some(file) = json {
            command.arg("--json").arg(file);
        }
        command.args(args);
    })
}
