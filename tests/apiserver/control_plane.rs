//! etcd and kube-apiserver in a lab node's network namespace: RBAC, tokens, an audit log.
//!
//! Everything they keep is in a folder of the lab and goes with it. The API server makes its own
//! serving certificate; the same key signs its tokens for service accounts, which nobody uses.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use lab::{Host as _, Node, Process};
use serde::Deserialize;

use crate::{admin::Admin, binaries::Binaries, stage::tail};

/// Time for them to start, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whoever makes the objects: may do everything.
pub(crate) const ADMIN: &str = "admin";
/// The user that Kubernetes binds to the role `system:node-proxier` by itself.
pub(crate) const KUBE_PROXY: &str = "system:kube-proxy";

/// An etcd and a kube-apiserver. Dropping it kills them.
pub(crate) struct ControlPlane {
    node: Node,
    folder: PathBuf,
    binaries: Binaries,
    running: Vec<Process>,
}

/// A request as the API server has noted it in its audit log.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    #[serde(rename = "requestURI")]
    pub(crate) uri: String,
    pub(crate) verb: String,
    pub(crate) user: RequestUser,
    pub(crate) user_agent: Option<String>,
    #[serde(rename = "objectRef")]
    pub(crate) object: Option<RequestObject>,
    #[serde(rename = "responseStatus")]
    pub(crate) response: Option<RequestResponse>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RequestUser {
    pub(crate) username: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RequestObject {
    pub(crate) resource: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RequestResponse {
    pub(crate) code: Option<u16>,
}

impl ControlPlane {
    /// Starts both and waits until they are ready.
    pub(crate) fn start(node: Node, binaries: Binaries) -> anyhow::Result<Self> {
        let folder = node.folder().join("control-plane");
        fs::create_dir(&folder).with_context(|| format!("create {}", folder.display()))?;
        let tokens = format!(
            "{admin},{ADMIN},{ADMIN},system:masters\n{proxy},{KUBE_PROXY},{KUBE_PROXY}\n",
            admin = token(ADMIN),
            proxy = token(KUBE_PROXY)
        );
        write(&folder.join("tokens.csv"), &tokens)?;
        write(&folder.join("audit.yaml"), AUDIT_POLICY)?;
        let mut plane = Self {
            node,
            folder,
            binaries,
            running: Vec::new(),
        };
        for user in [ADMIN, KUBE_PROXY] {
            write(&plane.kubeconfig(user), &plane.kubeconfig_text(user))?;
        }
        plane.resume()?;
        Ok(plane)
    }

    /// Kills both.
    pub(crate) fn stop(&mut self) {
        // The API server first: it is the one that has clients.
        while let Some(process) = self.running.pop() {
            process.kill();
        }
    }

    /// Starts both on the state that they had, and waits until they are ready.
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        self.stop();
        for (name, command) in [("etcd", self.etcd()), ("kube-apiserver", self.api_server())] {
            let process = Process::start_logged(command, self.node.name(), &self.log(name))?;
            self.running.push(process);
        }
        self.wait_until_ready()
    }

    /// Where the API server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        (self.node.v4(), 6443).into()
    }

    /// A kubeconfig with a user's token.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.folder
            .join(format!("{}.kubeconfig", user.replace(':', "-")))
    }

    /// What kube-proxy's user has asked for so far, in order of the answers.
    pub(crate) fn requests(&self) -> anyhow::Result<Vec<Request>> {
        let path = self.folder.join("audit.log");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("read {line}")))
            .collect()
    }

    fn etcd(&self) -> std::process::Command {
        let mut command = self.node.command(&self.binaries.etcd);
        command
            .arg(format!("--data-dir={}", self.folder.join("etcd").display()))
            .args([
                "--listen-client-urls=http://127.0.0.1:2379",
                "--advertise-client-urls=http://127.0.0.1:2379",
                "--listen-peer-urls=http://127.0.0.1:2380",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ]);
        command
    }

    fn api_server(&self) -> std::process::Command {
        let mut command = self.node.command(&self.binaries.api_server);
        let files = [
            ("--cert-dir", "certificates"),
            (
                "--service-account-signing-key-file",
                "certificates/apiserver.key",
            ),
            ("--service-account-key-file", "certificates/apiserver.key"),
            ("--token-auth-file", "tokens.csv"),
            ("--audit-policy-file", "audit.yaml"),
            ("--audit-log-path", "audit.log"),
        ];
        for (flag, file) in files {
            command.arg(format!("{flag}={}", self.folder.join(file).display()));
        }
        command
            .arg(format!("--advertise-address={}", self.node.v4()))
            .arg(format!("--bind-address={}", self.node.v4()))
            .args([
                "--etcd-servers=http://127.0.0.1:2379",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--disable-admission-plugins=ServiceAccount",
            ]);
        command
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let kubeconfig = self.kubeconfig(ADMIN);
        loop {
            // The certificate that the kubeconfig names is made by the first start.
            let ready = Admin::new(&kubeconfig).and_then(|admin| admin.is_ready());
            let Err(error) = ready else { return Ok(()) };
            for (name, process) in ["etcd", "kube-apiserver"].iter().zip(&mut self.running) {
                if !process.is_running() {
                    bail!("{name} ended: {}", tail(&process.stderr()));
                }
            }
            if Instant::now() > deadline {
                let log = fs::read_to_string(self.log("kube-apiserver")).unwrap_or_default();
                return Err(error).with_context(|| {
                    format!("wait for the API server; its log ends with: {}", tail(&log))
                });
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn kubeconfig_text(&self, user: &str) -> String {
        let (server, token) = (self.address(), token(user));
        let certificate = self.folder.join("certificates/apiserver.crt");
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             current-context: lab\n\
             contexts: [{{name: lab, context: {{cluster: lab, user: \"{user}\"}}}}]\n\
             clusters:\n\
             - name: lab\n\
             \x20 cluster: {{server: 'https://{server}', certificate-authority: {certificate}}}\n\
             users: [{{name: \"{user}\", user: {{token: {token}}}}}]\n",
            certificate = certificate.display()
        )
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Only kube-proxy's user, one line per request, at its end or when a watch begins to answer.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, users: ['system:kube-proxy']}
- {level: None}
";

/// Tokens of a control plane that nobody outside its namespace can reach.
fn token(user: &str) -> String {
    format!("token-of-{}", user.replace(':', "-"))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
