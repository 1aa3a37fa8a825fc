//! Which compiler builds the kernel programs.
//!
//! The BPF target has no ready-made `core`, so the compiler must have the sources of its library
//! (`-Z build-std=core`), and its LLVM must not be newer than the one in bpf-linker, which reads
//! its bitcode. Tried in this order: SIDESTEP_EBPF_CARGO, a rustup nightly with `rust-src`,
//! Debian's `rustc-web`. Must not install a rustup toolchain: that is the user's to decide.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::{
    apt, linker,
    workspace::{Workspace, program, without_cargo_variables},
};

/// Oldest rustc that builds this workspace: `rust-version` in Cargo.toml.
const OLDEST: &str = env!("CARGO_PKG_RUST_VERSION");
const DEBIAN: &[&str] = &["rustc-web", "cargo-web", "rust-web-src"];

/// A cargo and a rustc that can build for the BPF target.
pub(crate) struct Compiler {
    pub(crate) cargo: PathBuf,
    pub(crate) rustc: PathBuf,
    /// Where it came from and its version, for the user.
    pub(crate) origin: String,
}

/// Finds the compiler; installs Debian's where there is none.
pub(crate) fn ensure(workspace: &Workspace) -> Result<Compiler> {
    let shell = &workspace.shell;
    if let Some(cargo) = env::var_os("SIDESTEP_EBPF_CARGO") {
        return explicit(shell, PathBuf::from(cargo))
            .context("use the compiler of SIDESTEP_EBPF_CARGO");
    }
    let mut refused = Vec::new();
    for (origin, rustc) in nightlies(shell).into_iter().chain(debian()) {
        match candidate(shell, &origin, rustc) {
            Ok(compiler) => return Ok(compiler),
            Err(why) => refused.push(format!("  {origin}: {why:#}")),
        }
    }
    for line in &refused {
        eprintln!("  not used for the kernel programs:{line}");
    }
    apt::ensure(workspace, "compile the kernel programs", DEBIAN).map_err(|error| {
        error.context(
            "a compiler for the kernel programs; either `rustup toolchain install nightly \
             --component rust-src`, or Debian's",
        )
    })?;
    let (origin, rustc) = debian().context("find /usr/bin/rustc after installing it")?;
    candidate(shell, &origin, rustc)
}

fn explicit(shell: &Shell, cargo: PathBuf) -> Result<Compiler> {
    let folder = cargo
        .parent()
        .context("it must be the path of a cargo binary")?;
    let rustc = folder.join("rustc");
    let mut compiler = candidate(shell, "SIDESTEP_EBPF_CARGO", rustc)?;
    compiler.cargo = cargo;
    Ok(compiler)
}

/// The rustc of each nightly that rustup has, newest name first.
fn nightlies(shell: &Shell) -> Vec<(String, PathBuf)> {
    let Some(rustup) = program("rustup") else {
        return Vec::new();
    };
    let list = cmd!(shell, "{rustup} toolchain list")
        .quiet()
        .ignore_stderr()
        .read();
    let mut names: Vec<String> = list
        .unwrap_or_default()
        .lines()
        .filter_map(nightly_name)
        .collect();
    names.sort_by(|a, b| b.cmp(a));
    names
        .into_iter()
        .filter_map(|name| {
            let rustc = cmd!(shell, "{rustup} which rustc --toolchain {name}");
            let path = rustc.quiet().ignore_stderr().read().ok()?;
            Some((format!("rustup's {name}"), PathBuf::from(path)))
        })
        .collect()
}

fn nightly_name(line: &str) -> Option<String> {
    let name = line.split_whitespace().next()?;
    name.starts_with("nightly").then(|| name.to_owned())
}

fn debian() -> Option<(String, PathBuf)> {
    let rustc = PathBuf::from("/usr/bin/rustc");
    rustc
        .is_file()
        .then(|| ("Debian's compiler".to_owned(), rustc))
}

/// Says why a compiler cannot do it, or returns it with the cargo beside it.
fn candidate(shell: &Shell, origin: &str, rustc: PathBuf) -> Result<Compiler> {
    let version = ask(shell, &rustc, "-vV")?;
    check_version(&version)?;
    let sysroot = ask(shell, &rustc, "--print=sysroot")?;
    let sources = Path::new(&sysroot).join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if !sources.exists() {
        bail!(
            "it has no library sources ({} is missing)",
            sources.display()
        );
    }
    let cargo = rustc.with_file_name("cargo");
    if !cargo.is_file() {
        bail!("there is no cargo beside {}", rustc.display());
    }
    let release = field(&version, "release").unwrap_or("?");
    Ok(Compiler {
        origin: format!("{origin}, rustc {release}"),
        cargo,
        rustc,
    })
}

fn ask(shell: &Shell, rustc: &Path, question: &str) -> Result<String> {
    let command = without_cargo_variables(cmd!(shell, "{rustc} {question}"));
    command
        .quiet()
        .env_remove("RUSTUP_TOOLCHAIN")
        .read()
        .context("run it")
}

fn check_version(verbose: &str) -> Result<()> {
    let release = field(verbose, "release").context("it does not tell its version")?;
    let llvm = field(verbose, "LLVM version").context("it does not tell its LLVM version")?;
    // None, for a release that cannot be read, is below every Some.
    if two_numbers(release) < two_numbers(OLDEST) {
        bail!("rustc {release} is too old, {OLDEST} is needed");
    }
    if two_numbers(llvm).is_none_or(|(major, _)| major > linker::LLVM) {
        bail!(
            "its LLVM {llvm} is newer than LLVM {} of bpf-linker",
            linker::LLVM
        );
    }
    Ok(())
}

fn field<'v>(verbose: &'v str, name: &str) -> Option<&'v str> {
    verbose
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn two_numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbose(release: &str, llvm: &str) -> String {
        format!("rustc {release}\nhost: x\nrelease: {release}\nLLVM version: {llvm}\n")
    }

    #[test]
    fn an_old_compiler_is_refused_by_its_version() {
        assert!(check_version(&verbose("1.96.0", "22.1.2")).is_ok());
        assert!(check_version(&verbose("1.97.0-nightly", "22.1.2")).is_ok());
        let error = check_version(&verbose("1.85.0", "19.1.7")).unwrap_err();
        assert!(error.to_string().contains("1.85.0 is too old"), "{error}");
    }

    #[test]
    fn a_compiler_with_a_newer_llvm_than_the_linker_is_refused() {
        let error = check_version(&verbose("1.99.0-nightly", "23.1.0")).unwrap_err();
        assert!(error.to_string().contains("newer than LLVM 22"), "{error}");
    }

    #[test]
    fn only_nightlies_are_taken_from_the_list_of_rustup() {
        assert_eq!(
            nightly_name("nightly-x86_64-unknown-linux-gnu (default)").as_deref(),
            Some("nightly-x86_64-unknown-linux-gnu")
        );
        assert_eq!(
            nightly_name("stable-x86_64-unknown-linux-gnu (active)"),
            None
        );
    }

    #[test]
    fn a_compiler_that_is_not_there_is_an_error_and_not_a_panic() {
        let shell = Shell::new().unwrap();
        assert!(candidate(&shell, "nowhere", PathBuf::from("/nonexistent/rustc")).is_err());
    }
}
