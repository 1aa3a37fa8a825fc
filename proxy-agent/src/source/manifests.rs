//! A folder of manifests as the source: reads it, watches it, reads again what changed.
//!
//! Runs on a thread of its own, since it reads files. Editors, `cp`, `kubectl get -o yaml >` and the
//! symlink swap of a mounted ConfigMap all end in files whose stamp changed; inotify only says when
//! to look. Without inotify, and on file systems that do not report (NFS, overlay lower layers), a
//! look every ten seconds finds the same.

mod file;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::mpsc as thread_mpsc,
    thread,
    time::{Duration, Instant},
};

use notify::{
    RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, EventKind},
};
use tokio::sync::{Semaphore, mpsc};

use self::file::{Stamp, contents};
use super::{
    Event, Settings, WatchState,
    document::{Contents, Format, ParseError},
    folder::Folder,
};
use crate::model::Text;

/// A writer is done when it was quiet for this long.
const QUIET: Duration = Duration::from_millis(50);
/// But a folder that never is quiet is read after this.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often to look without being told.
const POLL: Duration = Duration::from_secs(10);

/// Why the source cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The folder cannot be listed.
    #[error("read the manifest folder {path}: it must exist and be readable", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No thread for it.
    #[error("start the thread that watches the manifest folder")]
    Thread(#[source] io::Error),
}

/// Starts the source. The thread ends when the reader of `events` is gone, at the latest ten
/// seconds after.
pub fn spawn_manifests(
    path: &Path,
    settings: &Settings,
    events: mpsc::Sender<Event>,
) -> Result<thread::JoinHandle<()>, ManifestError> {
    check(path)?;
    let manifests = Manifests::new(path, settings, events);
    thread::Builder::new()
        .name("manifests".into())
        .spawn(move || manifests.run())
        .map_err(ManifestError::Thread)
}

/// A folder of manifests that is read when the caller says so, on the caller's thread: the same
/// source without its watch.
pub struct ManifestReader {
    manifests: Manifests,
    events: mpsc::Receiver<Event>,
}

impl ManifestReader {
    /// Opens a folder; the first [`read`](Self::read) gives the full lists.
    ///
    /// # Errors
    ///
    /// If the folder cannot be listed.
    pub fn new(path: &Path, settings: &Settings) -> Result<Self, ManifestError> {
        check(path)?;
        // The events of one look wait in the channel while nobody reads.
        let (sender, events) = mpsc::channel(Semaphore::MAX_PERMITS);
        Ok(Self {
            manifests: Manifests::new(path, settings, sender),
            events,
        })
    }

    /// Reads what changed since the last time, and returns what that means. A file that cannot be
    /// read is not waited for.
    pub fn read(&mut self) -> Vec<Event> {
        // Fails only without a reader, which is this.
        let _ = self.manifests.look(None);
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

struct Manifests {
    path: PathBuf,
    folder: Folder,
    files: BTreeMap<Text, Stamp>,
    /// Why the folder could not be listed the last time.
    lost: Option<String>,
    events: mpsc::Sender<Event>,
}

/// The reader is gone.
struct Closed;

impl Manifests {
    fn new(path: &Path, settings: &Settings, events: mpsc::Sender<Event>) -> Self {
        Self {
            path: path.to_owned(),
            folder: Folder::new(path.to_owned(), &settings.node_name, settings.external_ips),
            files: BTreeMap::new(),
            lost: None,
            events,
        }
    }

    fn run(mut self) {
        let (wake, woken) = thread_mpsc::channel();
        let mut watch = None;
        // What the first full lists lack is taken out of the kernel, so a file that somebody is
        // just writing is given its time.
        let mut wait: Option<&dyn Fn()> = Some(&|| thread::sleep(PATIENCE));
        loop {
            // The folder may be another by now, which inotify does not follow.
            let inode = fs::metadata(&self.path).map(|m| m.ino()).ok();
            if watch.as_ref().is_none_or(|(watched, _)| *watched != inode) {
                watch = Some((inode, self.watch(&wake)));
            }
            if self.look(wait.take()).is_err() || self.events.is_closed() {
                return;
            }
            if woken.recv_timeout(POLL).is_ok() {
                wait_for_quiet(&woken);
            }
        }
    }

    /// Has inotify wake us. Without it the slow look remains.
    fn watch(&mut self, wake: &thread_mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
        let wake = wake.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Our own reading is no news.
            let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
            if !event.is_ok_and(|event| event.kind.is_access() && event.kind != written) {
                // Fails only if the thread has ended.
                wake.send(()).ok();
            }
        });
        let watcher = watcher.and_then(|mut watcher| {
            watcher.watch(&self.path, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        watcher
            .inspect_err(|error| {
                let (path, poll) = (self.path.display(), POLL.as_secs());
                tracing::warn!(%path, %error, "no inotify: changes are seen within {poll} s");
            })
            .ok()
    }

    /// Reads what changed since the last look and sends what that means. Files that cannot be read
    /// are tried once more after `wait`.
    fn look(&mut self, wait: Option<&dyn Fn()>) -> Result<(), Closed> {
        let present = match list(&self.path) {
            Ok(present) => present,
            Err(error) => {
                return self.set_lost(Some(format!("the folder cannot be listed: {error}")));
            }
        };
        self.set_lost(None)?;
        let mut events = Vec::new();
        let gone: Vec<Text> = self
            .files
            .keys()
            .filter(|file| !present.contains(*file))
            .cloned()
            .collect();
        for file in &gone {
            self.files.remove(file);
        }
        let mut read = BTreeMap::new();
        let mut failed = BTreeSet::new();
        for file in present {
            if !self.read(&file, false, &mut read, &mut events) {
                failed.insert(file);
            }
        }
        if let Some(wait) = wait.filter(|_| !failed.is_empty()) {
            wait();
            for file in &failed {
                self.read(file, true, &mut read, &mut events);
            }
        }
        let mut again = self.folder.update(&read, &gone, &mut events);
        while !again.is_empty() {
            let mut read = BTreeMap::new();
            for file in &again {
                self.read(file, true, &mut read, &mut events);
            }
            // What could not be read now is told apart when its file is mended.
            again = BTreeSet::new();
            if !read.is_empty() {
                self.folder.update(&read, &[], &mut events);
            }
        }
        self.send(events)
    }

    /// Reads a file if it changed, or in any case. Says whether that went well.
    fn read(
        &mut self,
        file: &Text,
        always: bool,
        read: &mut BTreeMap<Text, Contents>,
        events: &mut Vec<Event>,
    ) -> bool {
        let path = self.path.join(&**file);
        let Some(format) = Format::of(file) else {
            return true;
        };
        let before = Stamp::of(&path).ok();
        let known = self.files.get(file);
        if !always && known.is_some_and(|known| !known.racy && Some(*known) == before) {
            return true;
        }
        // The stamp from before reading: a change meanwhile shows as another one.
        match before {
            Some(stamp) => self.files.insert(file.clone(), stamp),
            None => self.files.remove(file),
        };
        let text = contents(&path).map_err(|error| ParseError::Whole(error.to_string()));
        match text.and_then(|text| format.parse(&text)) {
            Ok(contents) => {
                read.insert(file.clone(), contents);
                true
            }
            Err(error) => {
                self.folder.fail(file, &error, events);
                false
            }
        }
    }

    fn set_lost(&mut self, lost: Option<String>) -> Result<(), Closed> {
        if self.lost == lost {
            return Ok(());
        }
        let path = self.path.display().to_string();
        match &lost {
            Some(reason) => tracing::warn!(path, reason, "manifests stay as they were read last"),
            None => tracing::info!(path, "the manifest folder is back"),
        }
        self.lost.clone_from(&lost);
        let state = WatchState {
            resource: path,
            lost,
        };
        self.send(vec![Event::Watch(state)])
    }

    fn send(&self, events: Vec<Event>) -> Result<(), Closed> {
        for event in events {
            self.events.blocking_send(event).map_err(|_| Closed)?;
        }
        Ok(())
    }
}

fn check(path: &Path) -> Result<(), ManifestError> {
    match fs::read_dir(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(ManifestError::Folder {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Names of the manifest files in a folder.
fn list(path: &Path) -> io::Result<BTreeSet<Text>> {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if let Some(name) = name.to_str().filter(|name| Format::of(name).is_some())
            && !entry.path().is_dir()
        {
            files.insert(name.into());
        }
    }
    Ok(files)
}

/// Waits until no wake-up came for a while.
fn wait_for_quiet(woken: &thread_mpsc::Receiver<()>) {
    let start = Instant::now();
    while start.elapsed() < PATIENCE && woken.recv_timeout(QUIET).is_ok() {}
}

#[cfg(test)]
mod tests;
