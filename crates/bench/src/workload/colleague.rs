//! Somebody else's tree, read for the first time: a source tree, and the same with all that was
//! built of it.

use super::{Material, tree};
use crate::source;
use crate::stage::Stage;
use anyhow::{Context, Result};
use bench::command;
use std::path::Path;
use std::process::Command;

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    let home = std::env::temp_dir().join(format!("bench-colleague-{}", std::process::id()));
    let prepared = prepare(stage, material, &home);
    let removed = std::fs::remove_dir_all(&home);
    prepared?;
    removed.with_context(|| format!("cannot remove {}", home.display()))?;
    stage.phase("grep -r, source", |root| grep(root, "source"))?;
    stage.cold()?;
    stage.phase("grep -r, built", |root| grep(root, "built"))?;
    stage.cold()?;
    stage.phase("read, built", |root| tree::read(&root.join("built")).map(drop))
}

/// The program is built on the local disk, whoever is measured.
fn prepare(stage: &mut Stage, material: &Material, home: &Path) -> Result<()> {
    tree::copy(&material.source.tree, home)?;
    source::make(home)?;
    stage.prepare(|root| {
        tree::copy(&material.source.tree, &root.join("source"))?;
        tree::copy(home, &root.join("built"))
    })
}

/// Counts, so that every file is read to its end.
fn grep(root: &Path, tree: &str) -> Result<()> {
    let mut grep = Command::new("grep");
    command::run(grep.args(["--recursive", "--text", "--count", "the"]).arg(root.join(tree)))?;
    Ok(())
}
