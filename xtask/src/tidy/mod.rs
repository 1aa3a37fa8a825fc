//! `tidy`: the house rules that a program can check.
//!
//! Every check is a pure function from text to findings, so each has a test that it can fail.
//! Must not change files: it says what is wrong and where.

mod document;
mod manifest;
mod source;

use std::{fmt, fs, path::Path};

use anyhow::{Context, Result, bail};
use xshell::cmd;

use crate::workspace::{Workspace, program};

/// Something to put right, or to think about.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    /// Line from 1; 0 where the whole file is meant.
    line: usize,
    text: String,
    severity: Severity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Warning,
    Error,
}

/// One file of the checkout, as text.
struct Document {
    /// Path from the root, with `/`.
    path: String,
    text: String,
}

/// Checks every file that git tracks or would track; fails when a rule is broken.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let documents = documents(workspace)?;
    let findings = findings(&documents, &workspace.root);
    for finding in &findings {
        eprintln!("  {finding}");
    }
    let broken = findings
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .count();
    eprintln!("  {} files read, {broken} rules broken", documents.len());
    if broken > 0 {
        bail!("{broken} house rules are broken, see above");
    }
    checkers(workspace)
}

fn findings(documents: &[Document], root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for document in documents {
        findings.extend(source::check(document));
        findings.extend(manifest::check(document));
        findings.extend(document::check_links(document, |path| {
            root.join(path).exists()
        }));
    }
    findings.extend(document::check_decisions(documents));
    findings
}

/// Checkers from elsewhere, where they are installed: building them takes longer than the tests.
fn checkers(workspace: &Workspace) -> Result<()> {
    let shell = &workspace.shell;
    match program("cargo-deny") {
        Some(deny) => cmd!(shell, "{deny} --offline check bans licenses sources")
            .run()
            .context("check dependencies against deny.toml")?,
        None => eprintln!("  not checked: deny.toml (`cargo install --locked cargo-deny`)"),
    }
    match program("typos") {
        Some(typos) => cmd!(shell, "{typos}").run().context("check spelling")?,
        None => eprintln!("  not checked: spelling (`cargo install --locked typos-cli`)"),
    }
    Ok(())
}

fn documents(workspace: &Workspace) -> Result<Vec<Document>> {
    let list = cmd!(
        workspace.shell,
        "git ls-files -z --cached --others --exclude-standard"
    );
    let list = list
        .quiet()
        .read()
        .context("list the files of the checkout")?;
    let mut documents = Vec::new();
    for path in list.split_terminator('\0') {
        let file = workspace.root.join(path);
        // A file that was deleted and not yet committed, or a link to a folder.
        if !file.is_file() {
            continue;
        }
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        // What is not text has no lines to check.
        if let Ok(text) = String::from_utf8(bytes) {
            documents.push(Document {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(documents)
}

impl Document {
    fn error(&self, line: usize, text: impl Into<String>) -> Finding {
        let (file, text) = (self.path.clone(), text.into());
        Finding {
            file,
            line,
            text,
            severity: Severity::Error,
        }
    }

    fn warning(&self, line: usize, text: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Warning,
            ..self.error(line, text)
        }
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Lines with their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .split('\n')
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning: ",
            Severity::Error => "",
        };
        match self.line {
            0 => write!(f, "{severity}{}: {}", self.file, self.text),
            line => write!(f, "{severity}{}:{line}: {}", self.file, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_file_line_and_sentence() {
        let document = Document {
            path: "a/b.rs".into(),
            text: String::new(),
        };
        assert_eq!(
            document.error(3, "is wrong").to_string(),
            "a/b.rs:3: is wrong"
        );
        assert_eq!(
            document.warning(0, "is long").to_string(),
            "warning: a/b.rs: is long"
        );
    }

    #[test]
    fn the_findings_of_every_check_come_together() {
        let documents = [
            Document {
                path: "x/utils.rs".into(),
                text: "//! Doc.\n".into(),
            },
            Document {
                path: "x/Cargo.toml".into(),
                text: "[dependencies]\na = \"1\"\n".into(),
            },
            Document {
                path: "README.md".into(),
                text: "[a](missing.md)\n".into(),
            },
            Document {
                path: "docs/decisions/0001-a.md".into(),
                text: "# 1. A\n".into(),
            },
            Document {
                path: "docs/decisions/0001-b.md".into(),
                text: "# 1. B\n".into(),
            },
        ];
        let files: Vec<String> = findings(&documents, Path::new("/nonexistent"))
            .into_iter()
            .map(|finding| finding.file)
            .collect();
        let expected = [
            "x/utils.rs",
            "x/Cargo.toml",
            "README.md",
            "docs/decisions/0001-b.md",
        ];
        assert_eq!(files, expected);
    }
}
