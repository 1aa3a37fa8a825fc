//! A Go that is new enough to build kube-apiserver.
//!
//! Distributions lag behind, but any Go since 1.18 can fetch a newer one as the module
//! `golang.org/toolchain`, checked against Go's checksum database; a Go since 1.21 does so by
//! itself (<https://go.dev/doc/toolchain>).

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use xshell::{Cmd, Shell, cmd};

use crate::{
    apt,
    workspace::{Workspace, program},
};

/// What the go.mod of Kubernetes asks for.
pub(crate) const NEEDED: (u32, u32) = (1, 26);
/// What is fetched where the installed one is older.
const FETCHED: &str = "1.26.8";

/// A go command of at least [`NEEDED`].
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf> {
    let (major, minor) = NEEDED;
    let installed = || program("go").or_else(|| usable("/usr/local/go/bin/go"));
    let go = match installed() {
        Some(go) => go,
        None => {
            let purpose = format!("build etcd and kube-apiserver with Go {major}.{minor}");
            apt::ensure(workspace, &purpose, &["golang-go"]).context(
                "Go; or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver",
            )?;
            installed().context("find go after installing it")?
        }
    };
    let found = version(&workspace.shell, &go)?;
    if found >= NEEDED {
        return Ok(go);
    }
    fetch(workspace, &go).with_context(|| {
        format!(
            "get Go {FETCHED} with {}, which is {}.{}; or install Go {major}.{minor} or newer",
            go.display(),
            found.0,
            found.1
        )
    })
}

/// A command of Go without flags of the user that could change what is built.
pub(crate) fn plain(command: Cmd<'_>) -> Cmd<'_> {
    command
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .env_remove("GOROOT")
        .quiet()
}

fn usable(path: &str) -> Option<PathBuf> {
    Some(PathBuf::from(path)).filter(|path| path.is_file())
}

fn version(shell: &Shell, go: &Path) -> Result<(u32, u32)> {
    let text = plain(cmd!(shell, "{go} version"))
        .read()
        .context("ask go for its version")?;
    parse_version(&text).with_context(|| format!("read the version in {text:?}"))
}

/// From `go version go1.26.8 linux/amd64`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let release = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1."))?;
    let digits = release.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((1, digits.parse().ok()?))
}

/// Fetches the newer Go as a module and lays it out as Go itself would.
fn fetch(workspace: &Workspace, old: &Path) -> Result<PathBuf> {
    let folder = workspace.cache.join(format!("tools/go-{FETCHED}"));
    let go = folder.join("bin/go");
    if go.is_file() {
        return Ok(go);
    }
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no name for the architecture {other} in Go"),
    };
    eprintln!("  fetching Go {FETCHED} as a module");
    let shell = &workspace.shell;
    let scratch = shell.create_temp_dir().context("make a scratch folder")?;
    fs::write(scratch.path().join("go.mod"), "module sidestep.test/go\n")
        .context("write the go.mod of the scratch folder")?;
    let module = format!("golang.org/toolchain@v0.0.1-go{FETCHED}.linux-{arch}");
    let report = {
        let _inside = shell.push_dir(scratch.path());
        plain(cmd!(shell, "{old} mod download -json {module}"))
            .read()
            .context("get the module")?
    };
    let source = json_text(&report, "Dir").context("find where the module was unpacked")?;
    let unfinished = workspace
        .cache
        .join(format!("tools/go-{FETCHED}.unfinished"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).context("remove what an earlier try left")?;
    }
    fs::create_dir_all(workspace.cache.join("tools")).context("make the folder of tools")?;
    cmd!(shell, "cp -r --no-preserve=mode {source} {unfinished}")
        .quiet()
        .run()?;
    // A module holds neither modes nor files named go.mod below its root.
    make_executable(&unfinished.join("bin"))?;
    make_executable(&unfinished.join("pkg/tool"))?;
    for module in ["src", "src/cmd"] {
        let folder = unfinished.join(module);
        fs::copy(folder.join("_go.mod"), folder.join("go.mod"))
            .with_context(|| format!("name the go.mod in {}", folder.display()))?;
    }
    fs::rename(&unfinished, &folder).context("put Go into its place")?;
    Ok(go)
}

fn make_executable(folder: &Path) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("list {}", folder.display()))?
            .path();
        if path.is_dir() {
            make_executable(&path)?;
            continue;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("make {} executable", path.display()))?;
    }
    Ok(())
}

/// The value of a text field in the flat JSON that `go mod download -json` prints.
pub(crate) fn json_text<'j>(json: &'j str, field: &str) -> Option<&'j str> {
    let (_, rest) = json.split_once(&format!("\"{field}\": \""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_every_form_that_go_prints() {
        assert_eq!(
            parse_version("go version go1.26.8 linux/amd64"),
            Some((1, 26))
        );
        assert_eq!(
            parse_version("go version go1.27rc1 linux/amd64"),
            Some((1, 27))
        );
        assert_eq!(parse_version("go version go1.9 linux/arm64"), Some((1, 9)));
        assert_eq!(parse_version("go version devel"), None);
    }

    #[test]
    fn a_minor_version_of_two_digits_is_newer_than_one_of_one() {
        assert!(parse_version("go version go1.9 linux/amd64") < Some(NEEDED));
    }

    #[test]
    fn a_text_field_is_found_by_its_whole_name() {
        let json = "{\n\t\"GoModSum\": \"h1:x\",\n\t\"GoMod\": \"/cache/k.mod\"\n}";
        assert_eq!(json_text(json, "GoMod"), Some("/cache/k.mod"));
        assert_eq!(json_text(json, "Dir"), None);
    }
}
