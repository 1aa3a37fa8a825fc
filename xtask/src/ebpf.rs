//! `build-ebpf`: the kernel programs as one object file, checked before anybody loads it.
//!
//! An object can link and still lack what the agent needs: a map that no program uses is dropped,
//! and without BTF a map dump has no field names. So the object is parsed with the agent's own
//! loader, and what the contract lists must be in it.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use aya_obj::{Object, ProgramSection};
use proxy_common::map;
use xshell::cmd;

use crate::{
    compiler, linker,
    workspace::{Workspace, path_with, without_cargo_variables},
};

/// Programs that attach to a cgroup, by the name of their function.
const CGROUP: &[&str] = &[
    "connect4",
    "connect6",
    "sendmsg4",
    "sendmsg6",
    "recvmsg4",
    "recvmsg6",
    "peername4",
    "peername6",
    "post_bind4",
    "post_bind6",
    "sock_release",
];

/// Programs that see packets.
const PACKET: &[&str] = &["tc_ingress", "tc_egress", "tc_ingress_l3", "tc_egress_l3"];

/// Programs that walk through kernel objects when somebody reads them.
const ITERATORS: &[&str] = &["orphans"];

/// Builds and checks the object, and says where it is.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    build(workspace)?;
    eprintln!("  {}", workspace.object().display());
    Ok(())
}

/// Builds and checks the object; cargo skips what is up to date.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let compiler = compiler::ensure(workspace)?;
    let linker = linker::ensure(workspace)?;
    let linker_folder = linker.parent().context("find the folder of bpf-linker")?;
    eprintln!("  kernel programs: {}", compiler.origin);
    let (cargo, rustc) = (&compiler.cargo, &compiler.rustc);
    let target = workspace.target.join("ebpf");
    let arch = std::env::consts::ARCH;
    // `bpf_target_arch` chooses the register layout in aya-ebpf; --btf writes map types.
    let flags = [
        &format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2",
        "-Clink-arg=--btf",
    ];
    let build = cmd!(
        workspace.shell,
        "{cargo} build --package proxy-ebpf --profile ebpf --target bpfel-unknown-none
         -Z build-std=core --target-dir {target}"
    );
    without_cargo_variables(build)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTFLAGS")
        .env("RUSTC", rustc)
        // A stable compiler takes -Z options only with this.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("PATH", path_with(linker_folder)?)
        .run()
        .context("build the kernel programs")?;
    check_file(&workspace.object())
}

fn check_file(path: &Path) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let object = Object::parse(&bytes).with_context(|| format!("parse {}", path.display()))?;
    let problems = problems(&object);
    if problems.is_empty() {
        return Ok(());
    }
    bail!(
        "{} is not what the agent needs:\n  {}",
        path.display(),
        problems.join("\n  ")
    )
}

/// What the contract wants and the object lacks, a sentence each.
fn problems(object: &Object) -> Vec<String> {
    let mut problems = Vec::new();
    if object.btf.is_none() {
        problems.push("section .BTF is missing: was it linked with --btf?".to_owned());
    }
    if object.btf_ext.is_none() {
        problems.push("section .BTF.ext is missing: was it compiled with debug info?".to_owned());
    }
    if object.license.as_bytes() != b"Dual MIT/GPL" {
        problems.push(format!(
            "the licence is {:?}, not \"Dual MIT/GPL\"",
            object.license
        ));
    }
    for spec in map::ALL {
        if !object.maps.contains_key(spec.name) {
            problems.push(format!(
                "map {} is missing: does a program use it?",
                spec.name
            ));
        }
    }
    for name in CGROUP.iter().chain(PACKET).chain(ITERATORS) {
        match object.programs.get(*name).map(|program| &program.section) {
            Some(section)
                if is_cgroup(section) == CGROUP.contains(name)
                    && is_packet(section) == PACKET.contains(name) => {}
            Some(section) => problems.push(format!("program {name} is a {section:?}")),
            None => problems.push(format!("program {name} is missing")),
        }
    }
    for name in object.programs.keys() {
        if ![CGROUP, PACKET, ITERATORS]
            .iter()
            .any(|list| list.contains(&name.as_str()))
        {
            problems.push(format!(
                "program {name} is not in the lists of xtask/src/ebpf.rs"
            ));
        }
    }
    problems.sort();
    problems
}

fn is_cgroup(section: &ProgramSection) -> bool {
    matches!(
        section,
        ProgramSection::CgroupSockAddr { .. } | ProgramSection::CgroupSock { .. }
    )
}

const fn is_packet(section: &ProgramSection) -> bool {
    matches!(section, ProgramSection::SchedClassifier)
}
