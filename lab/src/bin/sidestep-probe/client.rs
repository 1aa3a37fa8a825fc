//! What connections and datagrams have in common: options, pacing, holding.

use std::{
    io::{self, BufRead as _, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use lab::report::{Attempt, Line};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{errno, print, tally::Tally};

/// Longest run, in seconds: nothing that a test forgets runs for ever.
const LONGEST: f64 = 3600.0;

/// Options of all clients.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of attempts.
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Milliseconds from the start of one attempt to that of the next; 0 makes them back to back.
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    interval: f64,
    /// Go on for this many seconds instead of a number of attempts.
    #[arg(long, value_name = "SECONDS", conflicts_with = "count")]
    duration: Option<f64>,
    /// Milliseconds that connecting, and waiting for an answer, may take.
    #[arg(long, value_name = "MS", default_value_t = 5000.0)]
    timeout: f64,
    /// Bind sockets to this address first.
    #[arg(long, value_name = "ADDR")]
    bind: Option<IpAddr>,
    /// Use an IPv6 socket and the v4-mapped form of an IPv4 address.
    #[arg(long)]
    mapped: bool,
    /// Print the summary only.
    #[arg(long)]
    quiet: bool,
    /// End early when stdin is closed.
    #[arg(long, conflicts_with = "hold")]
    until_eof: bool,
    /// Keep the sockets open until stdin is closed; ask again on each for every line on stdin.
    #[arg(long, conflicts_with = "duration")]
    pub(crate) hold: bool,
}

/// A socket that can be asked for its server's name, again and again.
pub(crate) trait Ask {
    /// Asks, waits for the answer and fills in what is known of the attempt.
    fn ask(&mut self, attempt: &mut Attempt) -> io::Result<()>;
}

impl Options {
    /// Makes attempts as the options say. `open` makes a socket and asks for the first time.
    pub(crate) fn run<S: Ask>(
        &self,
        mut open: impl FnMut(&mut Attempt) -> io::Result<S>,
    ) -> anyhow::Result<()> {
        let (interval, longest) = (seconds(self.interval / 1e3)?, self.duration()?);
        let stopped = self.stop_at_eof();
        let start = Instant::now();
        let mut tally = Tally::new()?;
        let mut held = Vec::new();
        for number in 0_u32.. {
            let ended = match longest {
                Some(longest) => start.elapsed() >= longest,
                None => number == self.count,
            };
            if ended || stopped.load(Ordering::Relaxed) {
                break;
            }
            pause_until(start + interval * number, &stopped);
            let mut attempt = started(start);
            let result = open(&mut attempt);
            self.finish(&mut attempt, result.as_ref().err(), &mut tally)?;
            if self.hold {
                held.extend(result);
            }
        }
        print(&Line::Summary(tally.summary()))?;
        if self.hold {
            self.ask_again(start, &mut held)
        } else {
            Ok(())
        }
    }

    /// The address as the socket is to be given it.
    pub(crate) fn target(&self, to: SocketAddr) -> anyhow::Result<SocketAddr> {
        match to.ip() {
            IpAddr::V4(v4) if self.mapped => Ok((v4.to_ipv6_mapped(), to.port()).into()),
            IpAddr::V6(_) if self.mapped => anyhow::bail!("--mapped needs an IPv4 address"),
            _ => Ok(to),
        }
    }

    /// A socket for the address, bound as the options say, with their timeout.
    pub(crate) fn socket(&self, to: SocketAddr, r#type: Type) -> io::Result<Socket> {
        let protocol = if r#type == Type::STREAM {
            Protocol::TCP
        } else {
            Protocol::UDP
        };
        let socket = Socket::new(Domain::for_address(to), r#type, Some(protocol))?;
        if self.mapped {
            socket.set_only_v6(false)?;
        }
        if let Some(address) = self.bind {
            let address = match address {
                IpAddr::V4(v4) if self.mapped => v4.to_ipv6_mapped().into(),
                other => other,
            };
            socket.bind(&SocketAddr::new(address, 0).into())?;
        }
        // Blocking calls with a timeout cost no system call more than those without: the figures
        // are those of a plain program.
        let timeout = Some(Duration::from_secs_f64(
            self.timeout.clamp(1.0, LONGEST * 1e3) / 1e3,
        ));
        socket.set_write_timeout(timeout)?;
        socket.set_read_timeout(timeout)?;
        Ok(socket)
    }

    fn duration(&self) -> anyhow::Result<Option<Duration>> {
        self.duration.map(seconds).transpose().context("--duration")
    }

    /// A flag that is set when stdin closes, if that is to end the run.
    fn stop_at_eof(&self) -> Arc<AtomicBool> {
        let stopped = Arc::new(AtomicBool::new(false));
        if self.until_eof {
            let flag = Arc::clone(&stopped);
            thread::spawn(move || {
                // An error ends stdin as well.
                let _ = io::stdin().lock().read_to_end(&mut Vec::new());
                flag.store(true, Ordering::Relaxed);
            });
        }
        stopped
    }

    fn ask_again<S: Ask>(&self, start: Instant, held: &mut [S]) -> anyhow::Result<()> {
        for line in io::stdin().lock().lines() {
            line.context("read stdin")?;
            let mut tally = Tally::new()?;
            for socket in &mut *held {
                let mut attempt = started(start);
                let result = socket.ask(&mut attempt);
                self.finish(&mut attempt, result.as_ref().err(), &mut tally)?;
            }
            print(&Line::Summary(tally.summary()))?;
        }
        Ok(())
    }

    fn finish(
        &self,
        attempt: &mut Attempt,
        error: Option<&io::Error>,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        attempt.ok = error.is_none();
        attempt.error = error.map(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            _ => errno::name(error),
        });
        tally.add(attempt);
        if self.quiet {
            return Ok(());
        }
        print(&Line::Attempt(attempt.clone()))
    }
}

/// What `getsockname` or `getpeername` gave: none for a socket without address.
pub(crate) fn shown(address: io::Result<socket2::SockAddr>) -> Option<SocketAddr> {
    let address = address.ok()?.as_socket()?;
    let unspecified = [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    (!unspecified.contains(&address.ip())).then_some(address)
}

/// Microseconds since `start`.
pub(crate) fn microseconds(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1e3
}

fn started(start: Instant) -> Attempt {
    let at_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    Attempt {
        at_us,
        ..Attempt::default()
    }
}

fn seconds(value: f64) -> anyhow::Result<Duration> {
    ensure!(
        (0.0..=LONGEST).contains(&value),
        "{value} s is not between 0 and {LONGEST} s"
    );
    Ok(Duration::from_secs_f64(value))
}

/// Sleeps until the time, or until stopped.
fn pause_until(time: Instant, stopped: &AtomicBool) {
    const STEP: Duration = Duration::from_millis(50);
    loop {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() || stopped.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(left.min(STEP));
    }
}
