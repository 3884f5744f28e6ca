//! Which contents a version is sent or fetched against, and doing it.
//! Holds: a base is a guess. Sender and receiver check what comes of it, and if nothing does the
//! chunks travel by themselves.
//! From: beyond LBFS, which sends a changed chunk whole.

use crate::client::{Client, error_of};
use crate::failures::of_chunks;
use crate::fetch::now_of;
use crate::files::Images;
use crate::plan::Plan;
use crate::presence::Presence;
use crate::ranks::{self, Rank, Ranked};
use crate::types::Error;
use crate::unreadable::readable;
use crate::worth;
use chunks::delta::{Codec, Effort, is_packed, parts_of};
use chunks::{Placed, pack_against, stretch_of, unpack_against};
use model::{Change, ChunkName, FileId, Stamp, Update, View};
use protocol::{Base, CODED_BYTES_MAX, Delta, EntryState, PAYLOAD_BYTES_MAX, Range, Upstream};
use std::sync::Arc;
use store::container::Key;
use store::{Container, Containers, StoreError};
use volume::partial::Tree;

/// Fewer bytes are not worth looking for a base.
const TARGET_BYTES_MIN: u64 = 64;

/// A base with less than one byte for so many of the contents is taken only for want of a better.
const SMALL_ONE_IN: u64 = 4;

/// A delta of a whole container is taken without asking what its new chunks would take, where it
/// has at most one byte for so many of them.
const WHOLE_ONE_IN: usize = 2;
/// By so many bytes a compressed container is known.
const KIND_BYTES: u64 = 16;

/// What a delta is made of.
struct Coded<'a, K> {
    update: &'a Update,
    plan: &'a Plan,
    source: &'a Source<K>,
}

/// Contents that may be like what is to be sent or fetched.
pub(crate) struct Source<K> {
    pub file: FileId,
    pub version: Stamp,
    pub size: u64,
    ranges: Vec<(u64, u64)>,
    container: K,
    /// What it had where it has been written over since.
    images: Option<Arc<Images>>,
}

impl<K: Container> Source<K> {
    /// What is most like a stretch of a version of `size` bytes, if all of it is here.
    pub fn base(&self, size: u64, wanted: Range) -> Option<Base> {
        let stretch = self.part_of(stretch_of(self.size, size, wanted)?, wanted)?;
        Some(Base { file: self.file, version: self.version, stretch })
    }

    /// What is most like these chunks of a store.
    fn base_of(&self, plan: &Plan, update: &Update, names: &[ChunkName]) -> Option<Base> {
        let Change::Store { contents, .. } = &update.change else { return None };
        let places = || names.iter().filter_map(|name| plan.data.get(name));
        let from = places().map(|(offset, _)| *offset).min()?;
        let to = places().map(|(offset, length)| offset + u64::from(*length)).max()?;
        self.base(contents.size, Range { offset: from, length: to - from })
    }

    /// What is here of a stretch, around what stands where the wanted one does.
    fn part_of(&self, stretch: Range, wanted: Range) -> Option<Range> {
        let end = stretch.offset.checked_add(stretch.length)?;
        let at = wanted.offset.clamp(stretch.offset, end);
        let found = self.ranges.iter().find(|&&(from, to)| from <= at && at < to)?;
        let (from, to) = (found.0.max(stretch.offset), found.1.min(end));
        Some(Range { offset: from, length: to - from })
    }

    fn has(&self, stretch: Range) -> bool {
        let Some(end) = stretch.offset.checked_add(stretch.length) else { return false };
        self.ranges.iter().any(|&(from, to)| from <= stretch.offset && end <= to)
    }

    /// Whether all of it is here, and is a compressed container.
    pub fn is_packed(&self) -> Result<bool, Error> {
        let begins = Range { offset: 0, length: self.size.min(KIND_BYTES) };
        let whole = self.has(Range { offset: 0, length: self.size });
        Ok(whole && self.read(begins)?.is_some_and(|bytes| is_packed(&bytes)))
    }

    /// So many bytes from an offset on, or as many as it has.
    pub fn read_some(&self, offset: u64, length: usize) -> chunks::Result<Vec<u8>> {
        let mut bytes = self.container.read(offset, length)?;
        if let Some(images) = &self.images {
            images.restore(offset, &mut bytes);
        }
        Ok(bytes)
    }

    /// The bytes of a stretch; none if they are not all here.
    fn read(&self, stretch: Range) -> Result<Option<Vec<u8>>, Error> {
        if !self.has(stretch) {
            return Ok(None);
        }
        let length = usize::try_from(stretch.length).unwrap_or(usize::MAX);
        let read = readable(self.container.read(stretch.offset, length)).map_err(error_of)?;
        let Some(mut bytes) = read else { return Ok(None) };
        if let Some(images) = &self.images {
            images.restore(stretch.offset, &mut bytes);
        }
        Ok((bytes.len() == length).then_some(bytes))
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) fn kin(&self) -> Ranked<'_, crate::kin::Kin> {
        ranks::lock(Rank::Kin, &self.inner.kin)
    }

    /// Before the replica above is believed: which names it says are another file's by now.
    pub(crate) fn note_hands(&self, entries: &[EntryState]) -> Result<(), Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        for state in entries {
            // Who is not known here was not cached here.
            let Ok(Some(before)) = tree.entry(state.directory, &state.name) else { continue };
            if state.file != Some(before) {
                let name = (state.directory, state.name.clone());
                self.kin().changes_hands(name, before, state.file);
            }
        }
        Ok(())
    }

    /// What is here of a version of a file, or of the newest that is.
    fn source(
        &self,
        file: FileId,
        version: Option<Stamp>,
    ) -> Result<Option<Source<C::Container>>, Error> {
        let kept = self.trash().find(file, version);
        if let Some((key, kept)) = kept
            && !self.kin().is_useless(file, kept.version)
            && let Some(container) = self.inner.containers.open(key, false).map_err(error_of)?
        {
            let (version, size, ranges) = (kept.version, kept.size, kept.ranges);
            return Ok(Some(Source { file, version, size, ranges, container, images: None }));
        }
        let row = {
            let read = self.inner.tables.read().map_err(error_of)?;
            Presence::load(&*read, file).map_err(error_of)?
        };
        let fits = |row: &Presence| {
            let is_this = version.is_none_or(|version| version == row.version);
            is_this && row.dirty.is_none() && !row.ranges.is_empty()
        };
        let Some(row) = row.filter(fits) else { return Ok(None) };
        if self.kin().is_useless(file, row.version) {
            return Ok(None);
        }
        let key = Key { file: file.0, generation: row.generation };
        let Some(container) = self.inner.containers.open(key, false).map_err(error_of)? else {
            return Ok(None);
        };
        let (version, size) = (row.version, row.contents.size);
        Ok(Some(Source { file, version, size, ranges: row.ranges, container, images: None }))
    }

    /// What the replica above has that the contents of a pending store may be like: the version
    /// that it replaces, or else the file whose place this one took, or the one that has most of
    /// its chunks.
    pub(crate) fn source_for_store(
        &self,
        update: &Update,
        plan: &Plan,
    ) -> Result<Option<Source<C::Container>>, Error> {
        let Change::Store { file, expects, contents, .. } = &update.change else {
            return Ok(None);
        };
        let (replica, settled) = {
            let core = self.core();
            (core.meta.replica, core.meta.settled)
        };
        if let Some(source) = self.source_under(plan, *expects)? {
            return Ok(Some(source));
        }
        let before = self.kin().before(*file);
        let guesses = [(Some(*file), Some(*expects)), (Some(*file), None), (before, None)];
        // What a program has only begun with, before it wrote the rest, is like nothing.
        let is_large = |source: &Source<_>| source.size >= contents.size / SMALL_ONE_IN;
        let mut small = None;
        for (file, version) in guesses {
            let Some(file) = file else { continue };
            let Some(source) = self.source(file, version)? else { continue };
            let stamp = source.version;
            // What is pending, this one too, cannot be there yet.
            if Some(stamp.replica) == replica && stamp.number > settled {
                continue;
            }
            if is_large(&source) {
                return Ok(Some(source));
            }
            small.get_or_insert(source);
        }
        let alike = self.source_among(&plan.kin)?;
        let is_better = small.is_none() || alike.as_ref().is_some_and(is_large);
        Ok(if is_better { alike } else { small })
    }

    /// What is here of the first of these files that the replica above has too. Where that has come to
    /// nothing already, nothing is: the others are less like it.
    fn source_among(&self, kin: &[FileId]) -> Result<Option<Source<C::Container>>, Error> {
        for file in kin {
            let Ok(Some(version)) = self.newest_here(*file) else { continue };
            if !self.is_settled(version) {
                continue;
            }
            if self.kin().is_useless(*file, version) {
                return Ok(None);
            }
            match self.source(*file, Some(version)) {
                Ok(Some(source)) => return Ok(Some(source)),
                Err(Error::TooManyOpen) => return Err(Error::TooManyOpen),
                // One that cannot be read keeps nothing from being sent.
                Ok(None) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// The version of a file that is here, as `source` takes it.
    fn newest_here(&self, file: FileId) -> Result<Option<Stamp>, StoreError> {
        if let Some((_, kept)) = self.trash().find(file, None) {
            return Ok(Some(kept.version));
        }
        let row = Presence::load(&*self.inner.tables.read()?, file)?;
        Ok(row.map(|row| row.version))
    }

    /// The version that was written over in place, as the container still gives it.
    fn source_under(
        &self,
        plan: &Plan,
        expects: Stamp,
    ) -> Result<Option<Source<C::Container>>, Error> {
        let Some(images) = plan.images.clone().filter(|images| images.version == expects) else {
            return Ok(None);
        };
        let (file, version, size) = (plan.file, images.version, images.size);
        if self.kin().is_useless(file, version) || !self.is_settled(version) {
            return Ok(None);
        }
        let row = {
            let read = self.inner.tables.read().map_err(error_of)?;
            Presence::load(&*read, file).map_err(error_of)?
        };
        let Some(row) = row.filter(|row| row.generation == plan.generation) else {
            return Ok(None);
        };
        let key = Key { file: file.0, generation: plan.generation };
        let container = self.inner.containers.open(key, false).map_err(error_of)?;
        let ranges = row.ranges;
        let with =
            |container| Source { file, version, size, ranges, container, images: Some(images) };
        Ok(container.map(with))
    }

    /// What is here that a version which is to be fetched may be like.
    pub(crate) fn source_for_fetch(
        &self,
        file: FileId,
        version: Stamp,
    ) -> Result<Option<Source<C::Container>>, Error> {
        let before = self.kin().before(file);
        for file in [Some(file), now_of(file), before].into_iter().flatten() {
            match self.source(file, None)? {
                Some(source) if source.version != version => return Ok(Some(source)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The file here that has most of the same chunks as a version that is to be fetched, if the
    /// replica above has it as well.
    pub(crate) fn source_alike(
        &self,
        file: FileId,
        pieces: &[Placed],
    ) -> Result<Option<Source<C::Container>>, Error> {
        for alike in self.votes(pieces, (&[], 0), file).best() {
            if let Some(source) = self.settled_source(alike)? {
                return Ok(Some(source));
            }
        }
        Ok(None)
    }

    /// What is here of a version, if all of it is; `settled`: and if the replica above has it too.
    pub(crate) fn version_here(
        &self,
        file: FileId,
        version: Stamp,
        settled: bool,
    ) -> Result<Option<Source<C::Container>>, Error> {
        let source = self.source(file, Some(version))?;
        let whole = |source: &Source<_>| source.has(Range { offset: 0, length: source.size });
        Ok(source.filter(|source| whole(source) && (!settled || self.is_settled(source.version))))
    }

    /// What is here of a file, if the replica above has it too.
    fn settled_source(&self, file: FileId) -> Result<Option<Source<C::Container>>, Error> {
        let source = self.source(file, None)?;
        Ok(source.filter(|source| self.is_settled(source.version)))
    }

    /// What is pending cannot be there yet.
    pub(crate) fn is_settled(&self, version: Stamp) -> bool {
        let core = self.core();
        Some(version.replica) != core.meta.replica || version.number <= core.meta.settled
    }

    /// Whether something is here that a version of this file may be sent against.
    pub(crate) fn has_base(&self, file: FileId) -> bool {
        matches!(self.settled_source(file), Ok(Some(_)))
    }

    /// The first bytes of what is here of a file, if the replica above has it too.
    pub(crate) fn head_of(&self, file: FileId) -> Option<Vec<u8>> {
        let source = self.settled_source(file).ok()??;
        source.read(Range { offset: 0, length: source.size.min(KIND_BYTES) }).ok()?
    }

    /// Chunks of a pending store against one version; none where they are better sent by
    /// themselves. Of a compressed container it may be all chunks, and not only these.
    pub(crate) fn delta_of_version(
        &self,
        update: &Update,
        plan: &Plan,
        names: &[ChunkName],
    ) -> Result<Option<Delta>, Error> {
        // Packed bytes that no chunk has in common have nothing in common, and these are too many
        // to be unpacked.
        let size = match &update.change {
            Change::Store { contents, .. } => contents.size,
            _ => 0,
        };
        if size > CODED_BYTES_MAX as u64 && self.is_packed(plan)? {
            return Ok(None);
        }
        let Some(source) = self.source_for_store(update, plan)? else { return Ok(None) };
        let rate = self.inner.upstream.quality().rate_up;
        let bytes = plan.bytes_of(names);
        let effort = |both: u64| worth::effort(rate, bytes, both);
        let packed = !plan.is_part()
            && names.len() < plan.data.len()
            && self.is_packed(plan)?
            && source.is_packed()?;
        let coded = Coded { update, plan, source: &source };
        if packed && effort(source.size + plan.data_bytes()) == Some(Effort::Usual) {
            let all = plan.data_in_order();
            let whole = self.delta_of_chunks(&coded, &all, CODED_BYTES_MAX, Effort::Unpack)?;
            let small = |delta: &Delta| {
                let bytes_max = PAYLOAD_BYTES_MAX.min(bytes as usize / WHOLE_ONE_IN);
                delta.bytes.len() <= bytes_max
            };
            if let Some(whole) = whole.filter(small) {
                return Ok(Some(whole));
            }
        }
        let Some(base) = source.base_of(plan, update, names) else { return Ok(None) };
        let Some(effort) = effort(bytes + base.stretch.length) else { return Ok(None) };
        self.delta_of_chunks(&coded, names, PAYLOAD_BYTES_MAX, effort)
    }

    pub(crate) fn is_packed(&self, plan: &Plan) -> Result<bool, Error> {
        let first = plan.data.iter().find(|(_, (offset, _))| *offset == 0);
        let Some((name, _)) = first else { return Ok(false) };
        let chunk = self.chunk_of(plan, &self.secret().0, name).map_err(error_of)?;
        Ok(chunk.is_some_and(|chunk| is_packed(&chunk)))
    }

    fn delta_of_chunks(
        &self,
        coded: &Coded<'_, C::Container>,
        names: &[ChunkName],
        bytes_max: usize,
        effort: Effort,
    ) -> Result<Option<Delta>, Error> {
        let Coded { update, plan, source } = *coded;
        let places: Vec<(u64, u32)> =
            names.iter().filter_map(|name| plan.data.get(name).copied()).collect();
        let bytes: u64 = places.iter().map(|(_, length)| u64::from(*length)).sum();
        if places.len() != names.len() || !(TARGET_BYTES_MIN..=bytes_max as u64).contains(&bytes) {
            return Ok(None);
        }
        let Some(base) = source.base_of(plan, update, names) else { return Ok(None) };
        let Some(old) = source.read(base.stretch)? else { return Ok(None) };
        let secret = self.secret().0;
        let mut chunks = Vec::with_capacity(names.len());
        for name in names {
            match self.chunk_of(plan, &secret, name).map_err(error_of)? {
                Some(chunk) => chunks.push(chunk),
                None => return Ok(None),
            }
        }
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        Ok(pack_against(&secret, (base, &old), &chunks, effort))
    }

    /// The chunks of a delta that came for what was offered. None: nothing comes of it, and the
    /// source is of no use.
    pub(crate) fn undo_delta(
        &self,
        source: &Source<C::Container>,
        delta: &Delta,
    ) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let is_this = delta.base.file == source.file && delta.base.version == source.version;
        let old = if is_this { source.read(delta.base.stretch)? } else { None };
        let secret = self.secret().0;
        let chunks = match old {
            Some(old) => unpack_against(&secret, delta, &old, CODED_BYTES_MAX),
            None => Ok(None),
        };
        let chunks = chunks.map_err(of_chunks)?;
        if chunks.is_none() {
            self.kin().note_useless(source.file, source.version);
        }
        Ok(chunks)
    }

    /// The replica above cannot use these.
    pub(crate) fn note_useless(&self, bases: Option<&Vec<(FileId, Stamp)>>) {
        for (file, version) in bases.into_iter().flatten() {
            tracing::debug!(%file, %version, "the replica above does not have this base");
            self.kin().note_useless(*file, *version);
        }
    }

    /// For `explain`: a delta has travelled.
    pub(crate) fn note_coded(&self, file: FileId, version: Stamp, sent: bool, delta: &Delta) {
        let mut kin = self.kin();
        let transfer = kin.transfer_of(file, version, sent);
        transfer.base = Some((delta.base.file, delta.base.version, delta.codec));
        transfer.coded += delta.lengths.iter().map(|length| u64::from(*length)).sum::<u64>();
        transfer.coded_bytes += delta.bytes.len() as u64;
        if delta.codec == Codec::Assembled.number() {
            transfer.assembly.add(&parts_of(&delta.bytes).unwrap_or_default());
        }
    }

    /// For `explain`: chunks have travelled by themselves.
    pub(crate) fn note_plain(&self, file: FileId, version: Stamp, sent: bool, bytes: u64) {
        self.kin().transfer_of(file, version, sent).plain += bytes;
    }
}
