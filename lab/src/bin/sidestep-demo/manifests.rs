//! The demo's cluster as files: what `kubectl get services,endpointslices -o yaml` would say.

use std::{
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use lab::{Host as _, Pod};

/// `demo/web`: HTTP-like, both families, and a NodePort.
pub(crate) const WEB: Service = Service {
    name: "web",
    v4: Ipv4Addr::new(10, 96, 0, 10),
    v6: Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x10),
    protocol: "TCP",
    port: 80,
    target: 8080,
    node_port: Some(30080),
};

/// `demo/names`: DNS-like.
pub(crate) const NAMES: Service = Service {
    name: "names",
    v4: Ipv4Addr::new(10, 96, 0, 53),
    v6: Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x53),
    protocol: "UDP",
    port: 53,
    target: 5353,
    node_port: None,
};

/// `demo/idle`: nobody serves it.
pub(crate) const IDLE: Service = Service {
    name: "idle",
    v4: Ipv4Addr::new(10, 96, 0, 99),
    v6: Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x99),
    protocol: "TCP",
    port: 80,
    target: 8080,
    node_port: None,
};

/// A Service with one port, IPv4 and IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    protocol: &'static str,
    pub(crate) port: u16,
    pub(crate) target: u16,
    pub(crate) node_port: Option<u16>,
}

/// The folder that the agents watch.
#[derive(Debug)]
pub(crate) struct Manifests {
    folder: PathBuf,
}

/// An endpoint: the pod's name, node and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) pod: String,
    pub(crate) node: &'static str,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

impl Service {
    /// IPv4 ClusterIP and port.
    pub(crate) fn address(self) -> SocketAddr {
        (self.v4, self.port).into()
    }

    /// IPv6 ClusterIP and port.
    pub(crate) fn address6(self) -> SocketAddr {
        (self.v6, self.port).into()
    }

    /// The Service object.
    pub(crate) fn yaml(self) -> String {
        let Self {
            name,
            v4,
            v6,
            protocol,
            port,
            target,
            node_port,
        } = self;
        let r#type = if node_port.is_some() {
            "NodePort"
        } else {
            "ClusterIP"
        };
        let node_port = node_port.map_or(String::new(), |port| format!(", nodePort: {port}"));
        format!(
            "apiVersion: v1
kind: Service
metadata: {{ name: {name}, namespace: demo }}
spec:
  type: {type}
  clusterIP: {v4}
  clusterIPs: [\"{v4}\", \"{v6}\"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports:
  - {{ name: main, protocol: {protocol}, port: {port}, targetPort: {target}{node_port} }}
"
        )
    }

    /// Its two EndpointSlices.
    pub(crate) fn slices(self, endpoints: &[Endpoint]) -> String {
        let slice = |family: &str, address: fn(&Endpoint) -> String| {
            let Self {
                name,
                protocol,
                target,
                ..
            } = self;
            let mut yaml = format!(
                "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}-{suffix}
  namespace: demo
  labels: {{ kubernetes.io/service-name: {name} }}
addressType: {family}
ports:
- {{ name: main, protocol: {protocol}, port: {target} }}
endpoints:{none}
",
                suffix = family.to_lowercase(),
                none = if endpoints.is_empty() { " []" } else { "" },
            );
            for endpoint in endpoints {
                // Writing to a String cannot fail.
                let _ = writeln!(
                    yaml,
                    "- addresses: [\"{}\"]\n  nodeName: {}\n  conditions: {{ ready: true }}\n  \
                     targetRef: {{ kind: Pod, namespace: demo, name: {} }}",
                    address(endpoint),
                    endpoint.node,
                    endpoint.pod,
                );
            }
            yaml
        };
        let v4 = slice("IPv4", |endpoint| endpoint.v4.to_string());
        let v6 = slice("IPv6", |endpoint| endpoint.v6.to_string());
        format!("{v4}---\n{v6}")
    }
}

impl Endpoint {
    pub(crate) fn new(pod: &Pod, node: &'static str) -> Self {
        Self {
            pod: pod.name().to_owned(),
            node,
            v4: pod.v4(),
            v6: pod.v6(),
        }
    }
}

impl Manifests {
    pub(crate) fn create(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(Self { folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Replaces a file as a careful writer does: whole, by a rename.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        // Watchers look at .yaml and .json files only.
        let draft = self.folder.join(format!("{name}.new"));
        fs::write(&draft, text)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("write {}", path.display()))
    }

    /// Writes a Service's endpoints.
    pub(crate) fn endpoints(&self, of: Service, endpoints: &[Endpoint]) -> Result<()> {
        self.write(
            &format!("{}-endpoints.yaml", of.name),
            &of.slices(endpoints),
        )
    }
}
