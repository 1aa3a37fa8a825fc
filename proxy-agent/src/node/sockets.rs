//! Ends connected UDP sockets whose backend is dead.
//!
//! A connected UDP socket never calls connect(2) again and hears nothing from an address that is
//! gone, so a resolver can hang on it for minutes. Destroyed, its next call fails with ECONNABORTED
//! and the program connects anew, to a live backend.
//!
//! Only a socket of which the programs remember that they gave it this very peer is ever touched:
//! the cookie must match, and the peer. Never: TCP, unconnected sockets (they get another backend at
//! the next sendmsg), sockets that were connected to a pod's own address.

use std::{
    collections::HashMap,
    io,
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use proxy_common::{OrphanRecord, addr};

use super::{
    namespace,
    sock_diag::{Connected, Family, SockDiag},
};

/// Least time between the beginnings of two passes.
const INTERVAL: Duration = Duration::from_millis(100);

/// How long after the last requested pass one more is made. A socket that was inside connect(2) when
/// its backend died gets its peer after the programs ran, and so maybe after the pass.
const ECHO: Duration = Duration::from_secs(1);

/// What one pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Network namespaces looked into.
    pub namespaces: u32,
    /// Namespaces that could not be looked into.
    pub unseen: u32,
    /// UDP sockets that the programs had connected to a backend that is dead; some of them may be
    /// connected elsewhere since, or not at all.
    pub orphans: u32,
    /// UDP sockets destroyed.
    pub destroyed: u32,
    /// UDP sockets that should have been destroyed and were not.
    pub failed: u32,
    /// How long it took.
    pub elapsed: Duration,
}

/// Why sockets of dead backends cannot be found or destroyed here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel cannot list UDP sockets.
    #[error(
        "connected UDP sockets of dead backends stay: this kernel cannot list UDP sockets \
         (CONFIG_INET_UDP_DIAG; try `modprobe udp_diag`)"
    )]
    NoUdpDiag,
    /// The kernel cannot destroy sockets.
    #[error(
        "connected UDP sockets of dead backends stay: this kernel cannot destroy sockets \
         (CONFIG_INET_DIAG_DESTROY)"
    )]
    NoDestroy,
    /// A capability is missing (CAP_NET_ADMIN), or anything else.
    #[error("connected UDP sockets of dead backends stay: {what}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// No thread to work on.
    #[error("start the thread that destroys sockets of dead backends")]
    Thread(#[source] io::Error),
}

/// A thread that makes passes when asked to. Dropped, it finishes the pass that it is in.
#[derive(Debug)]
pub struct Reaper {
    requests: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Probes the kernel and starts the thread; no pass is made yet.
    ///
    /// `orphans` lists the sockets of dead backends in the calling thread's network namespace, as
    /// [`Orphans`](crate::datapath::Orphans) does. `report` gets each finished pass.
    ///
    /// # Errors
    ///
    /// If the kernel or the process's capabilities do not allow it: a degraded mode, and the error
    /// says which.
    pub fn spawn(
        orphans: impl Fn() -> io::Result<Vec<OrphanRecord>> + Send + Sync + 'static,
        report: impl FnMut(Pass) + Send + 'static,
    ) -> Result<Self, Error> {
        probe()?;
        let (requests, inbox) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name("reaper".into())
            .spawn(move || work(&inbox, orphans, report))
            .map_err(Error::Thread)?;
        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// Asks for a pass that begins after this call. Never waits; requests that come before the pass
    /// begins share it.
    ///
    /// To be called after UDP backends were deleted from the map, and once after the first full
    /// sync, for those that died while no agent ran.
    pub fn request(&self) {
        match self.requests.as_ref().map(|requests| requests.try_send(())) {
            Some(Ok(()) | Err(TrySendError::Full(()))) => {}
            Some(Err(TrySendError::Disconnected(()))) | None => {
                tracing::error!("the thread that destroys sockets of dead backends has ended");
            }
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Whether this kernel lists and destroys UDP sockets.
///
/// # Errors
///
/// The degraded mode, with its reason.
pub fn probe() -> Result<(), Error> {
    let refused = |what| move |source| Error::Refused { what, source };
    let mut diag = SockDiag::open().map_err(refused("open a sock_diag socket"))?;
    match diag.connected_udp(Family::V4) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::NoUdpDiag),
        Err(e) => return Err(refused("list UDP sockets")(e)),
    }
    match diag.probe_destroy() {
        Ok(()) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Err(Error::NoDestroy),
        Err(e) => Err(refused("destroy a socket (needs CAP_NET_ADMIN)")(e)),
    }
}

/// One pass over all network namespaces, now, on a thread of its own. See [`Reaper::spawn`] for
/// `orphans`.
///
/// # Errors
///
/// If the namespaces cannot be listed. What fails in one of them is counted and logged.
pub fn reap(
    orphans: &(impl Fn() -> io::Result<Vec<OrphanRecord>> + Sync),
) -> Result<Pass, namespace::Error> {
    let start = Instant::now();
    let mut pass = Pass::default();
    let visited = namespace::visit_all(|namespace| {
        if let Err(error) = orphans().and_then(|orphans| sweep(&orphans, &mut pass)) {
            pass.unseen += 1;
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                netns = namespace.inode(),
                "cannot look for UDP sockets of dead backends"
            );
        }
    })?;
    pass.namespaces = visited.entered;
    pass.unseen += visited.failed;
    pass.elapsed = start.elapsed();
    Ok(pass)
}

fn work(
    inbox: &Receiver<()>,
    orphans: impl Fn() -> io::Result<Vec<OrphanRecord>> + Sync,
    mut report: impl FnMut(Pass),
) {
    let mut echo: Option<Instant> = None;
    loop {
        let request = match echo {
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        let start = Instant::now();
        echo = match request {
            Ok(()) => Some(start + ECHO),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        match reap(&orphans) {
            Ok(pass) => {
                log(&pass);
                report(pass);
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot look for UDP sockets of dead backends"
            ),
        }
        thread::sleep(INTERVAL.saturating_sub(start.elapsed()));
    }
}

fn log(pass: &Pass) {
    if pass.destroyed + pass.failed > 0 {
        tracing::info!(
            destroyed = pass.destroyed,
            failed = pass.failed,
            orphans = pass.orphans,
            namespaces = pass.namespaces,
            unseen = pass.unseen,
            elapsed = ?pass.elapsed,
            "destroyed UDP sockets of dead backends"
        );
    }
}

/// Destroys what is still connected of a network namespace's orphans, on a thread inside it.
fn sweep(orphans: &[OrphanRecord], pass: &mut Pass) -> io::Result<()> {
    if orphans.is_empty() {
        return Ok(());
    }
    pass.orphans += u32::try_from(orphans.len()).unwrap_or(u32::MAX);
    let orphans = orphans
        .iter()
        .map(|orphan| (orphan.cookie, *orphan))
        .collect();
    let mut diag = SockDiag::open()?;
    for family in [Family::V4, Family::V6] {
        loop {
            let sockets = diag.connected_udp(family)?;
            let (mut destroyed, mut hidden, mut failed) = (0, 0, 0);
            for socket in sockets.iter().filter(|socket| is_orphan(socket, &orphans)) {
                match diag.destroy(socket) {
                    Ok(()) => destroyed += 1,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => hidden += 1,
                    Err(error) => {
                        failed += 1;
                        tracing::warn!(
                            %error,
                            cookie = socket.cookie(),
                            peer = %socket.peer(),
                            "cannot destroy the UDP socket of a dead backend"
                        );
                    }
                }
            }
            pass.destroyed += destroyed;
            // Not found: closed by now, or another socket of the same SO_REUSEPORT group and peer
            // is in front of it. When that one is gone, this one can be reached.
            if destroyed == 0 || hidden == 0 {
                pass.failed += failed;
                break;
            }
        }
    }
    Ok(())
}

/// Whether it is one of them and still is connected where the programs connected it.
fn is_orphan(socket: &Connected, orphans: &HashMap<u64, OrphanRecord>) -> bool {
    orphans.get(&socket.cookie()).is_some_and(|orphan| {
        addr::from_ip(socket.peer().ip()) == orphan.addr && socket.peer().port() == orphan.port
    })
}
