//! Ports that the kernel gives to no socket that did not ask for them.
//!
//! `net.ipv4.ip_local_reserved_ports` is a list of the network namespace, for both families, that
//! others may use too. What is there stays; what we add is taken out again by `sidestep cleanup`.

use std::{collections::BTreeSet, fmt, fs, io, path::Path, str::FromStr};

/// The setting, in the namespace of the process that opens it.
const PATH: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

/// Ports from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last; not below the first.
    pub last: u16,
}

impl PortRange {
    /// How many they are.
    pub const fn count(self) -> u16 {
        self.last - self.first + 1
    }

    fn ports(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no range of ports: write FIRST-LAST, from 1 to 65535");
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let port = |text: &str| text.parse::<u16>().map_err(|_| wrong());
        let (first, last) = (port(first)?, port(last)?);
        // Fewer would be used up by a handful of clients; and all of them are more than a count.
        if first == 0 || last < first || last - first < 63 || last - first == u16::MAX {
            return Err(format!(
                "{text:?} is no range of ports for SNAT: it must have 64 ports or more"
            ));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Reserves ports. `false`: some of them were reserved already, by somebody else, so that nothing
/// should be given back.
///
/// # Errors
///
/// If the setting cannot be read or written.
pub fn reserve(ports: PortRange) -> io::Result<bool> {
    let mut list = read(Path::new(PATH))?;
    let before = list.len();
    list.extend(ports.ports());
    let is_ours = list.len() == before + usize::from(ports.count());
    write(Path::new(PATH), &list)?;
    Ok(is_ours)
}

/// Gives ports back that [`reserve`] said are ours.
///
/// # Errors
///
/// If the setting cannot be read or written.
pub fn give_back(ports: PortRange) -> io::Result<()> {
    let mut list = read(Path::new(PATH))?;
    list.retain(|port| !(ports.first..=ports.last).contains(port));
    write(Path::new(PATH), &list)
}

fn read(path: &Path) -> io::Result<BTreeSet<u16>> {
    parse(&fs::read_to_string(path)?)
}

fn write(path: &Path, list: &BTreeSet<u16>) -> io::Result<()> {
    // The kernel takes an empty line for an empty list (kernel/sysctl.c, `proc_do_large_bitmap`).
    fs::write(path, format(list) + "\n")
}

fn parse(text: &str) -> io::Result<BTreeSet<u16>> {
    let wrong = || io::Error::other(format!("{:?} is no list of ports", text.trim()));
    let mut list = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u16 = first.parse().map_err(|_| wrong())?;
        let last: u16 = last.parse().map_err(|_| wrong())?;
        list.extend(first..=last);
    }
    Ok(list)
}

fn format(list: &BTreeSet<u16>) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for &port in list {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(port) => *last = port,
            _ => ranges.push((port, port)),
        }
    }
    let ranges = ranges.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_as_they_are_read() {
        for text in ["", "8080", "8080,9148", "1-3,5,65535", "16384-29999"] {
            assert_eq!(format(&parse(text).unwrap()), text);
        }
        assert_eq!(format(&parse("5,1-3,4\n").unwrap()), "1-5");
        assert!(parse("many").is_err());
        assert!(parse("1-70000").is_err());
    }

    #[test]
    fn a_range_of_snat_ports_is_not_too_small_and_names_its_fault() {
        let range: PortRange = "16384-29999".parse().unwrap();
        assert_eq!(
            (range.count(), range.to_string()),
            (13_616, "16384-29999".to_owned())
        );
        for text in ["", "1", "0-100", "5-4", "100-120", "a-b", "1-70000"] {
            let error = text.parse::<PortRange>().unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
