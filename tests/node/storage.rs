//! The maps of the real object, written from here as the agent and the programs would.

use std::{
    env, io,
    net::SocketAddr,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{HashMap, SkStorage},
};
use proxy_agent::datapath::Orphans;
use proxy_common::{
    BackendState, BackendValue, OrphanRecord, PeerValue, Protocol, SockValue, addr, map,
};

/// All maps of the object, and of its programs the one that lists sockets.
pub(crate) struct Maps {
    ebpf: Ebpf,
    orphans: Orphans,
}

impl Maps {
    pub(crate) fn new() -> Self {
        let mut loader = EbpfLoader::new();
        // The full sizes would cost each test some hundred milliseconds.
        for spec in map::ALL.iter().filter(|spec| spec.resizable) {
            loader.map_max_entries(spec.name, spec.entries.min(64));
        }
        let object = std::fs::read(object()).expect("read the object file");
        let mut ebpf = loader.load(&object).expect("create the maps (needs root)");
        let orphans = Orphans::load(&mut ebpf).expect("load program orphans");
        Self { ebpf, orphans }
    }

    /// What the program says of the calling thread's network namespace.
    pub(crate) fn orphans(&self) -> io::Result<Vec<OrphanRecord>> {
        self.orphans.list()
    }

    /// The program, and the maps as far as it holds them.
    pub(crate) fn into_orphans(self) -> Orphans {
        self.orphans
    }

    /// Makes a backend live.
    pub(crate) fn put_backend(&mut self, id: u32, at: SocketAddr) {
        let value = BackendValue {
            id,
            generation: 1,
            service: 1,
            addr: addr::from_ip(at.ip()),
            port: at.port(),
            weight: 1,
            protocol: Protocol::Udp,
            state: BackendState::Draining,
            flags: 0,
            reserved: 0,
        };
        let map = self.ebpf.map_mut(map::BACKEND.name).expect("map backend");
        let mut backends = HashMap::<_, u32, BackendValue>::try_from(map).expect("layout");
        backends.insert(id, value, 0).expect("write a backend");
    }

    /// Notes that `socket` was given the backend at `peer` when it connected.
    pub(crate) fn connected(&mut self, socket: &impl AsRawFd, peer: SocketAddr, backend: u32) {
        let connected = PeerValue {
            addr: addr::from_ip(peer.ip()),
            port: peer.port(),
            service: 1,
            backend,
            ..PeerValue::default()
        };
        let map = self.ebpf.map_mut(map::SOCK.name).expect("map sock");
        let mut sock = SkStorage::<_, SockValue>::try_from(map).expect("layout of map sock");
        let value = SockValue {
            connected,
            ..SockValue::default()
        };
        sock.insert(socket, value, 0)
            .expect("write a socket's storage");
    }
}

/// The object file: `SIDESTEP_EBPF_OBJECT`, else where `cargo xtask build-ebpf` puts it.
fn object() -> PathBuf {
    env::var_os("SIDESTEP_EBPF_OBJECT").map_or_else(
        || {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../target/ebpf/bpfel-unknown-none/ebpf/sidestep-ebpf")
        },
        PathBuf::from,
    )
}
