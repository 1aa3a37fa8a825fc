//! Where things are: the workspace, its target folder, the cache of tools, programs in PATH.
//!
//! Here, because every command needs the same answers, and child processes the same clean
//! environment. Must not run anything by itself.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use xshell::{Cmd, Shell, cmd};

/// Folders of this checkout, and a shell that stands in its root.
pub(crate) struct Workspace {
    pub(crate) shell: Shell,
    pub(crate) root: PathBuf,
    /// Cargo's target folder, absolute.
    pub(crate) target: PathBuf,
    /// Built tools, shared by all checkouts of a user.
    pub(crate) cache: PathBuf,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self> {
        // The binary is only ever run by `cargo run`, from the checkout it was built in.
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .context("find the folder above xtask/")?
            .to_path_buf();
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => env::current_dir()?.join(folder),
            None => root.join("target"),
        };
        let shell = Shell::new()?;
        shell.change_dir(&root);
        Ok(Self {
            shell,
            root,
            target,
            cache: cache_folder()?,
        })
    }

    /// The object file with the kernel programs.
    pub(crate) fn object(&self) -> PathBuf {
        self.target
            .join("ebpf/bpfel-unknown-none/ebpf/sidestep-ebpf")
    }

    /// Where cargo puts the binaries of profile `lab`.
    pub(crate) fn bin_dir(&self) -> PathBuf {
        self.target.join("lab")
    }

    /// Cargo for code of the host: the one that runs us, without what it told us about xtask.
    pub(crate) fn cargo(&self) -> Cmd<'_> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let command = without_cargo_variables(cmd!(self.shell, "{cargo}"));
        if self.target == self.root.join("target") {
            // The default of the agent's build script. Naming it all the same would make the
            // agent look changed to a plain `cargo build`.
            command
        } else {
            command.env("SIDESTEP_EBPF_OBJECT", self.object())
        }
    }

    /// Holds a lock in the cache, so that two checkouts do not build the same tool at once.
    pub(crate) fn lock_cache(&self, name: &str) -> Result<File> {
        fs::create_dir_all(&self.cache)
            .with_context(|| format!("make the cache folder {}", self.cache.display()))?;
        let path = self.cache.join(format!("{name}.lock"));
        let file = File::create(&path).with_context(|| format!("open {}", path.display()))?;
        if file.try_lock().is_err() {
            eprintln!("  waiting for another xtask that builds {name}");
            file.lock()
                .with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(file)
    }
}

/// Removes what the outer cargo and rustup set for us: in an inner cargo it would choose the
/// wrong toolchain, or make crates look changed.
pub(crate) fn without_cargo_variables(mut command: Cmd<'_>) -> Cmd<'_> {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_set_by_cargo) {
            command = command.env_remove(name);
        }
    }
    command
}

/// `CARGO_HOME`, `CARGO_TARGET_DIR`, `CARGO_NET_*` and the like are the user's and stay.
fn is_set_by_cargo(name: &str) -> bool {
    let own = [
        "CARGO",
        "CARGO_BIN_NAME",
        "CARGO_CRATE_NAME",
        "CARGO_PRIMARY_PACKAGE",
    ];
    own.contains(&name)
        || ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_"]
            .iter()
            .any(|p| name.starts_with(p))
        || ["OUT_DIR", "LD_LIBRARY_PATH", "CARGO_MAKEFLAGS"].contains(&name)
}

/// The program of this name in PATH, or in the folders for root that a user's PATH may lack.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// PATH with one folder before it.
pub(crate) fn path_with(folder: &Path) -> Result<std::ffi::OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(folders).with_context(|| format!("put {} into PATH", folder.display()))
}

fn cache_folder() -> Result<PathBuf> {
    if let Some(folder) = env::var_os("SIDESTEP_CACHE") {
        return Ok(env::current_dir()?.join(folder));
    }
    if let Some(folder) = env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder).join("sidestep"));
    }
    let home = env::home_dir().context("find the home folder; set SIDESTEP_CACHE")?;
    Ok(home.join(".cache/sidestep"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_the_outer_cargo_are_told_from_those_of_the_user() {
        for name in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "OUT_DIR"] {
            assert!(is_set_by_cargo(name), "{name}");
        }
        for name in [
            "CARGO_HOME",
            "CARGO_TARGET_DIR",
            "CARGO_NET_OFFLINE",
            "PATH",
        ] {
            assert!(!is_set_by_cargo(name), "{name}");
        }
    }

    #[test]
    fn a_program_is_found_in_path_and_a_missing_one_is_not() {
        assert!(program("sh").is_some());
        assert!(program("no-program-has-this-name").is_none());
    }

    #[test]
    fn the_folder_comes_first_in_path() {
        let path = path_with(Path::new("/first")).unwrap();
        assert_eq!(
            env::split_paths(&path).next(),
            Some(PathBuf::from("/first"))
        );
    }
}
