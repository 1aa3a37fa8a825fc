//! `tests/acceptance.md` says what shows each line of kube-proxy's acceptance list; this says whether
//! all of that exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Lines of each kind.
const LINES: [(char, usize); 3] = [('U', 98), ('T', 111), ('E', 119)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What the list says of each line.
fn list() -> BTreeMap<String, String> {
    let path = root().join("tests/acceptance.md");
    let text = fs::read_to_string(path).expect("the list can be read");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = rows.filter_map(|row| Some((row.split_once(" | ")?.0, row.rsplit_once(" | ")?.1)));
    let mut list = BTreeMap::new();
    for (ids, shown_by) in rows.filter(|(ids, _)| *ids != "ID") {
        for id in ids.split(", ") {
            let before = list.insert(id.to_owned(), shown_by.to_owned());
            assert_eq!(before, None, "{id} is listed twice");
        }
    }
    list
}

/// What stands in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_line_of_the_acceptance_list_is_answered_once() {
    let list = list();
    let all: BTreeSet<String> = LINES
        .iter()
        .flat_map(|(kind, count)| (1..=*count).map(move |number| format!("{kind}{number}")))
        .collect();
    let listed: BTreeSet<String> = list.keys().cloned().collect();
    assert_eq!(listed, all);
    for (id, shown_by) in &list {
        assert!(!shown_by.trim().is_empty(), "{id} says nothing");
    }
}

#[test]
fn every_test_that_the_acceptance_list_names_exists() {
    for (id, shown_by) in list() {
        for name in quoted(&shown_by) {
            let (file, function) = match name.split_once(": ") {
                Some((file, function)) => (file, Some(function)),
                None => (name, None),
            };
            let text = fs::read_to_string(root().join(file));
            let text = text.unwrap_or_else(|error| panic!("{id}: {file}: {error}"));
            if let Some(function) = function {
                let found = text.contains(&format!("fn {function}("));
                assert!(found, "{id}: {file} has no function {function}");
            }
        }
    }
}

#[test]
fn every_scenario_is_named_at_the_lines_that_it_says_it_shows() {
    let list = list();
    let folder = root().join("tests/scenarios");
    for entry in fs::read_dir(folder).expect("the scenarios can be listed") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let name = format!("tests/scenarios/{}", name.expect("a name"));
        let text = fs::read_to_string(&path).expect("a scenario can be read");
        let ids = text.lines().filter_map(|line| line.strip_prefix("ids "));
        for id in ids.flat_map(|line| line.split(' ')) {
            let shown_by = list
                .get(id)
                .unwrap_or_else(|| panic!("{name}: no line {id}"));
            assert!(
                quoted(shown_by).any(|quoted| quoted == name),
                "{name} says that it shows {id}, whose line does not name it"
            );
        }
    }
}
