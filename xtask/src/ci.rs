//! The gate: every check in order, each named and timed; the first that fails ends it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::leftovers::Watch;
use crate::{deny, tidy};

/// How much of the gate to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    Whole,
    /// Without what mounts.
    Quick,
}

/// One step: what it is called, what it does, and what to try when it fails.
struct Step {
    name: &'static str,
    work: Work,
    hint: &'static str,
}

enum Work {
    Chore(fn(&Path) -> Result<()>),
    /// A cargo command, with variables set for it.
    Cargo {
        arguments: &'static [&'static str],
        variables: &'static [(&'static str, &'static str)],
    },
    /// A cargo command that mounts and starts processes, watched for what it leaves behind.
    Mounting {
        arguments: &'static [&'static str],
    },
}

fn steps(extent: Extent) -> Vec<Step> {
    let cargo = |arguments| Work::Cargo { arguments, variables: &[] };
    let mut steps = vec![
        Step { name: "format", work: cargo(&["fmt", "--all", "--check"]), hint: "cargo fmt --all" },
        Step { name: "tidy", work: Work::Chore(tidy::run), hint: "cargo xtask tidy; see STYLE.md" },
        Step {
            name: "lints",
            work: cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
            hint: "cargo clippy --workspace --all-targets; see clippy.toml for the layers' guards",
        },
        Step { name: "dependencies", work: Work::Chore(deny::run), hint: "see deny.toml" },
        Step {
            name: "tests",
            work: cargo(&["test", "--workspace", "--exclude", "e2e"]),
            hint: "cargo test -p CRATE NAME; a failing seed prints the command that repeats it",
        },
        Step {
            name: "documentation",
            work: Work::Cargo {
                arguments: &["doc", "--workspace", "--no-deps"],
                variables: &[("RUSTDOCFLAGS", "-D warnings")],
            },
            hint: "cargo doc --workspace --no-deps",
        },
    ];
    if extent == Extent::Whole {
        steps.push(Step {
            name: "program",
            work: cargo(&["build", "-p", "cli", "-p", "bench"]),
            hint: "cargo build -p cli",
        });
        steps.push(Step {
            name: "mounts",
            work: Work::Mounting { arguments: &["test", "-p", "e2e", "--", "--test-threads=1"] },
            hint: "cargo test -p e2e NAME; it needs root, /dev/fuse and what `make setup` installs",
        });
    }
    steps
}

/// Where the step that failed last is named, for who goes on from it.
const FAILED: &str = "target/gate-failed";

pub fn run(root: &Path, extent: Extent) -> Result<()> {
    run_steps(root, &steps(extent))
}

/// The whole gate once more, from the step that failed on.
pub fn go_on(root: &Path) -> Result<()> {
    let path = root.join(FAILED);
    let failed = std::fs::read_to_string(&path)
        .with_context(|| format!("{} names no step; try cargo xtask ci", path.display()))?;
    run_steps(root, left(&steps(Extent::Whole), failed.trim())?)
}

fn left<'s>(steps: &'s [Step], failed: &str) -> Result<&'s [Step]> {
    let from = steps.iter().position(|step| step.name == failed);
    let from = from.with_context(|| format!("`{failed}` is no step; try cargo xtask ci"))?;
    Ok(&steps[from..])
}

fn run_steps(root: &Path, steps: &[Step]) -> Result<()> {
    let started = Instant::now();
    let mut times = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        eprintln!("\n== {} ({} of {})", step.name, index + 1, steps.len());
        let begun = Instant::now();
        if let Err(error) = work(root, &step.work) {
            eprintln!("{}", summary(&times, started.elapsed()));
            // What failed is told in any case.
            if let Err(error) = std::fs::write(root.join(FAILED), step.name) {
                eprintln!(
                    "{FAILED} cannot be written, so the gate cannot go on from here: {error}"
                );
            }
            bail!(
                "the step `{}` failed after {}: {error:#}\n    try: {}",
                step.name,
                seconds(begun.elapsed()),
                step.hint
            );
        }
        times.push((step.name, begun.elapsed()));
    }
    eprintln!("{}", summary(&times, started.elapsed()));
    eprintln!("every step passed");
    Ok(())
}

fn work(root: &Path, work: &Work) -> Result<()> {
    match work {
        Work::Chore(chore) => chore(root),
        Work::Cargo { arguments, variables } => {
            let mut command = cargo(root, arguments);
            command.envs(variables.iter().copied());
            finish(command, arguments)
        }
        Work::Mounting { arguments } => {
            if !Path::new("/dev/fuse").exists() {
                bail!("there is no /dev/fuse here, and this step mounts");
            }
            let watch = Watch::begin()?;
            let mut command = cargo(root, arguments);
            command.envs(watch.variables());
            let outcome = finish(command, arguments);
            let left = watch.end();
            outcome?;
            left
        }
    }
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root);
    command
}

fn finish(mut command: Command, arguments: &[&str]) -> Result<()> {
    let words = arguments.join(" ");
    let status = command.status().with_context(|| format!("cargo {words} cannot be started"))?;
    if !status.success() {
        bail!("cargo {words}: {status}");
    }
    Ok(())
}

/// The time of each step that passed, and of all together.
fn summary(times: &[(&str, Duration)], whole: Duration) -> String {
    let mut lines = String::from("\n== steps that passed\n");
    for (name, time) in times {
        lines.push_str(&format!("{name:>14}  {}\n", seconds(*time)));
    }
    lines.push_str(&format!("{:>14}  {}", "together", seconds(whole)));
    lines
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_gate_is_the_whole_one_without_what_mounts() {
        let names = |extent| steps(extent).iter().map(|step| step.name).collect::<Vec<_>>();
        let (whole, quick) = (names(Extent::Whole), names(Extent::Quick));
        assert!(whole.starts_with(&quick));
        assert!(!quick.contains(&"mounts") && whole.contains(&"mounts"));
        let mounting = |step: &Step| matches!(step.work, Work::Mounting { .. });
        assert!(!steps(Extent::Quick).iter().any(mounting));
    }

    #[test]
    fn the_gate_goes_on_from_the_step_that_failed() {
        let steps = steps(Extent::Whole);
        let names = |from| left(&steps, from).map(|left| left.iter().map(|s| s.name).collect());
        let last: Vec<&str> = names("program").expect("it is a step");
        assert_eq!(last, ["program", "mounts"]);
        let error = names("lunch").expect_err("it is none").to_string();
        assert!(error.contains("`lunch` is no step"), "{error}");
    }

    #[test]
    fn the_summary_names_each_step_and_the_whole() {
        let text = summary(&[("tidy", Duration::from_millis(1_500))], Duration::from_millis(2_000));
        assert!(text.contains("tidy  1.5 s") && text.contains("together  2.0 s"), "{text}");
    }

    #[test]
    fn a_command_that_fails_is_an_error_that_names_it() {
        let mut command = Command::new("false");
        command.current_dir("/");
        let error = finish(command, &["test", "-p", "e2e"]).expect_err("false fails");
        assert!(error.to_string().starts_with("cargo test -p e2e: "), "{error}");
    }
}
