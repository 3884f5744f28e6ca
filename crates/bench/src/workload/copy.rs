//! The same bytes twice: copied within the volume, or read again.
//! From: LBFS, Evaluation; partially connected operation.

use super::{Material, tree};
use crate::stage::Stage;
use anyhow::{Result, ensure};
use bench::command;
use std::path::Path;
use std::process::Command;

pub fn copy(stage: &mut Stage, material: &Material) -> Result<()> {
    stage.prepare(|root| tree::copy(&material.source.tree, &root.join("tree")))?;
    stage.phase("cp -r, cold", |root| cp(root, "first"))?;
    stage.phase("cp -r, warm", |root| cp(root, "second"))
}

fn cp(root: &Path, to: &str) -> Result<()> {
    command::run(Command::new("cp").arg("-r").arg(root.join("tree")).arg(root.join(to)))?;
    Ok(())
}

pub fn reread(stage: &mut Stage, material: &Material) -> Result<()> {
    let bytes = tree::read(&material.source.tree)?;
    stage.prepare(|root| tree::copy(&material.source.tree, &root.join("tree")))?;
    for phase in ["read, cold", "read again"] {
        stage.phase(phase, |root| {
            ensure!(tree::read(&root.join("tree"))? == bytes, "contents are missing");
            Ok(())
        })?;
    }
    Ok(())
}
