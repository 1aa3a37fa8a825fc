//! A bpffs and a cgroup of a test's own, with the real programs and maps, filled by hand.

use std::{
    collections::BTreeMap,
    env, fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use aya::{
    Pod,
    maps::{Array, HashMap, Map, MapData, PerCpuArray, PerCpuValues},
};
use clap::Parser as _;
use proxy_agent::{
    cli::{Cli, Exit, sentence},
    datapath::{self, Dataplane as _, Globals, Kernel, Pins, Sizes},
    plan::{Op, Transaction, Unit},
};
use proxy_common::{
    Address, AffinityKey, AffinityValue, BackendState, BackendValue, ConnectionValue, Counter,
    FlowKey, FlowStage, FlowValue, FragmentKey, FragmentValue, FrontendKey, FrontendKind,
    FrontendValue, LoadValue, MasqValue, NameValue, NodeAddrKey, NodeAddrValue, PeerKey, PeerValue,
    Protocol, RangeKey, Scheduler, ServiceRecord, SlotValue, Window, addr, map,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A node of its own: nothing outside sees it, and all of it goes when it is dropped.
pub(crate) struct Place {
    folder: PathBuf,
    cgroup: PathBuf,
}

impl Place {
    /// An empty bpffs, and an empty cgroup.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sidestep-cli-{}-{number}", std::process::id());
        let root = datapath::cgroup_root().expect("a cgroup2");
        let place = Self {
            folder: env::temp_dir().join(&name),
            cgroup: root.join(&name),
        };
        fs::create_dir(&place.folder).expect("a folder for a bpffs");
        mount("bpf", &place.folder, "bpf", MountFlags::empty(), None).expect("a bpffs (as root)");
        fs::create_dir(&place.cgroup).expect("a cgroup");
        place
    }

    /// The same with all maps, filled, and all programs attached, as a first start leaves it.
    pub(crate) fn served() -> Self {
        let place = Self::new();
        let pins = place.pins();
        let _lock = pins.lock().expect("the lock");
        let sizes: Sizes = map::ALL
            .iter()
            .filter(|spec| spec.resizable)
            .map(|spec| (spec.name, 64))
            .collect();
        let globals = Globals {
            node_netns: 1,
            set_retval: false,
            snat: None,
            port_guard: true,
        };
        let mut object = datapath::load(Some(&pins), &sizes, globals).expect("load");
        let mut kernel = Kernel::open(&pins).expect("open");
        kernel.sign(1, 1_000_000_000).expect("sign");
        datapath::attach(&mut object, &pins, &place.cgroup).expect("attach");
        let outcome = kernel.apply(&web());
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        place.fill();
        place
    }

    pub(crate) fn pins(&self) -> Pins {
        Pins::new(&self.folder)
    }

    pub(crate) fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    /// Runs `sidestep` in this process: what it printed, and how it ended; or its sentence.
    pub(crate) fn sidestep(&self, args: &[&str]) -> Result<(String, Exit), String> {
        Self::sidestep_at(&self.folder, args)
    }

    /// The same with another folder for a bpffs.
    pub(crate) fn sidestep_at(bpffs: &Path, args: &[&str]) -> Result<(String, Exit), String> {
        let bpffs = bpffs.display().to_string();
        let first = ["sidestep", "--bpffs", &bpffs];
        let cli = Cli::try_parse_from(first.iter().chain(args)).expect("the usage is right");
        let mut out = Vec::new();
        let exit = cli
            .execute(&mut out)
            .map_err(|error| sentence(error.as_ref()))?;
        Ok((String::from_utf8(out).expect("text"), exit))
    }

    /// What a command that succeeds prints.
    pub(crate) fn print(&self, args: &[&str]) -> String {
        match self.sidestep(args) {
            Ok((text, Exit::Success)) => text,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    /// What a command that succeeds prints as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let args = [args, &["-o", "json"]].concat();
        serde_json::from_str(&self.print(&args)).expect("JSON")
    }

    /// An entry in each of the maps that the programs write.
    fn fill(&self) {
        let load = LoadValue {
            backend: 11,
            connections: 3,
        };
        self.set(map::LOAD.name, LoadValue::index(11), load);
        let affinity = AffinityValue {
            last_used: 5,
            backend: 11,
            reserved: 0,
        };
        self.put(map::AFFINITY.name, AffinityKey::namespace(1, 77), affinity);
        let key = PeerKey {
            cookie: 9,
            addr: address("10.1.0.4"),
            port: 8080,
            reserved: [0; 3],
        };
        let peer = PeerValue {
            vip: address("10.96.0.10"),
            addr: key.addr,
            vip_port: 80,
            port: 8080,
            service: 1,
            backend: 11,
        };
        self.put(map::PEER.name, key, peer);
        let connection = ConnectionValue {
            cookie: 9,
            connected: peer,
            ..ConnectionValue::default()
        };
        self.set(map::CONNECTION.name, 9, connection);
        let (client, frontend) = ((address("192.0.2.1"), 4000), (address("10.96.0.10"), 80));
        let flow = FlowValue {
            client: client.0,
            frontend: frontend.0,
            backend_addr: address("10.1.0.4"),
            snat: address("192.0.2.9"),
            last_seen: 6,
            service: 1,
            backend: 11,
            client_port: client.1,
            frontend_port: frontend.1,
            backend_port: 8080,
            snat_port: 61_000,
            stack_port: client.1,
            protocol: Protocol::Tcp as u8,
            flags: FlowValue::SNAT,
            request_seen: FlowValue::SEEN | FlowValue::ACK,
            reply_seen: FlowValue::SEEN,
            reserved: 0,
        };
        let request = FlowKey::wire(client, frontend, Protocol::Tcp);
        self.put(map::FLOW.name, request, flow);
        let key = FragmentKey {
            src: address("192.0.2.1"),
            dst: address("10.96.0.10"),
            id: 513,
            protocol: Protocol::Udp as u8,
            stage: FlowStage::Wire,
            reserved: 0,
        };
        let fragment = FragmentValue {
            id: key.id,
            fate: FragmentValue::SENT,
            reserved: [0; 3],
            time: 7,
            src: key.src,
            dst: address("10.1.0.4"),
        };
        self.put(map::FRAGMENT.name, key, fragment);
        let masq = MasqValue {
            v4: address("192.0.2.9"),
            v6: [0; 16],
        };
        self.put(map::MASQ.name, 2, masq);
        let data = MapData::from_pin(self.pins().map(map::COUNTER.name)).expect("the pin");
        let mut counter = PerCpuArray::try_from(Map::PerCpuArray(data)).expect("the counters");
        let cpus = aya::util::nr_cpus().expect("the number of CPUs");
        let values = PerCpuValues::try_from(vec![2u64; cpus]).expect("a value per CPU");
        let index = Counter::SocketTranslated as u32;
        counter.set(index, values, 0).expect("set the counter");
    }

    /// An element of an array.
    pub(crate) fn get<V: Pod>(&self, name: &str, index: u32) -> V {
        let data = MapData::from_pin(self.pins().map(name)).expect("the pin");
        let map = Array::<_, V>::try_from(Map::Array(data)).expect("an array");
        map.get(&index, 0).expect("read an element")
    }

    fn set<V: Pod>(&self, name: &str, index: u32, value: V) {
        let data = MapData::from_pin(self.pins().map(name)).expect("the pin");
        let mut map = Array::<_, V>::try_from(Map::Array(data)).expect("an array");
        map.set(index, value, 0).expect("write an element");
    }

    fn put<K: Pod, V: Pod>(&self, name: &str, key: K, value: V) {
        let data = MapData::from_pin(self.pins().map(name)).expect("the pin");
        let map = Map::from_map_data(data).expect("a map");
        let mut map = HashMap::<_, K, V>::try_from(map).expect("a hash map");
        map.insert(key, value, 0).expect("insert");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Its pins, and with them its links, go with the bpffs.
        let _ = unmount(&self.folder, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.folder);
        match fs::remove_dir(&self.cgroup) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                eprintln!("cgroup {} stays: {error}", self.cgroup.display());
            }
            _ => {}
        }
    }
}

/// `default/web:http` at a ClusterIP, a NodePort and an address with a source range, with one
/// backend; and the node's address.
fn web() -> Transaction {
    let field = |text| NameValue::field(text).expect("short");
    let frontend = |at: Address, port, kind, flags| {
        let value = FrontendValue {
            service: 1,
            kind,
            flags,
            reserved: 0,
        };
        Op::PutFrontend(FrontendKey::new(at, port, Protocol::Tcp), value)
    };
    let window = Window {
        offset: 0,
        count: 1,
    };
    let ranges = FrontendValue::SOURCE_RANGES;
    let ops = vec![
        Op::PutBackend(BackendValue {
            id: 11,
            generation: 1,
            service: 1,
            addr: address("10.1.0.4"),
            port: 8080,
            weight: 1,
            protocol: Protocol::Tcp,
            state: BackendState::Active,
            flags: BackendValue::IN_CLUSTER,
            reserved: 0,
        }),
        Op::WriteSlots {
            base: 8,
            slots: vec![SlotValue {
                addr: address("10.1.0.4"),
                backend: 11,
                service: 1,
                port: 8080,
                reserved: [0; 3],
            }],
        },
        Op::PutService(
            1,
            ServiceRecord {
                base: 8,
                local: Window::default(),
                cluster: window,
                affinity_seconds: 0,
                scheduler: Scheduler::Random,
                has_any: 1,
                reserved: 0,
            },
        ),
        Op::PutName(
            1,
            Box::new(NameValue {
                namespace: field("default"),
                name: field("web"),
                port: field("http"),
                family: 4,
                protocol: Protocol::Tcp as u8,
                reserved: 0,
            }),
        ),
        frontend(address("10.96.0.10"), 80, FrontendKind::Cluster, 0),
        frontend(addr::V4_ANY, 30080, FrontendKind::Node, 0),
        frontend(address("192.0.2.7"), 80, FrontendKind::Balancer, ranges),
        Op::PutRange(
            32 + 96 + 8,
            RangeKey {
                service_be: 1u32.to_be_bytes(),
                source: address("10.0.0.0"),
            },
        ),
        Op::PutNodeAddr(
            NodeAddrKey {
                addr: address("172.18.0.2"),
            },
            NodeAddrValue {
                flags: NodeAddrValue::NODE_PORT,
            },
        ),
    ];
    let undo = vec![None; ops.len()];
    Transaction {
        units: vec![Unit {
            service: None,
            ops,
            undo,
        }],
    }
}

fn address(text: &str) -> Address {
    let ip: IpAddr = text.parse().expect("an address");
    addr::from_ip(ip)
}

/// What `sidestep dump` shows of each map that can be listed, by name.
pub(crate) fn dumps() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        (
            "setting",
            "schema=5 agent=PID nodeNetns=1 startedUnixNs=1000000000 lastSyncUnixNs=0 snatFirst=0 \
             snatLast=0 snatReserved=0",
        ),
        (
            "frontend",
            "address=0.0.0.0 port=30080 protocol=TCP service=1 kind=NodePort flags=-\n\
             address=10.96.0.10 port=80 protocol=TCP service=1 kind=ClusterIP flags=-\n\
             address=192.0.2.7 port=80 protocol=TCP service=1 kind=LoadBalancer flags=source-ranges",
        ),
        (
            "service",
            "service=1 sequence=1 base=8 localOffset=0 localCount=0 clusterOffset=0 \
             clusterCount=1 affinitySeconds=0 scheduler=random hasAny=1",
        ),
        (
            "name",
            "service=1 namespace=default name=web port=http family=4 protocol=TCP",
        ),
        (
            "slot",
            "slot=8 service=1 backend=11 address=10.1.0.4 port=8080",
        ),
        (
            "backend",
            "backend=11 id=11 generation=1 service=1 address=10.1.0.4 port=8080 protocol=TCP \
             weight=1 state=active flags=in-cluster",
        ),
        ("load", "backend=11 connections=3"),
        (
            "connection",
            "cookie=9 vip=10.96.0.10 vipPort=80 address=10.1.0.4 port=8080 service=1 backend=11",
        ),
        (
            "affinity",
            "service=1 scope=namespace client=77 backend=11 lastUsedNs=5",
        ),
        (
            "peer",
            "cookie=9 address=10.1.0.4 port=8080 serviceAddress=10.96.0.10 servicePort=80 \
             service=1 backend=11",
        ),
        (
            "flow",
            "stage=wire source=192.0.2.1:4000 destination=10.96.0.10:80 protocol=TCP \
             client=192.0.2.1:4000 frontend=10.96.0.10:80 endpoint=10.1.0.4:8080 \
             snat=192.0.2.9:61000 stackPort=4000 service=1 backend=11 state=established \
             lastSeenNs=6",
        ),
        (
            "fragment",
            "stage=wire source=192.0.2.1 destination=10.96.0.10 id=513 protocol=UDP fate=sent \
             newSource=192.0.2.1 newDestination=10.1.0.4 timeNs=7",
        ),
        ("range", "service=1 source=10.0.0.0/8"),
        ("node_addr", "address=172.18.0.2 flags=node-port"),
        ("masq", "interface=2 v4=192.0.2.9 v6=-"),
    ])
}
