//! etcd and kube-apiserver, from where `cargo xtask setup kubernetes` puts them.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

/// The version that xtask builds.
const KUBERNETES: &str = "1.36.3";

/// Paths of the two programs.
pub(crate) struct Binaries {
    pub(crate) etcd: PathBuf,
    pub(crate) api_server: PathBuf,
}

impl Binaries {
    /// `KUBEBUILDER_ASSETS`, else the cache of xtask.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let folder = match named("KUBEBUILDER_ASSETS") {
            Some(folder) => folder,
            None => cache()?.join("kubebuilder").join(KUBERNETES),
        };
        Ok(Self {
            etcd: program(&folder, "etcd")?,
            api_server: program(&folder, "kube-apiserver")?,
        })
    }
}

fn program(folder: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    if !path.is_file() {
        bail!(
            "there is no {}: run `cargo xtask setup kubernetes`, or name a folder that holds etcd \
             and kube-apiserver in KUBEBUILDER_ASSETS",
            path.display()
        );
    }
    Ok(path)
}

/// The cache of xtask: `SIDESTEP_CACHE`, else `sidestep` in the user's cache folder.
fn cache() -> anyhow::Result<PathBuf> {
    if let Some(folder) = named("SIDESTEP_CACHE") {
        return Ok(folder);
    }
    if let Some(folder) = named("XDG_CACHE_HOME") {
        return Ok(folder.join("sidestep"));
    }
    let home = env::home_dir().context("find the home folder; set SIDESTEP_CACHE")?;
    Ok(home.join(".cache/sidestep"))
}

fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
