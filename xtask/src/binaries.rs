//! `build`: the binaries of the host, with the kernel programs inside.

use anyhow::{Context, Result};

use crate::{ebpf, workspace::Workspace};

/// Builds the agent and says where it is.
pub(crate) fn run(workspace: &Workspace, release: bool) -> Result<()> {
    ebpf::build(workspace)?;
    let profile = if release { "release" } else { "lab" };
    build(workspace, profile, &["proxy-agent"])?;
    eprintln!(
        "  {}",
        workspace.target.join(profile).join("sidestep").display()
    );
    Ok(())
}

/// Builds the binaries of these packages in one go.
pub(crate) fn build(workspace: &Workspace, profile: &str, packages: &[&str]) -> Result<()> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    workspace
        .cargo()
        .args(["build", "--bins", "--profile", profile])
        .args(packages)
        .run()
        .with_context(|| format!("build the binaries with profile {profile}"))
}
