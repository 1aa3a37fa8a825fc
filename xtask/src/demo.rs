//! `demo`: builds the agent and the demo, and becomes the demo.

use std::{os::unix::process::CommandExt, path::Path};

use anyhow::{Context, Result};

use crate::{binaries, ebpf, setup, workspace::Workspace};

/// Returns only when the demo could not be started.
pub(crate) fn run(workspace: &Workspace, keep: bool, args: &[String]) -> Result<()> {
    setup::lab(workspace)?;
    ebpf::build(workspace)?;
    binaries::build(workspace, "lab", binaries::LAB)?;
    become_program(
        workspace,
        &workspace.bin_dir(),
        "sidestep-demo",
        |command| {
            command.args(keep.then_some("--keep")).args(args);
        },
    )
}

/// Replaces this process by a program of a folder, so that Ctrl-C reaches only the program, which cleans up after itself.
pub(crate) fn become_program(
    workspace: &Workspace,
    folder: &Path,
    name: &str,
    arguments: impl FnOnce(&mut std::process::Command),
) -> Result<()> {
    let path = folder.join(name);
    let mut command = std::process::Command::new(&path);
    command
        .current_dir(&workspace.root)
        .env("SIDESTEP_BIN_DIR", folder)
        .env("SIDESTEP_EBPF_OBJECT", workspace.object());
    arguments(&mut command);
    Err(command.exec()).with_context(|| format!("run {}", path.display()))
}
