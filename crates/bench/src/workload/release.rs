//! A source tree that moves on: the next release, unpacked over the one before.
//! From: LBFS, Evaluation (versions of a program).

use super::Material;
use crate::stage::Stage;
use crate::table::bytes;
use anyhow::{Context, Result};
use bench::command;
use std::path::Path;
use std::process::Command;

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    let (before, next) = (material.before()?.tar, &material.source.tar);
    let size = next.metadata().context("there is no archive of the release")?.len();
    stage.prepare_warm(|root| unpack(&before, root))?;
    stage.phase(&format!("tar -x of {}", bytes(size)), |root| unpack(next, root))
}

fn unpack(tar: &Path, to: &Path) -> Result<()> {
    command::run(Command::new("tar").arg("-xf").arg(tar).arg("-C").arg(to))?;
    Ok(())
}
