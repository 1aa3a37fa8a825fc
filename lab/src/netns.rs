//! Network namespaces: make, configure through `ip -batch`, remove.
//!
//! They are files below `/run/netns`, as iproute2 has them, so that `ip netns` and `ip -n` work on
//! a lab that was kept. `ip netns exec` is not used: it mounts a fresh /sys, which hides a bpffs.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::mount::{UnmountFlags, mount_bind, unmount};

use crate::{Error, Result, place};

const FOLDER: &str = "/run/netns";

/// Kernel settings of a namespace, below `/proc/sys/net`. Those that the host may have set
/// otherwise are given too: IPv4 settings of a new namespace are copies of the host's.
const SETTINGS: [(&str, &str); 15] = [
    // No duplicate address detection and no waiting for routers: addresses are usable at once.
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/dad_transmits", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ip_forward", "0"),
    // Ephemeral ports as the kernel's default: NodePorts (30000-32767) lie outside.
    ("ipv4/ip_local_port_range", "32768 60999"),
    // Long runs of short connections must not run out of ports.
    ("ipv4/tcp_tw_reuse", "1"),
    // TCP Fast Open for clients (1), servers (2), and every listening socket (0x400).
    ("ipv4/tcp_fastopen", "1027"),
    ("ipv4/tcp_syn_retries", "6"),
    ("core/somaxconn", "4096"),
    // Tests ask for many refusals in a row; an ICMP limit per second would turn them into waits.
    ("ipv4/icmp_ratelimit", "0"),
];

/// Settings of a namespace that forwards packets.
const ROUTER_SETTINGS: [(&str, &str); 3] = [
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/default/forwarding", "1"),
];

/// What a namespace is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It forwards packets: nodes and the wire.
    Router,
    /// It does not: pods and clients.
    Leaf,
}

/// Path of the file that names the namespace.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Makes a namespace with only `lo` in it, down.
pub(crate) fn create(name: &str, kind: Kind) -> Result<()> {
    fs::create_dir_all(FOLDER).map_err(Error::io("create", FOLDER))?;
    let path = path(name);
    File::create_new(&path).map_err(Error::io("create", &path))?;
    let made = place::in_new_netns(|| fill(&path, kind)).and_then(|filled| filled);
    if made.is_err() {
        // Nothing is mounted on it.
        let _ = fs::remove_file(&path);
    }
    made
}

/// Runs `ip` commands, one a line, in the namespace. Stops at the first that fails.
pub(crate) fn ip(name: &str, lines: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-n", name, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::NoIp)?;
    if let Some(mut stdin) = child.stdin.take() {
        // When it ends early, its message says more than our broken pipe.
        let _ = stdin.write_all(lines.as_bytes());
    }
    let output = child.wait_with_output().map_err(Error::NoIp)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr)
        .trim()
        .replace('\n', "; ");
    Err(Error::Ip {
        netns: name.to_owned(),
        message: format!("{message} (lines: {lines:?})"),
    })
}

/// Removes the name; the kernel removes the namespace when nothing else holds it.
pub(crate) fn delete(name: &str) -> Result<()> {
    let path = path(name);
    match unmount(&path, UnmountFlags::DETACH) {
        // Not mounted, or not there: the end that we want.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) | Ok(()) => {}
        Err(e) => return Err(Error::io("unmount network namespace", &path)(e.into())),
    }
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path)(e)),
        _ => Ok(()),
    }
}

/// Names of all namespaces that start with `prefix`.
pub(crate) fn list(prefix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(FOLDER) else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Removes the folder of names if we were its only users. The caller has the claim of the labs.
pub(crate) fn tidy() {
    // It fails, as it should, when a namespace is left.
    let _ = fs::remove_dir(FOLDER);
}

/// Prepares the calling thread's network namespace and names it by mounting it on `path`.
fn fill(path: &Path, kind: Kind) -> Result<()> {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return Err(Error::NoIpv6);
    }
    apply(&SETTINGS)?;
    if kind == Kind::Router {
        apply(&ROUTER_SETTINGS)?;
    }
    mount_bind("/proc/thread-self/ns/net", path)
        .map_err(|e| Error::io("mount network namespace", path)(e.into()))
}

/// Writes settings in the calling thread's network namespace.
fn apply(settings: &[(&str, &str)]) -> Result<()> {
    for (name, value) in settings {
        let file = Path::new("/proc/sys/net").join(name);
        fs::write(&file, value).map_err(Error::io("set", file))?;
    }
    Ok(())
}
