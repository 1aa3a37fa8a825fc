//! Finds the object of kernel programs that `cargo xtask build-ebpf` made.
//!
//! Without it the agent still compiles, so that checks and pure tests need no eBPF toolchain;
//! `sidestep run` then says how to build one that can load programs.
//!
//! What is embedded is without its DWARF, three quarters of its size: the kernel reads only BTF, and
//! every page of it that is read at start counts as the agent's memory.

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
    let bytes = without_dwarf(&bytes).unwrap_or(bytes);
    fs::write(&embedded, bytes)
        .unwrap_or_else(|error| panic!("write {}: {error}", embedded.display()));
    println!(
        "cargo::rustc-env=SIDESTEP_EMBEDDED_OBJECT={}",
        embedded.display()
    );
}

/// The object without the contents of its sections of debugging information; their headers stay,
/// empty, so that no index changes. `None` if it is no 64-bit little-endian object (ELF-64 Object
/// File Format, version 1.5): it is embedded as it is, and loading it will say what is wrong.
fn without_dwarf(object: &[u8]) -> Option<Vec<u8>> {
    const FILE_HEADER: usize = 64;
    const SECTION_HEADER: usize = 64;
    const NOBITS: usize = 8;
    let number = |at: usize, bytes: usize| -> Option<usize> {
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(object.get(at..at + bytes)?);
        usize::try_from(u64::from_le_bytes(number)).ok()
    };
    if object.get(..6)? != b"\x7fELF\x02\x01" || number(0x3a, 2)? != SECTION_HEADER {
        return None;
    }
    let (headers, count, names) = (number(0x28, 8)?, number(0x3c, 2)?, number(0x3e, 2)?);
    let names = number(headers + names * SECTION_HEADER + 0x18, 8)?;
    let mut stripped = object.get(..FILE_HEADER)?.to_vec();
    let mut stripped_headers = Vec::with_capacity(count * SECTION_HEADER);
    for at in (0..count).map(|index| headers + index * SECTION_HEADER) {
        let mut header = object.get(at..at + SECTION_HEADER)?.to_vec();
        let (offset, size) = (number(at + 0x18, 8)?, number(at + 0x20, 8)?);
        let name = object.get(names + number(at, 4)?..)?;
        if name.starts_with(b".debug") || name.starts_with(b".rel.debug") {
            header[4..].fill(0);
        } else if number(at + 4, 4)? != NOBITS {
            stripped.resize(
                stripped
                    .len()
                    .next_multiple_of(number(at + 0x30, 8)?.max(1)),
                0,
            );
            header[0x18..0x20].copy_from_slice(&stripped.len().to_le_bytes());
            stripped.extend_from_slice(object.get(offset..offset + size)?);
        }
        stripped_headers.extend(header);
    }
    stripped.resize(stripped.len().next_multiple_of(8), 0);
    let headers = stripped.len().to_le_bytes();
    stripped[0x28..0x30].copy_from_slice(&headers);
    stripped.extend(stripped_headers);
    Some(stripped)
}
