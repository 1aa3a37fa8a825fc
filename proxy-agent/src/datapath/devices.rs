//! The packet programs on the node's interfaces, and the addresses that SNAT takes there.
//!
//! From kernel 6.6 by tcx links, which are pinned: they stay when the agent ends, and the program in
//! them is exchanged when it comes back. Before, by filters of a clsact qdisc, which stay by
//! themselves and are replaced at their place.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs, io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use aya::{
    Ebpf,
    programs::{
        LinkOrder, Program, ProgramError, SchedClassifier, TcAttachType,
        links::FdLink,
        tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle},
    },
};
use proxy_common::{MasqValue, addr, map};

use super::{
    load::program,
    maps::{Origin, table},
    pins::Pins,
    start::StartError,
    sys,
    table::Table,
};
use crate::node::devices::{Device, DeviceKind};

/// Place of our filter among those of a clsact qdisc: before what others add without asking for a
/// place (49152 and down), after what they put first.
const PRIORITY: u16 = 0x5de5;
/// Number of our filter there.
const HANDLE: TcHandle = TcHandle::new(0, 1);

/// How programs are attached to interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By links. Minimum kernel 6.6.
    Tcx,
    /// By filters of a qdisc.
    Clsact,
}

/// One of the two hooks.
#[derive(Clone, Copy)]
struct Hook {
    attach: TcAttachType,
    /// Begin of the names of its links' pins.
    name: &'static str,
    ethernet: &'static str,
    bare: &'static str,
}

const HOOKS: [Hook; 2] = [
    // Replies are translated before requests, as at the sockets: egress first.
    Hook {
        attach: TcAttachType::Egress,
        name: "tc_egress",
        ethernet: "tc_egress",
        bare: "tc_egress_l3",
    },
    Hook {
        attach: TcAttachType::Ingress,
        name: "tc_ingress",
        ethernet: "tc_ingress",
        bare: "tc_ingress_l3",
    },
];

/// A program's link to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLink {
    /// Name of its pin: the hook and the number of the interface.
    pub pin: String,
    /// Link id.
    pub id: u32,
    /// Id of the program inside.
    pub program: u32,
    /// Index of the interface; 0: it is gone.
    pub interface: u32,
}

/// The interfaces that have the programs.
pub struct Attachments {
    pins: Pins,
    method: Method,
    programs: BTreeMap<&'static str, SchedClassifier>,
    masq: Table<u32, MasqValue>,
    /// By index: what was done for an interface.
    known: BTreeMap<u32, Device>,
}

impl Attachments {
    /// Takes the loaded programs of an object. Attaches nothing.
    ///
    /// # Errors
    ///
    /// If the object lacks one, or map `masq` cannot be opened.
    pub fn new(object: &mut Ebpf, pins: &Pins, method: Method) -> Result<Self, StartError> {
        let mut programs = BTreeMap::new();
        for name in HOOKS.iter().flat_map(|hook| [hook.ethernet, hook.bare]) {
            programs.insert(name, classifier(object, name)?);
        }
        Ok(Self {
            pins: pins.clone(),
            method,
            programs,
            masq: table(&mut Origin::Pins(pins), &map::MASQ)?,
            known: BTreeMap::new(),
        })
    }

    /// Attaches to what is new, writes the addresses of what has changed, forgets what is gone.
    /// Gives every interface that could not be served to `failed`; it is tried again next time.
    pub fn follow(&mut self, devices: &[Device], mut failed: impl FnMut(&Device, StartError)) {
        for device in devices {
            if self.known.get(&device.index) == Some(device) {
                continue;
            }
            match self.serve(device) {
                Ok(()) => {
                    self.known.insert(device.index, device.clone());
                }
                Err(error) => {
                    self.known.remove(&device.index);
                    failed(device, error);
                }
            }
        }
        // Also what an earlier agent wrote.
        let mut gone = Vec::new();
        let is_gone = |index| !devices.iter().any(|device| device.index == index);
        let read = self.masq.each(|index, _| {
            if is_gone(index) {
                gone.push(index);
            }
        });
        let deleted = gone.iter().try_for_each(|index| self.masq.delete(index));
        if let Err(error) = read.and(deleted) {
            tracing::debug!(%error, "SNAT addresses of interfaces that are gone stay");
        }
        self.known.retain(|index, _| !is_gone(*index));
        if let Err(error) = remove_defunct(&self.pins) {
            tracing::debug!(%error, "pins of interfaces that are gone stay");
        }
    }

    fn serve(&mut self, device: &Device) -> Result<(), StartError> {
        let value = MasqValue {
            v4: device.v4.map_or([0; 16], |ip| addr::from_ip(ip.into())),
            v6: device.v6.map_or([0; 16], |ip| addr::from_ip(ip.into())),
        };
        self.masq
            .put(&device.index, &value)
            .map_err(|error| attach_error(map::MASQ.name, device, error.into()))?;
        let is_attached = self
            .known
            .get(&device.index)
            .is_some_and(|known| known.kind == device.kind);
        if is_attached {
            return Ok(());
        }
        for hook in &HOOKS {
            let name = match device.kind {
                DeviceKind::Ethernet => hook.ethernet,
                DeviceKind::Bare => hook.bare,
            };
            let Some(program) = self.programs.get_mut(name) else {
                continue;
            };
            match self.method {
                Method::Tcx => {
                    let pin = self.pins.link(&format!("{}-{}", hook.name, device.index));
                    attach_link(program, hook, &pin, device)
                }
                Method::Clsact => attach_filter(program, hook, &device.name),
            }
            .map_err(|source| attach_error(name, device, source))?;
        }
        tracing::debug!(interface = device.name, "packets are translated here");
        Ok(())
    }
}

/// The links that are pinned, also those whose interfaces are gone.
///
/// # Errors
///
/// If the folder of links or a link cannot be read.
pub fn device_links(pins: &Pins) -> Result<Vec<DeviceLink>, StartError> {
    let folder = pins.links();
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(StartError::io("list", &folder))?,
    };
    let mut links = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StartError::io("list", &folder))?;
        let Ok(pin) = entry.file_name().into_string() else {
            continue;
        };
        let is_ours = HOOKS.iter().any(|hook| {
            pin.strip_prefix(hook.name)
                .is_some_and(|rest| rest.starts_with('-'))
        });
        if !is_ours {
            continue;
        }
        let path = entry.path();
        let link = sys::object_get(&path).map_err(StartError::io("open link", &path))?;
        let facts = sys::device_facts(link.as_fd()).map_err(StartError::io("ask link", &path))?;
        links.push(DeviceLink {
            pin,
            id: facts.id,
            program: facts.program,
            interface: facts.interface,
        });
    }
    links.sort_by(|one, other| (one.interface, &one.pin).cmp(&(other.interface, &other.pin)));
    Ok(links)
}

/// Removes our filters from the interfaces of the calling thread's network namespace.
pub(super) fn remove_filters(removed: &mut dyn FnMut(&Path)) {
    // Two lines of headings; then a name and a colon begin each line.
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'));
    for (name, _) in names {
        let name = name.trim();
        for hook in HOOKS.iter().rev() {
            for program in [hook.ethernet, hook.bare] {
                // Without a clsact qdisc, and with none of our filters in it, there is an error.
                if tc::qdisc_detach_program(name, hook.attach, program).is_ok() {
                    removed(&PathBuf::from(format!("filter {program} of {name}")));
                }
            }
        }
    }
}

type AttachError = Box<dyn std::error::Error + Send + Sync>;

fn attach_error(program: &'static str, device: &Device, source: AttachError) -> StartError {
    StartError::Attach {
        program,
        target: device.name.clone().into(),
        source,
    }
}

/// A program by itself, so that the object need not stay in memory for it.
fn classifier(object: &mut Ebpf, name: &'static str) -> Result<SchedClassifier, StartError> {
    let refused = |source| StartError::Program {
        program: name,
        source: Box::new(source),
    };
    let Program::SchedClassifier(loaded) = program(object, name)? else {
        return Err(refused(ProgramError::UnexpectedProgramType));
    };
    let info = loaded.info().map_err(refused)?;
    SchedClassifier::from_program_info(info, Cow::Borrowed(name)).map_err(refused)
}

fn attach_link(
    program: &mut SchedClassifier,
    hook: &Hook,
    pin: &Path,
    device: &Device,
) -> Result<(), AttachError> {
    match sys::object_get(pin) {
        Ok(link) if sys::device_facts(link.as_fd())?.interface == device.index => {
            match sys::link_update(link.as_fd(), program.fd()?.as_fd()) {
                Ok(()) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    // What others do at the same hook sees clients and backends: ours is the first that packets
    // meet on their way in, and the last on their way out.
    let order = match hook.attach {
        TcAttachType::Egress => LinkOrder::last(),
        _ => LinkOrder::first(),
    };
    let options = TcAttachOptions::TcxOrder(order);
    let id = program.attach_with_options(&device.name, hook.attach, options)?;
    let link: FdLink = program.take_link(id)?.try_into()?;
    match fs::remove_file(pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    link.pin(pin)?;
    Ok(())
}

fn attach_filter(
    program: &mut SchedClassifier,
    hook: &Hook,
    interface: &str,
) -> Result<(), AttachError> {
    // One that is there already is an error, and serves as well.
    let qdisc = tc::qdisc_add_clsact(interface);
    let options = TcAttachOptions::Netlink(NlOptions {
        priority: PRIORITY,
        handle: HANDLE,
        classid: None,
    });
    let id = match program.attach_with_options(interface, hook.attach, options) {
        Ok(id) => id,
        Err(first) => {
            let place =
                SchedClassifierLink::attached(interface, hook.attach, PRIORITY, HANDLE, None)?;
            match program.attach_to_link(place) {
                Ok(id) => id,
                Err(_) => return Err(qdisc.err().map_or(first.into(), Into::into)),
            }
        }
    };
    // The filter is to stay, and a link of aya's takes it away when it is dropped.
    std::mem::forget(program.take_link(id)?);
    Ok(())
}

/// Removes the pins of links whose interfaces are gone.
fn remove_defunct(pins: &Pins) -> Result<(), StartError> {
    for link in device_links(pins)? {
        if link.interface == 0 {
            let path = pins.link(&link.pin);
            fs::remove_file(&path).map_err(StartError::io("remove", &path))?;
        }
    }
    Ok(())
}
