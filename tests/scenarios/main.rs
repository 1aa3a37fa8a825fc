//! Scenarios: manifests and steps in, maps and outcomes of connections out.
//!
//! Every `*.txt` in this folder is one scenario and runs three times: on the fake data plane as
//! written, there with writes that fail and events in other orders, and on the kernel with real
//! sockets (needs root). `README.md` explains the files; `UPDATE=1` rewrites their map dumps.

mod agreement;
mod on_fake;
mod on_kernel;
mod player;
mod reader;
mod script;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use libtest_mimic::{Arguments, Failed, Trial};
use script::Script;
use sidestep_tests::case;

fn main() -> ExitCode {
    let inside = |name: &str| match name {
        agreement::NAME => agreement::test(),
        scenario => on_kernel::play(&Script::read(&file(scenario))?),
    };
    if let Some(code) = case::run_inside_by_name(inside) {
        return code;
    }
    let mut trials = vec![trial(agreement::NAME.into(), || {
        case::run_outside(agreement::NAME)
    })];
    let update = env::var_os("UPDATE").is_some();
    for path in files() {
        match Script::read(&path) {
            Ok(script) => trials.extend(runs(script, update)),
            Err(error) => trials.push(trial(path.display().to_string(), move || Err(error))),
        }
    }
    let mut arguments = Arguments::from_args();
    // Most of a run on the kernel is waiting for namespaces to come and go.
    arguments.test_threads = arguments.test_threads.or(Some(8));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn runs(script: Script, update: bool) -> Vec<Trial> {
    let name = script.name.clone();
    let written = script.clone();
    let mut trials = vec![trial(format!("{name}::fake"), move || {
        on_fake::as_written(&written, update)
    })];
    if update {
        return trials;
    }
    if !script.settings.in_order {
        trials.push(trial(format!("{name}::shuffled"), move || {
            on_fake::shuffled(&script)
        }));
    }
    trials.push(trial(format!("{name}::kernel"), move || {
        case::run_outside(&name)
    }));
    trials
}

fn trial(name: String, run: impl FnOnce() -> anyhow::Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        run().map_err(|error| Failed::from(format!("{error:#}")))
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn file(name: &str) -> PathBuf {
    folder().join(format!("{name}.txt"))
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
}
