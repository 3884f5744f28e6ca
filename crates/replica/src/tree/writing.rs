//! Large files that devices have stored are written a piece at a time, and between two pieces all
//! else that happened is carried over.
//! Holds: one is written at a time, in the stage, where programs do not see it. What waits for a
//! file is placed when all of it is there and on the disk. A version that is stored meanwhile takes
//! the place of the one that is being written, and of what is there only the difference is written;
//! where the disk can share blocks between files, so does the first version of what is in the tree.
//! Never: gives a file a name in the tree.
//!
//! ```text
//!   wanted --> waits for its turn --> is written --all of it--> ready, and placed with what waits
//!                  ^                      |
//!                  +---- after a pause ---+ it failed
//! ```

use super::commit::At;
use super::contents::Writing;
use super::keeper::{Behind, Keeper, RETRY, RETRY_DOUBLINGS_MAX};
use super::rows::{self, Known};
use super::stage::{Ready, stage_name};
use crate::error::Result;
use model::{FileId, Kind, Name, Node, Stamp, Time, View};
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::time::Duration;
use store::tree::{Directory, How, TreeFile};
use store::{Read, StoreError};
use volume::whole::Whole;
use world::Moment;

/// Of a file that is stored again and again while it is written, after so often a version is written
/// to its end and put out, though it is not the newest; or none might ever be.
const OVERTAKEN_MAX: u32 = 3;

/// About so long may what is small wait for a piece of what is large.
const PIECE_TIME: Duration = Duration::from_millis(250);
/// How many halvings a piece gets smaller on a slow disk.
const HALVINGS_MAX: u32 = 5;
/// Of a second, the last.
const NANOS_MAX: u32 = 999_999_999;
/// Bytes of the disk that a large file leaves free.
const LEFT_FREE: u64 = 4 << 20;

/// Files that are too large to be made ready at once.
#[derive(Default)]
pub(super) struct Outgoing {
    work: Option<Work>,
    /// With what is to be placed when they are there; the first is being written.
    waiting: VecDeque<(FileId, Behind)>,
    /// What was written and is ready, until it is placed.
    taken: Option<Work>,
    failures: u32,
    /// So often pieces were halved because they took too long.
    halvings: u32,
    /// After a failure nothing is written before.
    due: Option<Moment>,
}

/// A file that is being written, or was.
struct Work {
    file: FileId,
    name: Name,
    out: TreeFile,
    version: Stamp,
    writing: Writing,
    overtaken: u32,
    whole: bool,
}

impl Work {
    /// Another version is to be there instead.
    fn go_over_to(&mut self, node: &Node) {
        let fresh = Writing::new(&node.contents);
        let before = std::mem::replace(&mut self.writing, fresh);
        self.writing = before.go_over_to(&node.contents);
        (self.version, self.whole) = (node.contents_stamp, false);
        self.overtaken = self.overtaken.saturating_add(1);
    }

    /// Whether it is written to its end though it may not be the newest.
    fn goes_to_its_end(&self) -> bool {
        self.overtaken >= OVERTAKEN_MAX
    }
}

impl Outgoing {
    /// Whether there is something to go on with.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether to go on now.
    pub fn is_due(&self, now: Moment) -> bool {
        self.is_busy() && self.due.is_none_or(|due| due <= now)
    }

    /// A piece took so long: the next is to take about as long as it may.
    fn took(&mut self, piece: Duration) {
        if piece > PIECE_TIME {
            self.halvings = (self.halvings + 1).min(HALVINGS_MAX);
        } else if piece < PIECE_TIME / 4 {
            self.halvings = self.halvings.saturating_sub(1);
        }
    }

    /// All that was ready has its place. Who has a file open that is removed keeps its room.
    pub fn let_go(&mut self) {
        self.taken = None;
    }

    /// When to try again what failed.
    pub fn due(&self) -> Option<Moment> {
        self.due.filter(|_| self.is_busy())
    }

    pub fn len(&self) -> usize {
        self.waiting.iter().map(|(_, behind)| behind.entries.len() + behind.nodes.len()).sum()
    }

    pub fn has(&self, file: FileId) -> bool {
        self.waiting.iter().any(|(waiting, _)| *waiting == file)
    }

    fn waits_for(&mut self, file: FileId) -> &mut Behind {
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == file);
        let at = at.unwrap_or_else(|| {
            self.waiting.push_back((file, Behind::default()));
            self.waiting.len() - 1
        });
        &mut self.waiting[at].1
    }

    /// A name is to be put out when this file is there.
    pub fn wait_entry(&mut self, file: FileId, at: At) {
        self.waits_for(file).entry(at);
    }

    /// The file itself is.
    pub fn wait_node(&mut self, file: FileId) {
        self.waits_for(file).nodes.insert(file);
    }
}

/// The last moment before another.
fn just_before(time: Time) -> Time {
    match time.nanos.checked_sub(1) {
        Some(nanos) => Time { nanos, ..time },
        None => Time { secs: time.secs.saturating_sub(1), nanos: NANOS_MAX },
    }
}

/// Whether so many bytes may be written where so many are free: what others do needs some, too.
fn fits(bytes: u64, free: u64) -> bool {
    bytes.checked_add(LEFT_FREE).is_some_and(|needed| needed <= free)
}

impl Keeper {
    pub(super) fn is_large_node(&self, node: &Node) -> bool {
        node.contents.size > self.inner.limits.tree_piece_bytes
    }

    /// Makes ready what was written of this version, if that is all of it; otherwise the file waits.
    pub(super) fn take_written(
        &mut self,
        stage: &Directory,
        file: FileId,
        node: &Node,
    ) -> Option<Result<Known>> {
        let is_this = |work: &mut Work| {
            let is_wanted = work.version == node.contents_stamp || work.goes_to_its_end();
            work.whole && work.file == file && is_wanted
        };
        let Some(work) = self.outgoing.work.take_if(is_this) else {
            self.outgoing.wait_node(file);
            return None;
        };
        let dressed = match work.version == node.contents_stamp {
            true => self.dress_ready(stage, &work.name, node),
            // The newest version comes with its own time, by which programs see that it is another.
            false => {
                let node = Node { mtime: just_before(node.mtime), ..node.clone() };
                self.dress_ready(stage, &work.name, &node)
            }
        };
        let (contents, contents_stamp) = (work.writing.contents, work.version);
        let ready = dressed.and_then(|known| {
            work.out.sync()?;
            Ok(Known { contents, contents_stamp, ..known })
        });
        self.outgoing.taken = ready.is_ok().then_some(work);
        Some(ready)
    }

    /// What was ready and could not be placed yet is kept, so that it need not be written again.
    pub(super) fn keep_unplaced(
        &mut self,
        stage: &Directory,
        unplaced: &mut BTreeMap<FileId, Ready>,
    ) -> Result<()> {
        let Some(work) = self.outgoing.taken.take() else { return Ok(()) };
        let Some(ready) = unplaced.get(&work.file) else { return Ok(()) };
        // Under a name of the tree, it is nothing that may be written to.
        let stat = stage.stat(ready.name.as_bytes())?;
        let is_apart = stat.is_some_and(|stat| ready.known.is(&stat) && stat.links == 1);
        if is_apart && self.outgoing.work.is_none() {
            stage.rename_from(work.name.as_bytes(), stage, ready.name.as_bytes(), How::New)?;
            unplaced.remove(&work.file);
            self.outgoing.work = Some(work);
        }
        Ok(())
    }

    /// Writes one more piece, and places what has waited for it if it was the last.
    pub(super) fn write_on(&mut self) -> Result<()> {
        let now = self.inner.world.clock.moment();
        let Some(&(file, _)) = self.outgoing.waiting.front() else {
            // What could not be placed is kept as long as that is tried.
            return if self.behind.is_empty() { self.drop_work() } else { Ok(()) };
        };
        if !self.outgoing.is_due(now) {
            return Ok(());
        }
        let (node, known) = {
            let read = self.inner.tables.read()?;
            let node = Whole::now(&*read, self.volume.id).node(file)?;
            (node, rows::known(&*read, self.volume.id, file)?)
        };
        let node = node.filter(|node| node.kind == Kind::File && self.is_large_node(node));
        let lacks = |node: &Node| {
            known.as_ref().is_none_or(|known| known.contents_stamp != node.contents_stamp)
        };
        let Some(node) = node.filter(lacks) else {
            self.drop_work()?;
            return self.place_waiting();
        };
        let written = self.write_piece(file, &node, known.as_ref());
        self.outgoing.took(self.inner.world.clock.moment().since(now));
        let of = (file, node.contents_stamp);
        match self.inner.wanting(&self.volume, of, &node.contents, written) {
            Ok(true) => {
                (self.outgoing.failures, self.outgoing.due) = (0, None);
                self.place_waiting()
            }
            Ok(false) => Ok(()),
            Err(error) => {
                let failures = self.outgoing.failures;
                if failures == 0 || error.is_full() {
                    self.say_failure(&error);
                }
                if error.is_full() {
                    self.drop_work()?;
                }
                let pause = RETRY * 2u32.pow(failures.min(RETRY_DOUBLINGS_MAX));
                self.outgoing.failures = failures.saturating_add(1);
                self.outgoing.due = Some(now + pause);
                self.outgoing.waiting.rotate_left(1);
                Ok(())
            }
        }
    }

    /// True: all of it is there, or of an older version, and on the disk.
    fn write_piece(&mut self, file: FileId, node: &Node, known: Option<&Known>) -> Result<bool> {
        if self.outgoing.work.as_ref().is_none_or(|work| work.file != file) {
            self.drop_work()?;
            self.outgoing.work = Some(self.begin_work(file, node, known)?);
        }
        let Some(mut work) = self.outgoing.work.take() else { return Ok(false) };
        let piece_bytes = self.inner.limits.tree_piece_bytes >> self.outgoing.halvings;
        if work.version != node.contents_stamp && (work.whole || !work.goes_to_its_end()) {
            work.go_over_to(node);
        }
        let next_bytes = piece_bytes.min(work.writing.left());
        if !fits(next_bytes, self.tree.room()?) {
            self.outgoing.work = Some(work);
            return Err(StoreError::Full(self.tree.path().to_owned()).into());
        }
        let written = work.writing.write_on((&self.inner, &self.volume), &work.out, piece_bytes);
        // Piece by piece, or the last would wait for all.
        let written = written.and_then(|whole| -> Result<bool> {
            work.out.sync()?;
            Ok(whole)
        });
        work.whole = matches!(written, Ok(true));
        let is_newest = work.version == node.contents_stamp;
        if written.is_err() && !is_newest {
            // What is left of a version that was replaced may be gone.
            work.go_over_to(node);
            work.overtaken = 0;
            self.outgoing.work = Some(work);
            return Ok(false);
        }
        let is_wanted = is_newest || work.goes_to_its_end();
        self.outgoing.work = Some(work);
        Ok(written? && is_wanted)
    }

    fn begin_work(&mut self, file: FileId, node: &Node, known: Option<&Known>) -> Result<Work> {
        let stage = self.stage()?;
        let name = stage_name("tmp-", file.0);
        if stage.stat(name.as_bytes())?.is_some() {
            stage.unlink(name.as_bytes())?;
        }
        let out = stage.create(name.as_bytes())?;
        let read = self.inner.tables.read()?;
        let writing = match known {
            Some(known) if self.shares(&*read, known, &out)? => {
                Writing::over(known.contents, known.size, &node.contents)
            }
            _ if !fits(node.contents.data(), self.tree.room()?) => {
                // It would take what others on this disk need, and give it back in vain.
                stage.unlink(name.as_bytes())?;
                return Err(StoreError::Full(self.tree.path().to_owned()).into());
            }
            _ => Writing::new(&node.contents),
        };
        let version = node.contents_stamp;
        Ok(Work { file, name, out, version, writing, overtaken: 0, whole: false })
    }

    /// Has the file share what the tree has, if that is as it is known.
    fn shares(&self, read: &dyn Read, known: &Known, out: &TreeFile) -> Result<bool> {
        let Some(at) = known.names.first() else { return Ok(false) };
        let Some(opened) = self.directory_in(read, at.0)? else { return Ok(false) };
        let is_known = || -> Result<bool> {
            Ok(opened.stat(at.1.as_bytes())?.is_some_and(|stat| known.is_as_was(&stat)))
        };
        if known.kind != Kind::File || !is_known()? {
            return Ok(false);
        }
        let there = opened.open(at.1.as_bytes())?;
        // What was written into a mapping tells in the times when it is on the disk.
        there.settle()?;
        if !out.share(&there)? {
            return Ok(false);
        }
        let is_same = known.is_as_was(&there.stat()?) && is_known()?;
        if !is_same {
            out.set_length(0)?;
        }
        Ok(is_same)
    }

    /// What has waited for the first of them is placed.
    fn place_waiting(&mut self) -> Result<()> {
        let Some((_, waits)) = self.outgoing.waiting.pop_front() else { return Ok(()) };
        // What cannot be placed yet has its own times.
        let left = self.behind.take();
        self.behind.add(waits);
        let placed = self.let_out_noted();
        self.behind.add(left);
        placed
    }

    /// What is not wanted any more goes.
    fn drop_work(&mut self) -> Result<()> {
        let Some(work) = self.outgoing.work.take() else { return Ok(()) };
        match self.stage()?.unlink(work.name.as_bytes()) {
            Err(error) if error.kind() != Some(ErrorKind::NotFound) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether this name waits for what is being written.
    pub(super) fn waits_for_writing(&mut self, read: &dyn Read, at: &At) -> Result<bool> {
        if !self.outgoing.is_busy() {
            return Ok(false);
        }
        let view = Whole::now(read, self.volume.id);
        let Some(file) = view.entry(at.0, &at.1)? else { return Ok(false) };
        let Some(node) = view.node(file)?.filter(|_| self.outgoing.has(file)) else {
            return Ok(false);
        };
        let known = rows::known(read, self.volume.id, file)?;
        let waits = known.is_none_or(|known| known.contents_stamp != node.contents_stamp);
        if waits {
            self.outgoing.wait_entry(file, at.clone());
        }
        Ok(waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_fill_the_disk_is_not_begun() {
        assert!(fits(10, LEFT_FREE + 10) && fits(0, LEFT_FREE));
        assert!(!fits(11, LEFT_FREE + 10) && !fits(u64::MAX, u64::MAX));
    }

    #[test]
    fn just_before_is_a_nanosecond() {
        let before = |secs, nanos| just_before(Time { secs, nanos });
        assert_eq!(before(5, 1), Time { secs: 5, nanos: 0 });
        assert_eq!(before(5, 0), Time { secs: 4, nanos: NANOS_MAX });
        assert_eq!(before(i64::MIN, 0).secs, i64::MIN);
    }

    #[test]
    fn on_a_slow_disk_pieces_get_smaller_and_where_it_is_quick_again_larger() {
        let mut outgoing = Outgoing::default();
        let mut took = |millis| {
            outgoing.took(Duration::from_millis(millis));
            outgoing.halvings
        };
        assert_eq!([2000, 1000, 500, 250, 125].map(&mut took), [1, 2, 3, 3, 3]);
        assert_eq!([10, 10, 10, 10].map(&mut took), [2, 1, 0, 0]);
        assert_eq!([3000; 7].map(&mut took), [1, 2, 3, 4, 5, 5, 5]);
    }
}
