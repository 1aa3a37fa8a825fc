//! Removing everything that is pinned: the one way to take the data plane off a node.

use std::{
    fs, io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use proxy_common::map;

use super::{
    devices,
    pins::{Lock, Pins},
    programs::PROGRAMS,
    start::StartError,
    sys,
};

/// Detaches all programs, then removes the maps and the folder. What translates requests goes
/// first and what forgets sockets last, so that nothing new is translated when answers no longer
/// are. Pins of other versions go too: no map is opened.
///
/// Each path is given to `removed` when it is gone; a second call finds nothing and succeeds.
///
/// # Errors
///
/// [`StartError::Io`] with the first path that could not be removed; calling again goes on there.
pub fn remove(pins: &Pins, _lock: &Lock, removed: &mut dyn FnMut(&Path)) -> Result<(), StartError> {
    devices::remove_filters(removed);
    for program in PROGRAMS.iter().rev() {
        link(&pins.link(program.name), removed)?;
    }
    for path in files(&pins.links())? {
        link(&path, removed)?;
    }
    for spec in map::ALL.iter().rev() {
        file(&pins.map(spec.name), removed)?;
    }
    for path in files(pins.folder())? {
        file(&path, removed)?;
    }
    for folder in [pins.links().as_path(), pins.folder()] {
        gone(fs::remove_dir(folder), folder, removed)?;
    }
    Ok(())
}

/// Detaches, then unpins: removing the pin alone detaches some milliseconds later, when the caller
/// has long been told that it is done.
fn link(path: &Path, removed: &mut dyn FnMut(&Path)) -> Result<(), StartError> {
    if let Ok(link) = sys::object_get(path)
        && let Err(error) = sys::link_detach(link.as_fd())
    {
        tracing::debug!(%error, path = %path.display(), "not detached before it is unpinned");
    }
    file(path, removed)
}

fn file(path: &Path, removed: &mut dyn FnMut(&Path)) -> Result<(), StartError> {
    gone(fs::remove_file(path), path, removed)
}

fn gone(
    result: io::Result<()>,
    path: &Path,
    removed: &mut dyn FnMut(&Path),
) -> Result<(), StartError> {
    match result {
        Ok(()) => {
            removed(path);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StartError::io("remove", path)(error)),
    }
}

/// What is in a folder and is no folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>, StartError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(StartError::io("list", folder))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StartError::io("list", folder))?;
        let kind = entry
            .file_type()
            .map_err(StartError::io("look at", entry.path()))?;
        if !kind.is_dir() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
