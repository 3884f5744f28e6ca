//! Working on a program that is already built.
//! From: LBFS, Evaluation (ed, gcc).

use super::{Material, tree};
use crate::source;
use crate::stage::Stage;
use anyhow::Result;

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    stage.prepare(|root| {
        let tree = root.join("tree");
        tree::copy(&material.source.tree, &tree)?;
        source::make(&tree)
    })?;
    for (number, phase) in ["edit and make, cold", "edit and make again"].into_iter().enumerate() {
        stage.phase(phase, |root| {
            let tree = root.join("tree");
            source::edit(&tree, number)?;
            source::make(&tree)
        })?;
    }
    Ok(())
}
