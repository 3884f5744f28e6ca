//! What a large file consists of, where the recipe of an earlier version is known: only what is new
//! in it is asked for.
//! Holds: every recipe chunk is checked against its name, whether it came or was here; the number of
//! questions is bounded.

use super::{PIECES_MAX, Target, bad, pieces_of};
use crate::asking::unexpected;
use crate::client::{Client, error_of};
use crate::home::note_home;
use crate::recipes;
use crate::types::Error;
use chunks::{Placed, cover};
use model::{ChunkName, Contents};
use protocol::{Fetched, Range, Request, Response, Upstream};
use store::{Containers, Durability};

/// Questions for one stretch; each goes a level deeper, or beside the last.
const QUESTIONS_MAX: usize = 32;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether something is known of the recipe of a file, so that it is worth to ask for what
    /// differs.
    pub(super) fn knows_recipe(&self, target: &Target<C::Container>) -> Result<bool, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        recipes::has_any(&*read, target.file).map_err(error_of)
    }

    /// The pieces of a stretch, asking for as much of the recipe as is not here.
    pub(super) async fn pieces_by_difference(
        &self,
        target: &Target<C::Container>,
        size: u64,
        range: Range,
    ) -> Result<(Contents, Vec<Placed>), Error> {
        let mut contents = self.contents_of(target, size);
        for _ in 0..QUESTIONS_MAX {
            let wanted = match &contents {
                // Its first answer says what the root is.
                None => Range { offset: range.offset, length: 1 },
                Some(contents) => match self.first_gap(target, contents, range)? {
                    Ok(pieces) => return Ok((*contents, pieces)),
                    Err(gap) => gap,
                },
            };
            let fetched = self.ask_recipe_alone(target, size, wanted).await?;
            self.keep_recipe(target, &fetched)?;
            contents = Some(fetched.contents);
        }
        // So much is new that it is better asked for at once.
        let fetched = self.ask_recipe_alone(target, size, range).await?;
        self.keep_recipe(target, &fetched)?;
        Ok((fetched.contents, pieces_of(target, &fetched, range)?))
    }

    /// The pieces of a stretch of a version, asking for what is not known of it.
    pub(crate) async fn pieces_of_version(
        &self,
        target: &Target<C::Container>,
        size: u64,
        range: Range,
    ) -> Result<(Contents, Vec<Placed>), Error> {
        if size >= recipes::FILE_BYTES_MIN {
            return self.pieces_by_difference(target, size, range).await;
        }
        let fetched = self.ask_recipe_alone(target, size, range).await?;
        Ok((fetched.contents, pieces_of(target, &fetched, range)?))
    }

    /// What came of the recipe may be known in the next version.
    pub(super) fn keep_recipe(
        &self,
        target: &Target<C::Container>,
        fetched: &Fetched,
    ) -> Result<(), Error> {
        let named: Vec<(ChunkName, &[u8])> =
            fetched.recipe.iter().map(|bytes| (target.secret.name(bytes), &bytes[..])).collect();
        if named.is_empty() {
            return Ok(());
        }
        let chunks = named.iter().map(|(name, bytes)| (name, *bytes));
        let mut write = self.inner.tables.write().map_err(error_of)?;
        recipes::keep(&mut *write, target.file, &fetched.contents, chunks).map_err(error_of)?;
        for (name, _) in &named {
            note_home(&mut *write, name).map_err(error_of)?;
        }
        write.commit(Durability::Later).map_err(error_of)
    }

    /// All of a version is here: what is kept of the recipe is this version's alone.
    pub(super) fn keep_recipe_of_this(
        &self,
        target: &Target<C::Container>,
        contents: &Contents,
    ) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let mut wanted = std::collections::BTreeSet::new();
        let mut next = 0;
        while next < contents.size {
            let stretch = Range { offset: next, length: contents.size - next };
            let found = cover(&target.secret, contents, stretch, PIECES_MAX, |name| {
                let bytes = recipes::find(&*write, target.file, name)?;
                let bytes = bytes.filter(|bytes| target.secret.check(name, bytes).is_ok());
                wanted.extend(bytes.is_some().then_some(*name));
                Ok(bytes)
            })
            .map_err(bad)?;
            next = found.next.unwrap_or(contents.size).max(next + 1);
        }
        recipes::retain(&mut *write, target.file, |name| wanted.contains(name))
            .map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }

    /// The contents of the version, if its root has been said.
    fn contents_of(&self, target: &Target<C::Container>, size: u64) -> Option<Contents> {
        let files = self.files();
        let open = files.get(target.file, target.generation)?;
        let contents = open.presence.contents;
        let known = open.presence.version == target.version && contents.root.is_some();
        (known && contents.size == size).then_some(contents)
    }

    /// The pieces of a stretch, or the first part of it of which the recipe is not here.
    fn first_gap(
        &self,
        target: &Target<C::Container>,
        contents: &Contents,
        range: Range,
    ) -> Result<Result<Vec<Placed>, Range>, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let found = cover(&target.secret, contents, range, PIECES_MAX, |name| {
            let bytes = recipes::find(&*read, target.file, name)?;
            Ok(bytes.filter(|bytes| target.secret.check(name, bytes).is_ok()))
        })
        .map_err(bad)?;
        if found.missing.is_empty() && found.next.is_none() {
            return Ok(Ok(found.pieces));
        }
        let end = range.offset.saturating_add(range.length).min(contents.size);
        let mut from = range.offset;
        for placed in &found.pieces {
            if placed.offset > from {
                return Ok(Err(Range { offset: from, length: placed.offset - from }));
            }
            from = from.max(placed.end());
        }
        let from = from.min(end.saturating_sub(1));
        Ok(Err(Range { offset: from, length: end - from }))
    }

    async fn ask_recipe_alone(
        &self,
        target: &Target<C::Container>,
        size: u64,
        range: Range,
    ) -> Result<Fetched, Error> {
        let (file, version) = (target.file, Some(target.version));
        let request = Request::Recipe { file, version, range, eager_bytes: 0, base: None };
        match self.ask_for(target.class, 0, request).await? {
            Response::Recipe(fetched) => {
                if fetched.version != target.version || fetched.contents.size != size {
                    return Err(Error::Stale);
                }
                Ok(fetched)
            }
            other => Err(unexpected("recipe", &other)),
        }
    }
}
