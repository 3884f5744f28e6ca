//! Copying from one open file to another: by name, where the source is not here, else its bytes.
//! Holds: what a copy by name is made of lies at the replica above, which is known by the version
//! of the source that is current; the log says on the disk where it is before the target shows it.
//! From: LBFS, whose chunks have names; that a copy needs no more than these is beyond it.

use super::{FILE_BYTES_MAX, Grip, OpenFile, holes::Layout};
use crate::asking::unexpected;
use crate::client::{Client, failed, log_failed};
use crate::mode;
use crate::part::{STRETCHES_MAX, opened_record};
use crate::presence::{Ground, Presence};
use crate::ranks::{self, Rank};
use crate::types::{Error, Handle, Need, Step, Stop};
use model::FileId;
use protocol::{Class, Range, Request, Response, Upstream};
use std::sync::atomic::Ordering;
use store::{Container, Containers, Durability};

/// A stretch of a source, to be the ground of the same stretch of another file.
struct Source {
    ground: Ground,
    from: u64,
    to: u64,
    /// It is short, or much of it is here.
    is_little: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Copies a stretch from one open file to another; the bytes copied, perhaps fewer.
    pub fn copy(
        &self,
        from: Handle,
        from_offset: u64,
        to: Handle,
        to_offset: u64,
        length: u64,
    ) -> Step<u64> {
        const STEP_BYTES_MAX: u64 = 1 << 20;
        if from_offset == to_offset
            && let Some(copied) = self.copy_by_name(from, to, (from_offset, length))?
        {
            return Ok(copied);
        }
        let length = usize::try_from(length.min(STEP_BYTES_MAX)).unwrap_or(1 << 20);
        let bytes = self.read(from, from_offset, length)?;
        if !bytes.is_empty() {
            self.write(to, to_offset, &bytes)?;
        }
        Ok(bytes.len() as u64)
    }

    /// What the target gets is where to find the contents of the source. None: its bytes are to be
    /// copied.
    fn copy_by_name(
        &self,
        from: Handle,
        to: Handle,
        (offset, length): (u64, u64),
    ) -> Step<Option<u64>> {
        self.has_its_locks(from)?;
        self.has_its_locks(to)?;
        let Some(source) = self.source_by_name(from, (offset, length))? else { return Ok(None) };
        let (grip, flags) = self.files().grip(to)?;
        if !flags.write {
            return Err(Error::BadHandle.into());
        }
        if flags.append || !self.takes_by_name(&grip, &source) {
            return Ok(None);
        }
        self.has_quota_to_write(to, Some(offset), source.to - offset)?;
        self.while_writing(to, |_| {
            let (grip, _) = self.files().grip(to)?;
            self.begin_to_alter(&grip, 0, super::first::Extent::Grows)
        })?;
        // It may be another one by now.
        let (grip, _) = self.files().grip(to)?;
        if !self.rest_upon(&grip, &source)? {
            return Ok(None);
        }
        let (counts, file) = {
            let mut files = self.files();
            (files.read_counts(from), files.grip(from)?.0.file)
        };
        if counts {
            self.accessed(file);
        }
        Ok(Some(source.to - offset))
    }

    /// The stretch of a source that is a stored version and current, if some of it is not here.
    /// Only where whoever reads it could fetch it.
    fn source_by_name(&self, from: Handle, (offset, length): (u64, u64)) -> Step<Option<Source>> {
        if !mode::validates(self.connection().mode) {
            return Ok(None);
        }
        let (grip, Presence { version, contents, ground, .. }, absent) = {
            let files = self.files();
            let (grip, flags) = files.grip(from)?;
            if !flags.read {
                return Err(Error::BadHandle.into());
            }
            let open = files.get(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            if open.presence.dirty.is_some() || open.unlinked.is_some() || open.unborn {
                return Ok(None);
            }
            let absent = open.presence.absent(offset, offset.saturating_add(length));
            (grip, open.presence.clone(), absent)
        };
        let to = offset.saturating_add(length).min(contents.size);
        let is_itself = |ground: &Ground| ground.is_same(&Ground::new(version, contents));
        if offset >= to || ground.is_some_and(|ground| !is_itself(&ground)) {
            return Ok(None);
        }
        let current = self.node_here(grip.file)?.map(|node| node.contents_stamp);
        if current != Some(version) || self.core().log.pending_store(grip.file).is_some() {
            return Ok(None);
        }
        let absent: u64 = absent.iter().map(|(from, to)| to - from).sum();
        let is_little = absent <= self.whole_bytes_max();
        if contents.root.is_none() && !is_little {
            return Err(Stop::Need(Need::Root { file: grip.file, generation: grip.generation }));
        }
        let ground = Ground { of: Some(grip.file), ..Ground::new(version, contents) };
        Ok(contents.root.map(|_| Source { ground, from: offset, to, is_little }))
    }

    /// Whether a file may lack what lies in another: it has a name, what it lacks so far is in the
    /// same one, and the kernel does not look into its container.
    fn takes_by_name(&self, grip: &Grip<C::Container>, source: &Source) -> bool {
        let files = self.files();
        let Some(open) = files.get(grip.file, grip.generation) else { return false };
        let Source { ground: another, to, is_little, .. } = source;
        let Presence { dirty, contents, ground, ranges, .. } = &open.presence;
        let fits = match (ground, dirty) {
            (Some(ground), Some(_)) => ground.is_same(another),
            // What is stored is not to be looked at before it is written over.
            (None, Some(_)) => !is_little,
            (None, None) => !is_little && contents.size == 0,
            (Some(_), None) => false,
        };
        let is_own = open.unlinked.is_some() || open.unborn || open.birth.is_some();
        let is_lent = open.unseen.is_some() || files.lent.contains_key(&grip.file);
        let many = ground.as_ref().map_or(0, |ground| ground.written.len()).max(ranges.len());
        fits && !is_own
            && !is_lent
            && grip.file != another_file(another)
            && many < STRETCHES_MAX
            && *to <= FILE_BYTES_MAX
    }

    /// A stretch of a file that is written to is as it is in the source from here on. False: it is
    /// not what it was when that was looked at.
    fn rest_upon(&self, grip: &Grip<C::Container>, source: &Source) -> Step<bool> {
        let Source { ground, from, to, .. } = source;
        let _still = ranks::write(Rank::Still, &grip.still);
        if !self.takes_by_name(grip, source) {
            return Ok(false);
        }
        let size = grip.container.length().map_err(failed)?;
        if size > 0 {
            // What is said to be here is on the disk.
            grip.container.sync().map_err(failed)?;
        }
        {
            let mut core = self.core();
            let mut files = self.files();
            let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            let Some(dirty) = open.presence.dirty else { return Ok(false) };
            let Some(copied) = open.presence.copied((*from, *to), size, ground) else {
                return Ok(false);
            };
            core.log.note(&opened_record(grip.file, dirty, &copied)).map_err(log_failed)?;
            core.unsaved = true;
            open.presence = copied;
            // Who found before that all was here looks again.
            open.left.fetch_add(1, Ordering::AcqRel);
            let mut write = self.inner.tables.write().map_err(failed)?;
            open.presence.save_in_place(&mut *write, grip.file).map_err(failed)?;
            write.commit(Durability::Later).map_err(failed)?;
        }
        // A container that is longer than the log knows why would be taken for zeros.
        let outcome = self.sync_log().and_then(|()| match size < *to {
            true => grip.container.set_length(*to).and_then(|()| grip.container.sync()),
            false => Ok(()),
        });
        let now = self.inner.world.clock.time();
        let mut files = self.files();
        let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
        if outcome.is_err() {
            // It is as long as it is, and the log is told so with the next change.
            open.presence.cut(grip.container.length().map_err(failed)?);
            open.owes_cut = true;
        }
        rests_on_another(open);
        open.note_changed(now);
        outcome.map_err(failed).map(|()| true)
    }

    /// Learns where the recipe of a version begins, which listings leave out.
    pub(crate) async fn learn_root(&self, file: FileId, generation: u32) -> Result<(), Error> {
        let (version, size) = {
            let files = self.files();
            let Some(open) = files.get(file, generation) else { return Ok(()) };
            (open.presence.version, open.presence.contents.size)
        };
        let range = Range { offset: 0, length: 1 };
        let request =
            Request::Recipe { file, version: Some(version), range, eager_bytes: 0, base: None };
        let fetched = match self.ask(Class::Interactive, request).await? {
            Response::Recipe(fetched) => fetched,
            other => return Err(unexpected("recipe", &other)),
        };
        if fetched.version != version || fetched.contents.size != size {
            return Err(Error::Stale);
        }
        if fetched.contents.root.is_none() {
            let text = format!("the recipe of {file} that the server sent begins nowhere");
            return Err(Error::Failed(text));
        }
        if let Some(open) = self.files().get_mut(file, generation)
            && open.presence.version == version
            && open.presence.dirty.is_none()
        {
            open.presence.contents = fetched.contents;
        }
        Ok(())
    }
}

fn another_file(ground: &Ground) -> FileId {
    ground.of.expect("a source is another file")
}

/// What was noted of the container's bytes is not all that the file is made of now.
fn rests_on_another<K>(open: &mut OpenFile<K>) {
    (open.since, open.front, open.images) = (None, None, None);
    open.layout = Layout::default();
    open.written = true;
    open.only_cut = false;
    open.turned_down = false;
}
