//! One test in its own process, network namespace, mount namespace and cgroup.
//!
//! The test binary starts itself once more for each test; `main` asks [`run_inside`] first. Nothing
//! outside sees what a test does, and all of it goes when the test's process ends.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use libtest_mimic::{Failed, Trial};

/// Set in the process of a test: its name.
const NAME: &str = "SIDESTEP_TEST";
/// Set there too: its cgroup.
const CGROUP: &str = "SIDESTEP_TEST_CGROUP";
/// How long a test may take. Reached only if something waits for ever.
const PATIENCE: Duration = Duration::from_secs(300);

/// A test: a sentence and what shows it.
#[derive(Clone, Copy)]
pub struct Test {
    name: &'static str,
    body: fn() -> anyhow::Result<()>,
}

impl Test {
    /// A test by the name of its function.
    pub const fn new(name: &'static str, body: fn() -> anyhow::Result<()>) -> Self {
        Self { name, body }
    }

    /// As libtest-mimic wants it; runs the test in a process of its own.
    pub fn into_trial(self) -> Trial {
        Trial::test(self.name, move || {
            run_outside(self.name).map_err(|e| Failed::from(format!("{e:#}")))
        })
    }
}

/// Lists tests by the names of their functions.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::case::Test] =
            &[$($crate::case::Test::new(stringify!($name), $name)),*];
    };
}

/// In the process of a test: runs it, after `set_up`. `None` in the process that starts them all.
pub fn run_inside(set_up: fn() -> anyhow::Result<()>, tests: &[Test]) -> Option<ExitCode> {
    run_inside_by_name(|name| {
        set_up()?;
        let test = tests
            .iter()
            .find(|t| t.name == name)
            .context("no such test")?;
        (test.body)()
    })
}

/// As [`run_inside`], for tests that are known by their name alone.
pub fn run_inside_by_name(test: impl FnOnce(&str) -> anyhow::Result<()>) -> Option<ExitCode> {
    let name = env::var(NAME).ok()?;
    let result = enter_cgroup().and_then(|()| test(&name));
    if let Err(error) = &result {
        eprintln!("{error:#}");
    }
    Some(if result.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The cgroup that the test owns.
pub fn cgroup() -> anyhow::Result<PathBuf> {
    Ok(env::var_os(CGROUP)
        .context("not in the process of a test")?
        .into())
}

/// A command that runs `role` of this binary in a further network namespace, in the same cgroup.
pub fn elsewhere(role: &str) -> anyhow::Result<Command> {
    let mut command = Command::new("unshare");
    command
        .arg("--net")
        .arg("--")
        .arg(env::current_exe()?)
        .env(NAME, role);
    Ok(command)
}

fn enter_cgroup() -> anyhow::Result<()> {
    // "0" is the writing process. Sockets belong to the cgroup that they are made in.
    fs::write(cgroup()?.join("cgroup.procs"), "0").context("enter the cgroup of the test")
}

/// Runs the test of a name in a process of its own: this binary again, which calls
/// [`run_inside`] or [`run_inside_by_name`].
///
/// # Errors
///
/// What the test said, if it failed.
pub fn run_outside(name: &str) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "this test needs root");
    let cgroup = Cgroup::make()?;
    let output = cgroup.0.with_extension("log");
    let output = env::temp_dir().join(output.file_name().context("name of the cgroup")?);
    let log = fs::File::create(&output).context("create the log of the test")?;
    let mut child = Command::new("unshare")
        .args(["--net", "--mount", "--"])
        .arg(env::current_exe()?)
        .env(NAME, name)
        .env(CGROUP, &cgroup.0)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("start unshare(1)")?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let said = fs::read_to_string(&output).unwrap_or_default();
    let _ = fs::remove_file(&output);
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => bail!("{status}\n{said}"),
        None => bail!("not done after {} s\n{said}", PATIENCE.as_secs()),
    }
}

/// A cgroup2 folder below the mount's root, removed in the end.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make() -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = cgroup2()?.join(format!("sidestep-tests-{}-{number}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("create cgroup {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        for _ in 0..400 {
            match fs::remove_dir(&self.0) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(5));
                }
                _ => return,
            }
        }
        eprintln!("cgroup {} could not be removed", self.0.display());
    }
}

/// Where cgroup2 is mounted: not always at /sys/fs/cgroup.
fn cgroup2() -> anyhow::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let place = fields.next()?;
            (fields.next()? == "cgroup2").then(|| Path::new(place).to_owned())
        })
        .next()
        .context("no cgroup2 file system is mounted")
}
