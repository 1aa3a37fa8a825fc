//! What the tests share: the control plane, two nodes with pods, an agent on one of them; and how
//! they look at what it does.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Service;
use lab::{Host as _, Lab, Node, Pod, RunningAgent, Server};
use serde_json::{Value, json};

use crate::{
    admin::{Admin, Endpoint},
    binaries::Binaries,
    control_plane::{ADMIN, ControlPlane, KUBE_PROXY},
};

/// How long a change may take to arrive before a test fails. Nothing waits this long if all is
/// well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Connections to see who answers: that one of three has no share is once in 10⁷ runs.
const CONNECTIONS: u32 = 40;
/// Port of the web pods' servers, TCP.
pub(crate) const HTTP: u16 = 8080;
/// Port of the web pods' servers, UDP.
pub(crate) const DNS: u16 = 5353;

/// The stage. Dropping it removes everything.
pub(crate) struct Stage {
    pub(crate) agent: Option<RunningAgent>,
    pub(crate) control: ControlPlane,
    pub(crate) admin: Admin,
    /// The node with the agent.
    pub(crate) node: Node,
    /// A pod on it.
    pub(crate) client: Pod,
    /// Three pods with servers: the first on the node with the agent, the others on another.
    pub(crate) webs: Vec<Pod>,
    other: Node,
    _servers: Vec<Server>,
    _lab: Lab,
}

impl Stage {
    /// Brings everything up.
    pub(crate) fn build(lab: Lab, control: Node, binaries: Binaries) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let control = ControlPlane::start(control, binaries)?;
        eprintln!("control plane ready after {:.1?}", begin.elapsed());
        let admin = Admin::new(&control.kubeconfig(ADMIN))?;
        let (node, other) = (lab.node("node-a")?, lab.node("node-b")?);
        let client = node.pod("client")?;
        let webs = vec![node.pod("web-1")?, other.pod("web-2")?, other.pod("web-3")?];
        let servers = webs
            .iter()
            .map(|web| web.serve().tcp(HTTP).udp(DNS).start());
        let servers = servers.collect::<lab::Result<_>>()?;
        let mut stage = Self {
            agent: None,
            control,
            admin,
            node,
            client,
            webs,
            other,
            _servers: servers,
            _lab: lab,
        };
        stage.start_agent()?;
        Ok(stage)
    }

    /// Starts the agent, with kube-proxy's rights, and waits until it has followed the cluster.
    pub(crate) fn start_agent(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        let mut agent = self.spawn_agent()?;
        agent.wait_until_ready(PATIENCE)?;
        eprintln!("agent in sync after {:.1?}", begin.elapsed());
        self.agent = Some(agent);
        Ok(())
    }

    /// Starts the agent and does not wait.
    pub(crate) fn spawn_agent(&self) -> anyhow::Result<RunningAgent> {
        Ok(self.node.agent_of(self.source()).spawn()?)
    }

    /// Starts the control plane again after an outage.
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.control.resume()?;
        eprintln!("control plane back after {:.1?}", begin.elapsed());
        // The old client has connections that nobody answers.
        self.admin = Admin::new(&self.control.kubeconfig(ADMIN))?;
        Ok(())
    }

    /// Where the API server listens.
    pub(crate) fn control_address(&self) -> SocketAddr {
        self.control.address()
    }

    /// The agent's flags for its source.
    pub(crate) fn source(&self) -> [String; 2] {
        let kubeconfig = self.control.kubeconfig(KUBE_PROXY);
        ["--kubeconfig".to_owned(), kubeconfig.display().to_string()]
    }

    /// What the agent has logged since it started.
    pub(crate) fn log(&self) -> String {
        self.agent
            .as_ref()
            .map(RunningAgent::log)
            .unwrap_or_default()
    }

    /// Ready endpoints of the web pods with these numbers (from 1), IPv4.
    pub(crate) fn endpoints(&self, numbers: &[usize]) -> Vec<Endpoint> {
        self.endpoints_of(numbers, |web| web.v4().into())
    }

    /// The same, IPv6.
    pub(crate) fn endpoints6(&self, numbers: &[usize]) -> Vec<Endpoint> {
        self.endpoints_of(numbers, |web| web.v6().into())
    }

    /// Waits until a Service is listed with exactly these addresses and backends, each as
    /// `ClusterIP 10.96.0.10:80`, `NodePort *:30080` or `-> 10.244.1.2:8080 active`.
    pub(crate) fn listed(&self, service: &str, lines: &[String]) -> anyhow::Result<()> {
        let expected: BTreeSet<_> = lines.iter().cloned().collect();
        let mut seen = BTreeSet::new();
        until(PATIENCE, || {
            seen = lines_of(&self.services()?, service);
            Ok((seen == expected).then_some(()))
        })
        .with_context(|| format!("{service} is listed with {seen:#?}, not with {expected:#?}"))
    }

    /// All of `sidestep services -o json`.
    pub(crate) fn services(&self) -> anyhow::Result<Vec<Value>> {
        let output = self
            .node
            .sidestep(["services", "-o", "json"])
            .output()
            .context("start sidestep services")?;
        ensure!(
            output.status.success(),
            "sidestep services: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).context("read the list of Services")
    }

    /// The client connects: exactly these pods answer.
    pub(crate) fn answers(&self, to: SocketAddr, pods: &[usize]) -> anyhow::Result<()> {
        let report = self.client.connect(to).count(CONNECTIONS).run()?;
        let expected: BTreeSet<_> = pods.iter().map(|number| format!("web-{number}")).collect();
        let servers: BTreeSet<_> = report.summary.servers.keys().cloned().collect();
        ensure!(
            report.summary.failed == 0 && servers == expected,
            "connections to {to}, where {expected:?} should answer: {:?}",
            report.summary
        );
        Ok(())
    }

    /// The client connects and is refused at once.
    pub(crate) fn refuses(&self, to: SocketAddr) -> anyhow::Result<()> {
        let report = self.client.connect(to).count(3).run()?;
        ensure!(
            report.refused_with() == Some("ECONNREFUSED"),
            "connections to {to} should be refused: {:?}",
            report.summary
        );
        Ok(())
    }

    /// The client connects, and the address means nothing to the node: nobody answers, and nobody
    /// refuses in a Service's name.
    pub(crate) fn untouched(&self, to: SocketAddr) -> anyhow::Result<()> {
        let patience = Duration::from_millis(300);
        let report = self.client.connect(to).timeout(patience).run()?;
        ensure!(
            report.summary.ok == 0 && report.refused_with() != Some("ECONNREFUSED"),
            "a connection to {to} should be left to the network: {:?}",
            report.summary
        );
        Ok(())
    }

    /// A failure, with the end of the agent's log.
    pub(crate) fn explain(&self, error: &anyhow::Error) -> String {
        format!(
            "{error:#}\nthe agent's log ends with:\n{}",
            tail(&self.log())
        )
    }

    fn endpoints_of(&self, numbers: &[usize], address: fn(&Pod) -> IpAddr) -> Vec<Endpoint> {
        numbers
            .iter()
            .map(|&number| {
                let node = if number == 1 { &self.node } else { &self.other };
                Endpoint {
                    address: address(&self.webs[number - 1]).to_string(),
                    node: node.name().to_owned(),
                    ready: true,
                }
            })
            .collect()
    }
}

/// A Service of one TCP port `http`, which means [`HTTP`] of the pods.
pub(crate) fn web(port: u16) -> Value {
    json!({ "ports": [{ "name": "http", "port": port, "targetPort": HTTP }] })
}

/// The first ClusterIP of a Service.
pub(crate) fn cluster_ip(service: &Service) -> anyhow::Result<IpAddr> {
    let spec = service.spec.as_ref().context("a Service without spec")?;
    let ip = spec.cluster_ip.as_deref().context("no ClusterIP")?;
    ip.parse().with_context(|| format!("read ClusterIP {ip}"))
}

/// The NodePort of a Service's first port.
pub(crate) fn node_port(service: &Service) -> anyhow::Result<u16> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let port = ports.and_then(|ports| ports.first()?.node_port);
    Ok(u16::try_from(port.context("no NodePort")?)?)
}

/// How an address is listed: see [`Stage::listed`].
pub(crate) fn frontend(kind: &str, at: SocketAddr) -> String {
    format!("{kind} {at}")
}

/// How ready endpoints are listed.
pub(crate) fn backends(endpoints: &[Endpoint], port: u16) -> anyhow::Result<Vec<String>> {
    endpoints
        .iter()
        .map(|endpoint| {
            let at = SocketAddr::new(endpoint.address.parse()?, port);
            Ok(format!("-> {at} active"))
        })
        .collect()
}

/// The lines of one Service, all its ports and families together: see [`Stage::listed`].
pub(crate) fn lines_of(services: &[Value], service: &str) -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let socket = |value: &Value| {
        let (address, port) = (text(&value["address"]), &value["port"]);
        match address.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            _ => format!("{address}:{port}"),
        }
    };
    let mut lines = BTreeSet::new();
    for entry in services {
        if format!("{}/{}", text(&entry["namespace"]), text(&entry["name"])) != service {
            continue;
        }
        let list = |name: &str| entry[name].as_array().cloned().unwrap_or_default();
        for frontend in list("frontends") {
            lines.insert(format!("{} {}", text(&frontend["kind"]), socket(&frontend)));
        }
        for backend in list("backends") {
            lines.insert(format!(
                "-> {} {}",
                socket(&backend),
                text(&backend["state"])
            ));
        }
    }
    lines
}

/// Asks again until there is an answer.
pub(crate) fn until<T>(
    patience: Duration,
    mut ask: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("waited for {} s", patience.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Whether the long variants are asked for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SIDESTEP_LONG").is_some_and(|value| value == "1")
}

/// The end of a log.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
