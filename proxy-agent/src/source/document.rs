//! Manifest files: from text to slim objects.
//!
//! YAML and JSON, several documents in one file, lists of several kinds. A file is read whole or
//! not at all, so that a half-written one changes nothing.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{
    field::{Field, object},
    node::{NodeBody, SlimNode},
    service::{self, ServiceBody, SlimService},
    slice::{self, SliceBody, SlimSlice},
    slim::Metadata,
};

/// What a file holds, in its order.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) services: Vec<SlimService>,
    pub(crate) slices: Vec<SlimSlice>,
    pub(crate) nodes: Vec<SlimNode>,
    /// Kinds that are not read here, as `apps/v1 Deployment`.
    pub(crate) others: BTreeSet<String>,
    /// Documents that are no objects: what they are.
    pub(crate) odd: Vec<String>,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Yaml,
    Json,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("line {line}, column {column}: {text}")]
    At {
        line: u64,
        column: u64,
        text: String,
    },
    #[error("{0}")]
    Whole(String),
    #[error("it is empty")]
    Empty,
}

impl Format {
    /// By the end of a file's name; `None`: not a manifest. Dot files never are.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name.rsplit_once('.')? {
            ("", _) => None,
            (stem, _) if stem.starts_with('.') => None,
            (_, "yaml" | "yml") => Some(Self::Yaml),
            (_, "json") => Some(Self::Json),
            _ => None,
        }
    }

    /// The objects in a text.
    pub(crate) fn parse(self, text: &[u8]) -> Result<Contents, ParseError> {
        // An editor or a shell that has just truncated the file; whoever wants its objects gone
        // removes the file.
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err(ParseError::Empty);
        }
        let documents = match self {
            Self::Yaml => yaml(text)?,
            Self::Json => json(text)?,
        };
        let mut contents = Contents::default();
        for document in documents {
            contents.add(document, None);
        }
        Ok(contents)
    }
}

/// Any document: the fields of all kinds that are read, none of which two kinds use differently.
#[derive(Clone, Debug, Default, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Document {
    api_version: Field<String>,
    kind: Field<String>,
    metadata: Field<Metadata>,
    items: Field<Vec<Field<Document>>>,
    spec: Field<service::Spec>,
    status: Field<service::Status>,
    address_type: Field<String>,
    endpoints: Field<Vec<Field<slice::SlimEndpoint>>>,
    ports: Field<Vec<Field<slice::Port>>>,
}

object!(Document);

impl Contents {
    /// Sorts a document in. `of` is the kind that its list says of its items.
    fn add(&mut self, document: Field<Document>, of: Option<(&str, &str)>) {
        let document = match document {
            Field::Is(document) => document,
            Field::Odd(found) => return self.odd.push(found.into()),
            Field::Absent => return,
        };
        let own = (document.api_version.get(), document.kind.get());
        let (version, kind) = match (own, of) {
            ((Some(version), Some(kind)), _) => (version.as_str(), kind.as_str()),
            (_, Some(of)) => of,
            ((version, kind), None) => (
                version.map_or("", String::as_str),
                kind.map_or("", String::as_str),
            ),
        };
        match (version, kind) {
            ("v1", "List" | "ServiceList" | "NodeList")
            | ("discovery.k8s.io/v1", "EndpointSliceList") => {
                let (version, kind) = (version.to_owned(), kind.to_owned());
                let of = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
                if let Field::Odd(found) = &document.items {
                    self.odd.push(format!("a {kind} whose items are {found}"));
                }
                if let Field::Is(items) = document.items {
                    for item in items {
                        self.add(item, of.map(|kind| (version.as_str(), kind)));
                    }
                }
            }
            ("v1", "Service") => {
                let body = ServiceBody {
                    metadata: document.metadata,
                    spec: document.spec,
                    status: document.status,
                };
                self.services.push(Field::Is(body).into());
            }
            ("discovery.k8s.io/v1", "EndpointSlice") => {
                let body = SliceBody {
                    metadata: document.metadata,
                    address_type: document.address_type,
                    endpoints: document.endpoints,
                    ports: document.ports,
                };
                self.slices.push(Field::Is(body).into());
            }
            ("v1", "Node") => {
                let body = NodeBody {
                    metadata: document.metadata,
                };
                self.nodes.push(Field::Is(body).into());
            }
            ("", "") => self
                .odd
                .push("an object without apiVersion and kind".into()),
            (version, kind) => {
                self.others
                    .insert(format!("{version} {kind}").trim().to_owned());
            }
        }
    }
}

fn yaml(text: &[u8]) -> Result<Vec<Field<Document>>, ParseError> {
    let text = std::str::from_utf8(text).map_err(|error| ParseError::Whole(error.to_string()))?;
    // The bounds that stop alias bombs stay; those on plain size would stop a large cluster.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 100_000_000,
            max_nodes: 100_000_000,
            max_documents: 1_000_000,
            max_total_scalar_bytes: 1 << 30,
            max_total_comment_bytes: 1 << 30,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        match error.location() {
            Some(location) => ParseError::At {
                line: location.line(),
                column: location.column(),
                text: without_place(&error.without_snippet().to_string()),
            },
            None => ParseError::Whole(error.to_string()),
        }
    })
}

fn json(text: &[u8]) -> Result<Vec<Field<Document>>, ParseError> {
    serde_json::Deserializer::from_slice(text)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|error| ParseError::At {
            line: error.line() as u64,
            column: error.column() as u64,
            text: without_place(&error.to_string()),
        })
}

/// Both parsers end some of their texts with the place, which is said already.
fn without_place(text: &str) -> String {
    text.rfind(" at line ")
        .map_or(text, |end| &text[..end])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n";
    const SLICE: &str =
        "kind: EndpointSlice\napiVersion: discovery.k8s.io/v1\nmetadata: {name: a}\n";

    fn counts(format: Format, text: &str) -> (usize, usize, usize, usize) {
        let contents = format.parse(text.as_bytes()).expect("parses");
        (
            contents.services.len(),
            contents.slices.len(),
            contents.nodes.len(),
            contents.others.len() + contents.odd.len(),
        )
    }

    fn error(format: Format, text: &str) -> String {
        format
            .parse(text.as_bytes())
            .expect_err("fails")
            .to_string()
    }

    #[test]
    fn only_yaml_and_json_files_are_manifests_and_dot_files_are_not() {
        assert_eq!(Format::of("a.yaml"), Some(Format::Yaml));
        assert_eq!(Format::of("a.b.yml"), Some(Format::Yaml));
        assert_eq!(Format::of("a.json"), Some(Format::Json));
        for name in [
            "a",
            "a.yaml~",
            ".a.yaml.swp",
            ".yaml",
            ".a.yaml",
            "..data",
            "README.md",
            "",
        ] {
            assert_eq!(Format::of(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_file_can_hold_several_documents_and_empty_ones() {
        let yaml = format!("---\n---\n{SERVICE}---\n# nothing\n---\n{SLICE}---\n{SERVICE}...\n");
        assert_eq!(counts(Format::Yaml, &yaml), (2, 1, 0, 0));
        let json = r#"{"apiVersion":"v1","kind":"Service"} {"apiVersion":"v1","kind":"Node"}"#;
        assert_eq!(counts(Format::Json, json), (1, 0, 1, 0));
    }

    #[test]
    fn lists_of_all_kinds_are_unpacked() {
        let list = r#"{"kind":"List","apiVersion":"v1","items":[
            {"kind":"Service","apiVersion":"v1"},
            {"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1"},
            {"kind":"List","apiVersion":"v1","items":[{"kind":"Node","apiVersion":"v1"}]}]}"#;
        assert_eq!(counts(Format::Json, list), (1, 1, 1, 0));
        let list = r#"{"items":[{},{}],"kind":"ServiceList","apiVersion":"v1"}"#;
        assert_eq!(counts(Format::Json, list), (2, 0, 0, 0));
        let list =
            "kind: EndpointSliceList\napiVersion: discovery.k8s.io/v1\nitems: [{}, {}, {}]\n";
        assert_eq!(counts(Format::Yaml, list), (0, 3, 0, 0));
    }

    #[test]
    fn other_kinds_and_versions_are_named_not_read() {
        let yaml = "{apiVersion: apps/v1, kind: Deployment}\n---\n\
                    {apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice}\n---\n\
                    {apiVersion: apps/v1, kind: Deployment}\n---\n5\n---\n{a: b}\n";
        let contents = Format::Yaml.parse(yaml.as_bytes()).expect("parses");
        let others: Vec<&str> = contents.others.iter().map(String::as_str).collect();
        assert_eq!(
            others,
            [
                "apps/v1 Deployment",
                "discovery.k8s.io/v1beta1 EndpointSlice"
            ]
        );
        assert_eq!(contents.odd, ["5", "an object without apiVersion and kind"]);
    }

    #[test]
    fn an_unparsable_file_says_line_and_column() {
        let yaml = format!("{SERVICE}spec:\n  ports: [\n");
        let text = error(Format::Yaml, &yaml);
        assert_eq!(text, "line 5, column 10: unclosed bracket '['");
        let json = "{\"apiVersion\": \"v1\",\n \"kind\": Service}";
        let text = error(Format::Json, json);
        assert_eq!(text, "line 2, column 10: expected value");
        assert!(error(Format::Yaml, "a: 1\na: 2\n").starts_with("line 2, column 1"));
    }

    #[test]
    fn an_empty_file_is_half_written() {
        for text in ["", "\n", "  \n\t"] {
            assert_eq!(error(Format::Yaml, text), "it is empty");
            assert_eq!(error(Format::Json, text), "it is empty");
        }
        assert_eq!(counts(Format::Yaml, "# nothing to serve\n"), (0, 0, 0, 0));
    }

    #[test]
    fn a_file_that_is_not_text_is_refused() {
        let error = Format::Yaml.parse(&[0xff, 0xfe, 0x00]).expect_err("fails");
        assert!(error.to_string().contains("utf-8"), "{error}");
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut yaml = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let alias = format!("*a{}", i - 1);
            yaml += &format!("a{i}: &a{i} [{}]\n", vec![alias; 10].join(", "));
        }
        Format::Yaml.parse(yaml.as_bytes()).expect_err("fails");
    }
}
