//! `demo`: builds the agent and the demo, and becomes the demo.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::{binaries, ebpf, setup, workspace::Workspace};

/// Returns only when the demo could not be started.
pub(crate) fn run(workspace: &Workspace, keep: bool, args: &[String]) -> Result<()> {
    setup::lab(workspace)?;
    ebpf::build(workspace)?;
    binaries::build(workspace, "lab", binaries::LAB)?;
    become_program(workspace, "sidestep-demo", |command| {
        command.args(keep.then_some("--keep")).args(args);
    })
}

/// Replaces this process, so that Ctrl-C reaches only the program, which cleans up after itself.
pub(crate) fn become_program(
    workspace: &Workspace,
    name: &str,
    arguments: impl FnOnce(&mut std::process::Command),
) -> Result<()> {
    let path = workspace.bin_dir().join(name);
    let mut command = std::process::Command::new(&path);
    command
        .current_dir(&workspace.root)
        .env("SIDESTEP_BIN_DIR", workspace.bin_dir())
        .env("SIDESTEP_EBPF_OBJECT", workspace.object());
    arguments(&mut command);
    Err(command.exec()).with_context(|| format!("run {}", path.display()))
}
