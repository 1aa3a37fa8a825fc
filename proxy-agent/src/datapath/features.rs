//! What this kernel has, and what is done without it.

use aya::{
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported},
    util::KernelVersion,
};

/// One feature that is used where it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What it is called.
    pub name: &'static str,
    /// Kernel that brought it.
    pub since: &'static str,
    /// Whether this kernel has it.
    pub present: bool,
    /// What happens without it.
    pub without: &'static str,
}

/// All features that the data plane asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// `bpf_set_retval` in cgroup programs.
    pub set_retval: Feature,
    /// `SO_NETNS_COOKIE`.
    pub netns_cookie: Feature,
    /// `membarrier(MEMBARRIER_CMD_GLOBAL)`.
    pub membarrier: Feature,
    /// Finding and destroying UDP sockets of dead backends.
    pub orphans: Feature,
    /// Links of programs to interfaces.
    pub tcx: Feature,
}

impl Features {
    /// Asks the kernel. Loads tiny programs, attaches nothing. What `node` has found out itself is
    /// given: whether namespaces have cookies, and whether sockets can be destroyed.
    pub fn probe(netns_cookie: bool, destroy: bool) -> Self {
        Self {
            set_retval: Feature {
                name: "bpf_set_retval",
                since: "5.18",
                present: is_helper_supported(
                    ProgramType::CgroupSockAddr,
                    BpfHelper::BPF_FUNC_set_retval,
                )
                .unwrap_or(false),
                without: "refused connections fail with EPERM, not ECONNREFUSED",
            },
            netns_cookie: Feature {
                name: "SO_NETNS_COOKIE",
                since: "5.14",
                present: netns_cookie,
                without: "the initial network namespace is taken for the node's own",
            },
            membarrier: Feature {
                name: "membarrier",
                since: "4.3",
                present: rustix::thread::membarrier_query()
                    .contains_command(rustix::thread::MembarrierCommand::Global),
                without: "replaced slots rest for ten seconds before they are used again",
            },
            orphans: Feature {
                name: "UDP iterator, SOCK_DESTROY",
                since: "5.12",
                present: destroy && kernel_is_at_least(5, 12),
                without: "connected UDP sockets of dead backends stay until their program gives up",
            },
            tcx: Feature {
                name: "tcx links",
                since: "6.6",
                present: kernel_is_at_least(6, 6),
                without: "packets are translated by filters of clsact qdiscs, which others can remove",
            },
        }
    }

    /// All of them.
    pub fn all(&self) -> [&Feature; 5] {
        [
            &self.set_retval,
            &self.netns_cookie,
            &self.membarrier,
            &self.orphans,
            &self.tcx,
        ]
    }
}

/// Whether the running kernel is this version or a newer one; `false` if it does not say.
fn kernel_is_at_least(major: u8, minor: u8) -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(major, minor, 0))
}
