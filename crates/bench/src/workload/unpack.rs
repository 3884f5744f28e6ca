//! Unpacking an archive that lies on the local disk.

use super::Material;
use crate::stage::Stage;
use anyhow::Result;
use bench::command;
use std::process::Command;

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    let tar = &material.source.tar;
    stage.phase("tar -x", |root| {
        command::run(Command::new("tar").arg("-xf").arg(tar).arg("-C").arg(root))?;
        Ok(())
    })
}
