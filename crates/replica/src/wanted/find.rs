//! What a version lacks.
//! Holds: who serves drops a chunk whose bytes do not bear its name, so that it can be stored
//! again; who checks leaves it.

use crate::origin::Inner;
use crate::volumes::{Volume, blob_name};
use chunks::{ChunksError, Secret};
use model::{ChunkName, Contents};
use std::cell::RefCell;
use std::collections::BTreeSet;
use store::StoreError;
use tracing::error;
use volume::whole::VolumeId;

/// Missing chunks of one version that are counted.
pub(crate) const MISSING_MAX: usize = 1000;

/// How closely one looks for the data of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// At the index alone, which does not know of all damage.
    Index,
    /// Every chunk is read and hashed.
    Bytes,
}

/// What a version lacks, if its recipe makes sense as far as it is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacking {
    pub data: Vec<ChunkName>,
    /// What hangs below these is not known.
    pub recipe: Vec<ChunkName>,
}

impl Lacking {
    pub fn len(&self) -> usize {
        self.data.len() + self.recipe.len()
    }

    pub fn is_nothing(&self) -> bool {
        self.len() == 0
    }

    /// Errors: `BadRecipe`, and those of the stores.
    pub fn of(
        inner: &Inner,
        (volume, secret): (VolumeId, &Secret),
        contents: &Contents,
        look: Look,
    ) -> Result<Lacking, ChunksError> {
        let recipe = RefCell::new(BTreeSet::new());
        let read = |name: &ChunkName| -> Result<Option<Vec<u8>>, StoreError> {
            let bytes = inner.blobs.get(&blob_name(volume, name))?;
            Ok(bytes.filter(|bytes| secret.check(name, bytes).is_ok()))
        };
        let fetch = |name: &ChunkName| {
            let found = read(name)?;
            if found.is_none() {
                recipe.borrow_mut().insert(*name);
            }
            Ok(found)
        };
        let has = |name: &ChunkName| match look {
            Look::Index => inner.blobs.has(&blob_name(volume, name)),
            Look::Bytes => Ok(read(name)?.is_some()),
        };
        let names = chunks::lacking(secret, contents, MISSING_MAX, fetch, has)?;
        let recipe = recipe.into_inner();
        let (recipe, data) = names.into_iter().partition(|name| recipe.contains(name));
        Ok(Lacking { data, recipe })
    }
}

impl Inner {
    /// The bytes of a chunk. None: it is missing, from now on if it was not before.
    pub fn sound(&self, volume: &Volume, name: &ChunkName) -> Result<Option<Vec<u8>>, StoreError> {
        let blob = volume.blob(name);
        let Some(bytes) = self.blobs.get(&blob)? else { return Ok(None) };
        if volume.secret.check(name, &bytes).is_ok() {
            return Ok(Some(bytes));
        }
        error!(volume = volume.name, chunk = %name, "bytes that are not their chunk are dropped");
        self.blobs.delete(&blob)?;
        Ok(None)
    }
}
