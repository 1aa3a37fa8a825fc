//! The packet programs, run by BPF_PROG_TEST_RUN on packets that exist nowhere else, and their maps,
//! filled by hand.

use std::{
    env, fs,
    net::{IpAddr, SocketAddr},
    ops::{Deref, DerefMut},
    os::fd::AsFd as _,
    path::PathBuf,
};

use anyhow::{Context as _, bail, ensure};
use aya::{
    EbpfLoader,
    programs::{ProgramError, SchedClassifier},
};
use proxy_common::{
    Counter, FlowKey, FlowValue, FrontendKind, MasqValue, NodeAddrValue, Protocol, addr,
    setting::global,
};
use sidestep_tests::{
    frame::{ETHERNET, Frame},
    maps::{Endpoint, Maps, Policy},
};

use crate::test_run::{self, Run};

/// Ports that SNAT uses in tests.
pub(crate) const SNAT: std::ops::Range<u16> = 40_000..40_016;
/// Index of `lo`, where test runs play.
const LO: u32 = 1;
const DROP: u32 = 2;
const PASS: u32 = u32::MAX;
const REDIRECT: u32 = 7;
const PROGRAMS: [&str; 4] = ["tc_ingress", "tc_egress", "tc_ingress_l3", "tc_egress_l3"];

/// Loaded programs and their maps.
pub(crate) struct Stage {
    maps: Maps,
    fds: Vec<std::os::fd::OwnedFd>,
    /// Every run computes the sum over the packet as some devices do, and checks what became of it.
    complete: bool,
    /// The packets are without an Ethernet header.
    bare: bool,
}

/// Addresses of one family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) client: SocketAddr,
    pub(crate) node: IpAddr,
    pub(crate) node_port: SocketAddr,
    pub(crate) cluster_ip: SocketAddr,
    pub(crate) balancer: SocketAddr,
    pub(crate) external: SocketAddr,
    pub(crate) here: SocketAddr,
    pub(crate) there: SocketAddr,
}

/// Both families.
pub(crate) fn plans() -> [Plan; 2] {
    let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    [
        Plan {
            client: at("203.0.113.9:50000"),
            node: [172, 18, 0, 2].into(),
            node_port: at("172.18.0.2:30080"),
            cluster_ip: at("10.96.0.10:80"),
            balancer: at("198.51.100.7:80"),
            external: at("192.0.2.44:8080"),
            here: at("10.244.1.2:8443"),
            there: at("10.244.2.2:8443"),
        },
        Plan {
            client: at("[2001:db8:113::9]:50000"),
            node: at("[fd00:18::2]:0").ip(),
            node_port: at("[fd00:18::2]:30080"),
            cluster_ip: at("[fd00:96::a]:80"),
            balancer: at("[2001:db8:100::7]:80"),
            external: at("[2001:db8:44::1]:8080"),
            here: at("[fd00:10:244:1::2]:8443"),
            there: at("[fd00:10:244:2::2]:8443"),
        },
    ]
}

/// What a program made of a packet.
#[derive(Debug)]
pub(crate) struct Outcome {
    verdict: u32,
    bytes: Vec<u8>,
    sent: Vec<u8>,
    bare: bool,
}

impl Stage {
    /// Loads everything.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::with(&[])
    }

    /// With room for this many keys of flows.
    pub(crate) fn with_flows(entries: u32) -> anyhow::Result<Self> {
        Self::with(&[("flow", entries)])
    }

    fn with(sizes: &[(&str, u32)]) -> anyhow::Result<Self> {
        let (first, count) = (SNAT.start, SNAT.end - SNAT.start);
        let mut loader = EbpfLoader::new();
        loader
            .override_global(global::SNAT_FIRST, &first, true)
            .override_global(global::SNAT_COUNT, &count, true);
        let mut maps = Maps::make(&mut loader, sizes)?;
        let fds = PROGRAMS
            .iter()
            .map(|&name| {
                let program = maps.ebpf.program_mut(name).context("not in the object")?;
                let program: &mut SchedClassifier = program.try_into()?;
                program.load().map_err(explain)?;
                anyhow::Ok(program.fd()?.as_fd().try_clone_to_owned()?)
            })
            .collect::<Result<_, _>>()?;
        let mut stage = Self {
            maps,
            fds,
            complete: false,
            bare: false,
        };
        for plan in plans() {
            stage.node_addr(&plan.node.to_string())?;
        }
        stage.set_masq(LO, plans().map(|plan| plan.node))?;
        Ok(stage)
    }

    /// Lets every run have the sum over the packet, as some devices deliver it.
    pub(crate) fn with_complete_sums(mut self) -> Self {
        self.complete = true;
        self
    }

    /// Lets every run be on a device without Ethernet headers.
    pub(crate) fn on_bare_device(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Addresses for SNAT of an interface, IPv4 first.
    pub(crate) fn set_masq(&mut self, interface: u32, to: [IpAddr; 2]) -> anyhow::Result<()> {
        let [v4, v6] = to.map(addr::from_ip);
        Ok(self
            .map::<u32, MasqValue>("masq")?
            .insert(interface, MasqValue { v4, v6 }, 0)?)
    }

    /// A Service of these endpoints with all kinds of addresses; those of this node are `here`.
    pub(crate) fn serve(
        &mut self,
        plan: &Plan,
        protocol: Protocol,
        endpoints: &[SocketAddr],
    ) -> anyhow::Result<(u32, Vec<u32>)> {
        let id = self.id();
        let ids = self.set_endpoints(plan, id, protocol, endpoints, Policy::default())?;
        self.cluster_ip(plan.cluster_ip, protocol, id)?;
        self.node_port(plan.node_port.port(), protocol, id, plan.node.is_ipv6())?;
        self.frontend(plan.balancer, protocol, id, FrontendKind::Balancer, 0)?;
        self.frontend(plan.external, protocol, id, FrontendKind::External, 0)?;
        Ok((id, ids))
    }

    /// Publishes endpoints; those at the address of `here` are on this node.
    pub(crate) fn set_endpoints(
        &mut self,
        plan: &Plan,
        id: u32,
        protocol: Protocol,
        endpoints: &[SocketAddr],
        policy: Policy,
    ) -> anyhow::Result<Vec<u32>> {
        let endpoints: Vec<Endpoint> = endpoints
            .iter()
            .map(|&at| Endpoint {
                at,
                local: at.ip() == plan.here.ip() || at.ip() == plan.node,
                cluster: true,
            })
            .collect();
        self.publish(id, protocol, &endpoints, policy)
    }

    /// A packet arrives.
    pub(crate) fn ingress(&self, frame: &Frame) -> anyhow::Result<Outcome> {
        self.run(0, &frame.bytes()?)
    }

    /// A packet leaves.
    pub(crate) fn egress(&self, frame: &Frame) -> anyhow::Result<Outcome> {
        self.run(1, &frame.bytes()?)
    }

    /// Octets arrive.
    pub(crate) fn ingress_bytes(&self, bytes: &[u8]) -> anyhow::Result<Outcome> {
        self.run(0, bytes)
    }

    /// Octets leave.
    pub(crate) fn egress_bytes(&self, bytes: &[u8]) -> anyhow::Result<Outcome> {
        self.run(1, bytes)
    }

    fn run(&self, program: usize, frame: &[u8]) -> anyhow::Result<Outcome> {
        let (program, sent) = match self.bare {
            true => (program + 2, &frame[ETHERNET..]),
            false => (program, frame),
        };
        let mut bytes = vec![0; sent.len() + 256];
        let Run { verdict, length } =
            test_run::run(self.fds[program].as_fd(), sent, &mut bytes, self.complete)
                .with_context(|| format!("run {} on {sent:02x?}", PROGRAMS[program]))?;
        bytes.truncate(length);
        Ok(Outcome {
            verdict,
            bytes,
            sent: sent.to_vec(),
            bare: self.bare,
        })
    }

    /// All flows, by key.
    pub(crate) fn flows(&mut self) -> anyhow::Result<Vec<(FlowKey, FlowValue)>> {
        let map = self.map::<FlowKey, FlowValue>("flow")?;
        Ok(map.iter().collect::<Result<_, _>>()?)
    }

    /// Forgets all flows.
    pub(crate) fn clear_flows(&mut self) -> anyhow::Result<()> {
        let keys: Vec<_> = self.flows()?.into_iter().map(|(key, _)| key).collect();
        let mut map = self.map::<FlowKey, FlowValue>("flow")?;
        keys.iter().try_for_each(|key| anyhow::Ok(map.remove(key)?))
    }

    /// Checks a counter.
    pub(crate) fn counts(&self, counter: Counter, expected: u64) -> anyhow::Result<()> {
        let is = self.counter(counter)?;
        ensure!(is == expected, "{} is {is}, not {expected}", counter.name());
        Ok(())
    }

    /// Takes an address of the node away from NodePorts.
    pub(crate) fn no_node_ports_at(&mut self, ip: IpAddr) -> anyhow::Result<()> {
        let key = proxy_common::NodeAddrKey {
            addr: addr::from_ip(ip),
        };
        Ok(self
            .map::<proxy_common::NodeAddrKey, NodeAddrValue>("node_addr")?
            .insert(key, NodeAddrValue { flags: 0 }, 0)?)
    }
}

impl Outcome {
    /// It goes on as it was.
    pub(crate) fn passes_unchanged(self) -> anyhow::Result<()> {
        let sent = self.sent.clone();
        self.is(PASS, &sent)
    }

    /// It is dropped.
    pub(crate) fn is_dropped(&self) -> anyhow::Result<()> {
        ensure!(
            self.verdict == DROP,
            "verdict {:#x}, not a drop",
            self.verdict
        );
        Ok(())
    }

    /// Whether it goes back the way that it came.
    pub(crate) fn is_sent_back(&self) -> bool {
        self.verdict == REDIRECT
    }

    /// Both ports of a first fragment, the source first.
    pub(crate) fn first_ports(&self) -> anyhow::Result<(u16, u16)> {
        let packet = etherparse::SlicedPacket::from_ethernet(&self.bytes)?;
        let payload = packet.ip_payload().context("no payload")?.payload;
        let port = |at: usize| {
            let octets = payload.get(at..at + 2).context("no port")?;
            anyhow::Ok(u16::from_be_bytes(octets.try_into()?))
        };
        Ok((port(0)?, port(2)?))
    }

    /// It goes back, and is this now.
    pub(crate) fn goes_back_as(self, frame: &[u8]) -> anyhow::Result<()> {
        let expected = if self.bare { &frame[ETHERNET..] } else { frame };
        self.is(REDIRECT, expected)
    }

    /// It goes on, and is this now.
    pub(crate) fn becomes(self, frame: &Frame) -> anyhow::Result<()> {
        let frame = frame.bytes()?;
        let expected = if self.bare {
            &frame[ETHERNET..]
        } else {
            &frame
        };
        self.is(PASS, expected)
    }

    /// It goes on, and is this now.
    pub(crate) fn becomes_bytes(self, expected: &[u8]) -> anyhow::Result<()> {
        self.is(PASS, expected)
    }

    /// Source port of what it is now.
    pub(crate) fn source_port(&self) -> anyhow::Result<u16> {
        let packet = etherparse::SlicedPacket::from_ethernet(&self.bytes)?;
        match packet.transport {
            Some(etherparse::TransportSlice::Tcp(tcp)) => Ok(tcp.source_port()),
            Some(etherparse::TransportSlice::Udp(udp)) => Ok(udp.source_port()),
            _ => bail!("no transport in {:02x?}", self.bytes),
        }
    }

    /// Destination of what it is now.
    pub(crate) fn destination(&self) -> anyhow::Result<SocketAddr> {
        let packet = etherparse::SlicedPacket::from_ethernet(&self.bytes)?;
        let ip = match &packet.net {
            Some(etherparse::NetSlice::Ipv4(v4)) => v4.header().destination_addr().into(),
            Some(etherparse::NetSlice::Ipv6(v6)) => v6.header().destination_addr().into(),
            _ => bail!("no IP in {:02x?}", self.bytes),
        };
        let port = match packet.transport {
            Some(etherparse::TransportSlice::Tcp(tcp)) => tcp.destination_port(),
            Some(etherparse::TransportSlice::Udp(udp)) => udp.destination_port(),
            _ => bail!("no transport in {:02x?}", self.bytes),
        };
        Ok(SocketAddr::new(ip, port))
    }

    fn is(self, verdict: u32, expected: &[u8]) -> anyhow::Result<()> {
        if self.verdict == verdict && self.bytes == expected {
            return Ok(());
        }
        let capture = self.capture(expected)?;
        bail!(
            "verdict {:#x}, wanted {verdict:#x}\n  sent   {:02x?}\n  became {:02x?}\n  wanted {expected:02x?}\n  all three: {}",
            self.verdict,
            self.sent,
            self.bytes,
            capture.display()
        )
    }

    /// Writes what was sent, what it became and what it should be to a file for Wireshark. The form
    /// is that of libpcap (pcap-savefile(5)).
    fn capture(&self, expected: &[u8]) -> anyhow::Result<PathBuf> {
        const ETHERNET_FRAMES: u32 = 1;
        const IP_PACKETS: u32 = 101;
        let kind = if self.bare {
            IP_PACKETS
        } else {
            ETHERNET_FRAMES
        };
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, kind] {
            file.extend(u32::to_ne_bytes(word));
        }
        for packet in [&self.sent, &self.bytes, expected] {
            let length = u32::try_from(packet.len())?;
            for word in [0, 0, length, length] {
                file.extend(u32::to_ne_bytes(word));
            }
            file.extend(packet);
        }
        let name = format!("sidestep-packets-{}.pcap", std::process::id());
        let path = env::temp_dir().join(name);
        fs::write(&path, file)?;
        Ok(path)
    }
}

impl Deref for Stage {
    type Target = Maps;

    fn deref(&self) -> &Maps {
        &self.maps
    }
}

impl DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut Maps {
        &mut self.maps
    }
}

/// The verifier's log belongs to the message.
fn explain(error: ProgramError) -> anyhow::Error {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => anyhow::anyhow!("{io_error}\n{verifier_log}"),
        error => error.into(),
    }
}
