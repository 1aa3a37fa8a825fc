//! A further network namespace, such as a pod's.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::{Context as _, ensure};
use proxy_agent::node::namespace::Namespace;

/// A network namespace with one process in it, which ends with us, whatever happens.
pub struct Place {
    namespace: Namespace,
    process: Child,
    stdin: Option<ChildStdin>,
}

impl Place {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// Without root or unshare(1).
    pub fn new() -> anyhow::Result<Self> {
        let mut process = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start unshare(1)")?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("stdout of unshare(1)")?;
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "unshare(1) failed");
        Ok(Self {
            namespace: Namespace::open(format!("/proc/{}/ns/net", process.id()))?,
            stdin: process.stdin.take(),
            process,
        })
    }

    /// The process in it.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Does something inside, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If the namespace cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        Ok(self.namespace.run(work)?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.process.wait();
    }
}
