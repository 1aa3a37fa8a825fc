//! A node: what a Kubernetes node is to its pods, with a cgroup and a bpffs of its own.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::mount::{MountFlags, mount};

use crate::{
    Error, Host, Result, address,
    host::Pod,
    lab::{self, Inner},
    netns::Kind,
    place::Place,
};

/// A node of the lab. Its cgroup holds those of its pods, so a program attached there sees the
/// sockets of this node and no other's.
#[derive(Debug)]
pub struct Node {
    name: String,
    index: u8,
    addresses: address::Pair,
    place: Place,
    folder: PathBuf,
    lab: Arc<Inner>,
}

impl Node {
    pub(crate) fn new(
        name: String,
        index: u8,
        addresses: address::Pair,
        place: Place,
        lab: Arc<Inner>,
    ) -> Result<Self> {
        let folder = lab.run().join(&name);
        let node = Self {
            name,
            index,
            addresses,
            place,
            folder,
            lab,
        };
        let bpffs = node.bpffs();
        fs::create_dir_all(&bpffs).map_err(Error::io("create", &bpffs))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("bpf", &bpffs, "bpf", flags, None)
            .map_err(|e| Error::io("mount a bpffs on", bpffs)(e.into()))?;
        Ok(node)
    }

    /// The node's own bpffs.
    #[must_use]
    pub fn bpffs(&self) -> PathBuf {
        self.folder.join("bpf")
    }

    /// A folder of the node's own, for manifests and other files that should go with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The node's cgroup folder.
    #[must_use]
    pub fn cgroup(&self) -> &Path {
        self.place.cgroup()
    }

    /// Adds a pod to this node.
    pub fn pod(&self, name: &str) -> Result<Pod> {
        let number = self.lab.admit_pod(name, self.index)?;
        let place = self
            .lab
            .settle(name, Kind::Leaf, self.place.cgroup().join(name))?;
        let addresses = address::pod(self.index, number);
        let device = format!("veth{number}");
        let gateway = address::pod_gateway(self.index);
        lab::connect(&place, self.place.netns(), &device, addresses, gateway)?;
        let node_netns = self.place.netns().to_owned();
        Ok(Pod {
            name: name.to_owned(),
            addresses,
            place,
            device,
            node_netns,
        })
    }
}

impl Host for Node {
    fn name(&self) -> &str {
        &self.name
    }
    fn v4(&self) -> Ipv4Addr {
        self.addresses.v4
    }
    fn v6(&self) -> Ipv6Addr {
        self.addresses.v6
    }
    fn place(&self) -> &Place {
        &self.place
    }
}
