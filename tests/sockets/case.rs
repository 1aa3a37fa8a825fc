//! One test in its own process, network namespace and cgroup.

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

use crate::net;

/// Set in the process of a test: its name.
const NAME: &str = "SIDESTEP_SOCKET_TEST";
/// Set there too: its cgroup.
const CGROUP: &str = "SIDESTEP_SOCKET_CGROUP";
/// How long a test may take. Reached only if a hook made a call wait for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A test: a sentence and what shows it.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    name: &'static str,
    body: fn() -> anyhow::Result<()>,
}

impl Test {
    pub(crate) const fn new(name: &'static str, body: fn() -> anyhow::Result<()>) -> Self {
        Self { name, body }
    }

    pub(crate) fn into_trial(self) -> Trial {
        Trial::test(self.name, move || {
            outside(self.name).map_err(|e| Failed::from(format!("{e:#}")))
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

/// In the process of a test: runs it. `None` in the process that starts them all.
pub(crate) fn run_inside(tests: &[Test]) -> Option<ExitCode> {
    let name = env::var(NAME).ok()?;
    let result = inside(tests, &name);
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
pub(crate) fn cgroup() -> anyhow::Result<PathBuf> {
    Ok(env::var_os(CGROUP)
        .context("not in the process of a test")?
        .into())
}

/// A command that runs `role` of this binary in a further network namespace, in the same cgroup.
pub(crate) fn elsewhere(role: &str) -> anyhow::Result<Command> {
    let mut command = Command::new("unshare");
    command
        .arg("--net")
        .arg("--")
        .arg(env::current_exe()?)
        .env(NAME, role);
    Ok(command)
}

fn inside(tests: &[Test], name: &str) -> anyhow::Result<()> {
    // "0" is the writing process. Sockets belong to the cgroup that they are made in.
    fs::write(cgroup()?.join("cgroup.procs"), "0").context("enter the cgroup of the test")?;
    net::set_up()?;
    let test = tests
        .iter()
        .find(|t| t.name == name)
        .context("no such test")?;
    (test.body)()
}

fn outside(name: &str) -> anyhow::Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the socket tests need root"
    );
    let cgroup = Cgroup::make()?;
    let output = cgroup.0.with_extension("log");
    let output = env::temp_dir().join(output.file_name().context("name of the cgroup")?);
    let log = fs::File::create(&output).context("create the log of the test")?;
    let mut child = Command::new("unshare")
        .args(["--net", "--"])
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
        let folder = cgroup2()?.join(format!("sidestep-sockets-{}-{number}", std::process::id()));
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
