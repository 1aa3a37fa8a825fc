//! `sidestep generate`: shell completions and man pages.

use std::{fs, io::Write, path::PathBuf};

use anyhow::Context as _;
use clap::{CommandFactory as _, Subcommand};
use clap_complete::Shell;

use super::{Cli, Exit};

/// What `sidestep generate` makes.
#[derive(Debug, Subcommand)]
pub enum Generate {
    /// Completions for a shell: `source <(sidestep generate completions bash)`.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Man pages.
    Man {
        /// Write one page per command here; without it the main page goes to standard output.
        folder: Option<PathBuf>,
    },
}

/// Prints or writes it.
pub(super) fn run(what: &Generate, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut command = Cli::command();
    match what {
        Generate::Completions { shell } => {
            // clap_complete panics when a write fails, so it writes to memory.
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "sidestep", &mut script);
            out.write_all(&script)?;
        }
        Generate::Man { folder: None } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            out.write_all(&page)?;
        }
        Generate::Man {
            folder: Some(folder),
        } => {
            fs::create_dir_all(folder)
                .with_context(|| format!("create folder {}", folder.display()))?;
            clap_mangen::generate_to(command, folder)
                .with_context(|| format!("write man pages to {}", folder.display()))?;
        }
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(what: &Generate) -> String {
        let mut out = Vec::new();
        run(what, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn completions_know_the_commands_in_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = output(&Generate::Completions { shell });
            for command in ["status", "services", "dump", "cleanup"] {
                assert!(script.contains(command), "{shell}: {command}");
            }
        }
    }

    #[test]
    fn the_man_page_has_commands_and_exit_codes() {
        let page = output(&Generate::Man { folder: None });
        for text in [".TH sidestep 1", "sidestep\\-services(1)", "Exit codes:"] {
            assert!(page.contains(text), "{text} in {page}");
        }
    }
}
