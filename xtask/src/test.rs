//! `test`: everything that a change has to pass, in the order of how soon it can fail.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    apt::is_root, binaries, ebpf, kubernetes, setup, stage::Stages, tidy, workspace::Workspace,
};

/// Runs the tests whose name contains the filter; without one, formatting and lints too.
pub(crate) fn run(workspace: &Workspace, filter: Option<&str>, long: bool) -> Result<()> {
    if !is_root() {
        eprintln!(
            "note: not root: the tests that load BPF programs or make network namespaces will \
             fail; the pure ones run with `cargo test --lib`"
        );
    }
    let mut stages = Stages::default();
    let mut complaints = Vec::new();
    if filter.is_none() {
        complaints.extend(check(workspace, &mut stages));
    }
    let outcome = test(workspace, &mut stages, filter, long);
    println!("\n{}", stages.table());
    let results = outcome?;
    println!("{}", results.text());
    if results.failed() {
        complaints.push("some tests failed".to_owned());
    }
    if results.sum("passed") == 0 {
        complaints.push(match filter {
            Some(filter) => format!("no test whose name contains {filter:?} passed"),
            None => "no test passed".to_owned(),
        });
    }
    if !complaints.is_empty() {
        bail!("{}", complaints.join("\n       "));
    }
    println!("everything passed");
    Ok(())
}

/// Formatting, house rules and lints: what they find is told at the end, after the tests.
fn check(workspace: &Workspace, stages: &mut Stages) -> Vec<String> {
    let formatting = stages.run("formatting", || {
        let fmt = workspace.cargo().args(["fmt", "--all", "--check"]);
        fmt.run().context("`cargo fmt --all` puts it right")
    });
    let rules = stages.run("house rules", || tidy::run(workspace));
    let lints = stages.run("lints", || {
        // Not proxy-ebpf: it is no default member, since it builds for the BPF target only.
        let clippy = ["clippy", "--all-targets", "--", "-D", "warnings"];
        workspace
            .cargo()
            .args(clippy)
            .run()
            .context("clippy has something to say")
    });
    let outcomes = [formatting, rules, lints];
    outcomes
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect()
}

fn test(
    workspace: &Workspace,
    stages: &mut Stages,
    filter: Option<&str>,
    long: bool,
) -> Result<Results> {
    stages.run("programs of the lab", || setup::lab(workspace))?;
    stages.run("kernel programs", || ebpf::build(workspace))?;
    let assets = stages.run("etcd and kube-apiserver", || kubernetes::ensure(workspace))?;
    stages.run("binaries", || {
        binaries::build(workspace, "lab", binaries::LAB)
    })?;
    stages.run("compiling the tests", || {
        let compile = workspace
            .cargo()
            .args(["test", "--profile", "lab", "--no-run"]);
        compile.run().context("compile the tests")
    })?;
    stages.run("tests", || {
        let tests = workspace
            .cargo()
            .args(["test", "--profile", "lab", "--no-fail-fast", "--"])
            .args(filter)
            .envs(long.then_some(("SIDESTEP_LONG", "1")))
            .env("SIDESTEP_BIN_DIR", workspace.bin_dir())
            .env("KUBEBUILDER_ASSETS", &assets);
        run_tests(Command::from(tests), &workspace.root)
    })
}

/// What the test binaries said at their end.
#[derive(Default)]
struct Results {
    /// Lines that start with `test result:`, in order.
    lines: Vec<String>,
    /// Names of tests that failed.
    failures: Vec<String>,
    /// Whether cargo ended with success.
    success: bool,
}

impl Results {
    fn read(&mut self, line: &str) {
        if line.starts_with("test result:") {
            self.lines.push(line.to_owned());
        }
        let failed = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"));
        self.failures.extend(failed.map(str::to_owned));
    }

    fn failed(&self) -> bool {
        !self.success || !self.failures.is_empty()
    }

    fn sum(&self, what: &str) -> u64 {
        self.lines.iter().map(|line| number(line, what)).sum()
    }

    /// Every result line that is not empty, the failures, and the sum.
    fn text(&self) -> String {
        let mut text = String::new();
        for line in self
            .lines
            .iter()
            .filter(|line| number(line, "passed") + number(line, "failed") > 0)
        {
            text += &format!("{line}\n");
        }
        for name in &self.failures {
            text += &format!("FAILED {name}\n");
        }
        let sum = |what| {
            self.lines
                .iter()
                .map(|line| number(line, what))
                .sum::<u64>()
        };
        text += &format!("{} passed, {} failed", sum("passed"), sum("failed"));
        if sum("ignored") > 0 {
            text += &format!(", {} skipped", sum("ignored"));
        }
        text.push('\n');
        text
    }
}

/// The number before a word in `test result: ok. 3 passed; 0 failed; …`.
fn number(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ';']).filter(|w| !w.is_empty()).collect();
    words
        .windows(2)
        .find(|pair| pair[1] == word)
        .and_then(|pair| pair[0].parse().ok())
        .unwrap_or(0)
}

/// Shows the output as it comes and keeps the results.
fn run_tests(mut command: Command, root: &Path) -> Result<Results> {
    let command = command.current_dir(root).stdout(Stdio::piped());
    let mut child = command.spawn().context("start cargo test")?;
    let stdout = child.stdout.take().context("read what cargo test says")?;
    let mut results = Results::default();
    let mut out = std::io::stdout().lock();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("read what cargo test says")?;
        let line = String::from_utf8_lossy(&line);
        writeln!(out, "{line}").context("write to standard output")?;
        results.read(&line);
    }
    results.success = child.wait().context("wait for cargo test")?.success();
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s";

    #[test]
    fn result_lines_are_kept_and_summed() {
        let mut results = Results {
            success: true,
            ..Results::default()
        };
        for line in ["running 3 tests", OK, "", OK] {
            results.read(line);
        }
        assert!(!results.failed());
        assert_eq!(
            results.text(),
            format!("{OK}\n{OK}\n6 passed, 0 failed, 2 skipped\n")
        );
    }

    #[test]
    fn a_failed_test_is_named_at_the_end() {
        let mut results = Results {
            success: true,
            ..Results::default()
        };
        results.read("test model::a_service_is_kept ... FAILED");
        assert!(results.failed());
        assert!(results.text().contains("FAILED model::a_service_is_kept"));
    }

    #[test]
    fn a_cargo_that_ends_badly_is_a_failure_even_without_a_failed_test() {
        assert!(Results::default().failed());
    }

    #[test]
    fn a_filter_that_matches_nothing_shows_no_result_line_of_empty_binaries() {
        let mut results = Results {
            success: true,
            ..Results::default()
        };
        results.read(&OK.replace("3 passed", "0 passed"));
        assert_eq!(results.text(), "0 passed, 0 failed, 1 skipped\n");
    }
}
