//! From connect(2) through the programs to the end of a socket.

use std::{
    fs::{self, File},
    io,
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
};

use proxy_agent::node::sockets::{self, Pass};

use crate::{
    place::{PODS, PODS6, Place},
    storage::Maps,
};

/// Service addresses, on no interface.
const VIP: &str = "10.96.0.10:53";
const VIP6: &str = "[fd96::10]:53";
const MAPPED: &str = "[::ffff:10.96.0.10]:53";

#[test]
fn a_resolver_that_is_connected_to_a_service_is_freed_when_its_backend_dies() {
    let mut maps = Maps::new();
    let cgroup = Cgroup::enter();
    maps.attach_connect(&cgroup.folder());
    maps.put_service(1, parse(VIP), 11, pod(PODS[0]));
    maps.put_service(2, parse(VIP6), 12, pod(PODS6[0]));

    let place = Place::with_process();
    let open = || {
        let services = [VIP, VIP6, MAPPED].map(|vip| connected(parse(vip)));
        (services, connected(pod(PODS[0])))
    };
    let (services, direct) = place.inside(open);
    let idle = reap(&maps);
    assert_eq!((idle.orphans, idle.destroyed), (0, 0), "{idle:?}");

    maps.remove_backend(11);
    let pass = reap(&maps);
    assert_eq!(
        (pass.orphans, pass.destroyed, pass.failed),
        (2, 2, 0),
        "{pass:?}"
    );
    let [v4, v6, mapped] = &services;
    for socket in [v4, mapped] {
        let error = socket.recv(&mut [0; 8]).expect_err("it is destroyed");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted, "{error}");
    }
    for socket in [v6, &direct] {
        assert!(socket.take_error().expect("ask for an error").is_none());
        assert!(socket.peer_addr().is_ok());
    }

    // Its program connects again, and gets another backend.
    maps.put_service(1, parse(VIP), 13, pod(PODS[1]));
    v4.connect(VIP).expect("connect again");
    let pass = reap(&maps);
    assert_eq!(pass.destroyed, 0, "{pass:?}");
    assert!(v4.take_error().expect("ask for an error").is_none());
    assert!(v4.peer_addr().is_ok());
}

/// A cgroup2 folder with this process in it. Programs that are attached there see the sockets of
/// all tests that run meanwhile, and leave alone what is not connected to a service of theirs.
struct Cgroup {
    home: PathBuf,
    scratch: PathBuf,
}

impl Cgroup {
    fn enter() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("read mounts");
        let mount = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&"cgroup2"))
            .map(|fields| PathBuf::from(fields[1]))
            .expect("a cgroup2 is mounted");
        let own = fs::read_to_string("/proc/self/cgroup").expect("read the own cgroup");
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .expect("a cgroup2");
        let home = mount.join(own);
        let scratch = home.join(format!("sidestep-node-{}", std::process::id()));
        fs::create_dir(&scratch).expect("make a cgroup (needs root)");
        let cgroup = Self { home, scratch };
        // "0" is the writing process.
        fs::write(cgroup.scratch.join("cgroup.procs"), "0").expect("enter the cgroup");
        cgroup
    }

    fn folder(&self) -> File {
        File::open(&self.scratch).expect("open the cgroup")
    }

    /// Moves everything home: this process, and what other tests started meanwhile.
    fn leave(&self) -> io::Result<()> {
        let home: &Path = &self.home.join("cgroup.procs");
        for process in fs::read_to_string(self.scratch.join("cgroup.procs"))?.lines() {
            // It may have ended.
            let _ = fs::write(home, process);
        }
        fs::remove_dir(&self.scratch)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that start others while this goes on make a second try necessary.
        let left = (0..100).any(|_| self.leave().is_ok());
        if !left {
            eprintln!("cgroup {} could not be removed", self.scratch.display());
        }
    }
}

fn reap(maps: &Maps) -> Pass {
    sockets::reap(&|| maps.orphans()).expect("list namespaces")
}

fn connected(peer: SocketAddr) -> UdpSocket {
    let any = if peer.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).expect("bind");
    socket.connect(peer).expect("connect");
    socket.set_nonblocking(true).expect("do not wait");
    socket
}

fn pod(ip: &str) -> SocketAddr {
    SocketAddr::new(parse(ip), 5353)
}

fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("an address")
}
