//! Somebody else's tree, read for the first time: a source tree, and the same with all that was
//! built of it.

use super::{Material, tree};
use crate::source;
use crate::stage::Stage;
use anyhow::Result;
use bench::command;
use std::path::Path;
use std::process::Command;

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    stage.prepare(|root| {
        tree::copy(&material.source.tree, &root.join("source"))?;
        tree::copy(&material.source.tree, &root.join("built"))?;
        source::make(&root.join("built"))
    })?;
    stage.phase("grep -r, source", |root| grep(root, "source"))?;
    stage.cold()?;
    stage.phase("grep -r, built", |root| grep(root, "built"))?;
    stage.cold()?;
    stage.phase("read, built", |root| tree::read(&root.join("built")).map(drop))
}

/// A word that is nowhere, so that every file is read to its end.
fn grep(root: &Path, tree: &str) -> Result<()> {
    let mut grep = Command::new("grep");
    grep.args(["--recursive", "--text", "--files-without-match", "no file says this of itself"]);
    command::run(grep.arg(root.join(tree)))?;
    Ok(())
}
