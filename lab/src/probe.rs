//! Clients of `sidestep-probe` in a lab host, as builders and typed reports.

use std::{
    net::{IpAddr, SocketAddr},
    process::Command,
    time::Duration,
};

use crate::{
    Error, Process, Result,
    binary::binary,
    place::Place,
    report::{Attempt, Bound, Line, Report},
};

const PROBE: &str = "sidestep-probe";

/// Time for a probe to start, or to answer on top of what its own options allow: generous, since
/// test machines are shared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// TCP connections to be made, one after the other. Each waits for the server's name and closes.
#[derive(Clone, Debug)]
pub struct Connect {
    run: Run,
}

/// UDP datagrams to be sent, each waiting for its answer; from one socket unless
/// [`fresh`](Datagram::fresh), and unconnected unless [`connected`](Datagram::connected).
#[derive(Clone, Debug)]
pub struct Datagram {
    run: Run,
}

/// A port to be bound.
#[derive(Clone, Debug)]
pub struct Bind {
    run: Run,
}

/// Attempts that are being made.
#[derive(Debug)]
pub struct Running {
    process: Process,
    patience: Duration,
    /// What has been read already.
    report: Report,
    ended: bool,
}

/// Sockets that are kept open, to be asked again.
#[derive(Debug)]
pub struct Held {
    process: Process,
    patience: Duration,
    report: Report,
}

/// Arguments, place and time limit of a probe.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) host: String,
    place: Place,
    args: Vec<String>,
    count: u32,
    interval: Duration,
    duration: Option<Duration>,
    timeout: Duration,
}

impl Connect {
    pub(crate) fn new(host: &str, place: &Place, to: SocketAddr) -> Self {
        Self {
            run: Run::new(host, place, &["connect", &to.to_string()]),
        }
    }

    /// Sends the first bytes in the SYN (TCP Fast Open, RFC 7413).
    #[must_use]
    pub fn fast_open(mut self) -> Self {
        self.run.flag("--tfo");
        self
    }

    /// Makes the connections and returns when the last has ended.
    pub fn run(self) -> Result<Report> {
        self.start()?.finish()
    }

    /// Begins to make connections.
    pub fn start(self) -> Result<Running> {
        self.run.running()
    }

    /// Makes `count` connections and keeps them open.
    pub fn hold(self) -> Result<Held> {
        self.run.held()
    }
}

impl Datagram {
    pub(crate) fn new(host: &str, place: &Place, to: SocketAddr) -> Self {
        Self {
            run: Run::new(host, place, &["datagram", &to.to_string()]),
        }
    }

    /// One more address, which gets datagrams in turn. Unconnected sockets only.
    #[must_use]
    pub fn also(mut self, to: impl Into<SocketAddr>) -> Self {
        self.run.args.push(to.into().to_string());
        self
    }

    /// Connects the socket first.
    #[must_use]
    pub fn connected(mut self) -> Self {
        self.run.flag("--connected");
        self
    }

    /// Takes a new socket for each datagram.
    #[must_use]
    pub fn fresh(mut self) -> Self {
        self.run.flag("--fresh");
        self
    }

    /// Sends the datagrams and returns when the last was answered or given up.
    pub fn run(self) -> Result<Report> {
        self.start()?.finish()
    }

    /// Begins to send.
    pub fn start(self) -> Result<Running> {
        self.run.running()
    }

    /// Opens `count` sockets, sends one datagram from each, and keeps them open.
    pub fn hold(self) -> Result<Held> {
        self.run.held()
    }
}

/// Options that [`Connect`] and [`Datagram`] share.
macro_rules! client_options {
    ($($client:ty),*) => {$(
        impl $client {
            /// Number of attempts; 1 if not given.
            #[must_use]
            pub fn count(mut self, count: u32) -> Self {
                self.run.count = count;
                self.run.arg("--count", count);
                self
            }

            /// Time from the start of one attempt to that of the next; 1 ms if not given. Zero
            /// makes them back to back.
            #[must_use]
            pub fn interval(mut self, interval: Duration) -> Self {
                self.run.interval = interval;
                self.run.arg("--interval", interval.as_secs_f64() * 1e3);
                self
            }

            /// Goes on for this long instead of a number of attempts.
            #[must_use]
            pub fn duration(mut self, duration: Duration) -> Self {
                self.run.duration = Some(duration);
                self.run.arg("--duration", duration.as_secs_f64());
                self
            }

            /// How long an attempt may take; 5 s if not given.
            #[must_use]
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.run.timeout = timeout;
                self.run.arg("--timeout", timeout.as_secs_f64() * 1e3);
                self
            }

            /// Binds the sockets to this address first.
            #[must_use]
            pub fn bind(mut self, address: impl Into<IpAddr>) -> Self {
                self.run.arg("--bind", address.into());
                self
            }

            /// Uses an IPv6 socket and the v4-mapped address (::ffff:a.b.c.d) of an IPv4 one.
            #[must_use]
            pub fn mapped(mut self) -> Self {
                self.run.flag("--mapped");
                self
            }

            /// Keeps the figures only, not each attempt: for many of them.
            #[must_use]
            pub fn quiet(mut self) -> Self {
                self.run.flag("--quiet");
                self
            }
        }
    )*};
}
client_options!(Connect, Datagram);

impl Bind {
    pub(crate) fn new(host: &str, place: &Place, transport: Transport, to: SocketAddr) -> Self {
        Self {
            run: Run::new(host, place, &["bind", transport.flag(), &to.to_string()]),
        }
    }

    /// Tries it.
    pub fn run(self) -> Result<Bound> {
        let mut process = self.run.start()?;
        match next(&mut process, PATIENCE)? {
            Some(Line::Bound(bound)) => Ok(bound),
            _ => Err(process.failure("it did not report")),
        }
    }
}

impl Running {
    /// Waits until all attempts have been made.
    pub fn finish(mut self) -> Result<Report> {
        while self.next_attempt()?.is_some() {}
        self.process.succeed()?;
        Ok(std::mem::take(&mut self.report))
    }

    /// Ends it after the attempt that is under way.
    pub fn stop(mut self) -> Result<Report> {
        self.process.close_stdin();
        self.finish()
    }

    /// Waits for the next attempt. None when there is no more, which a quiet run has from the
    /// start.
    pub fn next_attempt(&mut self) -> Result<Option<&Attempt>> {
        while !self.ended {
            match next(&mut self.process, self.patience)? {
                Some(Line::Attempt(attempt)) => {
                    self.report.attempts.push(attempt);
                    return Ok(self.report.attempts.last());
                }
                Some(Line::Summary(summary)) => {
                    self.report.summary = summary;
                    self.ended = true;
                }
                Some(Line::Ready(_) | Line::Bound(_)) => {}
                None => return Err(self.process.failure("it ended without a summary")),
            }
        }
        Ok(None)
    }
}

impl Held {
    /// What came of opening the sockets.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Asks once more on every socket that is open; each must answer as the first time.
    pub fn ask(&mut self) -> Result<Report> {
        self.process.tell("ask")?;
        round(&mut self.process, self.patience)
    }

    /// Closes the sockets properly and waits until that is done.
    pub fn close(mut self) -> Result<()> {
        self.process.close_stdin();
        self.process.succeed()
    }

    /// The process that holds them.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}

impl Transport {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Tcp => "--tcp",
            Self::Udp => "--udp",
        }
    }
}

impl Run {
    pub(crate) fn new(host: &str, place: &Place, args: &[&str]) -> Self {
        Self {
            host: host.to_owned(),
            place: place.clone(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            count: 1,
            interval: Duration::from_millis(1),
            duration: None,
            timeout: Duration::from_secs(5),
        }
    }

    fn flag(&mut self, flag: &str) {
        self.args.push(flag.to_owned());
    }

    pub(crate) fn arg(&mut self, flag: &str, value: impl ToString) {
        self.args.extend([flag.to_owned(), value.to_string()]);
    }

    pub(crate) fn start(&self) -> Result<Process> {
        let mut command = Command::new(binary(PROBE)?);
        command.args(&self.args);
        self.place.place(&mut command);
        Process::start(command, &self.host)
    }

    fn running(mut self) -> Result<Running> {
        self.flag("--until-eof");
        let (process, patience) = (self.start()?, self.patience());
        Ok(Running {
            process,
            patience,
            report: Report::default(),
            ended: false,
        })
    }

    fn held(mut self) -> Result<Held> {
        self.flag("--hold");
        let patience = self.patience();
        let mut process = self.start()?;
        let report = round(&mut process, patience)?;
        Ok(Held {
            process,
            patience,
            report,
        })
    }

    /// The longest that its attempts can take, and then some.
    fn patience(&self) -> Duration {
        let attempts = (self.interval + self.timeout).saturating_mul(self.count);
        PATIENCE.saturating_add(self.duration.unwrap_or(attempts))
    }
}

/// Reads a round of attempts to its summary.
fn round(process: &mut Process, patience: Duration) -> Result<Report> {
    let mut attempts = Vec::new();
    loop {
        match next(process, patience)? {
            Some(Line::Attempt(attempt)) => attempts.push(attempt),
            Some(Line::Summary(summary)) => return Ok(Report { attempts, summary }),
            Some(Line::Ready(_) | Line::Bound(_)) => {}
            None => return Err(process.failure("it ended without a summary")),
        }
    }
}

pub(crate) fn next(process: &mut Process, patience: Duration) -> Result<Option<Line>> {
    let Some(line) = process.line(patience)? else {
        return Ok(None);
    };
    match serde_json::from_str(&line) {
        Ok(line) => Ok(Some(line)),
        Err(source) => Err(Error::Report {
            program: PROBE.to_owned(),
            line,
            source,
        }),
    }
}
