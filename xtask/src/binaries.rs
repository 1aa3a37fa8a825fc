//! `build`: the binaries of the host, with the kernel programs inside.

use anyhow::{Context, Result};

use crate::{ebpf, workspace::Workspace};

/// The packages that binaries come from. Always all of them: which features of a dependency are
/// on depends on the packages that are built, and a `build` must not undo what a `demo` built.
const PACKAGES: [&str; 3] = ["proxy-agent", "lab", "sidestep-bench"];

/// The agent, and what makes traffic and shows it.
pub(crate) const LAB: &[&str] = &["sidestep", "sidestep-probe", "sidestep-demo"];

/// Builds the agent and says where it is.
pub(crate) fn run(workspace: &Workspace, release: bool) -> Result<()> {
    ebpf::build(workspace)?;
    let profile = if release { "release" } else { "lab" };
    build(workspace, profile, &["sidestep"])?;
    eprintln!(
        "  {}",
        workspace.target.join(profile).join("sidestep").display()
    );
    Ok(())
}

/// Builds these binaries.
pub(crate) fn build(workspace: &Workspace, profile: &str, binaries: &[&str]) -> Result<()> {
    workspace
        .cargo()
        .args(["build", "--profile", profile])
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .args(binaries.iter().flat_map(|binary| ["--bin", binary]))
        .run()
        .with_context(|| format!("build the binaries with profile {profile}"))
}
