//! What the demo prints: numbered steps, the commands behind them, what they found.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal as _},
};

use lab::report::Summary;

/// Lines of a command's output that are shown at most.
const LONGEST: usize = 30;

/// The demo's output, to stdout.
#[derive(Debug)]
pub(crate) struct Show {
    colour: bool,
    step: usize,
}

impl Show {
    pub(crate) fn new() -> Self {
        let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { colour, step: 0 }
    }

    /// A new step, and in a sentence what it is about.
    pub(crate) fn step(&mut self, title: &str, about: &str) {
        self.step += 1;
        let title = self.paint("1", &format!("{:2}. {title}", self.step));
        println!("\n{title}\n    {}", wrapped(about, 4));
    }

    /// A command that a reader could type.
    pub(crate) fn command(&self, command: &str) {
        println!("    {}", self.paint("36", &format!("$ {command}")));
    }

    /// What a command printed.
    pub(crate) fn output(&self, text: &str) {
        self.beginning(text, LONGEST);
    }

    /// The first lines of what a command printed.
    pub(crate) fn beginning(&self, text: &str, most: usize) {
        let lines: Vec<&str> = text.trim_end().lines().collect();
        for line in lines.iter().take(most) {
            println!("      {line}");
        }
        if let Some(more) = lines.len().checked_sub(most).filter(|&more| more > 0) {
            println!("      … {more} more lines");
        }
    }

    /// Something that held, as a sentence.
    pub(crate) fn holds(&self, what: &str) {
        println!("    {} {}", self.paint("32", "✓"), wrapped(what, 6));
    }

    /// Something that did not.
    pub(crate) fn fails(&self, what: &str) {
        println!("    {} {what}", self.paint("31", "✗"));
    }

    /// Who answered how often.
    pub(crate) fn distribution(&self, summary: &Summary) {
        let most = summary.servers.values().copied().max().unwrap_or(1).max(1);
        for (server, count) in &summary.servers {
            let bar = "█".repeat(usize::try_from(count * 40 / most).unwrap_or(0));
            println!("      {server:10} {count:5}  {}", self.paint("34", &bar));
        }
        if summary.failed > 0 {
            println!(
                "      failed     {:5}  {:?}",
                summary.failed,
                errors(&summary.errors)
            );
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Error names with their numbers on one line.
pub(crate) fn errors(errors: &BTreeMap<String, u64>) -> String {
    let all: Vec<_> = errors
        .iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    all.join(", ")
}

/// Breaks a sentence into lines of up to 92 characters; all but the first are indented.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > 92 {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words_and_indented() {
        let text = wrapped(&"four ".repeat(30), 4);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].len(), 18 * 5 - 1);
        assert!(lines[1].starts_with("    four"), "{text}");
    }
}
