//! The lab itself: the wire, and what is connected to it.

use std::{
    fmt::Write as _,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use ipnet::IpNet;

use crate::{
    Client, Error, Host as _, Node, Result, address, cgroup,
    netns::{self, Kind},
    place::Place,
    remains,
};

/// A cluster network on this kernel. Dropping it removes everything that it made.
///
/// Several labs, of one process or of many, can be up at once.
#[derive(Debug)]
pub struct Lab {
    inner: Arc<Inner>,
}

/// What the lab's members share.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Unique name on this machine: prefix of namespaces, name of the cgroup and run folder.
    tag: String,
    /// `/run/<tag>`: bpffs mounts and working folders.
    run: PathBuf,
    /// `<cgroup2>/<tag>`.
    cgroup: PathBuf,
    /// Whether processes and the lab end with this process.
    bound: bool,
    members: Mutex<Members>,
    /// Locked as long as this process lives: tells others that the lab is in use.
    _lock: File,
}

#[derive(Debug, Default)]
struct Members {
    names: Vec<String>,
    /// Nodes in the order of their indices, which start from 1: name, and pods made so far.
    nodes: Vec<(String, u8)>,
    clients: u8,
}

impl Lab {
    /// Brings up an empty lab, after removing what runs that are dead left behind. `name` is a DNS
    /// label that shows in the names of everything that the lab makes.
    pub fn new(name: &str) -> Result<Self> {
        Self::up(name, true)
    }

    /// Brings up a lab that stays, with its processes, when it is dropped and when this process
    /// ends. [`Lab::remove_kept`] removes it.
    pub fn kept(name: &str) -> Result<Self> {
        Self::up(name, false)
    }

    /// Removes the labs that were kept and whose process has ended; returns their tags.
    pub fn remove_kept() -> Result<Vec<String>> {
        remains::sweep(&cgroup::mount_point()?, true)
    }

    /// Name that is unique on this machine: `sidestep-lab-<pid>-<number>-<name>`.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.inner.tag
    }

    /// A folder of the lab's own, for files that should go with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.inner.run
    }

    /// The cgroup folder that holds those of all nodes and clients.
    #[must_use]
    pub fn cgroup(&self) -> &Path {
        &self.inner.cgroup
    }

    /// Name of the wire's network namespace: the router between nodes and outside clients.
    #[must_use]
    pub fn wire(&self) -> String {
        self.inner.netns("wire")
    }

    /// Adds a node. Nodes, and their pods, reach each other.
    pub fn node(&self, name: &str) -> Result<Node> {
        self.inner.node(name)
    }

    /// Adds a client outside the cluster.
    pub fn client(&self, name: &str) -> Result<Client> {
        self.inner.client(name)
    }

    /// Sends what outside clients address to `network` (load-balancer addresses, say) to a node.
    pub fn route(&self, network: IpNet, to: &Node) -> Result<()> {
        let via = match network {
            IpNet::V4(_) => to.v4().to_string(),
            IpNet::V6(_) => to.v6().to_string(),
        };
        netns::ip(
            &self.wire(),
            &format!("route replace {network} via {via}\n"),
        )
    }

    /// Removes everything now and says what could not be removed. Dropping does the same, but can
    /// only print it.
    pub fn remove(self) -> Result<()> {
        self.inner.remove()
    }

    fn up(name: &str, bound: bool) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        check_label(name)?;
        let cgroup2 = cgroup::mount_point()?;
        let claim = remains::claim(&cgroup2)?;
        let tag = format!(
            "{}{}-{}-{name}",
            remains::PREFIX,
            std::process::id(),
            next_number()
        );
        let run = Path::new(remains::RUN).join(&tag);
        fs::create_dir(&run).map_err(Error::io("create", &run))?;
        if !bound {
            let marker = run.join(remains::KEEP);
            fs::write(&marker, "").map_err(Error::io("create", marker))?;
        }
        let lock = remains::lock(&run)?;
        let cgroup = cgroup2.join(&tag);
        let members = Mutex::new(Members::default());
        let lab = Self {
            inner: Arc::new(Inner {
                tag,
                run,
                cgroup,
                bound,
                members,
                _lock: lock,
            }),
        };
        let made = cgroup::create(&lab.inner.cgroup).and_then(|()| lab.inner.wire());
        // From here on the wire's name keeps the folder of namespaces; and dropping a lab that was
        // not made whole takes the claim again.
        drop(claim);
        made.map(|()| lab)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.inner.bound {
            return;
        }
        if let Err(error) = self.inner.remove() {
            eprintln!("lab {}: {}", self.inner.tag, chain(&error));
        }
    }
}

impl Inner {
    /// `/run/<tag>`.
    pub(crate) fn run(&self) -> &Path {
        &self.run
    }

    fn netns(&self, member: &str) -> String {
        format!("{}.{member}", self.tag)
    }

    fn remove(&self) -> Result<()> {
        remains::remove_own(&self.tag, &self.run, &self.cgroup)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // Every change to the members is a single push or increment: a panic leaves them whole.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the namespace and cgroup of a member.
    pub(crate) fn settle(&self, name: &str, kind: Kind, cgroup: PathBuf) -> Result<Place> {
        let netns = self.netns(name);
        netns::create(&netns, kind)?;
        cgroup::create(&cgroup)?;
        Ok(Place {
            netns,
            cgroup,
            bound: self.bound,
        })
    }

    /// Reserves a name, and returns the number (from 1) of the new pod of the `node`th node.
    pub(crate) fn admit_pod(&self, name: &str, node: u8) -> Result<u8> {
        let mut members = self.members();
        members.admit(name)?;
        let (_, pods) = &mut members.nodes[usize::from(node) - 1];
        count_up(pods, name)
    }

    fn wire(&self) -> Result<()> {
        let wire = self.netns("wire");
        netns::create(&wire, Kind::Router)?;
        let address::Pair { v4, v6 } = address::WIRE;
        netns::ip(
            &wire,
            &format!(
                "link set lo up\n\
                 link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
                 addr add {v4}/16 dev br0\n\
                 addr add {v6}/64 dev br0 nodad\n\
                 link set br0 up\n"
            ),
        )
    }

    fn node(self: &Arc<Self>, name: &str) -> Result<Node> {
        // Held to the end: routes between nodes are made in turn.
        let mut members = self.members();
        members.admit(name)?;
        let mut index = u8::try_from(members.nodes.len()).unwrap_or(address::MOST);
        index = count_up(&mut index, name)?;
        members.nodes.push((name.to_owned(), 0));
        let place = self.settle(name, Kind::Router, self.cgroup.join(name))?;
        let own = address::node(index);
        let wire = self.netns("wire");
        let mut lines = format!(
            "link set lo up\n\
             link add eth0 type veth peer name node{index} netns {wire}\n\
             addr add {v4}/16 dev eth0\n\
             addr add {v6}/64 dev eth0 nodad\n\
             link set eth0 up\n\
             route add default via {gateway4}\n\
             route add ::/0 via {gateway6}\n",
            v4 = own.v4,
            v6 = own.v6,
            gateway4 = address::WIRE.v4,
            gateway6 = address::WIRE.v6,
        );
        for other in 1..index {
            route_pods(&mut lines, other);
        }
        netns::ip(place.netns(), &lines)?;
        netns::ip(&wire, &format!("link set node{index} master br0 up\n"))?;
        let mut back = String::new();
        route_pods(&mut back, index);
        for (other, _) in members.nodes.iter().filter(|(other, _)| other != name) {
            netns::ip(&self.netns(other), &back)?;
        }
        Node::new(name.to_owned(), index, own, place, Arc::clone(self))
    }

    fn client(&self, name: &str) -> Result<Client> {
        let index = {
            let mut members = self.members();
            members.admit(name)?;
            count_up(&mut members.clients, name)?
        };
        let place = self.settle(name, Kind::Leaf, self.cgroup.join(name))?;
        let addresses = address::client(index);
        let device = format!("client{index}");
        connect(
            &place,
            &self.netns("wire"),
            &device,
            addresses,
            address::CLIENT_GATEWAY,
        )?;
        Ok(Client {
            name: name.to_owned(),
            addresses,
            place,
        })
    }
}

impl Members {
    fn admit(&mut self, name: &str) -> Result<()> {
        check_label(name)?;
        if name == "wire" || self.names.iter().any(|taken| taken == name) {
            return Err(Error::Name {
                name: name.to_owned(),
                reason: "it is taken",
            });
        }
        self.names.push(name.to_owned());
        Ok(())
    }
}

/// Connects a leaf (pod, client) to its router by a veth pair with a /32 and a /128 at each end, as
/// the `ptp` network plugin does. The leaf's end is `eth0`.
pub(crate) fn connect(
    leaf: &Place,
    router: &str,
    device: &str,
    own: address::Pair,
    gateway: address::Pair,
) -> Result<()> {
    let (v4, v6) = (own.v4, own.v6);
    let (gateway4, gateway6) = (gateway.v4, gateway.v6);
    netns::ip(
        leaf.netns(),
        &format!(
            "link set lo up\n\
             link add eth0 type veth peer name {device} netns {router}\n\
             addr add {v4}/32 dev eth0\n\
             addr add {v6}/128 dev eth0 nodad\n\
             link set eth0 up\n\
             route add {gateway4}/32 dev eth0\n\
             route add {gateway6}/128 dev eth0\n\
             route add default via {gateway4}\n\
             route add ::/0 via {gateway6}\n"
        ),
    )?;
    netns::ip(
        router,
        &format!(
            "addr add {gateway4}/32 dev {device}\n\
             addr add {gateway6}/128 dev {device} nodad\n\
             link set {device} up\n\
             route add {v4}/32 dev {device}\n\
             route add {v6}/128 dev {device}\n"
        ),
    )
}

fn route_pods(lines: &mut String, node: u8) {
    let (network, via) = (address::pod_network(node), address::node(node));
    // Writing to a String cannot fail.
    let _ = write!(
        lines,
        "route add {}/24 via {}\nroute add {}/64 via {}\n",
        network.v4, via.v4, network.v6, via.v6
    );
}

fn count_up(counter: &mut u8, name: &str) -> Result<u8> {
    if *counter == address::MOST {
        return Err(Error::Name {
            name: name.to_owned(),
            reason: "the lab has no address left",
        });
    }
    *counter += 1;
    Ok(*counter)
}

/// The rule for names: a DNS label (RFC 1123), so that it fits into every path and command.
fn check_label(name: &str) -> Result<()> {
    let fits = (1..=63).contains(&name.len());
    let plain = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits && plain && !name.starts_with('-') {
        return Ok(());
    }
    let reason = "use 1 to 63 lower-case letters, digits and '-'";
    Err(Error::Name {
        name: name.to_owned(),
        reason,
    })
}

fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
