//! The programs, attached to the test's cgroup, and the maps, filled by hand.

use std::{
    fs::File,
    ops::{Deref, DerefMut},
};

use anyhow::Context as _;
use aya::{
    EbpfLoader,
    programs::{CgroupAttachMode, CgroupSock, CgroupSockAddr, Program},
};
use nix::{getsockopt_impl, sockopt_impl, sys::socket::GetSockOpt as _};
use proxy_common::setting::global;
pub(crate) use sidestep_tests::maps::{Endpoint, Policy};
use sidestep_tests::{case, maps::Maps};

/// Loaded programs and their maps.
pub(crate) struct Stage(Maps);

/// What differs between tests when the programs are loaded.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) set_retval: bool,
    pub(crate) port_guard: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            set_retval: true,
            port_guard: true,
        }
    }
}

impl Stage {
    /// Loads and attaches everything.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::with(Settings::default())
    }

    /// Loads and attaches everything.
    pub(crate) fn with(settings: Settings) -> anyhow::Result<Self> {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let netns = NetnsCookie
            .get(&socket)
            .context("ask for the network namespace's cookie")?;
        let (retval, guard) = (u8::from(settings.set_retval), u8::from(settings.port_guard));
        let mut loader = EbpfLoader::new();
        loader
            .override_global(global::NODE_NETNS, &netns, true)
            .override_global(global::SET_RETVAL, &retval, true)
            .override_global(global::PORT_GUARD, &guard, true);
        let mut maps = Maps::make(&mut loader, &[])?;
        let cgroup = File::open(case::cgroup()?)?;
        // Two passes, since a program may only be borrowed once at a time.
        for (name, program) in maps.ebpf.programs_mut() {
            match program {
                Program::CgroupSockAddr(program) => attach_address(program, &cgroup),
                Program::CgroupSock(program) => attach_socket(program, &cgroup),
                _ => continue,
            }
            .with_context(|| format!("load and attach {name}"))?;
        }
        Ok(Self(maps))
    }
}

impl Deref for Stage {
    type Target = Maps;

    fn deref(&self) -> &Maps {
        &self.0
    }
}

impl DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut Maps {
        &mut self.0
    }
}

// `Single` is the only mode that aya can use with links; the kernel makes it "multi".

fn attach_address(program: &mut CgroupSockAddr, cgroup: &File) -> anyhow::Result<()> {
    program.load()?;
    program.attach(cgroup, CgroupAttachMode::Single)?;
    Ok(())
}

fn attach_socket(program: &mut CgroupSock, cgroup: &File) -> anyhow::Result<()> {
    program.load()?;
    program.attach(cgroup, CgroupAttachMode::Single)?;
    Ok(())
}

sockopt_impl!(
    /// Cookie of the socket's network namespace.
    NetnsCookie,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_NETNS_COOKIE,
    u64
);
