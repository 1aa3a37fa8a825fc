//! The folder of pins: its lock, its checks, its paths.

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use aya::maps::{Array, Map, MapData, MapInfo};
use proxy_common::{SCHEMA, SettingValue, map};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, statfs};

use super::{
    shape::{SHAPES, Shape},
    start::StartError,
};

/// Where a node has its bpffs unless told otherwise.
pub const DEFAULT_BPFFS: &str = "/sys/fs/bpf";

/// `BPF_FS_MAGIC` (include/uapi/linux/magic.h).
const BPFFS_MAGIC: u32 = 0xcafe_4a11;

/// Number of entries by map name, where another than the default is wanted or pinned.
pub type Sizes = BTreeMap<&'static str, u32>;

/// The folder `sidestep` on a bpffs.
#[derive(Clone, Debug)]
pub struct Pins {
    folder: PathBuf,
}

/// Held by the one agent that may write; the kernel releases it when the process ends.
#[derive(Debug)]
pub struct Lock {
    _folder: OwnedFd,
}

impl Pins {
    /// The pins of a bpffs. Nothing is touched.
    pub fn new(bpffs: &Path) -> Self {
        Self {
            folder: bpffs.join("sidestep"),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Pin of a map.
    pub fn map(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Folder of the links' pins.
    pub fn links(&self) -> PathBuf {
        self.folder.join("links")
    }

    /// Pin of a program's link.
    pub fn link(&self, program: &str) -> PathBuf {
        self.links().join(program)
    }

    /// Makes the folder if it is not there, and takes the lock.
    ///
    /// # Errors
    ///
    /// [`StartError::NotBpffs`], [`StartError::Locked`], or why the folder cannot be made.
    pub fn lock(&self) -> Result<Lock, StartError> {
        self.check_bpffs()?;
        fs::create_dir_all(self.links())
            .map_err(denied(StartError::io("create folder", self.links())))?;
        let folder = self.open()?;
        // Who asks for the status holds the lock for a moment too; an agent holds it for good.
        for _ in 0..20 {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _folder: folder }),
                Err(rustix::io::Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(10)),
                Err(error) => {
                    return Err(StartError::io("lock folder", &self.folder)(error.into()));
                }
            }
        }
        Err(StartError::Locked {
            path: self.folder.clone(),
        })
    }

    /// Whether an agent holds the lock now.
    pub fn is_locked(&self) -> bool {
        self.open().is_ok_and(|folder| {
            flock(&folder, FlockOperation::NonBlockingLockExclusive)
                == Err(rustix::io::Errno::WOULDBLOCK)
        })
    }

    fn open(&self) -> Result<OwnedFd, StartError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(&self.folder, flags, Mode::empty())
            .map_err(|error| StartError::io("open folder", &self.folder)(error.into()))
    }

    fn check_bpffs(&self) -> Result<(), StartError> {
        let bpffs = self.folder.parent().unwrap_or(&self.folder);
        let stat = statfs(bpffs)
            .map_err(|error| denied(StartError::io("look at bpffs", bpffs))(error.into()))?;
        match stat.f_type as u32 {
            BPFFS_MAGIC => Ok(()),
            _ => Err(StartError::NotBpffs { path: bpffs.into() }),
        }
    }

    /// Compares every pin that exists with what this version needs. Returns the sizes of the
    /// resizable ones.
    ///
    /// # Errors
    ///
    /// [`StartError::NotBpffs`], [`StartError::Mismatch`], [`StartError::Schema`], or why a pin
    /// cannot be opened.
    pub fn check(&self) -> Result<Sizes, StartError> {
        let mut sizes = Sizes::new();
        for shape in &SHAPES {
            if let Some(info) = self.checked(shape)?
                && shape.spec.resizable
            {
                sizes.insert(shape.spec.name, info.max_entries());
            }
        }
        match self.setting()?.map(|setting| setting.schema) {
            None | Some(0 | SCHEMA) => Ok(sizes),
            Some(found) => Err(StartError::Schema {
                path: self.folder.clone(),
                found,
                expected: SCHEMA,
            }),
        }
    }

    /// The record of the `setting` map; `None` if that is not pinned.
    ///
    /// # Errors
    ///
    /// [`StartError::Mismatch`] if the map has another layout, or why it cannot be read.
    pub fn setting(&self) -> Result<Option<SettingValue>, StartError> {
        let name = map::SETTING.name;
        let shape = SHAPES.iter().find(|shape| shape.spec.name == name);
        if shape
            .map(|shape| self.checked(shape))
            .transpose()?
            .flatten()
            .is_none()
        {
            return Ok(None);
        }
        let data = MapData::from_pin(self.map(name)).map_err(|error| open_map(name, error))?;
        Array::<_, SettingValue>::try_from(Map::Array(data))
            .and_then(|array| array.get(&0, 0))
            .map(Some)
            .map_err(|error| open_map(name, error))
    }

    /// What the kernel says of a map's pin, if there is one and it has the shape of this version.
    pub(super) fn checked(&self, shape: &Shape) -> Result<Option<MapInfo>, StartError> {
        let Some(info) = self.info(shape)? else {
            return Ok(None);
        };
        shape
            .check(&info)
            .map_err(|mismatch| StartError::Mismatch {
                path: self.folder.clone(),
                mismatch,
            })?;
        Ok(Some(info))
    }

    /// Whether every map of the contract is pinned.
    pub fn is_complete(&self) -> bool {
        SHAPES
            .iter()
            .all(|shape| self.map(shape.spec.name).exists())
    }

    fn info(&self, shape: &Shape) -> Result<Option<MapInfo>, StartError> {
        let path = self.map(shape.spec.name);
        if !path
            .try_exists()
            .map_err(denied(StartError::io("look at pin", &path)))?
        {
            // Nothing can be pinned elsewhere: that is another thing to say than that nothing is.
            self.check_bpffs()?;
            return Ok(None);
        }
        MapInfo::from_pin(&path)
            .map(Some)
            .map_err(|error| open_map(shape.spec.name, error))
    }
}

/// The first cgroup2 that is mounted here.
///
/// # Errors
///
/// [`StartError::NoCgroup2`].
pub fn cgroup_root() -> Result<PathBuf, StartError> {
    let mounts = fs::read_to_string("/proc/self/mounts")
        .map_err(StartError::io("read", "/proc/self/mounts"))?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let folder = fields.nth(1)?;
            (fields.next()? == "cgroup2").then(|| PathBuf::from(folder))
        })
        .next()
        .ok_or(StartError::NoCgroup2)
}

/// `EACCES` becomes [`StartError::NoRights`]: a bpffs is open to root alone.
fn denied(other: impl FnOnce(io::Error) -> StartError) -> impl FnOnce(io::Error) -> StartError {
    move |error| match error.kind() {
        io::ErrorKind::PermissionDenied => StartError::NoRights,
        _ => other(error),
    }
}

/// `EPERM` becomes [`StartError::NoRights`].
pub(super) fn open_map(map: &'static str, error: aya::maps::MapError) -> StartError {
    let denied = std::error::Error::source(&error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|source| source.kind() == io::ErrorKind::PermissionDenied);
    if denied {
        StartError::NoRights
    } else {
        StartError::OpenMap {
            map,
            source: Box::new(error),
        }
    }
}
