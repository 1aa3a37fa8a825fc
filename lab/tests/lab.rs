//! The lab itself: what it connects, where its processes run, and that nothing of it stays.
//! Needs root and cgroup2.
#![expect(clippy::unwrap_used, reason = "what fails here fails its test")]

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use lab::{Host, Lab, Process, Transport, binary};

/// Everything on this machine that bears the tag: namespaces, mounts, cgroups, folders, processes.
fn traces_of(tag: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut found: Vec<String> = mounts
        .lines()
        .filter(|line| line.contains(tag))
        .map(str::to_owned)
        .collect();
    let cgroup2 = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some("cgroup2"))
        .unwrap();
    for folder in ["/run", "/run/netns", cgroup2.split(' ').nth(1).unwrap()] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let paths = entries.map(|e| e.path().display().to_string());
        found.extend(paths.filter(|path| path.contains(tag)));
    }
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let cgroup = fs::read_to_string(process.path().join("cgroup")).unwrap_or_default();
        // A zombie does not hold its cgroup, and shows it as deleted until it is reaped.
        if cgroup.contains(tag) && !cgroup.contains("(deleted)") {
            found.push(process.path().display().to_string());
        }
    }
    found
}

fn netns_of(pid: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()
}

fn cgroup2_of(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap()
        .to_owned()
}

fn interfaces_of_this_machine() -> String {
    let output = Command::new("ip").args(["-o", "address"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The lab's hosts reach each other as in a cluster, over both families, TCP and UDP.
fn reaches(from: &impl Host, to: &impl Host) {
    let addresses: [IpAddr; 2] = [to.v4().into(), to.v6().into()];
    for address in addresses {
        let report = from.connect((address, 80)).run().unwrap();
        let attempt = &report.attempts[0];
        assert!(attempt.ok, "{} to {address}: {attempt:?}", from.name());
        assert_eq!(attempt.server.as_deref(), Some(to.name()));
        assert_eq!(attempt.peer, Some((address, 80).into()));
        let report = from.datagram((address, 53)).run().unwrap();
        let attempt = &report.attempts[0];
        assert!(attempt.ok, "{} to {address}: {attempt:?}", from.name());
        assert_eq!(attempt.server.as_deref(), Some(to.name()));
        assert_eq!(attempt.from, Some((address, 53).into()));
    }
}

#[test]
fn pods_nodes_and_clients_reach_what_they_would_in_a_cluster() {
    let lab = Lab::new("reach").unwrap();
    let (node_a, node_b) = (lab.node("node-a").unwrap(), lab.node("node-b").unwrap());
    let (one, two) = (node_a.pod("one").unwrap(), node_b.pod("two").unwrap());
    let three = node_b.pod("three").unwrap();
    let outside = lab.client("outside").unwrap();
    let _two = two.serve().tcp(80).udp(53).start().unwrap();
    let _node_b = node_b
        .serve()
        .tcp(80)
        .listen(Transport::Udp, (node_b.v4(), 53))
        .listen(Transport::Udp, (node_b.v6(), 53))
        .start()
        .unwrap();
    reaches(&one, &two);
    reaches(&three, &two);
    reaches(&node_a, &two);
    reaches(&node_b, &two);
    reaches(&one, &node_b);
    reaches(&outside, &node_b);
    let report = outside.connect((two.v4(), 80)).run().unwrap();
    assert_eq!(report.refused_with(), Some("ENETUNREACH"));
}

#[test]
fn an_address_that_nobody_serves_is_refused_and_a_taken_port_cannot_be_bound() {
    let lab = Lab::new("refuse").unwrap();
    let node = lab.node("node-a").unwrap();
    let (client, server) = (node.pod("client").unwrap(), node.pod("server").unwrap());
    let report = client.connect((server.v4(), 81)).count(3).run().unwrap();
    assert_eq!(report.refused_with(), Some("ECONNREFUSED"));
    assert_eq!(report.summary.failed, 3);
    let report = client
        .datagram((server.v6(), 81))
        .connected()
        .run()
        .unwrap();
    assert_eq!(report.refused_with(), Some("ECONNREFUSED"));
    let _server = server.serve().tcp(80).start().unwrap();
    let taken = server
        .bind(Transport::Tcp, (server.v4(), 80))
        .run()
        .unwrap();
    assert_eq!(taken.error.as_deref(), Some("EADDRINUSE"));
    assert!(
        server
            .bind(Transport::Udp, (server.v4(), 80))
            .run()
            .unwrap()
            .ok
    );
}

#[test]
fn probes_speak_mapped_addresses_fast_open_and_hold_their_sockets() {
    let lab = Lab::new("probe").unwrap();
    let node = lab.node("node-a").unwrap();
    let (client, server) = (node.pod("client").unwrap(), node.pod("server").unwrap());
    let first = server.serve().tcp(80).udp(53).start().unwrap();

    let report = client.connect((server.v4(), 80)).mapped().run().unwrap();
    let mapped = server.v4().to_ipv6_mapped();
    assert_eq!(report.attempts[0].peer, Some((mapped, 80).into()));
    let report = client.datagram((server.v4(), 53)).mapped().run().unwrap();
    assert_eq!(report.attempts[0].from, Some((mapped, 53).into()));

    // The first fetches the cookie, the second uses it.
    let report = client
        .connect((server.v4(), 80))
        .fast_open()
        .count(2)
        .run()
        .unwrap();
    assert_eq!(report.summary.ok, 2);

    let mut streams = client.connect((server.v6(), 80)).count(3).hold().unwrap();
    let mut ports = client
        .datagram((server.v6(), 53))
        .connected()
        .count(2)
        .hold()
        .unwrap();
    assert_eq!(streams.report().summary.ok, 3);
    let again = streams.ask().unwrap();
    assert_eq!(again.summary.servers["server"], 3);
    assert_eq!(ports.ask().unwrap().summary.servers["server"], 2);
    let local: Vec<_> = ports.report().attempts.iter().map(|a| a.local).collect();
    let same: Vec<_> = ports
        .ask()
        .unwrap()
        .attempts
        .iter()
        .map(|a| a.local)
        .collect();
    assert_eq!(local, same);

    first.stop();
    assert_eq!(streams.ask().unwrap().summary.failed, 3);
    let _second = server.serve().name("second").udp(53).start().unwrap();
    // A connected socket reports the refusal of an earlier datagram first, if there was one.
    assert_eq!(ports.ask().unwrap().summary.servers["second"], 2);
    streams.close().unwrap();
    ports.close().unwrap();
}

#[test]
fn a_run_can_be_stopped_and_reports_what_it_did() {
    let lab = Lab::new("stop").unwrap();
    let node = lab.node("node-a").unwrap();
    let server = node.pod("server").unwrap();
    let _server = server.serve().tcp(80).start().unwrap();
    let mut running = node
        .connect((server.v4(), 80))
        .duration(Duration::from_secs(600))
        .start()
        .unwrap();
    assert!(running.next_attempt().unwrap().unwrap().ok);
    assert!(running.next_attempt().unwrap().unwrap().ok);
    let report = running.stop().unwrap();
    assert!(report.summary.ok >= 2);
    assert_eq!(report.summary.failed, 0);
    assert_eq!(report.attempts.len() as u64, report.summary.n);
}

#[test]
fn processes_run_in_the_namespace_and_cgroup_of_their_host() {
    let before = interfaces_of_this_machine();
    let lab = Lab::new("place").unwrap();
    let node = lab.node("node-a").unwrap();
    let pod = node.pod("web-1").unwrap();
    let server = pod.serve().tcp(80).start().unwrap();
    let pid = server.process().id();
    let namespace = pod
        .enter(|| fs::read_link("/proc/thread-self/ns/net").unwrap())
        .unwrap();
    assert_eq!(netns_of(pid), namespace);
    assert_ne!(netns_of(pid), netns_of(std::process::id()));
    assert_eq!(cgroup2_of(pid), format!("/{}/node-a/web-1", lab.tag()));
    assert_eq!(node.place().processes().unwrap(), [pid]);
    assert_eq!(interfaces_of_this_machine(), before);
    let kind = rustix::fs::statfs(node.bpffs()).unwrap().f_type;
    assert_eq!(kind, 0xcafe_4a11, "{} is no bpffs", node.bpffs().display());

    let place = pod.place().clone();
    pod.delete().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).join("ns").exists() || !place.cgroup().exists());
    assert!(!place.netns_path().exists());
}

#[test]
fn names_that_do_not_fit_are_refused_by_name() {
    let lab = Lab::new("names").unwrap();
    let node = lab.node("node-a").unwrap();
    for bad in ["node-a", "wire", "", "../up", "Web", "a\nb"] {
        let error = node.pod(bad).unwrap_err().to_string();
        assert!(error.contains(&format!("{bad:?}")), "{error}");
    }
}

#[test]
fn after_drop_nothing_is_left_also_after_a_panic() {
    let lab = Lab::new("gone").unwrap();
    let tag = lab.tag().to_owned();
    let panic = std::panic::catch_unwind(move || {
        let node = lab.node("node-a").unwrap();
        let pod = node.pod("web-1").unwrap();
        let server = pod.serve().tcp(80).start().unwrap();
        let mut shell = pod.command("sleep");
        let _sleep = Process::start(
            {
                shell.arg("600");
                shell
            },
            "web-1",
        )
        .unwrap();
        assert!(traces_of(lab.tag()).len() > 8);
        // What nobody drops goes too.
        std::mem::forget(server);
        panic!("on purpose");
    });
    assert!(panic.is_err());
    assert_eq!(traces_of(&tag), Vec::<String>::new());
}

#[test]
fn two_labs_at_once_do_not_disturb_each_other() {
    let (one, two) = (Lab::new("twin").unwrap(), Lab::new("twin").unwrap());
    let nodes = (one.node("node-a").unwrap(), two.node("node-a").unwrap());
    let pods = (nodes.0.pod("web-1").unwrap(), nodes.1.pod("web-1").unwrap());
    assert_eq!(pods.0.v4(), pods.1.v4());
    let _one = pods.0.serve().name("one").tcp(80).start().unwrap();
    let _two = pods.1.serve().name("two").tcp(80).start().unwrap();
    let report = nodes.0.connect((pods.0.v4(), 80)).run().unwrap();
    assert_eq!(report.summary.servers["one"], 1);
    one.remove().unwrap();
    let report = nodes.1.connect((pods.1.v4(), 80)).run().unwrap();
    assert_eq!(report.summary.servers["two"], 1);
}

#[test]
fn a_lab_of_a_killed_process_is_removed_by_the_next_one() {
    const ROLE: &str = "LAB_TEST_ROLE";
    // The process that is to be killed is this test again.
    if std::env::var_os(ROLE).is_some() {
        let lab = Lab::new("crash").unwrap();
        let pod = lab.node("node-a").unwrap().pod("web-1").unwrap();
        let _server = pod.serve().tcp(80).start().unwrap();
        eprintln!("tag {}", lab.tag());
        std::thread::sleep(Duration::from_secs(600));
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "a_lab_of_a_killed_process_is_removed_by_the_next_one",
    ]);
    command.arg("--nocapture").env(ROLE, "victim");
    let victim = Process::start(command, "this machine").unwrap();
    let tag = loop {
        if let Some(line) = victim
            .stderr()
            .lines()
            .find_map(|line| line.strip_prefix("tag "))
        {
            break line.to_owned();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    // While its process lives, no other lab touches it.
    drop(Lab::new("bystander").unwrap());
    assert!(traces_of(&tag).len() > 8);
    victim.kill();
    assert!(traces_of(&tag).len() > 5);
    drop(Lab::new("successor").unwrap());
    assert_eq!(traces_of(&tag), Vec::<String>::new());
}

#[test]
fn the_probe_is_found_beside_the_tests() {
    let path = binary("sidestep-probe").unwrap();
    assert_eq!(path, Path::new(env!("CARGO_BIN_EXE_sidestep-probe")));
}

#[test]
fn a_lab_that_cannot_be_made_says_why_in_a_sentence_and_leaves_nothing() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-demo"));
    let child = command
        .env("PATH", "/nonexistent")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let tag = format!("sidestep-lab-{}-1-demo", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("cannot run `ip`: install iproute2"),
        "{stdout}"
    );
    assert_eq!(traces_of(&tag), Vec::<String>::new());
}
