//! A process of the lab: killed when dropped, its output always drained.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Read, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, Result};

/// A running process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    program: String,
    host: String,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Stderr,
}

/// Where a process's stderr goes.
#[derive(Debug)]
enum Stderr {
    /// To us.
    Pipe(Arc<Mutex<String>>),
    /// With its stdout to a file.
    File(PathBuf),
}

impl Process {
    /// Starts a command, with pipes for input and output. `host` names the place in errors.
    pub fn start(mut command: Command, host: &str) -> Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let text = Arc::new(Mutex::new(String::new()));
        let mut process = Self::spawn(command, host, Stderr::Pipe(Arc::clone(&text)))?;
        if let Some(pipe) = process.child.stderr.take() {
            read_lines(pipe, move |line| {
                let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
                text.push_str(&line);
                text.push('\n');
                true
            });
        }
        Ok(process)
    }

    /// Starts a command that appends its output to a file, and so can outlive us.
    pub fn start_logged(mut command: Command, host: &str, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.map_err(Error::io("open", log))?;
        let twin = file.try_clone().map_err(Error::io("open", log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(twin);
        Self::spawn(command, host, Stderr::File(log.to_owned()))
    }

    fn spawn(mut command: Command, host: &str, stderr: Stderr) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(Error::io("start", &program))?;
        let (lines, stdout) = mpsc::channel();
        if let Some(pipe) = child.stdout.take() {
            read_lines(pipe, move |line| lines.send(line).is_ok());
        }
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            program,
            host: host.to_owned(),
            stdin,
            stdout,
            stderr,
        })
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal; one that comes too late is no error.
    pub fn signal(&mut self, signal: Signal) {
        // An id that has not been reaped is still the child's.
        if self.is_running()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// SIGTERM, then waits up to `patience`; kills it after that, which is an error.
    pub fn terminate(mut self, patience: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.stdin = None;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
        Err(self.timeout("the end", patience))
    }

    /// SIGKILL, and waits.
    pub fn kill(self) {
        drop(self);
    }

    /// Waits for its end. What it prints on stdout before is lost.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.stdin = None;
        self.child
            .wait()
            .map_err(Error::io("wait for", &self.program))
    }

    /// The next line of stdout; none when it has closed its stdout.
    pub fn line(&mut self, patience: Duration) -> Result<Option<String>> {
        match self.stdout.recv_timeout(patience) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(self.timeout("a line of output", patience)),
        }
    }

    /// Writes a line to its stdin.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Err(self.failure("its stdin is closed"));
        };
        writeln!(stdin, "{line}")
            .and_then(|()| stdin.flush())
            .map_err(Error::io("write to the stdin of", &self.program))
    }

    /// Closes its stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// What it has printed on stderr so far; with stdout, and what was there before, if it is
    /// [logged](Self::start_logged).
    #[must_use]
    pub fn stderr(&self) -> String {
        match &self.stderr {
            Stderr::Pipe(text) => text.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Stderr::File(path) => fs::read_to_string(path).unwrap_or_default(),
        }
    }

    /// Lets it run on; the end of its lab ends it. Its pipes close with us, so a process that is
    /// to be left is silent, or logged.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    /// An error about this process, with its stderr.
    pub(crate) fn failure(&self, what: &str) -> Error {
        let stderr = self.stderr();
        let message = format!("{what}; stderr: {}", stderr.trim());
        Error::Process {
            program: self.program.clone(),
            host: self.host.clone(),
            message,
        }
    }

    /// Waits for its end; any but success is an error.
    pub(crate) fn succeed(&mut self) -> Result<()> {
        let status = self.wait()?;
        if status.success() {
            return Ok(());
        }
        // Its last words may be in the pipe still.
        thread::sleep(Duration::from_millis(20));
        Err(self.failure(&status.to_string()))
    }

    fn timeout(&self, what: &str, patience: Duration) -> Error {
        let Self { program, host, .. } = self;
        let what = format!(
            "{what} of {program} in {host} (stderr: {})",
            self.stderr().trim()
        );
        Error::Timeout {
            what,
            seconds: patience.as_secs(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only when it has been reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands each line to `take` on a thread of its own, until the pipe or `take` ends it.
fn read_lines(pipe: impl Read + Send + 'static, take: impl Fn(String) -> bool + Send + 'static) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            let Ok(line) = line else { break };
            if !take(line) {
                break;
            }
        }
    });
}
