//! What `sidestep status` says, as data, text and JSON. Pure.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use proxy_common::{Counter, SettingValue};
use serde::Serialize;

use super::{
    interface::{self, Interface},
    link::{Link, LinkStatus},
};
use crate::{
    cli::table::table,
    datapath::{self, MapUsage},
};

/// State of a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// What does not serve as it should; empty: all is well.
    pub(super) problems: Vec<String>,
    agent: Agent,
    pins: PathBuf,
    schema: Option<u32>,
    /// Programs and their links.
    pub(super) links: Vec<Link>,
    /// Packet programs on interfaces, where links are used for that.
    pub(super) interfaces: Vec<Interface>,
    /// Maps by contract.
    pub(super) maps: Vec<Map>,
    features: Vec<Feature>,
    counters: Vec<Count>,
}

/// The agent, as far as the maps know.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Agent {
    running: bool,
    pid: Option<u32>,
    started_unix_ms: Option<u64>,
    started_seconds_ago: Option<u64>,
    last_sync_unix_ms: Option<u64>,
    last_sync_seconds_ago: Option<u64>,
}

/// A map and how full it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Map {
    name: &'static str,
    pinned: bool,
    id: Option<u32>,
    used: Option<usize>,
    entries: Option<u32>,
    help: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Feature {
    name: &'static str,
    since: &'static str,
    present: bool,
    without: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Count {
    name: &'static str,
    value: u64,
    help: &'static str,
}

impl Report {
    /// A report that knows nothing yet but whether an agent runs.
    pub(super) fn new(pins: &Path, running: bool) -> Self {
        Self {
            problems: Vec::new(),
            agent: Agent {
                running,
                ..Agent::default()
            },
            pins: pins.into(),
            schema: None,
            links: Vec::new(),
            interfaces: Vec::new(),
            maps: Vec::new(),
            features: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// Takes over what the agent has put on record; times are nanoseconds since the Unix epoch.
    pub(super) fn set_setting(&mut self, setting: Option<&SettingValue>, now: u64) {
        let Some(setting) = setting.filter(|setting| setting.schema != 0) else {
            return;
        };
        let millis = |nanos: u64| (nanos != 0).then_some(nanos / 1_000_000);
        let ago = |nanos: u64| (nanos != 0).then(|| now.saturating_sub(nanos) / 1_000_000_000);
        self.schema = Some(setting.schema);
        self.agent = Agent {
            running: self.agent.running,
            pid: Some(setting.agent),
            started_unix_ms: millis(setting.started),
            started_seconds_ago: ago(setting.started),
            last_sync_unix_ms: millis(setting.last_sync),
            last_sync_seconds_ago: ago(setting.last_sync),
        };
    }

    /// Takes over the counters.
    pub(super) fn set_counters(&mut self, counters: &BTreeMap<Counter, u64>) {
        self.counters = counters
            .iter()
            .map(|(counter, &value)| Count {
                name: counter.name(),
                value,
                help: counter.help(),
            })
            .collect();
    }

    /// Takes over what the kernel has.
    pub(super) fn set_features(&mut self, features: &[&datapath::Feature]) {
        self.features = features
            .iter()
            .map(|feature| Feature {
                name: feature.name,
                since: feature.since,
                present: feature.present,
                without: feature.without,
            })
            .collect();
    }

    /// Notes that the pins are of another version.
    pub(super) fn foreign(&mut self, error: &dyn fmt::Display) {
        self.problems.push(error.to_string());
    }

    /// Finds out what does not serve as it should.
    pub(super) fn judge(&mut self) {
        let missing: Vec<_> = self
            .maps
            .iter()
            .filter(|map| !map.pinned)
            .map(|map| map.name)
            .collect();
        let none = !missing.is_empty()
            && missing.len() == self.maps.len()
            && self
                .links
                .iter()
                .all(|link| matches!(link.status, LinkStatus::Missing));
        if none && self.problems.is_empty() {
            self.problems.push(format!(
                "{} holds nothing: `sidestep run` was never started here, or with another --bpffs",
                self.pins.display()
            ));
            return;
        }
        if !missing.is_empty() {
            self.problems.push(format!(
                "maps are missing ({}): restart the agent, it makes them anew",
                missing.join(", ")
            ));
        }
        let of = |wanted: fn(&LinkStatus) -> bool| {
            let names = self.links.iter().filter(|link| wanted(&link.status));
            names.map(|link| link.program).collect::<Vec<_>>()
        };
        let unattached = of(|status| matches!(status, LinkStatus::Missing));
        let defunct = of(|status| matches!(status, LinkStatus::Defunct { .. }));
        if !unattached.is_empty() {
            self.problems.push(format!(
                "programs are not attached ({}): restart the agent, it attaches them",
                unattached.join(", ")
            ));
        }
        if !defunct.is_empty() {
            self.problems.push(format!(
                "the cgroup of programs is gone, they see no sockets ({}): restart the agent, it attaches them anew",
                defunct.join(", ")
            ));
        }
        if !self.agent.running {
            self.problems.push(
                "no agent runs: what is in the maps keeps serving, but no longer follows the cluster"
                    .to_owned(),
            );
        }
        let agent = &self.agent;
        if agent.running && agent.last_sync_unix_ms < agent.started_unix_ms {
            self.problems
                .push("the agent has not been in sync since it started: see its log".to_owned());
        }
    }

    fn agent_line(&self) -> String {
        let agent = &self.agent;
        let pid = agent.pid.map(|pid| format!("pid {pid}, "));
        let started = agent
            .started_seconds_ago
            .map_or("never started".to_owned(), |ago| {
                format!("started {} ago", age(ago))
            });
        let state = if agent.running {
            "running"
        } else {
            "not running"
        };
        format!("{state} ({}{started})", pid.unwrap_or_default())
    }
}

impl From<&MapUsage> for Map {
    fn from(usage: &MapUsage) -> Self {
        Self {
            name: usage.spec.name,
            pinned: usage.pinned.is_some(),
            id: usage.pinned.map(|size| size.id),
            used: usage.pinned.and_then(|size| size.used),
            entries: usage.pinned.map(|size| size.entries),
            help: usage.spec.help,
        }
    }
}

impl Map {
    fn row(&self) -> Vec<String> {
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
        let full = match (self.used, self.entries) {
            (Some(used), Some(entries)) if entries > 0 => {
                format!("{}%", used * 100 / entries as usize)
            }
            _ => String::new(),
        };
        vec![
            self.name.to_owned(),
            if self.pinned { "pinned" } else { "missing" }.to_owned(),
            number(self.id.map(u64::from)),
            number(self.used.map(|used| used as u64)),
            number(self.entries.map(u64::from)),
            full,
        ]
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.schema.map(|schema| format!(", schema {schema}"));
        let sync = self
            .agent
            .last_sync_seconds_ago
            .map_or("never".to_owned(), |ago| format!("{} ago", age(ago)));
        writeln!(f, "agent      {}", self.agent_line())?;
        writeln!(f, "last sync  {sync}")?;
        writeln!(
            f,
            "pins       {}{}",
            self.pins.display(),
            schema.unwrap_or_default()
        )?;
        let columns = ["PROGRAM", "STATE", "LINK", "ID", "CGROUP"];
        write!(f, "\n{}", table(&columns, self.links.iter().map(Link::row)))?;
        if !self.interfaces.is_empty() {
            let rows = self.interfaces.iter().map(Interface::row);
            write!(f, "\n{}", table(&interface::COLUMNS, rows))?;
        }
        if !self.maps.is_empty() {
            let columns = ["MAP", "STATE", "ID", "USED", "ROOM", "FULL"];
            write!(f, "\n{}", table(&columns, self.maps.iter().map(Map::row)))?;
        }
        let columns = ["KERNEL FEATURE", "SINCE", "STATE"];
        let rows = self.features.iter().map(|feature| {
            let state = if feature.present {
                "present"
            } else {
                "missing"
            };
            [feature.name, feature.since, state]
                .map(str::to_owned)
                .to_vec()
        });
        write!(f, "\n{}", table(&columns, rows))?;
        let counts: Vec<_> = self
            .counters
            .iter()
            .filter(|count| count.value > 0)
            .collect();
        if !counts.is_empty() {
            let rows = counts.iter().map(|count| {
                vec![
                    count.name.to_owned(),
                    count.value.to_string(),
                    count.help.to_owned(),
                ]
            });
            write!(f, "\n{}", table(&["COUNTER", "VALUE", "MEANING"], rows))?;
        }
        let degraded: Vec<_> = self
            .features
            .iter()
            .filter(|feature| !feature.present)
            .collect();
        if !degraded.is_empty() {
            writeln!(f, "\ndegraded, since this kernel lacks something:")?;
            for feature in degraded {
                writeln!(
                    f,
                    "- {} (since Linux {}): {}",
                    feature.name, feature.since, feature.without
                )?;
            }
        }
        if self.problems.is_empty() {
            return writeln!(f, "\nall is well");
        }
        writeln!(f, "\nproblems:")?;
        for problem in &self.problems {
            writeln!(f, "- {problem}")?;
        }
        Ok(())
    }
}

/// A number of seconds as people say it: its two largest units.
fn age(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let first = units
        .iter()
        .position(|(_, length)| seconds >= *length)
        .unwrap_or(units.len() - 1);
    let mut rest = seconds;
    let mut text = String::new();
    for (name, length) in units.iter().skip(first).take(2) {
        let number = rest / length;
        rest %= length;
        if number > 0 || text.is_empty() {
            text.push_str(&format!("{number}{name}"));
        }
    }
    text
}

#[cfg(test)]
mod tests;
