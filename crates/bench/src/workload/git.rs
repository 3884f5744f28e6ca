//! A repository in the volume.

use super::{Material, tree};
use crate::source::EDITED;
use crate::stage::Stage;
use anyhow::{Context, Result};
use bench::command;
use std::fs;
use std::path::Path;
use std::process::Command;

const COMMITS: usize = 10;

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    stage.prepare(|root| repository(&root.join("upstream"), material))?;
    let links = if stage.backend.has_hard_links() { "" } else { " --no-hardlinks" };
    stage.phase("clone --local", |root| {
        git(root, &format!("clone -q --local{links} upstream work"))
    })?;
    stage.phase("status", |root| git(&root.join("work"), "status -s"))?;
    stage.phase("edit and commit", |root| change(&root.join("work"), COMMITS))?;
    stage.phase("gc", |root| git(&root.join("work"), "gc -q"))?;
    stage.phase("fsck", |root| git(&root.join("work"), "fsck --no-progress"))
}

/// Makes a tree a repository with all that is in it.
pub fn begin(path: &Path) -> Result<()> {
    git(path, "init -q -b main")?;
    git(path, "add -A")?;
    git(path, "commit -q -m source")
}

fn repository(path: &Path, material: &Material) -> Result<()> {
    tree::copy(&material.source.tree, path)?;
    begin(path)?;
    (0..COMMITS).try_for_each(|number| change(path, number))
}

/// An edit, and a commit of it.
pub fn change(path: &Path, number: usize) -> Result<()> {
    let file = path.join(EDITED);
    let text = fs::read_to_string(&file).context("cannot read the file to edit")?;
    fs::write(&file, format!("{text}/* change {number} */\n")).context("cannot edit")?;
    git(path, "commit -q -a -m change")
}

/// With settings and times that are the same on every machine.
fn git(directory: &Path, arguments: &str) -> Result<()> {
    let mut command = Command::new("git");
    command
        .current_dir(directory)
        .args(["-c", "safe.directory=*", "-c", "gc.auto=0"])
        .args(arguments.split(' '))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "bench")
            .env(format!("GIT_{who}_EMAIL"), "bench@localhost")
            .env(format!("GIT_{who}_DATE"), "2026-01-01T00:00:00Z");
    }
    command::run(&mut command)?;
    Ok(())
}
