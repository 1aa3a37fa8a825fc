//! The maps of the real object, written from here as the agent and the programs would.

use std::{
    env,
    fs::File,
    io,
    net::SocketAddr,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, SkStorage},
    programs::{CgroupAttachMode, CgroupSockAddr},
};
use proxy_agent::datapath::Orphans;
use proxy_common::{
    BackendState, BackendValue, FrontendKey, FrontendKind, FrontendValue, OrphanRecord, PeerValue,
    Protocol, Scheduler, ServiceRecord, ServiceValue, SlotValue, SockValue, Window, addr, map,
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

    /// Makes a backend of a service live.
    pub(crate) fn put_backend(&mut self, id: u32, service: u32, at: SocketAddr) {
        let value = BackendValue {
            id,
            generation: 1,
            service,
            addr: addr::from_ip(at.ip()),
            port: at.port(),
            weight: 1,
            protocol: Protocol::Udp,
            state: BackendState::Active,
            flags: BackendValue::IN_CLUSTER,
            reserved: 0,
        };
        let map = self.ebpf.map_mut(map::BACKEND.name).expect("map backend");
        let mut backends = HashMap::<_, u32, BackendValue>::try_from(map).expect("layout");
        backends.insert(id, value, 0).expect("write a backend");
    }

    /// Makes a backend dead.
    pub(crate) fn remove_backend(&mut self, id: u32) {
        let map = self.ebpf.map_mut(map::BACKEND.name).expect("map backend");
        let mut backends = HashMap::<_, u32, BackendValue>::try_from(map).expect("layout");
        backends.remove(&id).expect("delete a backend");
    }

    /// Makes a service of one backend, with the slot of its own id.
    pub(crate) fn put_service(&mut self, id: u32, vip: SocketAddr, backend: u32, at: SocketAddr) {
        self.put_backend(backend, id, at);
        let map = self.ebpf.map_mut(map::SLOT.name).expect("map slot");
        let mut slots = Array::<_, SlotValue>::try_from(map).expect("layout");
        let slot = SlotValue {
            addr: addr::from_ip(at.ip()),
            backend,
            service: id,
            port: at.port(),
            reserved: [0; 3],
        };
        slots.set(id, slot, 0).expect("write a slot");
        let record = ServiceRecord {
            base: id,
            local: Window {
                offset: 0,
                count: 0,
            },
            cluster: Window {
                offset: 0,
                count: 1,
            },
            affinity_seconds: 0,
            scheduler: Scheduler::Random,
            has_any: 1,
            reserved: 0,
        };
        let map = self.ebpf.map_mut(map::SERVICE.name).expect("map service");
        let mut services = Array::<_, ServiceValue>::try_from(map).expect("layout");
        let value = ServiceValue {
            id,
            sequence: 0,
            records: [record; 2],
        };
        services
            .set(ServiceValue::index(id), value, 0)
            .expect("write a service");
        let key = FrontendKey::new(addr::from_ip(vip.ip()), vip.port(), Protocol::Udp);
        let value = FrontendValue {
            service: id,
            kind: FrontendKind::Cluster,
            flags: 0,
            reserved: 0,
        };
        let map = self.ebpf.map_mut(map::FRONTEND.name).expect("map frontend");
        let mut frontends =
            HashMap::<_, FrontendKey, FrontendValue>::try_from(map).expect("layout");
        frontends.insert(key, value, 0).expect("write a frontend");
    }

    /// Attaches the programs that connect(2) runs.
    pub(crate) fn attach_connect(&mut self, cgroup: &File) {
        for name in ["connect4", "connect6"] {
            let program = self.ebpf.program_mut(name).expect("a connect program");
            let program: &mut CgroupSockAddr = program.try_into().expect("its type");
            program.load().expect("load a program");
            // The only mode that aya can use with links; the kernel makes it "multi".
            program
                .attach(cgroup, CgroupAttachMode::Single)
                .expect("attach a program");
        }
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
