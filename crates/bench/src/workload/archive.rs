//! A library of objects: made, made again of the same, and made again after one was compiled anew.
//! From: LBFS, Evaluation (object files that go into a library).

use super::{Material, tree};
use crate::source;
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use bench::command;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libagain.a";

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    let built = material.built()?;
    stage.prepare_warm(|root| tree::copy_built(&built, &root.join("tree")))?;
    stage.phase("ar", |root| pack(&root.join("tree")))?;
    stage.phase("ar again", |root| pack(&root.join("tree")))?;
    stage.phase("edit, compile, ar", |root| {
        let tree = root.join("tree");
        source::edit_middle(&tree, 1)?;
        source::compile(&tree)?;
        pack(&tree)
    })
}

/// As makefiles do: the old one goes first.
fn pack(tree: &Path) -> Result<()> {
    let library = tree.join(LIBRARY);
    if library.exists() {
        fs::remove_file(&library).context("cannot remove the library")?;
    }
    let objects = objects(&tree.join("src"))?;
    ensure!(!objects.is_empty(), "there are no objects to pack");
    command::run(Command::new("ar").arg("rcs").arg(library).args(objects))?;
    Ok(())
}

/// In the order of their names, without those for the shared library, which have the same names
/// inside.
fn objects(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).context("cannot list the objects")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".o") && !name.ends_with("_dyn.o") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
