//! bpf-linker: built once from its crate into the cache.
//!
//! It links LLVM bitcode into one BPF object and writes the BTF of maps. It has to be built
//! against an LLVM that is at least as new as the compiler's, which is why one from PATH is not
//! taken: nobody knows what it links.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use xshell::cmd;

use crate::{
    apt,
    workspace::{Workspace, without_cargo_variables},
};

/// Version of bpf-linker.
pub(crate) const VERSION: &str = "0.13.0";
/// Major version of the LLVM that it links.
pub(crate) const LLVM: u32 = 22;
/// llvm-sys, inside bpf-linker, reads its prefix from a variable with its own version in it.
const PREFIX_VARIABLE: &str = "LLVM_SYS_221_PREFIX";
/// LLVM itself, and what its libraries are linked with.
const PACKAGES: &[&str] = &["llvm-22-dev", "libzstd-dev", "zlib1g-dev", "g++"];

/// Path of a bpf-linker that runs; builds it where there is none.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(linker) = env::var_os("SIDESTEP_BPF_LINKER").map(PathBuf::from) {
        return match version(workspace, &linker) {
            Some(_) => Ok(linker),
            None => bail!(
                "run the linker of SIDESTEP_BPF_LINKER: {}",
                linker.display()
            ),
        };
    }
    let folder = workspace.cache.join(format!("tools/bpf-linker-{VERSION}"));
    let linker = folder.join("bin/bpf-linker");
    if version(workspace, &linker).is_some() {
        return Ok(linker);
    }
    let _lock = workspace.lock_cache("bpf-linker")?;
    if version(workspace, &linker).is_none() {
        build(workspace, &folder)?;
    }
    version(workspace, &linker)
        .with_context(|| format!("run {} after building it", linker.display()))?;
    Ok(linker)
}

fn version(workspace: &Workspace, linker: &Path) -> Option<String> {
    if !linker.is_file() {
        return None;
    }
    let command = without_cargo_variables(cmd!(workspace.shell, "{linker} --version"));
    command.quiet().ignore_stderr().read().ok()
}

fn build(workspace: &Workspace, folder: &Path) -> Result<()> {
    let prefix = match env::var_os(PREFIX_VARIABLE).or_else(|| env::var_os("LLVM_PREFIX")) {
        Some(prefix) => PathBuf::from(prefix),
        None => {
            apt::ensure(workspace, "build bpf-linker", PACKAGES).context(format!(
                "LLVM {LLVM} for bpf-linker; one elsewhere is named by {PREFIX_VARIABLE}"
            ))?;
            PathBuf::from(format!("/usr/lib/llvm-{LLVM}"))
        }
    };
    eprintln!(
        "  building bpf-linker {VERSION} against {} (1 to 2 minutes)",
        prefix.display()
    );
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let features = format!("llvm-{LLVM}");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let install = cmd!(
        workspace.shell,
        "{cargo} install bpf-linker --version {VERSION} --locked --force --root {folder}
         --no-default-features --features {features}"
    );
    // With another LLVM in PATH, LLVM_PREFIX alone decides what is linked; llvm-sys reads its own.
    without_cargo_variables(install)
        .env("LLVM_PREFIX", &prefix)
        .env(PREFIX_VARIABLE, &prefix)
        .env_remove("CARGO_TARGET_DIR")
        .run()
        .context("build bpf-linker")
}
