//! The packet programs on interfaces, as `sidestep status` shows them.

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use serde::Serialize;

use crate::datapath::DeviceLink;

/// A packet program's link to an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interface {
    /// Its name; `None` if it is gone, or in another network namespace than we are.
    pub(super) name: Option<String>,
    /// Its number; `None` if it is gone.
    pub(super) index: Option<u32>,
    /// `tc_ingress` or `tc_egress`.
    pub(super) hook: String,
    /// Link id.
    pub(super) link: u32,
    /// Id of the program inside.
    pub(super) program_id: u32,
}

/// Headings of [`Interface::row`].
pub(super) const COLUMNS: [&str; 5] = ["INTERFACE", "HOOK", "STATE", "LINK", "ID"];

impl Interface {
    /// Of a link, with the name that the calling thread's network namespace has for its interface.
    pub(super) fn of(link: &DeviceLink) -> Self {
        let index = (link.interface != 0).then_some(link.interface);
        Self {
            name: index.and_then(name_of),
            index,
            hook: link.pin.split('-').next().unwrap_or_default().to_owned(),
            link: link.id,
            program_id: link.program,
        }
    }

    /// One row of text.
    pub(super) fn row(&self) -> Vec<String> {
        let (name, state) = match (&self.name, self.index) {
            (Some(name), _) => (name.clone(), "attached"),
            (None, Some(index)) => (format!("number {index}"), "attached"),
            (None, None) => ("gone".to_owned(), "defunct"),
        };
        vec![
            name,
            self.hook.clone(),
            state.to_owned(),
            self.link.to_string(),
            self.program_id.to_string(),
        ]
    }
}

fn name_of(index: u32) -> Option<String> {
    // Any socket will do (netdevice(7)).
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::index_to_name(&socket, index).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(pin: &str, interface: u32) -> DeviceLink {
        DeviceLink {
            pin: pin.to_owned(),
            id: 4,
            program: 9,
            interface,
        }
    }

    #[test]
    fn an_interface_is_named_as_this_network_namespace_names_it() {
        // The first interface of each namespace is the loopback one.
        let row = Interface::of(&link("tc_ingress-1", 1)).row();
        assert_eq!(row, ["lo", "tc_ingress", "attached", "4", "9"]);
    }

    #[test]
    fn an_interface_that_is_elsewhere_or_gone_is_told_apart() {
        let row = Interface::of(&link("tc_egress-4000000", 4_000_000)).row();
        assert_eq!(row[..3], ["number 4000000", "tc_egress", "attached"]);
        let row = Interface::of(&link("tc_egress-7", 0)).row();
        assert_eq!(row[..3], ["gone", "tc_egress", "defunct"]);
    }
}
