//! Storing a large file that was opened again: cut anew around what was written since, and for the
//! rest as the recipe that is kept of the version before says.
//! Holds: the outcome is the same as if all of it had been cut. A recipe that is not here whole, or
//! not as it should be, costs the time of cutting all of the file and nothing else.
//! From: LBFS, "Dividing files into chunks": a change moves no cut but those near it.

use crate::client::{Client, failed};
use crate::failures::of_chunks;
use crate::files::{Before, Grip, Since};
use crate::plan::describe_container_again;
use crate::recipes;
use crate::types::Step;
use chunks::{Described, Placed, Secret, Tree, cover};
use model::{ChunkName, Contents, FileId};
use protocol::{Range, Upstream};
use std::collections::HashSet;
use store::{Containers, Read, StoreError, Write};

/// Files of so many bytes that are opened again are cut anew around what is written; smaller ones
/// are cut whole in a moment.
pub const AGAIN_BYTES_MIN: u64 = 16 << 20;
/// With more pieces all of the file is cut: these take some 50 MB while it is stored.
const PIECES_MAX: usize = 1 << 20;
/// Of so many versions that were cut anew in parts, about one clears away what is kept of recipes
/// before.
const CLEARED_ONE_IN: u8 = 64;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Describes what was stored before and written to since, with the pieces that were cut anew.
    /// None: it is not known here how it was cut.
    pub(crate) fn describe_since(
        &self,
        grip: &Grip<C::Container>,
        since: &Since,
    ) -> Step<Option<(Described, Vec<Placed>)>> {
        let (secret, cutter) = self.secret();
        let rebuilt;
        let before = match &since.before {
            Before::Pieces(pieces) => &pieces[..],
            Before::Recipe(contents) => {
                let read = self.inner.tables.read().map_err(failed)?;
                let Some(pieces) = pieces_kept(&*read, grip.file, contents, &secret) else {
                    return Ok(None);
                };
                rebuilt = pieces;
                &rebuilt[..]
            }
        };
        let again =
            describe_container_again(&grip.container, &secret, cutter, before, &since.changed);
        let (mut described, fresh) = again.map_err(of_chunks)?;
        // The index knows where the others are.
        described.pieces.truncate(self.inner.settings.plan_chunks_max);
        Ok(Some((described, fresh)))
    }

    /// Who stores the next version, here or elsewhere, has most of this one's recipe in it. `anew`:
    /// all of it was cut, and nothing of another version need be kept. What is not worth keeping for that
    /// is kept until the store of this number has been sent.
    pub(crate) fn note_recipe(
        &self,
        write: &mut dyn Write,
        (file, number): (FileId, u64),
        described: &Described,
        anew: bool,
    ) -> Result<(), StoreError> {
        let tree = &described.tree;
        if !recipes::is_kept(&tree.contents) {
            return self.keep_unsent(write, (file, number), tree);
        }
        if !anew {
            // A smaller one is cut whole when it is opened again.
            let goes_on = tree.contents.size >= self.inner.settings.again_bytes_min;
            if !goes_on {
                return self.keep_unsent(write, (file, number), tree);
            }
            self.drop_unsent(write, file)?;
            return add_recipe(write, file, tree);
        }
        self.drop_unsent(write, file)?;
        recipes::retain(write, file, |_| false)?;
        let chunks = tree.chunks.iter().map(|(name, bytes)| (name, &bytes[..]));
        recipes::keep(write, file, &tree.contents, chunks)
    }
}

/// All pieces of a version, if all of its recipe is here and they are not too many.
fn pieces_kept(
    read: &dyn Read,
    file: FileId,
    contents: &Contents,
    secret: &Secret,
) -> Option<Vec<Placed>> {
    let all = Range { offset: 0, length: contents.size };
    let mut lacks = false;
    let found = cover(secret, contents, all, PIECES_MAX, |name| {
        // Nothing more is looked up once it is known that something is lacking.
        let bytes = if lacks { None } else { recipes::find(read, file, name)? };
        lacks |= bytes.is_none();
        Ok(bytes)
    });
    let found = found.ok()?;
    let whole = found.missing.is_empty() && found.next.is_none();
    whole.then_some(found.pieces)
}

/// Of a version that was cut anew in parts, keeps what of its recipe is not kept yet.
fn add_recipe(write: &mut dyn Write, file: FileId, tree: &Tree) -> Result<(), StoreError> {
    let mut added = Vec::new();
    for (name, bytes) in &tree.chunks {
        if !recipes::has(write, file, name)? {
            added.push((name, &bytes[..]));
        }
    }
    recipes::keep(write, file, &tree.contents, added)?;
    if clears(&tree.contents) {
        let wanted: HashSet<&ChunkName> = tree.chunks.iter().map(|(name, _)| name).collect();
        recipes::retain(write, file, |name| wanted.contains(name))?;
    }
    Ok(())
}

/// A name is as good as chance.
fn clears(contents: &Contents) -> bool {
    contents.root.is_some_and(|root| root.name.0[0].is_multiple_of(CLEARED_ONE_IN))
}
