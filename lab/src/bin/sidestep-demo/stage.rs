//! The demo's cluster: two nodes with an agent each, pods that serve, a pod that asks.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use lab::{Host as _, Lab, Node, Pod, RunningAgent, Server};

use crate::{
    interrupt,
    manifests::{Endpoint, IDLE, Manifests, NAMES, WEB},
    show::Show,
};

/// How long a change may take to be seen. It takes milliseconds; the bound is for a stuck agent.
const PATIENCE: Duration = Duration::from_secs(120);

/// Names of the nodes.
const NODES: [&str; 2] = ["node-a", "node-b"];

/// A pod that serves `web` and `names`.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) pod: Pod,
    pub(crate) endpoint: Endpoint,
    server: Server,
}

/// The cluster. Fields are dropped in order, the lab last.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) agent: Option<RunningAgent>,
    other_agent: Option<RunningAgent>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) client: Pod,
    pub(crate) node: Node,
    pub(crate) other_node: Node,
    pub(crate) manifests: Manifests,
    lab: Lab,
    keep: bool,
}

impl Stage {
    /// Brings up the lab and its pods. No agent yet.
    pub(crate) fn build(show: &mut Show, keep: bool) -> Result<Self> {
        show.step(
            "A cluster on this kernel",
            "Nodes and pods are network namespaces with IPv4 and IPv6; each node has a cgroup and a \
             bpffs of its own. This machine's own network and root cgroup are left alone.",
        );
        let lab = if keep {
            Lab::kept("demo")?
        } else {
            Lab::new("demo")?
        };
        let (node, other_node) = (lab.node(NODES[0])?, lab.node(NODES[1])?);
        let client = node.pod("client")?;
        let manifests = Manifests::create(lab.folder().join("manifests"))?;
        let mut stage = Self {
            agent: None,
            other_agent: None,
            replicas: Vec::new(),
            client,
            node,
            other_node,
            manifests,
            lab,
            keep,
        };
        for (name, node) in [("web-1", 0), ("web-2", 1), ("web-3", 1)] {
            stage.add_replica(name, node)?;
        }
        show.output(&stage.picture());
        show.holds(&format!(
            "It is up as {}, with nothing that serves Services.",
            stage.lab.tag()
        ));
        Ok(stage)
    }

    /// Adds a serving pod to a node (by index); it is no endpoint until manifests say so.
    pub(crate) fn add_replica(&mut self, name: &str, node: usize) -> Result<&Replica> {
        let pod = [&self.node, &self.other_node][node].pod(name)?;
        let server = pod.serve().tcp(WEB.target).udp(NAMES.target).start()?;
        let endpoint = Endpoint::new(&pod, NODES[node]);
        self.replicas.push(Replica {
            pod,
            endpoint,
            server,
        });
        self.replicas.last().context("a pod was just added")
    }

    /// Writes the replicas as the endpoints of both Services.
    pub(crate) fn publish(&self) -> Result<()> {
        let endpoints: Vec<_> = self.replicas.iter().map(|r| r.endpoint.clone()).collect();
        self.manifests.endpoints(WEB, &endpoints)?;
        self.manifests.endpoints(NAMES, &endpoints)
    }

    /// Writes all manifests.
    pub(crate) fn publish_all(&self) -> Result<()> {
        for service in [WEB, NAMES, IDLE] {
            self.manifests
                .write(&format!("{}.yaml", service.name), &service.yaml())?;
        }
        self.manifests.endpoints(IDLE, &[])?;
        self.publish()
    }

    /// Starts the agent of the node where the client is.
    pub(crate) fn start_agent(&mut self) -> Result<()> {
        self.agent = Some(self.node.agent(self.manifests.folder()).start()?);
        Ok(())
    }

    /// Starts the agent of the other node.
    pub(crate) fn start_other_agent(&mut self) -> Result<()> {
        self.other_agent = Some(self.other_node.agent(self.manifests.folder()).start()?);
        Ok(())
    }

    /// The client's agent.
    pub(crate) fn agent(&mut self) -> Result<&mut RunningAgent> {
        self.agent.as_mut().context("the agent is not started")
    }

    /// What a command of `sidestep` prints on the client's node. It must succeed.
    pub(crate) fn sidestep(&self, args: &[&str]) -> Result<String> {
        let mut command = self.node.sidestep(args);
        run(&mut command)
    }

    /// Waits until `sidestep services` of the client's node fits.
    pub(crate) fn wait_for_services(&self, what: &str, fits: impl Fn(&str) -> bool) -> Result<()> {
        wait_until(what, || Ok(fits(&self.sidestep(&["services"])?)))
    }

    /// How a connection to the Service fails when nobody serves it. An answer is an error.
    pub(crate) fn unserved(&self) -> Result<String> {
        let timeout = Duration::from_millis(500);
        let report = self.client.connect(WEB.address()).timeout(timeout).run()?;
        let error = report.refused_with().map(str::to_owned);
        error.with_context(|| format!("{} answers, and should not", WEB.address()))
    }

    /// Prints the end of the agents' logs.
    pub(crate) fn print_logs(&self, show: &Show) {
        for node in [&self.node, &self.other_node] {
            let log = fs::read_to_string(node.folder().join("agent.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            show.command(&format!("tail {}/agent.log", node.folder().display()));
            show.output(&lines[lines.len().saturating_sub(20)..].join("\n"));
        }
        if self.keep {
            println!("    The lab is still up; `sidestep-demo --remove` removes it.");
        }
    }

    /// Ends with everything removed, and checks that.
    pub(crate) fn end(mut self, show: &mut Show) -> Result<()> {
        show.step(
            "Nothing stays",
            "`sidestep cleanup` is the one thing that detaches the programs; then the lab is \
             removed with all that was in it.",
        );
        for agent in [self.agent.take(), self.other_agent.take()]
            .into_iter()
            .flatten()
        {
            agent.stop()?;
        }
        for node in [&self.node, &self.other_node] {
            let mut command = node.sidestep(["cleanup"]);
            show.command(&line(&command));
            show.beginning(&run(&mut command)?, 4);
            ensure!(
                !node.pins().exists(),
                "pins are left in {}",
                node.pins().display()
            );
        }
        self.unserved()?;
        show.holds("The Service's address is nobody's again.");
        let (tag, folder) = (self.lab.tag().to_owned(), self.lab.folder().to_owned());
        let cgroup = self.lab.cgroup().to_owned();
        let namespaces = [
            self.node.place().netns_path(),
            self.client.place().netns_path(),
        ];
        self.replicas.clear();
        self.lab.remove()?;
        for path in namespaces.iter().chain([&folder, &cgroup]) {
            ensure!(!path.exists(), "{} is left", path.display());
        }
        show.holds(&format!(
            "{tag} is gone: no namespace, mount, cgroup or process is left."
        ));
        Ok(())
    }

    /// Ends with everything left up, and says what can be done with it.
    pub(crate) fn leave(mut self, show: &Show) -> Result<()> {
        let folder = self.lab.folder().to_owned();
        let script = folder.join("client");
        let (cgroup, netns) = (
            self.client.place().cgroup(),
            self.client.place().netns_path(),
        );
        let text = format!(
            "#!/bin/sh\n# Runs a command in the pod \"client\": in its cgroup and network.\n\
             echo $$ > {}/cgroup.procs && exec nsenter --net={} \"$@\"\n",
            cgroup.display(),
            netns.display(),
        );
        fs::write(&script, text).with_context(|| format!("write {}", script.display()))?;
        println!("\nThe lab stays up. Things to try:\n");
        let probe = lab::binary("sidestep-probe")?;
        for command in ["services", "status", "dump frontend"] {
            let command = self.node.sidestep(command.split(' '));
            show.command(&path_and_line(&command));
        }
        show.command(&format!(
            "bpftool map dump pinned {}/frontend",
            self.node.pins().display()
        ));
        show.command(&format!(
            "sh {} {} connect {} --count 100",
            script.display(),
            probe.display(),
            WEB.address()
        ));
        show.command(&format!(
            "$EDITOR {}/web-endpoints.yaml",
            self.manifests.folder().display()
        ));
        show.command(&format!(
            "tail -f {}/agent.log",
            self.node.folder().display()
        ));
        println!("\nThis removes it:\n");
        let own = std::env::current_exe().context("find my own path")?;
        show.command(&format!("{} --remove", own.display()));
        for agent in [self.agent.take(), self.other_agent.take()]
            .into_iter()
            .flatten()
        {
            agent.leave();
        }
        self.replicas
            .drain(..)
            .for_each(|replica| replica.server.leave());
        Ok(())
    }

    fn picture(&self) -> String {
        let place = |name: &str| {
            let replica = self
                .replicas
                .iter()
                .find(|replica| replica.endpoint.pod == name);
            replica.map_or(String::new(), |replica| replica.endpoint.v4.to_string())
        };
        format!(
            "node-a {:12} ─── wire ───  node-b {}\n\
             ├─ client {:12}         ├─ web-2 {}\n\
             └─ web-1  {:12}         └─ web-3 {}",
            self.node.v4().to_string(),
            self.other_node.v4(),
            self.client.v4().to_string(),
            place("web-2"),
            place("web-1"),
            place("web-3"),
        )
    }
}

/// Waits until something holds, looking again and again.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        interrupt::check()?;
        if Instant::now() > deadline {
            bail!("waited {} s in vain: {what}", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A command's stdout; any but success is an error with its stderr.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("run {}", line(command)))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}: {}: {stderr}",
        line(command),
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one types it anywhere.
fn path_and_line(command: &Command) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A command as one types it, its program by its file name.
pub(crate) fn line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = [name].into_iter().chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
