//! Network namespaces for tests, gone when they are dropped.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use proxy_agent::node::namespace::Namespace;

/// Addresses of "pods", all of them on the loopback interface.
pub(crate) const PODS: [&str; 2] = ["10.1.0.1", "10.1.0.2"];
/// The same for IPv6.
pub(crate) const PODS6: [&str; 2] = ["fd01::1", "fd01::2"];

/// A network namespace.
pub(crate) struct Place {
    pub(crate) namespace: Namespace,
    _holder: Holder,
}

/// What keeps it visible to others.
enum Holder {
    /// A mount below /run/netns.
    Name(String),
    /// A process that ends with its stdin, and so with us, whatever happens.
    Process(Child, Option<ChildStdin>),
}

impl Place {
    /// One with a name and no process in it.
    pub(crate) fn named() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sidestep-node-{}-{number}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]));
        let holder = Holder::Name(name.clone());
        Self::set_up(format!("/run/netns/{name}"), holder)
    }

    /// One with a process in it and no name.
    pub(crate) fn with_process() -> Self {
        let mut child = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start unshare(1)");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout"));
        stdout.read_line(&mut line).expect("wait for unshare(1)");
        assert_eq!(line, "ready\n", "unshare(1) needs root");
        let path = format!("/proc/{}/ns/net", child.id());
        let stdin = child.stdin.take();
        Self::set_up(path, Holder::Process(child, stdin))
    }

    /// Runs ip(8) in it, one command a line.
    pub(crate) fn ip(&self, lines: &str) {
        self.inside(|| {
            let mut ip = Command::new("ip")
                .args(["-batch", "-"])
                .stdin(Stdio::piped())
                .spawn()
                .expect("start ip(8)");
            let mut stdin = ip.stdin.take().expect("stdin");
            stdin.write_all(lines.as_bytes()).expect("tell ip(8)");
            drop(stdin);
            assert!(ip.wait().expect("wait for ip(8)").success(), "ip: {lines}");
        });
    }

    /// Does something inside.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).expect("enter a network namespace")
    }

    fn set_up(path: String, holder: Holder) -> Self {
        let namespace = Namespace::open(path).expect("open a network namespace");
        let place = Self {
            namespace,
            _holder: holder,
        };
        let mut lines = String::from("link set lo up\n");
        for pod in PODS {
            lines += &format!("addr add {pod}/32 dev lo\n");
        }
        for pod in PODS6 {
            lines += &format!("addr add {pod}/128 dev lo nodad\n");
        }
        place.ip(&lines);
        place
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        match self {
            Self::Name(name) => {
                let _ = Command::new("ip").args(["netns", "delete", name]).status();
            }
            Self::Process(child, stdin) => {
                *stdin = None;
                let _ = child.wait();
            }
        }
    }
}

fn run(command: &mut Command) {
    let status = command.status().expect("start a command");
    assert!(status.success(), "{command:?}: {status}");
}
