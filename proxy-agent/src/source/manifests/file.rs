//! One file of the folder: whether it changed, and what is in it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    time::{Duration, SystemTime},
};

/// A file this young when it was read may change again without a new time stamp.
const RACY: Duration = Duration::from_secs(2);

/// The largest file that is read. 10,000 Services with 10 endpoints each are 20 MiB of YAML.
const LARGEST: u64 = 256 << 20;

/// Tells whether a file changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stamp {
    inode: u64,
    length: u64,
    modified: SystemTime,
    /// It was so young when it was read that an equal stamp proves nothing.
    pub(super) racy: bool,
}

impl Stamp {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let modified = metadata.modified()?;
        let age = SystemTime::now().duration_since(modified);
        Ok(Self {
            inode: metadata.ino(),
            length: metadata.len(),
            modified,
            racy: !age.is_ok_and(|age| age > RACY),
        })
    }
}

/// Reads a file that has an end: whoever waits for a pipe or reads a device reads nothing else.
///
/// # Errors
///
/// If it is no regular file, is too large, or cannot be opened or read.
pub(super) fn contents(path: &Path) -> io::Result<Vec<u8>> {
    // Without waiting for the other end, should it be a pipe.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    check(&file)?;
    let mut contents = Vec::new();
    // It may be growing.
    file.take(LARGEST + 1).read_to_end(&mut contents)?;
    match contents.len() as u64 {
        length if length > LARGEST => Err(too_large()),
        _ => Ok(contents),
    }
}

fn check(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    match metadata.len() {
        length if length > LARGEST => Err(too_large()),
        _ => Ok(()),
    }
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {} MiB", LARGEST >> 20))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    fn error(path: &Path) -> String {
        contents(path).expect_err("not to be read").to_string()
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        mkfifoat(CWD, at("pipe"), Mode::RWXU).expect("a pipe");
        symlink("/dev/zero", at("device")).expect("a symlink");
        let _socket = UnixListener::bind(at("socket")).expect("a socket");
        symlink("loop", at("loop")).expect("a symlink");
        assert_eq!(error(&at("pipe")), "it is no regular file");
        assert_eq!(error(&at("device")), "it is no regular file");
        assert!(!error(&at("socket")).is_empty());
        assert!(!error(&at("loop")).is_empty());
    }

    #[test]
    fn a_file_beyond_all_measure_is_not_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("sparse.yaml");
        let file = File::create(&path).expect("a file");
        file.set_len(LARGEST + 1).expect("a hole");
        assert_eq!(error(&path), "it is larger than 256 MiB");
    }

    #[test]
    fn a_symlink_to_a_file_is_read_as_the_file() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("a"), "text").expect("a file");
        symlink("a", dir.path().join("b")).expect("a symlink");
        assert_eq!(contents(&dir.path().join("b")).expect("text"), b"text");
    }
}
