//! The demo, as a whole. Needs root, cgroup2, bpftool, and the built `sidestep` program.
#![expect(clippy::unwrap_used, reason = "what fails here fails its test")]

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use lab::{Process, binary};

fn demo() -> Command {
    binary("sidestep").unwrap();
    Command::new(env!("CARGO_BIN_EXE_sidestep-demo"))
}

/// Folders and namespaces of the lab of a demo with this process id.
fn traces_of(pid: u32) -> Vec<String> {
    let tag = format!("sidestep-lab-{pid}-");
    let folders = ["/run", "/run/netns"];
    let entries = folders
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&tag)).collect()
}

#[test]
fn every_step_of_the_demo_holds_and_nothing_of_it_stays() {
    let child = demo()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{stdout}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(stdout.contains("is gone: no namespace, mount, cgroup or process is left."));
    assert!(!stdout.contains('✗'), "{stdout}");
    assert_eq!(traces_of(pid), Vec::<String>::new());
}

#[test]
fn a_demo_that_is_told_to_end_removes_its_lab_and_fails() {
    let mut process = Process::start(demo(), "this machine").unwrap();
    let pid = process.id();
    let patience = Duration::from_secs(180);
    while !process.line(patience).unwrap().unwrap().contains("3. ") {}
    assert!(!traces_of(pid).is_empty());
    let status = process.terminate(patience).unwrap();
    assert_eq!(status.code(), Some(1));
    assert_eq!(traces_of(pid), Vec::<String>::new());
}
