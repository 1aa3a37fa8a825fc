//! The agent on a node: how it is started there, and how its commands are.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Host, Node, Process, Result, binary::binary};

/// What the agent logs when the maps are the cluster's for the first time.
const READY: &str = "synced";

/// Time for an agent to start. It compiles nothing, but the kernel checks its programs, and test
/// machines are shared.
const PATIENCE: Duration = Duration::from_secs(180);

/// An agent to be started on a node.
#[derive(Debug)]
pub struct Agent<'a> {
    node: &'a Node,
    args: Vec<String>,
    environment: Vec<(String, String)>,
}

/// An agent that runs. Dropping it kills it, which detaches nothing.
#[derive(Debug)]
pub struct RunningAgent {
    process: Process,
    log: PathBuf,
    /// Length of the log when it started: earlier agents of the node wrote that.
    begin: usize,
}

impl Node {
    /// An agent that reads a folder of manifests.
    #[must_use]
    pub fn agent(&self, manifests: &Path) -> Agent<'_> {
        self.agent_of(["--manifests".to_owned(), manifests.display().to_string()])
    }

    /// An agent whose source is given by its flags: `--kubeconfig` and a file, say.
    pub fn agent_of(&self, source: impl IntoIterator<Item = String>) -> Agent<'_> {
        let mut args: Vec<String> = ["--hostname-override", self.name(), "--cgroup-root"]
            .map(str::to_owned)
            .into_iter()
            .chain([self.cgroup().display().to_string()])
            .collect();
        args.extend(source);
        Agent {
            node: self,
            args,
            environment: Vec::new(),
        }
    }

    /// A command of the `sidestep` program that looks at this node's pins.
    pub fn sidestep(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = self.command("sidestep");
        command.arg("--bpffs").arg(self.bpffs()).args(args);
        command
    }

    /// The folder of this node's pins.
    #[must_use]
    pub fn pins(&self) -> PathBuf {
        self.bpffs().join("sidestep")
    }
}

impl Agent<'_> {
    /// Adds a flag of `sidestep run`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Sets a variable in the agent's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command that would be started.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = self.node.sidestep(["run"]);
        command
            .args(&self.args)
            .envs(self.environment.iter().map(|(n, v)| (n, v)));
        command
    }

    /// Starts it and waits until it has written what its source had.
    pub fn start(self) -> Result<RunningAgent> {
        let mut agent = self.spawn()?;
        agent.wait_until_ready(PATIENCE)?;
        Ok(agent)
    }

    /// Starts it and does not wait. Its log goes to the node's folder.
    pub fn spawn(self) -> Result<RunningAgent> {
        binary("sidestep")?;
        let log = self.node.folder().join("agent.log");
        let begin = fs::read(&log).map_or(0, |text| text.len());
        let process = Process::start_logged(self.command(), self.node.name(), &log)?;
        Ok(RunningAgent {
            process,
            log,
            begin,
        })
    }
}

impl RunningAgent {
    /// Waits until it has written everything that its source had when it started.
    pub fn wait_until_ready(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            if self.log().contains(READY) {
                return Ok(());
            }
            if !self.process.is_running() {
                return Err(self.process.failure("it ended before it was ready"));
            }
            if Instant::now() > deadline {
                let what = format!("a sync of the agent (log: {})", self.log().trim());
                return Err(Error::Timeout {
                    what,
                    seconds: patience.as_secs(),
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it has logged since it started.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.begin..).unwrap_or_default()).into_owned()
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// SIGKILL: it has no chance to tidy up.
    pub fn kill(self) {
        self.process.kill();
    }

    /// SIGTERM, and waits for its end, which must be a success.
    pub fn stop(self) -> Result<()> {
        let log = self.log.clone();
        let status = self.process.terminate(PATIENCE)?;
        if status.success() {
            return Ok(());
        }
        let message = format!("{status}; log in {}", log.display());
        Err(Error::Process {
            program: "sidestep".to_owned(),
            host: String::new(),
            message,
        })
    }

    /// Lets it run until the end of its lab.
    pub fn leave(self) {
        self.process.leave();
    }
}
