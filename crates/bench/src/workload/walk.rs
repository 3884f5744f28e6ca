//! Looking through many files.

use super::Material;
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use bench::command;
use std::fs;
use std::path::Path;
use std::process::Command;

const DIRECTORIES: usize = 50;
const FILES_EACH: usize = 100;

pub fn run(stage: &mut Stage, _material: &Material) -> Result<()> {
    stage.prepare(make)?;
    stage.phase("ls -lR, cold", list)?;
    stage.phase("ls -lR, warm", list)?;
    stage.cold()?;
    stage.phase("find, cold", find)?;
    stage.phase("find, warm", find)
}

fn make(root: &Path) -> Result<()> {
    for directory in 0..DIRECTORIES {
        let directory = root.join(format!("many/{directory}"));
        fs::create_dir_all(&directory).context("cannot make directories")?;
        for file in 0..FILES_EACH {
            let path = directory.join(format!("note-{file}.txt"));
            fs::write(&path, format!("note {file}\n"))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

fn list(root: &Path) -> Result<()> {
    let printed = command::run(Command::new("ls").arg("-lR").arg(root.join("many")))?;
    complete(printed.lines().filter(|line| line.contains("note-")).count())
}

fn find(root: &Path) -> Result<()> {
    let mut find = Command::new("find");
    let printed =
        command::run(find.arg(root.join("many")).args(["-type", "f", "-newermt", "2000-01-01"]))?;
    complete(printed.lines().count())
}

fn complete(found: usize) -> Result<()> {
    ensure!(found == DIRECTORIES * FILES_EACH, "{found} files were found");
    Ok(())
}
