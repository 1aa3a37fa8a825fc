//! What `sidestep status` says about each state.

use proxy_common::map;

use super::*;
use crate::datapath::{self, MapSize};

const SECOND: u64 = 1_000_000_000;

fn feature(present: bool) -> datapath::Feature {
    datapath::Feature {
        name: "bpf_set_retval",
        since: "5.18",
        present,
        without: "refused connections fail with EPERM",
    }
}

/// A node on which all is well; `running`, `features` and `links` as a test wants them.
fn report(running: bool, present: bool, links: Vec<Link>) -> Report {
    let mut report = Report::new(Path::new("/sys/fs/bpf/sidestep"), running);
    let setting = SettingValue {
        schema: 1,
        agent: 42,
        node_netns: 1,
        started: 1_000 * SECOND,
        last_sync: 4_997 * SECOND,
        ..SettingValue::default()
    };
    report.set_setting(Some(&setting), 5_000 * SECOND);
    report.links = links;
    let size = |id, used, entries| Some(MapSize { id, used, entries });
    report.maps = [
        (map::FRONTEND, size(7, Some(131_072), 524_288)),
        (map::COUNTER, size(8, None, 10)),
    ]
    .map(|(spec, pinned)| Map::from(&MapUsage { spec, pinned }))
    .into();
    report.set_features(&[&feature(present)]);
    report.set_counters(&BTreeMap::from([
        (Counter::SocketTranslated, 5),
        (Counter::SocketRefused, 0),
    ]));
    report.judge();
    report
}

fn attached(path: Option<&str>) -> Link {
    Link {
        program: "connect4",
        role: "chooses",
        status: LinkStatus::Attached {
            link: 3,
            program_id: 9,
            cgroup: 77,
            path: path.map(PathBuf::from),
        },
    }
}

fn broken(status: LinkStatus) -> Link {
    Link {
        program: "connect6",
        role: "chooses",
        status,
    }
}

#[test]
fn a_node_on_which_all_is_well_has_no_problems() {
    let text = report(true, true, vec![attached(Some("/sys/fs/cgroup"))]).to_string();
    let expected = "\
agent      running (pid 42, started 1h6m ago)
last sync  3s ago
pins       /sys/fs/bpf/sidestep, schema 1

PROGRAM   STATE     LINK  ID  CGROUP
connect4  attached  3     9   /sys/fs/cgroup

MAP       STATE   ID  USED    ROOM    FULL
frontend  pinned  7   131072  524288  25%
counter   pinned  8   -       10

KERNEL FEATURE  SINCE  STATE
bpf_set_retval  5.18   present

COUNTER            VALUE  MEANING
socket_translated  5      Sockets that were given a backend.

all is well
";
    assert_eq!(text, expected);
}

#[test]
fn each_problem_is_a_sentence_with_what_to_do() {
    let links = vec![
        attached(None),
        broken(LinkStatus::Missing),
        broken(LinkStatus::Defunct {
            link: 4,
            program_id: 10,
        }),
    ];
    let mut report = report(false, false, links);
    let text = report.to_string();
    for line in [
        "connect4  attached  3     9   inode 77",
        "connect6  missing   -     -",
        "connect6  defunct   4     10  gone",
        "- bpf_set_retval (since Linux 5.18): refused connections fail with EPERM",
        "- programs are not attached (connect6): restart the agent, it attaches them",
        "- no agent runs: what is in the maps keeps serving, but no longer follows the cluster",
    ] {
        assert!(text.lines().any(|is| is == line), "{line}\nin\n{text}");
    }
    assert_eq!(report.problems.len(), 3);
    report.problems.clear();
    report.maps[0].pinned = false;
    report.judge();
    assert!(report.problems[0].starts_with("maps are missing (frontend)"));
}

#[test]
fn a_node_that_was_never_served_has_one_problem_and_not_one_per_missing_thing() {
    let mut report = report(false, true, vec![broken(LinkStatus::Missing)]);
    report.problems.clear();
    for map in &mut report.maps {
        map.pinned = false;
    }
    report.judge();
    assert_eq!(report.problems.len(), 1);
    assert!(report.problems[0].contains("holds nothing"));
}

#[test]
fn a_missing_kernel_feature_is_degraded_but_no_problem() {
    let report = report(true, false, vec![attached(None)]);
    assert!(report.problems.is_empty());
    assert!(report.to_string().contains("degraded, since this kernel"));
}

#[test]
fn an_agent_that_never_came_into_sync_is_a_problem_also_after_an_earlier_one_did() {
    let mut report = Report::new(Path::new("/sys/fs/bpf/sidestep"), true);
    let mut setting = SettingValue {
        schema: 1,
        agent: 42,
        node_netns: 1,
        started: 20 * SECOND,
        last_sync: 10 * SECOND,
        ..SettingValue::default()
    };
    for (last_sync, problems) in [(0, 1), (10 * SECOND, 1), (20 * SECOND, 0)] {
        setting.last_sync = last_sync;
        report.problems.clear();
        report.set_setting(Some(&setting), 30 * SECOND);
        report.judge();
        assert_eq!(report.problems.len(), problems, "{last_sync}");
    }
}

#[test]
fn the_json_form_has_stable_names_and_all_counters() {
    let report = report(
        true,
        true,
        vec![attached(None), broken(LinkStatus::Missing)],
    );
    let json = serde_json::to_value(&report).unwrap();
    let expected = serde_json::json!({
        "running": true,
        "pid": 42,
        "startedUnixMs": 1_000_000,
        "startedSecondsAgo": 4_000,
        "lastSyncUnixMs": 4_997_000,
        "lastSyncSecondsAgo": 3,
    });
    assert_eq!(json["agent"], expected);
    let expected = serde_json::json!([
        {
            "program": "connect4", "role": "chooses", "state": "attached",
            "link": 3, "programId": 9, "cgroup": 77, "path": null,
        },
        { "program": "connect6", "role": "chooses", "state": "missing" },
    ]);
    assert_eq!(json["links"], expected);
    assert_eq!(json["counters"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["maps"][0]["used"], 131_072);
    assert_eq!(json["features"][0]["present"], true);
    assert_eq!(json["problems"].as_array().map(Vec::len), Some(1));
}

#[test]
fn an_age_is_said_in_its_two_largest_units() {
    for (seconds, text) in [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3_599, "59m59s"),
        (3_600, "1h"),
        (4_000, "1h6m"),
        (90_000, "1d1h"),
        (86_459, "1d"),
    ] {
        assert_eq!(age(seconds), text);
    }
}
