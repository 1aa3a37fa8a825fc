//! Finds the object of kernel programs that `cargo xtask build-ebpf` made.
//!
//! Without it the agent still compiles, so that checks and pure tests need no eBPF toolchain;
//! `sidestep run` then says how to build one that can load programs.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=SIDESTEP_EBPF_OBJECT");
    let default = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default())
        .join("../target/ebpf/bpfel-unknown-none/ebpf/sidestep-ebpf");
    let object = env::var_os("SIDESTEP_EBPF_OBJECT").map_or(default, PathBuf::from);
    println!("cargo::rerun-if-changed={}", object.display());
    let embedded = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("sidestep.bpf.o");
    let bytes = fs::read(&object).unwrap_or_else(|error| {
        println!(
            "cargo::warning=no kernel programs at {} ({error}): run `cargo xtask build-ebpf`",
            object.display()
        );
        Vec::new()
    });
    fs::write(&embedded, bytes)
        .unwrap_or_else(|error| panic!("write {}: {error}", embedded.display()));
    println!(
        "cargo::rustc-env=SIDESTEP_EMBEDDED_OBJECT={}",
        embedded.display()
    );
}
