//! The maps of a loaded object, filled by hand, without the agent.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, PerCpuArray, RingBuf},
};
use proxy_common::{
    AffinityKey, AffinityValue, BackendState, BackendValue, ConnectionValue, Counter, FrontendKey,
    FrontendKind, FrontendValue, LoadValue, NodeAddrKey, NodeAddrValue, Protocol, Scheduler,
    ServiceRecord, ServiceValue, SlotValue, Window, addr, map,
};

/// An object of kernel programs and what the test has written into its maps.
pub struct Maps {
    /// The object.
    pub ebpf: Ebpf,
    next_id: u32,
    next_slot: u32,
    generation: u32,
}

/// An endpoint of a Service. Those in the window of policy Local are on this node.
#[derive(Clone, Copy)]
pub struct Endpoint {
    pub at: SocketAddr,
    pub local: bool,
    pub cluster: bool,
}

impl Endpoint {
    pub fn cluster_only(at: SocketAddr) -> Self {
        Self {
            at,
            local: false,
            cluster: true,
        }
    }
}

/// The rest of a Service.
#[derive(Clone, Copy, Default)]
pub struct Policy {
    pub affinity_seconds: u32,
    pub has_any: bool,
}

impl Maps {
    /// Makes the maps; no program is loaded. The loader has the globals, `sizes` the maps that are
    /// not to have their usual size in tests.
    ///
    /// # Errors
    ///
    /// Without an object file, or if the kernel refuses a map.
    pub fn make(loader: &mut EbpfLoader<'_>, sizes: &[(&str, u32)]) -> anyhow::Result<Self> {
        let object = std::fs::read(object()?)?;
        // The full sizes would cost each test some hundred milliseconds.
        for spec in map::ALL.iter().filter(|spec| spec.resizable) {
            let size = sizes.iter().find(|(name, _)| *name == spec.name);
            let entries = size.map_or(spec.entries.min(4096), |(_, entries)| *entries);
            loader.map_max_entries(spec.name, entries);
        }
        Ok(Self {
            ebpf: loader.load(&object).context("load the object")?,
            next_id: 1,
            next_slot: 0,
            generation: 0,
        })
    }

    /// A Service of the given endpoints, all in the cluster window; returns its id.
    pub fn service(&mut self, protocol: Protocol, at: &[SocketAddr]) -> anyhow::Result<u32> {
        let id = self.id();
        let endpoints: Vec<_> = at.iter().copied().map(Endpoint::cluster_only).collect();
        self.publish(id, protocol, &endpoints, Policy::default())?;
        Ok(id)
    }

    /// Publishes a Service's endpoints in a fresh run of slots; returns their backend ids. Earlier
    /// backends stay until [`remove_backend`](Self::remove_backend).
    pub fn publish(
        &mut self,
        id: u32,
        protocol: Protocol,
        endpoints: &[Endpoint],
        policy: Policy,
    ) -> anyhow::Result<Vec<u32>> {
        let base = self.next_slot;
        let mut ids = Vec::new();
        // The order of `ServiceRecord`: only local, local and cluster, only cluster.
        let group = |local: bool, cluster: bool| {
            endpoints
                .iter()
                .filter(move |e| e.local == local && e.cluster == cluster)
        };
        let groups = [group(true, false), group(true, true), group(false, true)];
        let counts = groups
            .clone()
            .map(|g| u32::try_from(g.count()).expect("few endpoints"));
        for endpoint in groups.into_iter().flatten() {
            let backend = self.id();
            self.set_backend(backend, id, protocol, *endpoint, BackendState::Active)?;
            let slot = SlotValue {
                addr: addr::from_ip(endpoint.at.ip()),
                backend,
                service: id,
                port: endpoint.at.port(),
                reserved: [0; 3],
            };
            self.set_slot(self.next_slot, slot)?;
            self.next_slot += 1;
            ids.push(backend);
        }
        self.generation += 1;
        let record = ServiceRecord {
            base,
            local: Window {
                offset: 0,
                count: counts[0] + counts[1],
            },
            cluster: Window {
                offset: counts[0],
                count: counts[1] + counts[2],
            },
            affinity_seconds: policy.affinity_seconds,
            scheduler: Scheduler::Random,
            has_any: u8::from(policy.has_any || !endpoints.is_empty()),
            reserved: 0,
        };
        let index = ServiceValue::index(id);
        let value = ServiceValue {
            id,
            sequence: self.generation,
            records: [record; 2],
        };
        self.array("service")?.set(index, value, 0)?;
        Ok(ids)
    }

    /// A number that no Service or backend has.
    pub fn id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// Writes a backend.
    pub fn set_backend(
        &mut self,
        id: u32,
        service: u32,
        protocol: Protocol,
        endpoint: Endpoint,
        state: BackendState,
    ) -> anyhow::Result<()> {
        self.generation += 1;
        let mut flags = 0;
        if endpoint.local {
            flags |= BackendValue::IN_LOCAL | BackendValue::ON_NODE;
        }
        if endpoint.cluster {
            flags |= BackendValue::IN_CLUSTER;
        }
        let value = BackendValue {
            id,
            generation: self.generation,
            service,
            addr: addr::from_ip(endpoint.at.ip()),
            port: endpoint.at.port(),
            weight: 1,
            protocol,
            state,
            flags,
            reserved: 0,
        };
        self.map::<u32, BackendValue>("backend")?
            .insert(id, value, 0)?;
        self.count_in(id, id)
    }

    /// Gives the element in `load` of one backend to another; 0 for none.
    pub fn count_in(&mut self, id: u32, owner: u32) -> anyhow::Result<()> {
        let index = LoadValue::index(id);
        let mut loads = self.array("load")?;
        let now: LoadValue = loads.get(&index, 0)?;
        if now.backend != owner {
            let value = LoadValue {
                backend: owner,
                ..LoadValue::default()
            };
            loads.set(index, value, 0)?;
        }
        Ok(())
    }

    /// Takes a backend away: it is dead.
    pub fn remove_backend(&mut self, id: u32) -> anyhow::Result<()> {
        Ok(self.map::<u32, BackendValue>("backend")?.remove(&id)?)
    }

    /// As an agent does when an endpoint goes: a new list without it, then its end.
    pub fn take_away(
        &mut self,
        service: u32,
        backend: u32,
        rest: &[Endpoint],
        policy: Policy,
    ) -> anyhow::Result<()> {
        let gone = self.map::<u32, BackendValue>("backend")?.get(&backend, 0)?;
        self.publish(service, gone.protocol, rest, policy)?;
        self.remove_backend(backend)
    }

    /// Writes one slot.
    pub fn set_slot(&mut self, index: u32, slot: SlotValue) -> anyhow::Result<()> {
        Ok(self.array("slot")?.set(index, slot, 0)?)
    }

    /// The slot that was written last.
    pub fn last_slot(&self) -> u32 {
        self.next_slot - 1
    }

    /// Points a ClusterIP's address and port to a Service, and owns the whole address.
    pub fn cluster_ip(&mut self, at: SocketAddr, p: Protocol, service: u32) -> anyhow::Result<()> {
        self.frontend(at, p, service, FrontendKind::Cluster, 0)
    }

    /// Points an address and port to a Service, and owns the whole address if it is one.
    pub fn frontend(
        &mut self,
        at: SocketAddr,
        protocol: Protocol,
        service: u32,
        kind: FrontendKind,
        flags: u8,
    ) -> anyhow::Result<()> {
        let key = FrontendKey::new(addr::from_ip(at.ip()), at.port(), protocol);
        let value = FrontendValue {
            service,
            kind,
            flags,
            reserved: 0,
        };
        let mut map = self.map::<FrontendKey, FrontendValue>("frontend")?;
        map.insert(key, value, 0)?;
        let whole = FrontendKey::whole_address(key.addr);
        let is_stronger = |held: FrontendValue| held.kind > kind;
        if kind != FrontendKind::Node && map.get(&whole, 0).map_or(true, is_stronger) {
            let value = FrontendValue {
                service: 0,
                flags: 0,
                ..value
            };
            map.insert(whole, value, 0)?;
        }
        Ok(())
    }

    /// Removes an address and port, and the whole address with it.
    pub fn forget_address(&mut self, at: SocketAddr, p: Protocol) -> anyhow::Result<()> {
        let addr = addr::from_ip(at.ip());
        let mut map = self.map::<FrontendKey, FrontendValue>("frontend")?;
        map.remove(&FrontendKey::new(addr, at.port(), p))?;
        Ok(map.remove(&FrontendKey::whole_address(addr))?)
    }

    /// Points a NodePort to a Service of IPv4 or IPv6.
    pub fn node_port(
        &mut self,
        port: u16,
        p: Protocol,
        service: u32,
        v6: bool,
    ) -> anyhow::Result<()> {
        let any = if v6 { "[::]" } else { "0.0.0.0" };
        let at: SocketAddr = format!("{any}:{port}").parse()?;
        self.frontend(at, p, service, FrontendKind::Node, 0)
    }

    /// Makes NodePorts answer on an address.
    pub fn node_addr(&mut self, ip: &str) -> anyhow::Result<()> {
        let ip: std::net::IpAddr = ip.parse()?;
        let loopback = if ip.is_loopback() {
            NodeAddrValue::LOOPBACK
        } else {
            0
        };
        let value = NodeAddrValue {
            flags: NodeAddrValue::NODE_PORT | loopback,
        };
        let key = NodeAddrKey {
            addr: addr::from_ip(ip),
        };
        Ok(self
            .map::<NodeAddrKey, NodeAddrValue>("node_addr")?
            .insert(key, value, 0)?)
    }

    /// A counter, summed over all CPUs.
    pub fn counter(&self, counter: Counter) -> anyhow::Result<u64> {
        let map = self.ebpf.map("counter").context("no map 'counter'")?;
        let values = PerCpuArray::<_, u64>::try_from(map)?.get(&(counter as u32), 0)?;
        Ok(values.iter().sum())
    }

    /// What is counted in `load` for a backend; 0 without an element.
    pub fn load(&mut self, backend: u32) -> anyhow::Result<i32> {
        let load: LoadValue = self.array("load")?.get(&LoadValue::index(backend), 0)?;
        Ok(match load.backend == backend {
            true => load.connections,
            false => 0,
        })
    }

    /// Connections of a backend: those counted in `load`, and the elements of `connection`.
    pub fn connections(&mut self, backend: u32) -> anyhow::Result<i32> {
        let mut connections = self.load(backend)?;
        let elements = self.array::<ConnectionValue>("connection")?;
        for element in elements.iter() {
            let element = element?;
            connections += i32::from(element.cookie != 0 && element.connected.backend == backend);
        }
        Ok(connections)
    }

    /// The element of a socket in `connection`.
    pub fn connection(&mut self, cookie: u64) -> anyhow::Result<ConnectionValue> {
        let index = ConnectionValue::index(cookie);
        Ok(self.array("connection")?.get(&index, 0)?)
    }

    /// Replaces it.
    pub fn set_connection(&mut self, cookie: u64, value: ConnectionValue) -> anyhow::Result<()> {
        let index = ConnectionValue::index(cookie);
        Ok(self.array("connection")?.set(index, value, 0)?)
    }

    /// All affinity records.
    pub fn affinity(&mut self) -> anyhow::Result<Vec<(AffinityKey, AffinityValue)>> {
        Ok(self
            .map::<AffinityKey, AffinityValue>("affinity")?
            .iter()
            .collect::<Result<_, _>>()?)
    }

    /// Replaces an affinity record.
    pub fn set_affinity(&mut self, key: AffinityKey, value: AffinityValue) -> anyhow::Result<()> {
        Ok(self
            .map::<AffinityKey, AffinityValue>("affinity")?
            .insert(key, value, 0)?)
    }

    /// All events that wait in the ring, as bytes.
    pub fn events(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let map = self.ebpf.map_mut("event").context("no map 'event'")?;
        let mut ring = RingBuf::try_from(map)?;
        let mut events = Vec::new();
        while let Some(event) = ring.next() {
            events.push(event.to_vec());
        }
        Ok(events)
    }

    /// An array of the object, by name.
    pub fn array<V: aya::Pod>(&mut self, name: &str) -> anyhow::Result<Array<&mut MapData, V>> {
        let map = self
            .ebpf
            .map_mut(name)
            .with_context(|| format!("no map '{name}'"))?;
        Ok(Array::try_from(map)?)
    }

    /// A hash map of the object, by name.
    pub fn map<K: aya::Pod, V: aya::Pod>(
        &mut self,
        name: &str,
    ) -> anyhow::Result<HashMap<&mut MapData, K, V>> {
        let map = self
            .ebpf
            .map_mut(name)
            .with_context(|| format!("no map '{name}'"))?;
        Ok(HashMap::try_from(map)?)
    }
}

/// The object file: `SIDESTEP_EBPF_OBJECT`, else where `cargo xtask build-ebpf` puts it.
fn object() -> anyhow::Result<PathBuf> {
    let path = env::var_os("SIDESTEP_EBPF_OBJECT").map_or_else(
        || {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../target/ebpf/bpfel-unknown-none/ebpf/sidestep-ebpf")
        },
        PathBuf::from,
    );
    if !path.exists() {
        bail!(
            "no object file at {}: run `cargo xtask build-ebpf`",
            path.display()
        );
    }
    Ok(path)
}
