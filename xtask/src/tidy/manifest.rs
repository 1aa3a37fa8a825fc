//! Rule for the manifests of members: every dependency comes from the workspace, version once.

use super::{Document, Finding};

pub(super) fn check(document: &Document) -> Vec<Finding> {
    // The root's is the one that holds the versions.
    if document.name() != "Cargo.toml" || document.path == "Cargo.toml" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut section = Section::Other;
    for (number, line) in document.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[') {
            findings.extend(section.end(document));
            section = Section::new(header.trim_end_matches(']'), number);
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            findings.extend(section.entry(key, value).then(|| {
                document.error(number, format!("`{key}` must be `{key}.workspace = true`"))
            }));
        }
    }
    findings.extend(section.end(document));
    findings
}

/// Where in the manifest a line stands.
enum Section {
    /// `[dependencies]`, `[target.….dev-dependencies]`: an entry per line.
    Dependencies,
    /// `[dependencies.name]`: one dependency, to which all lines belong.
    Dependency {
        name: String,
        line: usize,
        from_workspace: bool,
    },
    Other,
}

impl Section {
    fn new(header: &str, line: usize) -> Self {
        let last = header.rsplit('.').next().unwrap_or_default();
        if last.ends_with("dependencies") {
            return Section::Dependencies;
        }
        match header
            .strip_suffix(last)
            .map(|before| before.trim_end_matches('.'))
        {
            Some(before) if before.ends_with("dependencies") => Section::Dependency {
                name: last.to_owned(),
                line,
                from_workspace: false,
            },
            _ => Section::Other,
        }
    }

    /// Whether this entry is a dependency with a version of its own.
    fn entry(&mut self, key: &str, value: &str) -> bool {
        match self {
            Section::Dependencies => {
                let dotted = key.ends_with(".workspace") && value == "true";
                !dotted && !value.replace(' ', "").contains("workspace=true")
            }
            Section::Dependency { from_workspace, .. } => {
                *from_workspace |= key == "workspace" && value == "true";
                false
            }
            Section::Other => false,
        }
    }

    fn end(&self, document: &Document) -> Option<Finding> {
        match self {
            Section::Dependency {
                name,
                line,
                from_workspace: false,
            } => Some(document.error(*line, format!("`{name}` must have `workspace = true`"))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let document = Document {
            path: path.into(),
            text: text.into(),
        };
        check(&document).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_of_the_workspace_are_accepted_in_every_form() {
        let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true # why\n\
                    b = { workspace = true, features = [\"f\"] }\n\
                    [target.'cfg(unix)'.dev-dependencies]\nc.workspace = true\n\
                    [build-dependencies.d]\nworkspace = true\n";
        assert_eq!(findings("m/Cargo.toml", text), [""; 0]);
    }

    #[test]
    fn a_version_of_its_own_is_refused_in_every_form() {
        let text = "[dependencies]\na = \"1\"\nb = { path = \"../b\" }\n\
                    [dev-dependencies.c]\nversion = \"1\"\n[lints]\nworkspace = true\n";
        assert_eq!(
            findings("m/Cargo.toml", text),
            [
                "m/Cargo.toml:2: `a` must be `a.workspace = true`",
                "m/Cargo.toml:3: `b` must be `b.workspace = true`",
                "m/Cargo.toml:4: `c` must have `workspace = true`",
            ]
        );
    }

    #[test]
    fn the_manifest_of_the_workspace_may_hold_versions() {
        assert_eq!(
            findings("Cargo.toml", "[dependencies]\na = \"1\"\n"),
            [""; 0]
        );
    }
}
