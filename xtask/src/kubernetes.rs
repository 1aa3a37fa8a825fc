//! etcd and kube-apiserver for the tests: named by KUBEBUILDER_ASSETS, or built from their modules.
//!
//! There is no download of ready-made binaries: Go's module proxy and checksum database are the
//! only source, so what is tested against is what upstream published. Built once into the cache.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use xshell::cmd;

use crate::{go, workspace::Workspace};

const KUBERNETES: (u32, u32, u32) = (1, 36, 3);
/// The series that Kubernetes 1.36 is tested with upstream.
const ETCD: &str = "v3.6.16";
const PROGRAMS: [&str; 2] = ["etcd", "kube-apiserver"];

/// Folder that holds both programs; builds them where they are missing.
pub(crate) fn ensure(workspace: &Workspace) -> Result<PathBuf> {
    if let Some(folder) = env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
        let folder = std::path::absolute(folder)?;
        match PROGRAMS.iter().find(|name| !folder.join(name).is_file()) {
            None => return Ok(folder),
            Some(name) => {
                bail!(
                    "KUBEBUILDER_ASSETS names {}, which holds no {name}",
                    folder.display()
                )
            }
        }
    }
    let (major, minor, patch) = KUBERNETES;
    let folder = workspace
        .cache
        .join(format!("kubebuilder/{major}.{minor}.{patch}"));
    let complete = || PROGRAMS.iter().all(|name| folder.join(name).is_file());
    if complete() {
        return Ok(folder);
    }
    let _lock = workspace.lock_cache("kubebuilder")?;
    if !complete() {
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let go = go::ensure(workspace)?;
        if !folder.join("etcd").is_file() {
            etcd(workspace, &go, &folder)?;
        }
        if !folder.join("kube-apiserver").is_file() {
            kube_apiserver(workspace, &go, &folder)?;
        }
    }
    Ok(folder)
}

fn etcd(workspace: &Workspace, go: &Path, folder: &Path) -> Result<()> {
    eprintln!("  building etcd {ETCD} (about 1 minute on 2 cores)");
    let module = module_file(
        "etcd",
        &format!("require go.etcd.io/etcd/server/v3 {ETCD}\n"),
    );
    build(
        workspace,
        go,
        &module,
        "",
        "go.etcd.io/etcd/server/v3",
        &folder.join("etcd"),
    )
}

fn kube_apiserver(workspace: &Workspace, go: &Path, folder: &Path) -> Result<()> {
    let (major, minor, patch) = KUBERNETES;
    eprintln!("  building kube-apiserver {major}.{minor}.{patch} (5 to 8 minutes on 2 cores)");
    let source = workspace.cache.join("kubebuilder/source");
    fs::create_dir_all(&source).with_context(|| format!("make {}", source.display()))?;
    let wanted = format!("k8s.io/kubernetes@v{major}.{minor}.{patch}");
    let report = {
        let _inside = workspace.shell.push_dir(&source);
        go::plain(cmd!(workspace.shell, "{go} mod download -json {wanted}"))
            .read()
            .with_context(|| format!("get {wanted}"))?
    };
    let path = go::json_text(&report, "GoMod").context("find the go.mod of Kubernetes")?;
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let module = module_file("kube-apiserver", &requirements(&text, KUBERNETES)?);
    let version = "k8s.io/component-base/version";
    let flags = format!(
        "-X {version}.gitVersion=v{major}.{minor}.{patch} -X {version}.gitMajor={major} \
         -X {version}.gitMinor={minor}"
    );
    let package = "k8s.io/kubernetes/cmd/kube-apiserver";
    build(
        workspace,
        go,
        &module,
        &flags,
        package,
        &folder.join("kube-apiserver"),
    )
}

fn module_file(name: &str, requirements: &str) -> String {
    format!(
        "module sidestep.test/{name}\n\ngo {}.{}.0\n\n{requirements}",
        go::NEEDED.0,
        go::NEEDED.1
    )
}

/// Kubernetes requires its staging modules at version 0 and replaces them by folders of its own
/// repository; from outside, each is the published module of the same release.
fn requirements(go_mod: &str, (major, minor, patch): (u32, u32, u32)) -> Result<String> {
    let replacements: Vec<String> = go_mod
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("replace ")
                .split_once(" => ./staging/")
        })
        .map(|(module, _)| format!("replace {module} => {module} v0.{minor}.{patch}\n"))
        .collect();
    if replacements.is_empty() {
        bail!("the go.mod of Kubernetes names no staging modules");
    }
    let require = format!("require k8s.io/kubernetes v{major}.{minor}.{patch}\n\n");
    Ok(require + &replacements.concat())
}

/// Builds one program; it appears in its place only when it is whole.
fn build(
    workspace: &Workspace,
    go: &Path,
    module: &str,
    flags: &str,
    package: &str,
    to: &Path,
) -> Result<()> {
    let name = to
        .file_name()
        .and_then(OsStr::to_str)
        .context("name the program")?;
    let folder = workspace.cache.join("kubebuilder/source").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let file = folder.join("go.mod");
    fs::write(&file, module).with_context(|| format!("write {}", file.display()))?;
    let unfinished = folder.join(name);
    let flags = format!("-s -w {flags}");
    let (shell, niceness) = (&workspace.shell, "10");
    let command = cmd!(
        shell,
        "nice -n {niceness} {go} build -v -mod=mod -trimpath -ldflags {flags} -o {unfinished}
         {package}"
    );
    let mut command = Command::from(go::plain(command).env("CGO_ENABLED", "0"));
    stream_counted(command.current_dir(&folder)).with_context(|| format!("build {name}"))?;
    fs::rename(&unfinished, to).with_context(|| format!("put {} into its place", to.display()))
}

/// `go build -v` prints a line per package; some 1,500 of them are shown as a count.
fn stream_counted(command: &mut Command) -> Result<()> {
    let mut child = command.stderr(Stdio::piped()).spawn().context("start go")?;
    let stderr = child.stderr.take().context("read what go says")?;
    let mut packages = 0;
    for line in BufReader::new(stderr).lines() {
        let line = line.context("read what go says")?;
        if line.contains(' ') {
            eprintln!("  {line}");
            continue;
        }
        packages += 1;
        if packages % 100 == 0 {
            eprintln!("  {packages} packages compiled");
        }
    }
    let status = child.wait().context("wait for go")?;
    if !status.success() {
        bail!("go ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_staging_module_of_kubernetes_is_replaced_by_its_published_one() {
        let go_mod = "module k8s.io/kubernetes\n\nrequire k8s.io/api v0.0.0\n\nreplace (\n\t\
                      k8s.io/api => ./staging/src/k8s.io/api\n)\n\
                      replace k8s.io/kms => ./staging/src/k8s.io/kms\n";
        assert_eq!(
            requirements(go_mod, (1, 40, 2)).unwrap(),
            "require k8s.io/kubernetes v1.40.2\n\n\
             replace k8s.io/api => k8s.io/api v0.40.2\n\
             replace k8s.io/kms => k8s.io/kms v0.40.2\n"
        );
    }

    #[test]
    fn a_go_mod_without_staging_modules_is_an_error() {
        assert!(requirements("module x\n", KUBERNETES).is_err());
    }

    #[test]
    fn a_build_that_fails_is_an_error() {
        let mut command = Command::new("sh");
        let outcome = stream_counted(command.args(["-c", "echo some/package >&2; exit 3"]));
        assert!(outcome.unwrap_err().to_string().contains("exit status: 3"));
    }
}
