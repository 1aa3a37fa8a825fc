//! Scenario files: what they say.
//!
//! A file has commands first, one a line, then sections that start with `-- NAME --` (the form of
//! Go's txtar). `README.md` in this folder explains the commands.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use ipnet::IpNet;
use proxy_agent::datapath::Sizes;
use proxy_common::{Protocol, map};

/// One scenario.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    path: PathBuf,
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// Line numbers and what stands there.
    pub(crate) commands: Vec<(usize, Command)>,
    /// In the order of the file.
    sections: Vec<(String, String)>,
    head: String,
}

/// What holds for the whole scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Acceptance lines that it shows.
    pub(crate) ids: Vec<String>,
    pub(crate) sizes: Sizes,
    /// The outcome depends on the order of events or on what fails: neither is varied.
    pub(crate) in_order: bool,
    pub(crate) node_ports: Vec<IpNet>,
    pub(crate) no_localhost: bool,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    Apply { section: String, file: String },
    Delete(String),
    Zone(Option<String>),
    Addresses(Vec<std::net::IpAddr>),
    Restart,
    Maps(String),
    Warns(String),
    Writes(usize),
    Connect(Connect),
    Open { name: String, connect: Connect },
    Ask { name: String, outcome: Outcome },
}

/// A client's try.
#[derive(Clone, Debug)]
pub(crate) struct Connect {
    pub(crate) from: Client,
    pub(crate) to: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) outcome: Outcome,
}

/// Where a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// In a network namespace of its own.
    Pod,
    /// In the node's.
    Node,
}

/// What becomes of a client's tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Each of them reaches one of these, and each of these is reached.
    Spread(BTreeSet<SocketAddr>),
    /// All of them reach the same one of these.
    Sticky(BTreeSet<SocketAddr>),
    /// Connection refused.
    Refused,
    /// An error of another kind.
    Dropped,
    /// No Service's: the kernel goes on as if we were not there.
    Untouched,
}

impl Script {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)?;
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let mut script = Self {
            path: path.into(),
            name: name.context("name of the file")?.into(),
            settings: Settings::default(),
            commands: Vec::new(),
            sections: Vec::new(),
            head: String::new(),
        };
        for (index, line) in text.lines().enumerate() {
            let section = line
                .strip_prefix("-- ")
                .and_then(|rest| rest.strip_suffix(" --"));
            if let Some(name) = section {
                script.sections.push((name.into(), String::new()));
            } else if let Some((_, text)) = script.sections.last_mut() {
                *text += line;
                text.push('\n');
            } else {
                script.head += line;
                script.head.push('\n');
                script
                    .line(index + 1, line)
                    .with_context(|| format!("{}:{}: {line}", path.display(), index + 1))?;
            }
        }
        ensure!(
            script.head.starts_with("# "),
            "{}: the first line is a comment that says what is shown",
            path.display()
        );
        Ok(script)
    }

    /// Text of a section.
    pub(crate) fn section(&self, name: &str) -> anyhow::Result<&str> {
        let section = self.sections.iter().find(|(other, _)| other == name);
        let (_, text) = section.with_context(|| format!("no section -- {name} --"))?;
        Ok(text)
    }

    /// Writes the file again, with other texts for some sections.
    pub(crate) fn update(&mut self, texts: BTreeMap<String, String>) -> anyhow::Result<()> {
        for (name, text) in texts {
            match self.sections.iter_mut().find(|(other, _)| *other == name) {
                Some((_, old)) => *old = text,
                None => self.sections.push((name, text)),
            }
        }
        let sections = self
            .sections
            .iter()
            .map(|(name, text)| format!("-- {name} --\n{text}"));
        let text = self.head.clone() + &sections.collect::<String>();
        Ok(fs::write(&self.path, text)?)
    }

    fn line(&mut self, number: usize, line: &str) -> anyhow::Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((&verb, rest)) = words.split_first() else {
            return Ok(());
        };
        let settings = &mut self.settings;
        let command = match (verb, rest) {
            (comment, _) if comment.starts_with('#') => return Ok(()),
            ("ids", ids) => {
                settings.ids.extend(ids.iter().map(|&id| id.into()));
                return Ok(());
            }
            ("sizes", pairs) => {
                for pair in pairs {
                    let (name, entries) = pair.split_once('=').context("write MAP=N")?;
                    let spec = map::ALL.iter().find(|spec| spec.name == name);
                    settings
                        .sizes
                        .insert(spec.context("no such map")?.name, entries.parse()?);
                }
                return Ok(());
            }
            ("in-order", []) => {
                settings.in_order = true;
                return Ok(());
            }
            ("node-ports", cidrs) => {
                for cidr in cidrs {
                    settings.node_ports.push(cidr.parse()?);
                }
                return Ok(());
            }
            ("no-localhost", []) => {
                settings.no_localhost = true;
                return Ok(());
            }
            ("apply", [section]) => Command::Apply {
                section: (*section).into(),
                file: (*section).into(),
            },
            ("apply", [section, "as", file]) => Command::Apply {
                section: (*section).into(),
                file: (*file).into(),
            },
            ("delete", [file]) => Command::Delete((*file).into()),
            ("zone", ["-"]) => Command::Zone(None),
            ("zone", [zone]) => Command::Zone(Some((*zone).into())),
            ("addresses", ips) => {
                let ips = ips.iter().map(|ip| ip.parse());
                Command::Addresses(ips.collect::<Result<_, _>>()?)
            }
            ("restart", []) => Command::Restart,
            ("maps", [section]) => Command::Maps((*section).into()),
            ("warns", [_, ..]) => Command::Warns(rest.join(" ")),
            ("writes", [count]) => Command::Writes(count.parse()?),
            ("connect", rest) => Command::Connect(connect(rest)?),
            ("open", [name, rest @ ..]) => Command::Open {
                name: (*name).into(),
                connect: connect(rest)?,
            },
            ("ask", [name, rest @ ..]) => Command::Ask {
                name: (*name).into(),
                outcome: outcome(rest)?,
            },
            _ => bail!("no such command"),
        };
        self.commands.push((number, command));
        Ok(())
    }
}

fn connect(words: &[&str]) -> anyhow::Result<Connect> {
    let [from, to, rest @ ..] = words else {
        bail!("write FROM ADDRESS:PORT/PROTOCOL OUTCOME");
    };
    let (to, protocol) = to.split_once('/').context("write ADDRESS:PORT/PROTOCOL")?;
    Ok(Connect {
        from: match *from {
            "pod" => Client::Pod,
            "node" => Client::Node,
            _ => bail!("a client is a pod or the node"),
        },
        to: to.parse()?,
        protocol: match protocol {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            _ => bail!("clients speak TCP or UDP"),
        },
        outcome: outcome(rest)?,
    })
}

fn outcome(words: &[&str]) -> anyhow::Result<Outcome> {
    let addresses = |words: &[&str]| -> anyhow::Result<BTreeSet<SocketAddr>> {
        ensure!(!words.is_empty(), "who answers?");
        let addresses = words.iter().map(|word| word.parse());
        Ok(addresses.collect::<Result<_, _>>()?)
    };
    Ok(match words {
        ["refused"] => Outcome::Refused,
        ["dropped"] => Outcome::Dropped,
        ["untouched"] => Outcome::Untouched,
        ["sticky", words @ ..] => Outcome::Sticky(addresses(words)?),
        words => Outcome::Spread(addresses(words)?),
    })
}
