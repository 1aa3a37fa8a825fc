//! Rules for Markdown: relative links lead somewhere, decisions have a number each.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use super::{Document, Finding};

const DECISIONS: &str = "docs/decisions/";

/// Links to files of the checkout that are not there; `exists` is asked with paths from its root.
pub(super) fn check_links(document: &Document, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    if !document.path.ends_with(".md") {
        return Vec::new();
    }
    let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    let mut in_code = false;
    for (number, line) in document.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in link_targets(line) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains(':') {
                continue;
            }
            match normal(&folder.join(path)) {
                Some(path) if exists(&path) => {}
                _ => findings.push(document.error(number, format!("the link to {target} is dead"))),
            }
        }
    }
    findings
}

/// Decision records that lack a number or share it.
pub(super) fn check_decisions(documents: &[Document]) -> Vec<Finding> {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    let mut findings = Vec::new();
    for document in documents
        .iter()
        .filter(|document| document.path.starts_with(DECISIONS))
    {
        let name = document.name();
        if !name.ends_with(".md") || name == "README.md" {
            continue;
        }
        let number = name.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            findings.push(document.error(0, "the name must be NNNN-what.md"));
        } else if let Some(other) = seen.insert(number, name) {
            findings.push(document.error(0, format!("{other} has the same number")));
        }
    }
    findings
}

/// What stands in `](…)` and in `[name]: …`, outside of code spans.
fn link_targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let outside_code = line.split('`').step_by(2);
    for part in outside_code {
        let links = part.split("](").skip(1);
        targets.extend(links.filter_map(|rest| rest.split([')', ' ']).next()));
    }
    if let Some((name, target)) = line.split_once("]: ")
        && name.starts_with('[')
    {
        targets.extend(target.split_whitespace().next());
    }
    targets
}

/// Resolves `..`; nothing for a path that leaves the checkout or is absolute.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(path: &str, text: &str, files: &[&str]) -> Vec<String> {
        let document = Document {
            path: path.into(),
            text: text.into(),
        };
        let exists = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        check_links(&document, exists)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_relative_link_to_a_file_that_is_there_is_accepted() {
        let text = "[a](b.md#part) and ![c](../d.png)\n[e]: b.md\n[f](#here) [g](https://x.y/z)\n";
        assert_eq!(dead("docs/a.md", text, &["docs/b.md", "d.png"]), [""; 0]);
    }

    #[test]
    fn a_dead_link_is_found_in_each_form() {
        let text = "[a](gone.md), [b](also/gone.md#x)\n[c]: gone.md\n[d](../../out.md)\n";
        assert_eq!(
            dead("docs/a.md", text, &["gone.md"]),
            [
                "docs/a.md:1: the link to gone.md is dead",
                "docs/a.md:1: the link to also/gone.md#x is dead",
                "docs/a.md:2: the link to gone.md is dead",
                "docs/a.md:3: the link to ../../out.md is dead",
            ]
        );
    }

    #[test]
    fn code_is_not_searched_for_links() {
        assert_eq!(dead("a.md", "`x[0](y)`\n```\n[a](b)\n```\n", &[]), [""; 0]);
    }

    #[test]
    fn decisions_must_have_a_number_each() {
        let decision = |name: &str| Document {
            path: format!("{DECISIONS}{name}"),
            text: "x\n".into(),
        };
        let good = [
            decision("0001-a.md"),
            decision("0002-b.md"),
            decision("README.md"),
        ];
        assert_eq!(check_decisions(&good), []);
        let bad = [
            decision("0001-a.md"),
            decision("0001-b.md"),
            decision("c.md"),
        ];
        let findings: Vec<String> = check_decisions(&bad)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            findings,
            [
                "docs/decisions/0001-b.md: 0001-a.md has the same number",
                "docs/decisions/c.md: the name must be NNNN-what.md",
            ]
        );
    }
}
