//! The small calls that programs are made of, on one file after the other.

use super::Material;
use crate::stage::Stage;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Part of the phases' names, so that calls per second can be told from the times.
const FILES: usize = 300;

pub fn run(stage: &mut Stage, _material: &Material) -> Result<()> {
    stage.prepare(|root| fs::create_dir(root.join("small")).context("cannot make a directory"))?;
    stage.phase(&format!("create {FILES}"), |root| {
        each(root, |path| fs::File::create_new(path).map(drop))
    })?;
    stage
        .phase(&format!("stat {FILES}"), |root| each(root, |path| fs::metadata(path).map(drop)))?;
    stage.phase(&format!("rename {FILES}"), |root| {
        each(root, |path| fs::rename(&path, path.with_extension("renamed")))
    })?;
    stage.phase(&format!("unlink {FILES}"), |root| {
        each(root, |path| fs::remove_file(path.with_extension("renamed")))
    })
}

fn each(root: &Path, call: impl Fn(PathBuf) -> std::io::Result<()>) -> Result<()> {
    for number in 0..FILES {
        let path = root.join(format!("small/file-{number}"));
        call(path.clone()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
