//! Folders of manifests: whole, broken, half-written, changing.

use std::os::unix::fs::symlink;

use super::*;
use crate::model::{Change, Dirty, Node, ServiceName, SliceName, Store, Warning};

/// A folder, the source on it, and a store that takes the changes in.
struct Bench {
    dir: tempfile::TempDir,
    manifests: Manifests,
    events: mpsc::Receiver<Event>,
    store: Store,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (sender, events) = mpsc::channel(1024);
        let settings = settings();
        Self {
            manifests: Manifests::new(dir.path(), &settings, sender),
            dir,
            events,
            store: store(),
        }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).expect("write a file");
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.dir.path().join(name)).expect("remove a file");
    }

    /// Looks, takes all changes into the store, and returns all events.
    fn look(&mut self) -> Vec<Event> {
        assert!(self.manifests.look(None).is_ok(), "the reader is there");
        let events: Vec<Event> = std::iter::from_fn(|| self.events.try_recv().ok()).collect();
        for event in &events {
            if let Event::Change(change) = event {
                self.store.apply(change.clone());
            }
        }
        events
    }

    /// Looks once; the Services that there are then, and what was warned of.
    fn state(&mut self) -> (Vec<String>, Vec<Warning>) {
        let events = self.look();
        let warnings = events.into_iter().filter_map(|event| match event {
            Event::Warning(warning) => Some(warning),
            _ => None,
        });
        let warnings = warnings.collect();
        (self.services(), warnings)
    }

    fn services(&self) -> Vec<String> {
        let mut names: Vec<String> = self.store.services().map(|s| s.name.to_string()).collect();
        names.sort();
        names
    }

    fn port(&self, name: &str) -> u16 {
        let service = self.store.service(&ServiceName::new("default", name));
        service.expect("the Service").ports[0].port
    }
}

fn settings() -> Settings {
    Settings {
        node_name: "n1".into(),
        external_ips: true,
    }
}

fn store() -> Store {
    Store::new(Node {
        name: "n1".into(),
        zone: None,
    })
}

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
         spec: {{clusterIP: 10.0.0.1, ports: [{{port: {port}}}]}}\n"
    )
}

fn slice(name: &str, service: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}, \
         labels: {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\n\
         ports: [{{port: 8080}}]\nendpoints: [{{addresses: [10.1.0.1]}}]\n"
    )
}

#[test]
fn full_lists_come_first_and_single_changes_after() {
    let mut bench = Bench::new();
    bench.write(
        "a.yaml",
        &format!("{}---\n{}", service("a", 80), slice("a-1", "a")),
    );
    let events = bench.look();
    assert!(
        matches!(
            &events[..],
            [Event::Change(Change::Services(services)), Event::Change(Change::Slices(slices))]
            if services.len() == 1 && slices.len() == 1
        ),
        "{events:?}"
    );
    assert!(bench.store.is_complete());

    bench.write("b.yml", &service("b", 80));
    let events = bench.look();
    assert!(
        matches!(&events[..], [Event::Change(Change::Service(s))] if &*s.name.name == "b"),
        "{events:?}"
    );
    assert_eq!(bench.look(), []);
}

#[test]
fn an_empty_folder_is_a_complete_cluster() {
    let mut bench = Bench::new();
    bench.look();
    assert!(bench.store.is_complete());
    assert_eq!(bench.services(), [""; 0]);
}

#[test]
fn only_what_changed_in_a_file_is_reported() {
    let mut bench = Bench::new();
    let file = |port| {
        format!(
            "{}---\n{}---\n{}",
            service("a", 80),
            service("b", port),
            slice("a-1", "a")
        )
    };
    bench.write("all.yaml", &file(80));
    bench.look();
    bench.write("all.yaml", &file(81));
    let events = bench.look();
    assert!(
        matches!(&events[..], [Event::Change(Change::Service(s))] if &*s.name.name == "b"),
        "{events:?}"
    );
}

#[test]
fn a_removed_file_takes_its_objects_along() {
    let mut bench = Bench::new();
    bench.write(
        "a.yaml",
        &format!("{}---\n{}", service("a", 80), slice("a-1", "a")),
    );
    bench.write(
        "b.json",
        r#"{"kind": "List", "apiVersion": "v1", "items": []}"#,
    );
    bench.look();
    bench.remove("a.yaml");
    assert_eq!(
        bench.look(),
        [
            Event::Change(Change::ServiceGone(ServiceName::new("default", "a"))),
            Event::Change(Change::SliceGone(SliceName::new("default", "a-1"))),
        ]
    );
}

#[test]
fn an_object_removed_from_its_file_is_gone() {
    let mut bench = Bench::new();
    bench.write(
        "a.yaml",
        &format!("{}---\n{}", service("a", 80), service("b", 80)),
    );
    bench.look();
    bench.write("a.yaml", &service("b", 80));
    bench.look();
    assert_eq!(bench.services(), ["default/b"]);
}

#[test]
fn a_half_written_file_keeps_its_last_good_objects() {
    let mut bench = Bench::new();
    let whole = format!("{}---\n{}", service("a", 80), service("b", 80));
    bench.write("a.yaml", &whole);
    bench.write("c.yaml", &service("c", 80));
    bench.look();

    // Cut inside of the second Service's ports.
    bench.write("a.yaml", &whole[..whole.len() - 8]);
    bench.write("c.yaml", &service("c", 81));
    let (services, warnings) = bench.state();
    assert_eq!(services, ["default/a", "default/b", "default/c"]);
    assert_eq!(bench.port("c"), 81, "the other file is served");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(
        warnings[0].object,
        bench.dir.path().join("a.yaml").display().to_string()
    );
    assert!(warnings[0].reason.starts_with("line "), "{}", warnings[0]);
    assert!(warnings[0].reason.contains("column "), "{}", warnings[0]);
    assert!(
        warnings[0]
            .reason
            .ends_with("what it held before stays in force"),
        "{}",
        warnings[0]
    );
    assert_eq!(bench.look(), [], "said once");

    bench.write("a.yaml", &service("a", 82));
    let events = bench.look();
    assert!(
        events.contains(&Event::Resolved(warnings[0].object.clone())),
        "{events:?}"
    );
    assert_eq!(bench.services(), ["default/a", "default/c"]);
    assert_eq!(bench.port("a"), 82);
}

#[test]
fn a_truncated_file_keeps_its_last_good_objects() {
    let mut bench = Bench::new();
    bench.write("a.yaml", &service("a", 80));
    bench.look();
    bench.write("a.yaml", "");
    let (services, warnings) = bench.state();
    assert_eq!(services, ["default/a"]);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].reason.starts_with("it is empty"),
        "{}",
        warnings[0]
    );
    bench.write("a.yaml", "# nothing any more\n");
    assert_eq!(bench.state().0, [""; 0]);
}

#[test]
fn an_object_that_became_unreadable_keeps_its_last_good_state() {
    let mut bench = Bench::new();
    bench.write("a.yaml", &service("a", 80));
    bench.look();
    bench.write(
        "a.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: nonsense\n",
    );
    let (services, warnings) = bench.state();
    assert_eq!(services, ["default/a"]);
    assert_eq!(bench.port("a"), 80);
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].object, "Service default/a in a.yaml");
    bench.write("a.yaml", &service("a", 81));
    bench.look();
    assert_eq!(bench.port("a"), 81);
}

#[test]
fn a_service_that_became_headless_is_gone() {
    let mut bench = Bench::new();
    bench.write("a.yaml", &service("a", 80));
    bench.look();
    bench.write("a.yaml", &service("a", 80).replace("10.0.0.1", "None"));
    assert_eq!(bench.state(), (vec![], vec![]));
}

#[test]
fn of_an_object_in_two_files_the_first_by_name_counts() {
    let mut bench = Bench::new();
    bench.write("b.yaml", &service("a", 2));
    assert_eq!(bench.state(), (vec!["default/a".into()], vec![]));

    bench.write("a.yaml", &service("a", 1));
    let (_, warnings) = bench.state();
    assert_eq!(bench.port("a"), 1);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].object, "Service default/a in b.yaml");
    assert_eq!(
        warnings[0].reason,
        "is in a.yaml too, which counts; it is skipped"
    );

    // A change of the one that does not count changes nothing.
    bench.write("b.yaml", &service("a", 3));
    assert_eq!(bench.look(), []);

    // Its turn comes when the first is gone, although its own file did not change then.
    bench.remove("a.yaml");
    let events = bench.look();
    assert!(
        events.contains(&Event::Resolved("Service default/a in b.yaml".into())),
        "{events:?}"
    );
    assert!(
        !events
            .iter()
            .any(|e| matches!(e, Event::Change(Change::ServiceGone(_))))
    );
    assert_eq!(bench.port("a"), 3);
}

#[test]
fn the_second_file_stays_out_while_it_cannot_be_read_and_comes_in_when_it_can() {
    let mut bench = Bench::new();
    bench.write("a.yaml", &service("a", 1));
    bench.write("b.yaml", &service("a", 2));
    bench.look();
    bench.write("b.yaml", "{");
    bench.remove("a.yaml");
    bench.look();
    assert_eq!(bench.port("a"), 1, "the last good state");
    bench.write("b.yaml", &service("a", 2));
    bench.look();
    assert_eq!(bench.port("a"), 2);
}

#[test]
fn an_object_that_is_twice_in_one_file_counts_once() {
    let mut bench = Bench::new();
    bench.write(
        "a.yaml",
        &format!("{}---\n{}", service("a", 1), service("a", 2)),
    );
    let (_, warnings) = bench.state();
    assert_eq!(bench.port("a"), 1);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].reason, "is there twice; the first counts");
}

#[test]
fn other_kinds_are_ignored_with_one_warning_per_file() {
    let mut bench = Bench::new();
    let pod = "apiVersion: v1\nkind: Pod\n";
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nspec: [odd]\n";
    bench.write(
        "a.yaml",
        &[pod, deployment, pod, &service("a", 80)].join("---\n"),
    );
    let (services, warnings) = bench.state();
    assert_eq!(services, ["default/a"]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0]
            .reason
            .starts_with("holds apps/v1 Deployment, v1 Pod: ignored")
    );
}

#[test]
fn a_faulty_object_costs_only_itself() {
    let mut bench = Bench::new();
    let bad = "apiVersion: v1\nkind: Service\nmetadata: {name: [x]}\n";
    bench.write("a.yaml", &format!("{bad}---\n{}", service("a", 80)));
    let (services, warnings) = bench.state();
    assert_eq!(services, ["default/a"]);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].object, "Service default/? in a.yaml");
    bench.remove("a.yaml");
    bench.look();
    assert_eq!(bench.services(), [""; 0]);
}

#[test]
fn the_zone_is_that_of_the_node_with_our_name() {
    let mut bench = Bench::new();
    let node = |name: &str, zone: &str| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, \
             labels: {{topology.kubernetes.io/zone: {zone}}}}}\n"
        )
    };
    bench.write(
        "nodes.yaml",
        &format!("{}---\n{}", node("n2", "x"), node("n1", "a")),
    );
    bench.look();
    assert_eq!(bench.store.node().zone.as_deref(), Some("a"));
    bench.write("nodes.yaml", &node("n1", "b"));
    let events = bench.look();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(bench.store.node().zone.as_deref(), Some("b"));
    bench.remove("nodes.yaml");
    assert_eq!(bench.look(), [], "that a Node is gone changes nothing");
}

#[test]
fn dot_files_other_files_and_folders_are_not_read() {
    let mut bench = Bench::new();
    bench.write(".a.yaml", "{");
    bench.write("a.yaml~", "{");
    bench.write("notes.txt", "{");
    fs::create_dir(bench.dir.path().join("sub.yaml")).expect("make a folder");
    bench.write("sub.yaml/a.yaml", &service("a", 80));
    assert_eq!(bench.state(), (vec![], vec![]));
}

#[test]
fn a_folder_that_vanishes_changes_nothing_until_it_is_back() {
    let mut bench = Bench::new();
    bench.write("a.yaml", &service("a", 80));
    bench.look();
    let away = bench.dir.path().with_extension("away");
    fs::rename(bench.dir.path(), &away).expect("move the folder");
    let events = bench.look();
    assert!(
        matches!(
            &events[..],
            [Event::Watch(WatchState { lost: Some(_), .. })]
        ),
        "{events:?}"
    );
    assert_eq!(bench.look(), [], "said once");
    assert_eq!(bench.services(), ["default/a"]);
    fs::rename(&away, bench.dir.path()).expect("move it back");
    let events = bench.look();
    assert!(
        matches!(&events[..], [Event::Watch(WatchState { lost: None, .. })]),
        "{events:?}"
    );
}

#[test]
fn the_symlink_swap_of_a_config_map_is_one_change() {
    let mut bench = Bench::new();
    let root = bench.dir.path().to_owned();
    let version = |name: &str, port: u16| {
        fs::create_dir(root.join(name)).expect("make a folder");
        fs::write(root.join(name).join("a.yaml"), service("a", port)).expect("write");
        fs::write(root.join(name).join("b.yaml"), service("b", port)).expect("write");
        symlink(name, root.join("..data_tmp")).expect("link");
        fs::rename(root.join("..data_tmp"), root.join("..data")).expect("swap");
    };
    version("..2026_1", 1);
    for name in ["a.yaml", "b.yaml"] {
        symlink(format!("..data/{name}"), root.join(name)).expect("link");
    }
    bench.look();
    assert_eq!((bench.port("a"), bench.port("b")), (1, 1));
    version("..2026_2", 2);
    assert_eq!(bench.look().len(), 2);
    assert_eq!((bench.port("a"), bench.port("b")), (2, 2));
}

#[test]
fn a_missing_folder_is_an_error_that_names_it() {
    let (sender, _events) = mpsc::channel(1);
    let error = spawn_manifests(Path::new("/nonexistent/manifests"), &settings(), sender)
        .expect_err("no such folder");
    assert!(
        error.to_string().contains("/nonexistent/manifests"),
        "{error}"
    );
}

/// Takes events until the store looks as wanted; fails after a time that no machine needs.
fn wait(
    events: &mut mpsc::Receiver<Event>,
    store: &mut Store,
    what: &str,
    done: impl Fn(&Store) -> bool,
) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done(store) {
        match events.try_recv() {
            Ok(Event::Change(change)) => {
                let _: Dirty = store.apply(change);
            }
            Ok(_) => {}
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
        assert!(Instant::now() < deadline, "{what}: {:?}", store.counts());
    }
}

#[test]
fn live_edits_are_seen_and_the_thread_ends_with_its_reader() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (sender, mut events) = mpsc::channel(4);
    let handle = spawn_manifests(dir.path(), &settings(), sender).expect("starts");
    let mut store = store();
    let file = dir.path().join("a.yaml");
    let name = ServiceName::new("default", "a");
    let port = |store: &Store| store.service(&name).map(|service| service.ports[0].port);

    wait(
        &mut events,
        &mut store,
        "the empty folder",
        Store::is_complete,
    );
    for i in 1..=20 {
        fs::write(&file, service("a", i)).expect("write");
        wait(&mut events, &mut store, "a new file or edit", |store| {
            port(store) == Some(i)
        });
    }
    let other = dir.path().join(".a.tmp");
    fs::write(&other, service("a", 99)).expect("write");
    fs::rename(&other, &file).expect("replace the file");
    wait(&mut events, &mut store, "a replaced file", |store| {
        port(store) == Some(99)
    });
    fs::remove_file(&file).expect("remove");
    wait(&mut events, &mut store, "a removed file", |store| {
        port(store).is_none()
    });

    drop(events);
    fs::write(&file, service("a", 1)).expect("write");
    handle.join().expect("ends without a panic");
}

#[test]
fn a_file_that_is_half_written_at_the_start_is_waited_for() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("a.yaml");
    fs::write(&file, "").expect("write");
    let (sender, mut events) = mpsc::channel(16);
    let mut manifests = Manifests::new(dir.path(), &settings(), sender);
    let write = || fs::write(&file, service("a", 80)).expect("write");
    assert!(manifests.look(Some(&write)).is_ok());
    let mut store = store();
    wait(
        &mut events,
        &mut store,
        "the first list",
        Store::is_complete,
    );
    assert_eq!(store.services().count(), 1);
}
