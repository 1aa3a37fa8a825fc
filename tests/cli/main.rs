//! The commands on real pins, each test on a bpffs and in a cgroup of its own.
//!
//! Needs root and the object that `cargo xtask build-ebpf` makes; [`contract`] also bpftool.

mod contract;
mod latch;
mod place;

use std::{fs, thread, time::Duration};

use place::Place;
use proxy_agent::{
    cli::Exit,
    datapath::{Kernel, PROGRAMS},
};
use proxy_common::{Counter, map};

#[test]
fn a_node_that_was_never_served_says_so() {
    let place = Place::new();
    let (text, exit) = place.sidestep(&["status"]).expect("a status");
    assert_eq!(exit, Exit::Degraded);
    assert!(
        text.contains("holds nothing: `sidestep run` was never"),
        "{text}"
    );
    assert!(text.contains("not running (never started)"), "{text}");
    let sentence = place.sidestep(&["services"]).expect_err("no pins");
    assert!(sentence.contains("holds no Sidestep maps"), "{sentence}");
    let sentence = place.sidestep(&["dump", "frontend"]).expect_err("no pins");
    assert!(sentence.starts_with("dump map frontend: "), "{sentence}");
    assert!(place.print(&["cleanup"]).starts_with("nothing to remove: "));
}

#[test]
fn a_folder_that_is_on_no_bpffs_is_told_from_a_node_that_was_never_served() {
    for command in [&["status"][..], &["services"], &["dump", "frontend"]] {
        let sentence = Place::sidestep_at(&std::env::temp_dir(), command).expect_err("no bpffs");
        assert!(sentence.contains("is not on a bpffs: mount"), "{sentence}");
    }
}

#[test]
fn status_tells_whether_a_node_is_served() {
    let place = Place::served();
    let pins = place.pins();
    let problems = |exit: Exit| {
        let (text, is) = place.sidestep(&["status", "-o", "json"]).expect("a status");
        assert_eq!(is, exit, "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        json["problems"].to_string()
    };
    assert!(problems(Exit::Degraded).contains("no agent runs"));

    let lock = pins.lock().expect("the lock");
    assert!(problems(Exit::Degraded).contains("has not been in sync"));
    let mut kernel = Kernel::open(&pins).expect("open");
    kernel.stamp_sync(2_000_000_000).expect("stamp");
    assert_eq!(problems(Exit::Success), "[]");

    let text = place.print(&["status"]);
    let cgroup = place.cgroup().display().to_string();
    for spec in &PROGRAMS {
        let attached = text.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(spec.name)
                && words.next() == Some("attached")
                && words.last() == Some(&cgroup)
        });
        assert!(attached, "{} in {text}", spec.name);
    }
    assert!(text.contains("all is well"), "{text}");

    fs::remove_file(pins.link("connect4")).expect("remove a link");
    let text = problems(Exit::Degraded);
    assert!(text.contains("not attached (connect4)"), "{text}");
    fs::remove_file(pins.map("masq")).expect("remove a map");
    let text = problems(Exit::Degraded);
    assert!(text.contains("maps are missing (masq)"), "{text}");
    fs::remove_dir(place.cgroup()).expect("remove the cgroup");
    // The kernel detaches some time after the folder is gone (kernel/bpf/cgroup.c,
    // `cgroup_bpf_offline`).
    let mut text = String::new();
    for _ in 0..200 {
        text = problems(Exit::Degraded);
        if text.contains("the cgroup of programs is gone") {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!(text.contains("the cgroup of programs is gone"), "{text}");
    drop(lock);
}

#[test]
fn status_of_pins_of_another_schema_says_what_they_are() {
    let place = Place::served();
    let pins = place.pins();
    let data = aya::maps::MapData::from_pin(pins.map("setting")).expect("the pin");
    let mut setting =
        aya::maps::Array::<_, proxy_common::SettingValue>::try_from(aya::maps::Map::Array(data))
            .expect("an array");
    let mut value = setting.get(&0, 0).expect("a value");
    value.schema = 99;
    setting.set(0, value, 0).expect("write");
    let (text, exit) = place.sidestep(&["status"]).expect("a status");
    assert_eq!(exit, Exit::Degraded);
    assert!(text.contains("have schema 99"), "{text}");
    // The way out that the sentence names works on them.
    assert!(place.print(&["cleanup"]).contains("removed"));
}

#[test]
fn services_are_listed_from_the_pins_alone() {
    let place = Place::served();
    let expected = "\
SERVICE           ADDRESS           PROTO  KIND                 SCHEDULER  WEIGHT  STATE        CONNECTIONS
default/web:http  10.96.0.10:80     TCP    ClusterIP            random             serving
default/web:http  *:30080           TCP    NodePort             random             serving
default/web:http  192.0.2.7:80      TCP    LoadBalancer ranges  random             packet-path
                  -> 10.1.0.4:8080         remote                          1       active       4
";
    assert_eq!(place.print(&["services"]), expected);
    assert_eq!(place.print(&["services", "default/web:http"]), expected);
    let json = place.json(&["services", "web"]);
    assert_eq!(json[0]["backends"][0]["connections"], 4);
    assert_eq!(json[0]["frontends"][2]["sourceRanges"][0], "10.0.0.0/8");
    let sentence = place.sidestep(&["services", "default/nothing"]);
    assert_eq!(
        sentence.expect_err("no such Service"),
        "no Service matches default/nothing: `sidestep services` lists all"
    );
}

#[test]
fn every_map_is_dumped_or_says_why_not() {
    let place = Place::served();
    let expected = place::dumps();
    for spec in map::ALL {
        match spec.name {
            "sock" | "event" => {
                let sentence = place.sidestep(&["dump", spec.name]).expect_err("unlisted");
                assert!(sentence.contains("cannot be listed"), "{sentence}");
            }
            "counter" => {
                let json = place.json(&["dump", "counter"]);
                let cpus = aya::util::nr_cpus().expect("the number of CPUs");
                assert_eq!(json.as_array().map(Vec::len), Some(Counter::ALL.len()));
                assert_eq!(json[0]["counter"], "socket_translated");
                assert_eq!(json[0]["value"], 2 * cpus);
            }
            name => {
                let pid = std::process::id().to_string();
                let expected = expected[name].replace("PID", &pid);
                assert_eq!(place.print(&["dump", name]).trim_end(), expected);
                let json = place.json(&["dump", name]);
                let entries = json.as_array().map(Vec::len);
                assert_eq!(entries, Some(expected.lines().count()), "{name}");
            }
        }
    }
    let sentence = place.sidestep(&["dump", "frontends"]).expect_err("no map");
    assert!(
        sentence.contains("there is no map \"frontends\""),
        "{sentence}"
    );
}

#[test]
fn cleanup_refuses_beside_an_agent_then_removes_everything_once() {
    let place = Place::served();
    let pins = place.pins();
    let lock = pins.lock().expect("the lock");
    let sentence = place.sidestep(&["cleanup"]).expect_err("an agent runs");
    assert!(
        sentence.contains("stop it first; nothing was removed"),
        "{sentence}"
    );
    assert!(pins.link("connect4").exists() && pins.is_complete());
    drop(lock);

    let text = place.print(&["cleanup"]);
    let removed = |path: std::path::PathBuf| {
        let line = format!("removed {}", path.display());
        text.lines().position(|is| is == line)
    };
    for name in PROGRAMS.iter().map(|spec| spec.name) {
        assert!(removed(pins.link(name)).is_some(), "{name} in {text}");
        assert!(removed(pins.link(name)) <= removed(pins.link("sock_release")));
    }
    assert!(removed(pins.link("connect4")) < removed(pins.link("recvmsg4")));
    for spec in map::ALL {
        assert!(removed(pins.map(spec.name)) > removed(pins.link("sock_release")));
    }
    assert!(!pins.folder().exists());
    assert!(place.print(&["cleanup"]).starts_with("nothing to remove: "));
    assert_eq!(
        place.json(&["cleanup"]),
        serde_json::json!({ "removed": [] })
    );
}
