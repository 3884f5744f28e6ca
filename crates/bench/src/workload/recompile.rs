//! A function more in one file of a program that is built and in the cache: compile, pack the
//! archive, link the library and the program.
//! From: LBFS, Evaluation (recompiling emacs).

use super::{Material, tree};
use crate::source;
use crate::stage::Stage;
use anyhow::Result;

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    let built = material.built()?;
    stage.prepare_warm(|root| tree::copy_built(&built, &root.join("tree")))?;
    stage.phase("edit and make", |root| {
        let tree = root.join("tree");
        source::edit_middle(&tree, 1)?;
        source::make(&tree)
    })
}
