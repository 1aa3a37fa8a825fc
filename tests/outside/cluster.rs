//! A lab with two nodes and a client outside, and the Services that the agents read from files.

use std::{
    fmt::Write as _,
    fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Instant,
};

use lab::{Client, Host as _, Lab, Node, Pod, RunningAgent};

use crate::talk::{IMPATIENCE, PATIENCE, connect};

/// Port of all servers.
pub(crate) const TARGET: u16 = 8080;
/// Port of all Services.
const PORT: u16 = 80;

/// The lab.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) node_a: Node,
    pub(crate) node_b: Node,
    manifests: PathBuf,
    // Last, so that it goes last.
    pub(crate) lab: Lab,
}

/// A Service of type LoadBalancer, with all kinds of addresses and both protocols, whose numbers
/// end in its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    pub(crate) number: u8,
    /// externalTrafficPolicy Local.
    pub(crate) local: bool,
}

impl Service {
    pub(crate) const fn new(name: &'static str, number: u8) -> Self {
        Self {
            name,
            number,
            local: false,
        }
    }

    pub(crate) const fn local(self) -> Self {
        Self {
            local: true,
            ..self
        }
    }

    fn node_port(self) -> u16 {
        30_000 + u16::from(self.number)
    }

    fn vip(self, v4: &str, v6: &str) -> [SocketAddr; 2] {
        let n = self.number;
        let v4: IpAddr = format!("{v4}.{n}").parse().unwrap();
        let v6: IpAddr = format!("{v6}::{n}").parse().unwrap();
        [(v4, PORT).into(), (v6, PORT).into()]
    }

    /// At a node.
    pub(crate) fn node_ports(self, node: &Node) -> [SocketAddr; 2] {
        let port = self.node_port();
        [(node.v4(), port).into(), (node.v6(), port).into()]
    }

    pub(crate) fn cluster_ips(self) -> [SocketAddr; 2] {
        self.vip("10.96.0", "fd00:10:96")
    }

    pub(crate) fn balancers(self) -> [SocketAddr; 2] {
        self.vip("198.51.100", "2001:db8:100")
    }

    pub(crate) fn externals(self) -> [SocketAddr; 2] {
        self.vip("192.0.2", "2001:db8:44")
    }

    fn yaml(self) -> String {
        let Self { name, local, .. } = self;
        let ips = |[v4, v6]: [SocketAddr; 2]| (v4.ip(), v6.ip());
        let (cluster4, cluster6) = ips(self.cluster_ips());
        let (balancer4, balancer6) = ips(self.balancers());
        let (external4, external6) = ips(self.externals());
        let policy = if local { "Local" } else { "Cluster" };
        let port = self.node_port();
        format!(
            "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec:
  type: LoadBalancer
  clusterIP: \"{cluster4}\"
  clusterIPs: [\"{cluster4}\", \"{cluster6}\"]
  externalIPs: [\"{external4}\", \"{external6}\"]
  externalTrafficPolicy: {policy}
  ports:
  - {{name: tcp, protocol: TCP, port: {PORT}, targetPort: {TARGET}, nodePort: {port}}}
  - {{name: udp, protocol: UDP, port: {PORT}, targetPort: {TARGET}, nodePort: {port}}}
status:
  loadBalancer:
    ingress: [{{ip: \"{balancer4}\"}}, {{ip: \"{balancer6}\"}}]
"
        )
    }
}

impl Cluster {
    /// Two nodes without agents, and a client from which all Services' addresses lead to node A.
    pub(crate) fn new(name: &str) -> Self {
        let lab = Lab::new(name).unwrap();
        let (node_a, node_b) = (lab.node("node-a").unwrap(), lab.node("node-b").unwrap());
        let client = lab.client("outside").unwrap();
        let manifests = lab.folder().join("manifests");
        fs::create_dir_all(&manifests).unwrap();
        let cluster = Self {
            client,
            node_a,
            node_b,
            manifests,
            lab,
        };
        cluster.route_to(&cluster.node_a);
        cluster
    }

    /// Lets all Services' addresses lead to a node.
    pub(crate) fn route_to(&self, node: &Node) {
        for network in [
            "10.96.0.0/16",
            "198.51.100.0/24",
            "192.0.2.0/24",
            "fd00:10:96::/48",
            "2001:db8:100::/48",
            "2001:db8:44::/48",
        ] {
            self.lab.route(network.parse().unwrap(), node).unwrap();
        }
    }

    /// Writes a Service and its endpoints.
    pub(crate) fn write(&self, service: Service, pods: &[(&Pod, &Node)]) {
        let mut text = service.yaml();
        type Address = fn(&Pod) -> IpAddr;
        let v4: Address = |pod| pod.v4().into();
        let v6: Address = |pod| pod.v6().into();
        for (family, address) in [("IPv4", v4), ("IPv6", v6)] {
            let name = service.name;
            let suffix = family.to_lowercase();
            let none = if pods.is_empty() { " []" } else { "" };
            writeln!(
                text,
                "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-{suffix}, namespace: default, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: {family}
ports:
- {{name: tcp, protocol: TCP, port: {TARGET}}}
- {{name: udp, protocol: UDP, port: {TARGET}}}
endpoints:{none}"
            )
            .unwrap();
            for (pod, node) in pods {
                writeln!(
                    text,
                    "- {{addresses: [\"{}\"], nodeName: {}, conditions: {{ready: true}}}}",
                    address(pod),
                    node.name()
                )
                .unwrap();
            }
        }
        // Watchers look at .yaml and .json files only.
        let draft = self.manifests.join(format!("{}.new", service.name));
        fs::write(&draft, text).unwrap();
        fs::rename(&draft, draft.with_extension("yaml")).unwrap();
    }

    /// Waits until a server answers at an address.
    pub(crate) fn wait_for(&self, to: SocketAddr, server: &str) {
        let start = Instant::now();
        loop {
            match connect(&self.client, to, IMPATIENCE) {
                Ok((_, answer)) if answer.server == server => return,
                result => assert!(
                    start.elapsed() < PATIENCE,
                    "{to}: {result:?}\n{}",
                    fs::read_to_string(self.node_a.folder().join("agent.log")).unwrap()
                ),
            }
        }
    }

    /// Starts the agent of a node, with these flags.
    pub(crate) fn agent(&self, node: &Node, flags: &[&str]) -> RunningAgent {
        let agent = node.agent(&self.manifests);
        flags
            .iter()
            .fold(agent, |agent, &flag| agent.arg(flag))
            .start()
            .unwrap()
    }
}
