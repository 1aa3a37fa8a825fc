//! Where our own programs are: the lab runs what the workspace built, never what PATH offers.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Our programs and the packages that build them.
const PROGRAMS: [(&str, &str); 3] = [
    ("sidestep", "proxy-agent"),
    ("sidestep-probe", "lab"),
    ("sidestep-demo", "lab"),
];

/// The path of one of this workspace's programs: in the folder `SIDESTEP_BIN_DIR` if that is set,
/// else in the target folder that the running executable is from.
pub fn binary(name: &str) -> Result<PathBuf> {
    candidates(name)
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| Error::NoBinary {
            name: name.to_owned(),
            package: PROGRAMS
                .iter()
                .find(|(n, _)| *n == name)
                .map_or("lab", |(_, package)| package),
        })
}

/// Whether `name` is one of our programs.
pub(crate) fn is_ours(name: &str) -> bool {
    PROGRAMS.iter().any(|(ours, _)| *ours == name)
}

fn candidates(name: &str) -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("SIDESTEP_BIN_DIR") {
        return vec![Path::new(&dir).join(name)];
    }
    // Tests and benches are in target/<profile>/deps, programs one level up.
    let executable = std::env::current_exe().unwrap_or_default();
    executable
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join(name))
        .collect()
}
