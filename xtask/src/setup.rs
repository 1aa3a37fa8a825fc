//! `setup`: everything that the other commands need, ahead of time.

use anyhow::Result;
use clap::ValueEnum;

use crate::{apt, compiler, kubernetes, linker, stage::Stages, workspace::Workspace};

/// Programs that the lab and the tests run, with the Debian package of each.
const PROGRAMS: &[(&str, &str)] = &[("bpftool", "bpftool"), ("ip", "iproute2")];

/// One thing to set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Programs that the lab and the tests run: bpftool, ip
    Lab,
    /// Compiler for the kernel programs
    Compiler,
    /// bpf-linker
    Linker,
    /// etcd and kube-apiserver
    Kubernetes,
}

/// Sets up these, or everything.
pub(crate) fn run(workspace: &Workspace, what: &[What]) -> Result<()> {
    let what = if what.is_empty() {
        What::value_variants()
    } else {
        what
    };
    let mut stages = Stages::default();
    for one in what {
        match one {
            What::Lab => stages.run("programs of the lab", || lab(workspace))?,
            What::Compiler => stages.run("compiler for the kernel programs", || {
                let compiler = compiler::ensure(workspace)?;
                eprintln!("  {}", compiler.origin);
                Ok(())
            })?,
            What::Linker => stages.run("bpf-linker", || {
                let linker = linker::ensure(workspace)?;
                eprintln!("  {}", linker.display());
                Ok(())
            })?,
            What::Kubernetes => stages.run("etcd and kube-apiserver", || {
                let folder = kubernetes::ensure(workspace)?;
                eprintln!("  {}", folder.display());
                Ok(())
            })?,
        }
    }
    eprint!("\n{}", stages.table());
    Ok(())
}

/// Programs that the demo, the tests and the benches run.
pub(crate) fn lab(workspace: &Workspace) -> Result<()> {
    apt::ensure_programs(workspace, "run the lab", PROGRAMS)
}
