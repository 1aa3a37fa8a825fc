//! Rules for text: length, names, module docs, white space, paths of somebody's machine.

use super::{Document, Finding};

/// Above this a file is worth splitting.
const LONG: usize = 400;
/// Above this it has to be split.
const TOO_LONG: usize = 600;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "helpers", "helper", "misc", "types", "common",
];
/// Folders that exist only on the machine of whoever wrote the line.
const MACHINE_FOLDERS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/wo", "rk/"),
    concat!("/tmp/", "wt/"),
];

pub(super) fn check(document: &Document) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Written by cargo.
    if document.name() == "Cargo.lock" {
        return findings;
    }
    if document.path.ends_with(".rs") {
        findings.extend(length(document));
        findings.extend(name(document));
        findings.extend(module_doc(document));
    }
    findings.extend(white_space(document));
    findings.extend(machine_paths(document));
    findings
}

fn length(document: &Document) -> Option<Finding> {
    let lines = document.text.lines().count();
    if lines > TOO_LONG {
        let text = format!("{lines} lines; more than {TOO_LONG} are too many, split it");
        return Some(document.error(0, text));
    }
    (lines > LONG).then(|| document.warning(0, format!("{lines} lines; {LONG} are enough")))
}

fn name(document: &Document) -> Option<Finding> {
    let stem = document.name().strip_suffix(".rs")?;
    EMPTY_NAMES.contains(&stem).then(|| {
        document.error(
            0,
            format!("`{stem}` says nothing; name it by what is inside"),
        )
    })
}

fn module_doc(document: &Document) -> Option<Finding> {
    let first = document.text.lines().find(|line| !line.trim().is_empty())?;
    (!first.starts_with("//!"))
        .then(|| document.error(1, "no module doc (`//!`): what is it, why here?"))
}

fn white_space(document: &Document) -> Vec<Finding> {
    let mut findings: Vec<Finding> = document
        .lines()
        .filter(|(_, line)| line.ends_with([' ', '\t', '\r']))
        .map(|(number, _)| document.error(number, "white space at the end of the line"))
        .collect();
    if !document.text.is_empty() && !document.text.ends_with('\n') {
        findings.push(document.error(0, "no newline at the end of the file"));
    }
    findings
}

fn machine_paths(document: &Document) -> Vec<Finding> {
    document
        .lines()
        .filter_map(|(number, line)| {
            let folder = MACHINE_FOLDERS
                .iter()
                .find(|folder| starts_a_path(line, folder))?;
            Some(document.error(
                number,
                format!("{folder} is a folder of somebody's machine"),
            ))
        })
        .collect()
}

/// Whether the line has an absolute path under this folder, and not only a longer path that
/// contains its name.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"._-/~}$".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(path: &str, text: &str) -> Vec<String> {
        let document = Document {
            path: path.into(),
            text: text.into(),
        };
        check(&document).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_as_it_should_be_has_no_findings() {
        assert_eq!(rust("a/noun.rs", "//! A noun.\n\nstruct Noun;\n"), [""; 0]);
    }

    #[test]
    fn a_long_file_is_a_warning_and_a_very_long_one_an_error() {
        let lines = |count: usize| format!("//! Doc.\n{}", "\n".repeat(count - 1));
        assert_eq!(rust("a.rs", &lines(400)), [""; 0]);
        assert!(rust("a.rs", &lines(401))[0].starts_with("warning: a.rs: 401 lines"));
        assert!(rust("a.rs", &lines(601))[0].starts_with("a.rs: 601 lines"));
    }

    #[test]
    fn a_name_that_says_nothing_is_refused() {
        assert!(rust("net/utils.rs", "//! Doc.\n")[0].contains("`utils` says nothing"));
        assert_eq!(rust("net/utilisation.rs", "//! Doc.\n"), [""; 0]);
    }

    #[test]
    fn a_module_without_a_doc_is_refused() {
        assert!(rust("a.rs", "use std::fmt;\n")[0].contains("no module doc"));
    }

    #[test]
    fn white_space_at_the_end_and_a_missing_newline_are_found() {
        assert_eq!(
            rust("a.rs", "//! Doc. \n"),
            ["a.rs:1: white space at the end of the line"]
        );
        assert_eq!(
            rust("a.md", "text"),
            ["a.md: no newline at the end of the file"]
        );
    }

    #[test]
    fn a_path_of_a_machine_is_found_in_any_text() {
        let path = concat!("see /ho", "me/jo/x\n");
        assert!(rust("notes.md", path)[0].contains("somebody's machine"));
        assert!(rust("a.sh", concat!("cd /wo", "rk/main\n"))[0].starts_with("a.sh:1: "));
    }

    #[test]
    fn a_longer_path_with_such_a_name_inside_is_no_machine_path() {
        assert_eq!(
            rust("a.md", concat!("docs/ro", "ot/x and $X/wo", "rk/y\n")),
            [""; 0]
        );
    }
}
