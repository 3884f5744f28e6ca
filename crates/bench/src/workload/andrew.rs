//! The Andrew benchmark, on another program.
//! From: Fluid Replication, 5.1; partially connected operation.

use super::{Material, tree};
use crate::source;
use crate::stage::Stage;
use anyhow::{Result, ensure};

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    let source = &material.source.tree;
    let (files, bytes) = (tree::scan(source)?, tree::read(source)?);
    stage.phase("MakeDir", |root| tree::copy_directories(source, &root.join("tree")))?;
    stage.phase("Copy", |root| tree::copy_files(source, &root.join("tree")))?;
    stage.phase("ScanDir", |root| {
        ensure!(tree::scan(&root.join("tree"))? == files, "files are missing");
        Ok(())
    })?;
    stage.phase("ReadAll", |root| {
        ensure!(tree::read(&root.join("tree"))? == bytes, "contents are missing");
        Ok(())
    })?;
    stage.phase("Make", |root| source::make(&root.join("tree")))
}
