//! The project's own chores: what is checked, in which order, and by which rules.
//!
//! `cargo xtask tidy` holds the tree against its house rules, `cargo xtask deny` its dependencies
//! against `deny.toml`, and `cargo xtask ci` is the whole gate that `make test` runs.
#![expect(
    clippy::disallowed_methods,
    reason = "a chore reads the tree, starts cargo and times its steps"
)]

mod ci;
mod deny;
mod finding;
mod leftovers;
mod scan;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask <chore>

  tidy          hold the tree against the house rules
  deny          hold the dependencies against deny.toml
  ci            the whole gate: format, tidy, lints, dependencies, tests, documentation, mounts
  ci --quick    the same without the tests that mount (no root and no /dev/fuse needed)
  ci --go-on    the whole gate from the step on that failed last";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    let root = tree::root()?;
    match words {
        ["tidy"] => tidy::run(&root),
        ["deny"] => deny::run(&root),
        ["ci"] => ci::run(&root, ci::Extent::Whole),
        ["ci", "--go-on"] => ci::go_on(&root),
        ["ci", "--quick"] => ci::run(&root, ci::Extent::Quick),
        [] | ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("`{}` is no chore\n\n{USAGE}", words.join(" ")),
    }
}
