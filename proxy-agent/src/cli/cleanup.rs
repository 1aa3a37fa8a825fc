//! `sidestep cleanup`: the only thing that takes the data plane off a node.

use std::io::Write;

use anyhow::{Context as _, anyhow};

use super::{CommonArgs, Exit, Output, packet_path};
use crate::datapath::{self, Pins, StartError};

/// Removes all pins, unless an agent uses them.
pub(super) fn run(common: &CommonArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let pins = Pins::new(&common.bpffs);
    let mut removed = Vec::new();
    let folder = pins.folder();
    let exists = folder
        .try_exists()
        .with_context(|| format!("look at {}", folder.display()))?;
    let mut result = Ok(());
    if exists {
        let lock = pins.lock().map_err(|error| match error {
            StartError::Locked { path } => anyhow!(
                "an agent runs on the pins in {}: stop it first; nothing was removed",
                path.display()
            ),
            error => error.into(),
        })?;
        // While the maps say which they are. Pins of another version do not.
        if let Ok(Some(setting)) = pins.setting() {
            removed.extend(packet_path::give_back(&setting));
        }
        result = datapath::remove(&pins, &lock, &mut |path| {
            removed.push(path.display().to_string());
        });
    }
    match common.output {
        Output::Json => super::json(out, &serde_json::json!({ "removed": removed }))?,
        Output::Table if removed.is_empty() && result.is_ok() => {
            writeln!(out, "nothing to remove: {} is not there", folder.display())?;
        }
        Output::Table => {
            for path in &removed {
                writeln!(out, "removed {path}")?;
            }
        }
    }
    // What was removed is said also when the rest could not be.
    out.flush()?;
    result?;
    Ok(Exit::Success)
}
