//! Debian packages: installs what is missing as root on Debian, else prints the commands.
//!
//! Nothing is asked of the network when nothing is missing. Must not remove or pin anything.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::workspace::{Workspace, program};

/// Makes sure that the packages are there; `purpose` completes "… are needed to".
///
/// Where this machine is no Debian or the user is not root, the error holds the commands.
pub(crate) fn ensure(workspace: &Workspace, purpose: &str, packages: &[&str]) -> Result<()> {
    let shell = &workspace.shell;
    if !is_debian() {
        bail!(
            "to {purpose}, this machine needs what Debian has as: {}; install it and run this again",
            packages.join(" ")
        );
    }
    let missing = missing(shell, packages)?;
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() {
        bail!(
            "to {purpose}, some packages are missing; run:\n\n{}",
            commands(&missing)
        );
    }
    eprintln!("  installing {}: needed to {purpose}", missing.join(" "));
    let _lock = workspace.lock_cache("apt")?;
    let names = &missing;
    cmd!(shell, "apt-get update -q")
        .run()
        .context("refresh the list of packages")?;
    cmd!(
        shell,
        "apt-get install -q -y --no-install-recommends -o Dpkg::Use-Pty=0 {names...}"
    )
    .env("DEBIAN_FRONTEND", "noninteractive")
    .run()
    .with_context(|| format!("install packages; by hand:\n\n{}", commands(&missing)))
}

/// Makes sure that programs are there, each given with the package that holds it.
pub(crate) fn ensure_programs(
    workspace: &Workspace,
    purpose: &str,
    programs: &[(&str, &'static str)],
) -> Result<()> {
    let packages: Vec<&str> = programs
        .iter()
        .filter(|(name, _)| program(name).is_none())
        .map(|(_, package)| *package)
        .collect();
    if packages.is_empty() {
        Ok(())
    } else {
        ensure(workspace, purpose, &packages)
    }
}

/// Whether packages come by apt-get here.
pub(crate) fn is_debian() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    names_debian(&release) && program("apt-get").is_some()
}

/// Whether the effective user is root.
pub(crate) fn is_root() -> bool {
    // Effective uid: the second number of the line (proc_pid_status(5)).
    fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1))
        == Some("0")
}

fn names_debian(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(key, _)| matches!(*key, "ID" | "ID_LIKE"))
        .any(|(_, value)| {
            value
                .trim_matches('"')
                .split_whitespace()
                .any(|id| id == "debian")
        })
}

fn missing<'p>(shell: &Shell, packages: &[&'p str]) -> Result<Vec<&'p str>> {
    // dpkg-query fails when a package is unknown, and prints the others all the same.
    let format = "-f=${Package} ${db:Status-Status}\n";
    let known = cmd!(shell, "dpkg-query -W {format} {packages...}")
        .quiet()
        .ignore_status()
        .ignore_stderr()
        .read()
        .context("ask dpkg-query which packages are installed")?;
    Ok(not_installed(&known, packages))
}

fn not_installed<'p>(known: &str, packages: &[&'p str]) -> Vec<&'p str> {
    let installed = |package: &str| known.lines().any(|l| l == format!("{package} installed"));
    packages
        .iter()
        .copied()
        .filter(|package| !installed(package))
        .collect()
}

fn commands(packages: &[&str]) -> String {
    let sudo = if Path::new("/usr/bin/sudo").exists() {
        "sudo "
    } else {
        ""
    };
    format!(
        "    {sudo}apt-get update\n    {sudo}apt-get install -y --no-install-recommends {}\n",
        packages.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_and_what_derives_from_it_are_recognised_and_others_are_not() {
        assert!(names_debian("NAME=x\nID=debian\n"));
        assert!(names_debian("ID=ubuntu\nID_LIKE=\"debian\"\n"));
        assert!(!names_debian(
            "ID=fedora\nHOME_URL=\"https://debian.example\"\n"
        ));
    }

    #[test]
    fn a_package_counts_as_installed_only_when_dpkg_says_so() {
        let known = "gcc installed\nbpftool config-files\n";
        assert_eq!(
            not_installed(known, &["gcc", "bpftool", "llvm"]),
            ["bpftool", "llvm"]
        );
    }

    #[test]
    fn the_commands_to_run_name_every_package() {
        let text = commands(&["one", "two"]);
        assert!(
            text.contains("apt-get update\n") && text.contains("one two"),
            "{text}"
        );
    }
}
