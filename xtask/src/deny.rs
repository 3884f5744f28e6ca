//! Holds the dependencies against `deny.toml`: licences, forbidden crates, sources.
//!
//! cargo-deny does the work. Where it is missing it is built once, from crates.io alone, into a
//! folder of the target directory that bears its version. Advisories are not checked: their list
//! is a repository of its own, and the gate must pass without one more host.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const VERSION: &str = "0.20.2";

pub fn run(root: &Path) -> Result<()> {
    let status = Command::new(program(root)?)
        .args(["--log-level", "warn", "check", "bans", "licenses", "sources"])
        .current_dir(root)
        .status()
        .context("cargo-deny cannot be started")?;
    if !status.success() {
        bail!("cargo deny: {status}; what it found stands above");
    }
    Ok(())
}

/// The program of the wanted version, built if it is not there yet.
fn program(root: &Path) -> Result<PathBuf> {
    let folder = folder(root);
    let program = folder.join("bin/cargo-deny");
    if program.exists() {
        return Ok(program);
    }
    eprintln!("building cargo-deny {VERSION}, once; this takes a minute or two");
    // An unoptimised build takes a third of the time, and the check takes a second either way.
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["install", "cargo-deny", "--version", VERSION, "--locked", "--debug", "--quiet"])
        .arg("--root")
        .arg(&folder)
        .arg("--target-dir")
        .arg(folder.join("build"))
        .current_dir(root)
        .status()
        .context("cargo install cannot be started")?;
    if !status.success() {
        bail!("cargo-deny {VERSION} could not be built: is crates.io in reach?");
    }
    std::fs::remove_dir_all(folder.join("build"))
        .context("the intermediate files of cargo-deny cannot be removed")?;
    Ok(program)
}

fn folder(root: &Path) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("tools").join(format!("cargo-deny-{VERSION}"))
}
