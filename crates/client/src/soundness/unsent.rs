//! What is pending and was altered in its container since it was stored: the recipe says of each chunk
//! what it should be.
//! Holds: what the replica above has, or another container here, is not lost: it is what the version
//! names, and is written anew in its place. Only a chunk that nobody has is given up.
//! Never: sends what is not the version, or gives up anything for want of a link.

use super::compare::{Copy, clipped, until_data, wrong_among};
use super::mend::portions;
use super::pass::{DESCRIBED_BYTES_MAX, WINDOW_BYTES};
use super::{ReadThrough, WindowRead, Wrong};
use crate::client::{Client, error_of};
use crate::fetch::Target;
use crate::part::{Added, PartRow};
use crate::plan::Plan;
use crate::presence::Presence;
use crate::recipes::{as_stored, is_left_over, pieces_as_stored, remove_unsent};
use crate::renumber::Anew;
use crate::types::Error;
use crate::undo::of_log;
use chunks::{Described, Placed};
use model::{Change, ChunkName, Contents, FileId, Piece, Update};
use protocol::{Class, Range, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use store::container::Key;
use store::{Containers, Durability, StoreError};

/// Where chunks belong that nobody here has.
type Places = BTreeMap<ChunkName, Vec<Placed>>;

/// What is said of contents that are pending.
const GONE: &str = "lost: they are not in the cache any more, and nobody else is known to have them. \
                    Write the file anew or remove it; if the cache was moved away, unmount, and put it \
                    back before the next mount";
const CUT: &str = "lost, but for what the server has of them already: the container in the cache was cut \
                   short";
const UNSURE: &str = "not in the cache any more. Whether the server has taken them is known when there is \
                      a link";
const ALTERED: &str = "not as they were written: the disk has altered them. What the server has of them is \
                       asked for when they are sent";

/// What came of looking at a window of what is pending.
#[derive(Default)]
struct Looked {
    wrong: Option<(u64, &'static str)>,
    /// That were read.
    bytes: u64,
    /// Where to go on.
    until: Option<u64>,
    is_unknown: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The container of a pending store does not hold what was stored, or cannot be read: what it is to
    /// be made of is planned by its recipe, if that is here. The replica above is asked for it first.
    pub(crate) fn plan_as_logged(&self, update: &Update) -> Result<(), Error> {
        let Some((copy, described)) = self.as_logged(update).map_err(error_of)? else {
            return Ok(());
        };
        let (file, most) = (copy.file, self.inner.settings.plan_chunks_max);
        let plan = Plan::new(file, copy.presence.generation, &described, Vec::new(), most);
        self.core().plans.insert(update.stamp.number, plan);
        if self.inner.mended.is_altered(file) {
            let path = self.name_for_people(file);
            tracing::info!(
                path,
                "the cache does not hold what was stored: it was sent before a kill and has changed since, or \
                 the disk has altered it; the server is asked for it first"
            );
        }
        Ok(())
    }

    /// A pending store whose contents are all in one container, and what they should be.
    fn as_logged(&self, update: &Update) -> Result<Option<(Copy, Described)>, StoreError> {
        let Change::Store { file, contents, .. } = update.change else { return Ok(None) };
        let secret = self.secret().0;
        self.save_late_now(&mut self.core())?;
        let read = self.inner.tables.read()?;
        let is_it = |row: &Presence| {
            let rests = row.dirty.is_some() || row.ground.is_some();
            row.version == update.stamp && row.is_whole() && !rests
        };
        let Some(presence) = Presence::load(&*read, file)?.filter(is_it) else { return Ok(None) };
        let described = as_stored(&*read, file, &contents, &secret)?;
        Ok(described.map(|described| (Copy { file, presence, class: Class::Replay }, described)))
    }

    /// Before the first of these stores is given up as one that is not here as it was written: what the
    /// replica above does not lack of it, or another container has, is written anew in its place.
    /// Errors: it could not be asked.
    pub(crate) async fn mend_unsent(
        &self,
        updates: &[Update],
        missing: &[ChunkName],
    ) -> Result<(), Error> {
        let is_store = |update: &&Update| matches!(update.change, Change::Store { .. });
        let Some(update) = updates.iter().find(is_store).cloned() else { return Ok(()) };
        let client = self.clone();
        let altered = self.off_the_runtime(move || client.altered_of(&update));
        let Some((copy, pieces)) = altered.await.map_err(error_of)? else { return Ok(()) };
        let Ok(_held) = self.hold(copy.file, copy.presence.generation) else { return Ok(()) };
        let wrong = self.confirmed(&copy, pieces).await?;
        let mut mended = 0;
        let outcome = self.mend_in_portions(&copy, &wrong, missing, &mut mended).await;
        if mended > 0 {
            let path = self.name_for_people(copy.file);
            tracing::warn!(path, bytes = mended, "what was not sent was mended");
            self.inner.mended.note(&path, mended);
            self.show_anew(&copy);
        }
        outcome
    }

    /// From elsewhere in the cache, and from the version that is current at the server, which has those
    /// chunks that are not missing there.
    async fn mend_in_portions(
        &self,
        copy: &Copy,
        wrong: &[Placed],
        missing: &[ChunkName],
        mended: &mut u64,
    ) -> Result<(), Error> {
        let secret = self.secret().0;
        let mut lacking = Places::new();
        for portion in portions(wrong) {
            let (found, lacks) = self.chunks_elsewhere(&secret, portion);
            for &placed in portion {
                match placed.piece {
                    Piece::Zeros { .. } => *mended += self.put_right(copy, placed, None).await?,
                    Piece::Chunk { name, .. } => match found.get(&name).cloned() {
                        Some(right) => *mended += self.put_right(copy, placed, Some(right)).await?,
                        None if lacks.contains(&name) => {
                            lacking.entry(name).or_default().push(placed);
                        }
                        None => {}
                    },
                }
            }
        }
        for name in missing {
            lacking.remove(name);
        }
        self.mend_from_current(copy, lacking, mended).await
    }

    /// Says how many bytes are right now that were not.
    async fn put_right(
        &self,
        copy: &Copy,
        placed: Placed,
        right: Option<Vec<u8>>,
    ) -> Result<u64, Error> {
        match self.write_anew(copy, placed, right).await {
            Ok(true) => Ok(placed.piece.length()),
            // What cannot be read beside it is seen to when that is given up.
            Ok(false) | Err(Error::Unreadable(_)) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The pieces of a pending store that are not what they should be.
    fn altered_of(&self, update: &Update) -> Result<Option<(Copy, Vec<Placed>)>, StoreError> {
        let Some((copy, described)) = self.as_logged(update)? else { return Ok(None) };
        let key = Key { file: copy.file.0, generation: copy.presence.generation };
        let Some(container) = self.inner.containers.open(key, false)? else { return Ok(None) };
        let secret = self.secret().0;
        let (wrong, _) = wrong_among(&copy.presence, &container, &secret, described.pieces)?;
        Ok((!wrong.is_empty()).then_some((copy, wrong)))
    }

    async fn mend_from_current(
        &self,
        copy: &Copy,
        mut lacking: Places,
        mended: &mut u64,
    ) -> Result<(), Error> {
        if lacking.is_empty() {
            return Ok(());
        }
        let node = self.said_of([copy.file].into_iter()).await?.pop().and_then(|said| said.node);
        let Some(node) = node else { return Ok(()) };
        let target = {
            let (secret, files) = (self.secret().0, self.files());
            let open = files.get(copy.file, copy.presence.generation);
            let Some(open) = open else { return Ok(()) };
            let target = Target::of(copy.file, open, secret);
            Target { version: node.contents_stamp, class: copy.class, ..target }
        };
        let (size, mut at) = (node.contents.size, 0);
        while at < size && !lacking.is_empty() {
            let window = Range { offset: at, length: WINDOW_BYTES.min(size - at) };
            at += window.length;
            let pieces = match self.pieces_of_version(&target, size, window).await {
                Ok((_, pieces)) => pieces,
                Err(error) => {
                    not_sent(copy, error)?;
                    continue;
                }
            };
            let lacks = |placed: &Placed| matches!(&placed.piece, Piece::Chunk { name, .. } if lacking.contains_key(name));
            let wanted: Vec<Placed> = pieces.into_iter().filter(lacks).collect();
            for portion in portions(&wanted) {
                self.mend_from(&target, (copy, portion), &mut lacking, mended).await?;
            }
        }
        Ok(())
    }

    /// From these pieces of the version that is current at the server.
    async fn mend_from(
        &self,
        target: &Target<C::Container>,
        (copy, pieces): (&Copy, &[Placed]),
        lacking: &mut Places,
        mended: &mut u64,
    ) -> Result<(), Error> {
        let names = pieces.iter().filter_map(|placed| match placed.piece {
            Piece::Chunk { name, .. } => Some(name),
            Piece::Zeros { .. } => None,
        });
        let names: BTreeSet<ChunkName> = names.filter(|name| lacking.contains_key(name)).collect();
        let of = (copy.file, target.version, copy.class);
        let came = match self.ask_chunks(of, pieces, &names, &target.secret).await {
            Ok(came) => came,
            Err(error) => return not_sent(copy, error),
        };
        for (name, bytes) in came {
            for placed in lacking.remove(&name).unwrap_or_default() {
                *mended += self.put_right(copy, placed, Some(bytes.clone())).await?;
            }
        }
        Ok(())
    }

    /// Looks at a window of what is pending of a file, if anything is, and says what is wrong. That is
    /// mended when it is sent, as far as anybody has it.
    pub(super) async fn read_unsent(
        &self,
        file: FileId,
        offset: u64,
        done: &mut ReadThrough,
    ) -> Result<WindowRead, Error> {
        let client = self.clone();
        let looked = self.off_the_runtime(move || Ok(client.look_at_unsent(file, offset)));
        let Some(looked) = looked.await.map_err(error_of)?? else {
            return Ok(WindowRead { until: None, is_unknown: false });
        };
        done.bytes += looked.bytes;
        done.files += u64::from(looked.until.is_none());
        if let Some((bytes, left)) = looked.wrong {
            let path = self.name_for_people(file);
            tracing::warn!(path, bytes, left, "what is not sent is not as it was written");
            done.wrong.push(Wrong { path, bytes, left: Some(left.into()), unsent: true });
        }
        Ok(WindowRead { until: looked.until, is_unknown: looked.is_unknown })
    }

    /// None: nothing is pending of it, or that is being changed or renamed.
    fn look_at_unsent(&self, file: FileId, offset: u64) -> Result<Option<Looked>, Error> {
        let Some(update) = self.still_pending(file)? else { return Ok(None) };
        let Change::Store { contents, .. } = update.change else { return Ok(None) };
        if let Some(lacking) = self.unsent_lacking(file).map_err(error_of)? {
            self.note_if_lost(file);
            let bytes = contents.data().min(contents.size.saturating_sub(lacking.there));
            let left = match (lacking.is_certain, lacking.is_gone()) {
                (false, _) => UNSURE,
                (true, true) => GONE,
                (true, false) => CUT,
            };
            return Ok(Some(Looked { wrong: Some((bytes, left)), ..Looked::default() }));
        }
        let mut looked = self.compare_unsent(&update, (file, contents), offset)?;
        if looked.wrong.is_some() {
            // Somebody may have written to it for a moment, and nothing that differed.
            looked = self.compare_unsent(&update, (file, contents), offset)?;
        }
        // Who has begun to write to it meanwhile has changed it, and not the disk.
        Ok((self.still_pending(file)?.as_ref() == Some(&update)).then_some(looked))
    }

    /// The last pending store of a file that nobody writes to, and that bears one name everywhere.
    fn still_pending(&self, file: FileId) -> Result<Option<Update>, Error> {
        let core = self.core();
        let Some(number) = core.log.pending_store(file) else { return Ok(None) };
        let is_renamed = Anew::is_unfinished(&*self.inner.tables.read().map_err(error_of)?);
        if self.is_written_to(file) || is_renamed.map_err(error_of)? {
            return Ok(None);
        }
        core.log.get(number).map_err(of_log)
    }

    fn compare_unsent(
        &self,
        update: &Update,
        (file, contents): (FileId, Contents),
        offset: u64,
    ) -> Result<Looked, Error> {
        let length = WINDOW_BYTES.min(contents.size.saturating_sub(offset));
        let window = Range { offset, length };
        self.save_late_now(&mut self.core()).map_err(error_of)?;
        let (row, part, pieces, secret) = {
            let (read, secret) = (self.inner.tables.read().map_err(error_of)?, self.secret().0);
            let part = PartRow::load(&*read, file, update.stamp.number, &contents);
            let pieces = pieces_as_stored(&*read, file, &contents, &secret, window);
            let row = Presence::load(&*read, file).map_err(error_of)?;
            (row, part.map_err(error_of)?, pieces.map_err(error_of)?, secret)
        };
        let altered = |bytes: u64| (bytes > 0).then_some((bytes, ALTERED));
        if let Some(part) = part {
            let bytes = part.pieces.iter().map(|(_, length, _)| length).sum();
            let is_altered = match self.added(file, &part, &secret) {
                Ok(added) => added != Added::There,
                Err(error) if error.is_unreadable() => true,
                Err(error) => return Err(error_of(error)),
            };
            let wrong = if is_altered { altered(bytes) } else { None };
            return Ok(Looked { wrong, bytes, ..Looked::default() });
        }
        let unknown = Looked { is_unknown: true, ..Looked::default() };
        let is_it = |row: &Presence| row.version == update.stamp && row.is_whole();
        let row = row.filter(|row| is_it(row) && row.ground.is_none());
        let key = row.as_ref().map(|row| Key { file: file.0, generation: row.generation });
        let container = key.map(|key| self.inner.containers.open(key, false)).transpose();
        let container = container.map_err(error_of)?.flatten();
        let (Some(row), Some(container)) = (row, container) else { return Ok(unknown) };
        let Some(pieces) = pieces else {
            if contents.size > DESCRIBED_BYTES_MAX || contents.root.is_none() {
                return Ok(unknown);
            }
            let is_right = self.is_as_cut(&contents, &container)?;
            let wrong = if is_right { None } else { altered(contents.data()) };
            return Ok(Looked { wrong, bytes: contents.data(), ..Looked::default() });
        };
        let until = until_data(&container, &pieces, offset + length).map_err(error_of)?;
        let pieces = pieces.iter().filter_map(|placed| clipped(placed, window)).collect();
        let (wrong, bytes) = wrong_among(&row, &container, &secret, pieces).map_err(error_of)?;
        let wrong = altered(wrong.iter().map(|placed| placed.piece.length()).sum());
        let until = Some(until).filter(|until| *until < contents.size);
        Ok(Looked { wrong, bytes, until, is_unknown: false })
    }

    /// A recipe that was kept until a store was sent goes, where that is pending no more.
    pub(super) fn forget_left_over(&self, file: FileId) -> Result<(), StoreError> {
        let mut core = self.core();
        let pending = core.log.pending_store(file);
        if !is_left_over(&*self.inner.tables.read()?, file, pending)? {
            return Ok(());
        }
        let mut write = self.inner.tables.write()?;
        // While it is given another number, it may bear that already.
        if !Anew::is_unfinished(&*write)? && is_left_over(&*write, file, pending)? {
            remove_unsent(&mut *write, file)?;
            write.commit(Durability::Later)?;
            core.unsaved = true;
        }
        Ok(())
    }

    /// Once the replica above has said what it has taken: whether the rest is here.
    pub(super) async fn look_for_unsent(&self) {
        let client = self.clone();
        let looked = self.off_the_runtime(move || {
            client.look_for_lost();
            Ok(())
        });
        // It says itself what went wrong.
        let _ = looked.await;
    }

    /// What was altered before it was sent is at the server by now: the container is made as that.
    pub(crate) async fn mend_sent(&self) {
        for file in self.inner.mended.altered() {
            let is_pending = self.core().log.pending_store(file).is_some();
            if is_pending || !self.connection().attached {
                continue;
            }
            match self.read_whole(file).await {
                // It may have changed meanwhile.
                Ok(true) | Err(Error::Stale | Error::BadHandle | Error::Objection(_)) => {
                    self.inner.mended.forget_altered(file);
                }
                Ok(false) => return,
                // What is sent next wakes who tries it again.
                Err(error) => {
                    tracing::warn!(%error, %file, "what was altered is not mended yet");
                }
            }
        }
    }

    /// False: it stops before that.
    async fn read_whole(&self, file: FileId) -> Result<bool, Error> {
        let (mut done, mut from) = (ReadThrough::default(), Some(0));
        while let Some(offset) = from {
            if self.is_stopping() {
                return Ok(false);
            }
            from = self.read_window(file, offset, Class::Demand, &mut done).await?.until;
        }
        Ok(true)
    }
}

/// An error: asking again says more.
fn not_sent(copy: &Copy, error: Error) -> Result<(), Error> {
    if comes_later(&error) {
        return Err(error);
    }
    tracing::debug!(%error, file = %copy.file, "the server does not send it");
    Ok(())
}

/// Whether asking again says more.
fn comes_later(error: &Error) -> bool {
    matches!(error, Error::Unreachable(_) | Error::TimedOut(_) | Error::Retry | Error::Stale)
}

impl super::Mended {
    /// What is pending of the file is not in its container as it was stored. Says whether that is new.
    fn is_altered(&self, file: FileId) -> bool {
        let mut altered = self.altered.lock().unwrap_or_else(super::PoisonError::into_inner);
        // More of them are found when the cache is read through.
        altered.len() < super::ALTERED_MAX && altered.insert(file)
    }

    fn altered(&self) -> Vec<FileId> {
        let altered = self.altered.lock().unwrap_or_else(super::PoisonError::into_inner);
        altered.iter().copied().collect()
    }

    fn forget_altered(&self, file: FileId) {
        self.altered.lock().unwrap_or_else(super::PoisonError::into_inner).remove(&file);
    }

    /// Something that was pending has been sent.
    pub fn sent(&self) {
        if !self.altered().is_empty() {
            self.look();
        }
    }

    /// The replica above has said what it has taken of what is pending.
    pub fn look(&self) {
        self.wanted.notify_one();
    }
}
