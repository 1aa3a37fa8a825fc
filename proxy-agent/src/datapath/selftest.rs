//! The self-test: do these programs work on this kernel, before any process sees them?
//!
//! The programs are loaded with maps of their own and attached to a scratch cgroup, in which only a
//! client of ours lives. It talks to service addresses inside 127/8, so even a program that does
//! nothing lets no packet out.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use proxy_common::{
    BackendState, BackendValue, FrontendKey, FrontendKind, FrontendValue, Protocol, Scheduler,
    ServiceRecord, SlotValue, Window, addr, map,
};

use super::{
    Dataplane as _, Sizes, StartError,
    kernel::Kernel,
    links::attach_unpinned,
    load::{Globals, load},
};
use crate::plan::{Op, Transaction, Unit};

/// A service address with one backend.
const SERVED: Ipv4Addr = Ipv4Addr::new(127, 100, 100, 100);
/// The same for IPv6: the discard prefix (RFC 6666), never sent to unless it was translated.
const SERVED6: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);
/// A service address without endpoints.
const EMPTY: Ipv4Addr = Ipv4Addr::new(127, 100, 100, 101);
/// Port of all of them.
const PORT: u16 = 9;
/// Name of the scratch cgroups; the process id follows.
const SCRATCH: &str = "sidestep-selftest-";
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Loads the programs with maps of their own, attaches them to a scratch cgroup below `cgroup`, and
/// lets `client` (a command that ends up in [`client`](fn@client), given the scratch folder as its
/// last argument) use them. Leaves nothing behind.
///
/// # Errors
///
/// [`StartError::SelfTest`] with what went wrong, or why the programs could not be loaded.
pub fn run(client: &mut Command, cgroup: &Path, globals: Globals) -> Result<(), StartError> {
    remove_leftovers(cgroup);
    let scratch = Scratch::new(cgroup)?;
    let small: Sizes = map::ALL
        .iter()
        .filter(|spec| spec.resizable)
        .map(|spec| (spec.name, 64))
        .collect();
    let mut object = load(
        None,
        &small,
        Globals {
            port_guard: false,
            snat: None,
            ..globals
        },
    )?;
    let echo = Echo::start().map_err(failed("listen on loopback"))?;
    let mut kernel = Kernel::unpinned(&mut object)?;
    let outcome = kernel.apply(&entries(echo.v4, echo.v6));
    if let Some(failed) = outcome.failed.first() {
        return Err(StartError::SelfTest(format!(
            "write the test's maps: {}",
            failed.error
        )));
    }
    attach_unpinned(&mut object, &scratch.folder)?;
    let output = client
        .arg(&scratch.folder)
        .stdin(Stdio::null())
        .output()
        .map_err(failed("run the test's client"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(StartError::SelfTest(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        ))
    }
}

/// The client's side: moves this process into the scratch cgroup and tries each kind of socket.
///
/// # Errors
///
/// A sentence that says what differs from what it should be.
pub fn client(scratch: &Path) -> Result<(), String> {
    fs::write(scratch.join("cgroup.procs"), std::process::id().to_string())
        .map_err(|error| format!("enter cgroup {}: {error}", scratch.display()))?;
    let served = SocketAddr::from((SERVED, PORT));
    connected(served, Ipv4Addr::UNSPECIFIED.into())?;
    unconnected(served)?;
    refused(SocketAddr::from((EMPTY, PORT)))?;
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        connected(
            SocketAddr::from((SERVED6, PORT)),
            Ipv6Addr::UNSPECIFIED.into(),
        )?;
    }
    Ok(())
}

fn connected(served: SocketAddr, any: IpAddr) -> Result<(), String> {
    let socket = socket(any)?;
    socket
        .connect(served)
        .map_err(|error| format!("connect to {served}: {error}"))?;
    let local = socket.local_addr().map_err(|error| error.to_string())?;
    if !local.ip().is_loopback() {
        return Err(format!(
            "connect to {served} was not translated (source {local})"
        ));
    }
    let peer = socket.peer_addr().map_err(|error| error.to_string())?;
    if peer != served {
        return Err(format!("getpeername shows {peer}, not {served}"));
    }
    socket
        .send(b"?")
        .map_err(|error| format!("send to {served}: {error}"))?;
    let mut answer = [0; 8];
    socket
        .recv(&mut answer)
        .map_err(|error| format!("no answer from {served}: {error}"))?;
    Ok(())
}

fn unconnected(served: SocketAddr) -> Result<(), String> {
    let socket = socket(Ipv4Addr::UNSPECIFIED.into())?;
    socket
        .send_to(b"?", served)
        .map_err(|error| format!("sendto {served}: {error}"))?;
    let mut answer = [0; 8];
    let (_, from) = socket
        .recv_from(&mut answer)
        .map_err(|error| format!("no answer to sendto {served}: {error}"))?;
    if from == served {
        Ok(())
    } else {
        Err(format!("recvfrom shows {from}, not {served}"))
    }
}

fn refused(empty: SocketAddr) -> Result<(), String> {
    match socket(Ipv4Addr::UNSPECIFIED.into())?.connect(empty) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        other => Err(format!(
            "connect to a Service without endpoints gave {other:?}"
        )),
    }
}

fn socket(any: IpAddr) -> Result<UdpSocket, String> {
    UdpSocket::bind((any, 0))
        .and_then(|socket| socket.set_read_timeout(Some(PATIENCE)).map(|()| socket))
        .map_err(|error| format!("make a socket: {error}"))
}

/// Answers datagrams on loopback until it is dropped.
struct Echo {
    v4: u16,
    v6: Option<u16>,
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Echo {
    fn start() -> io::Result<Self> {
        let v4 = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let v6 = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).ok();
        let stop = Arc::new(AtomicBool::new(false));
        let mut echo = Self {
            v4: v4.local_addr()?.port(),
            v6: v6
                .as_ref()
                .and_then(|socket| socket.local_addr().ok())
                .map(|addr| addr.port()),
            stop,
            threads: Vec::new(),
        };
        for socket in [Some(v4), v6].into_iter().flatten() {
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            let stop = Arc::clone(&echo.stop);
            echo.threads.push(thread::spawn(move || {
                let mut datagram = [0; 64];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut datagram) {
                        // A lost answer shows at the client.
                        let _ = socket.send_to(&datagram[..length], from);
                    }
                }
            }));
        }
        Ok(echo)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn entries(v4: u16, v6: Option<u16>) -> Transaction {
    let one = Window {
        offset: 0,
        count: 1,
    };
    let mut ops = Vec::new();
    let mut service = |id: u32, frontend: IpAddr, backend: Option<(IpAddr, u16)>| {
        if let Some((ip, port)) = backend {
            ops.push(Op::PutBackend(BackendValue {
                id,
                generation: 1,
                service: id,
                addr: addr::from_ip(ip),
                port,
                weight: 1,
                protocol: Protocol::Udp,
                state: BackendState::Active,
                flags: BackendValue::IN_CLUSTER,
                reserved: 0,
            }));
            ops.push(Op::WriteSlots {
                base: id,
                slots: vec![SlotValue {
                    addr: addr::from_ip(ip),
                    backend: id,
                    service: id,
                    port,
                    reserved: [0; 3],
                }],
            });
        }
        let record = ServiceRecord {
            base: id,
            local: Window::default(),
            cluster: if backend.is_some() {
                one
            } else {
                Window::default()
            },
            affinity_seconds: 0,
            scheduler: Scheduler::Random,
            has_any: u8::from(backend.is_some()),
            reserved: 0,
        };
        ops.push(Op::PutService(id, record));
        ops.push(Op::PutFrontend(
            FrontendKey::new(addr::from_ip(frontend), PORT, Protocol::Udp),
            FrontendValue {
                service: id,
                kind: FrontendKind::Cluster,
                flags: 0,
                reserved: 0,
            },
        ));
    };
    service(1, SERVED.into(), Some((Ipv4Addr::LOCALHOST.into(), v4)));
    service(
        2,
        SERVED6.into(),
        v6.map(|port| (Ipv6Addr::LOCALHOST.into(), port)),
    );
    service(3, EMPTY.into(), None);
    let undo = vec![None; ops.len()];
    Transaction {
        units: vec![Unit {
            service: None,
            ops,
            undo,
        }],
    }
}

/// The scratch cgroup; removed when dropped.
struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    fn new(cgroup: &Path) -> Result<Self, StartError> {
        let folder = cgroup.join(format!("{SCRATCH}{}", std::process::id()));
        fs::create_dir(&folder).map_err(StartError::io("create scratch cgroup", &folder))?;
        Ok(Self { folder })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The client is gone, so the cgroup is empty; the next start removes it otherwise.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes scratch cgroups of agents that were killed during their self-test.
fn remove_leftovers(cgroup: &Path) {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(SCRATCH));
        if let Some(pid) = pid
            && !Path::new("/proc").join(pid).exists()
        {
            // One that is still in use refuses, and is none of ours.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError::SelfTest(format!("{what}: {error}"))
}
