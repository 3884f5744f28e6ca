//! Looking now and then at files of which no event tells. Somebody who has linked a file to a name
//! outside of the tree writes to it there; one who has mapped it just writes into memory.
//! Holds: every file that is known is looked at within `ROUND_LEAST`, or, where that would take more
//! than a hundredth of the time, as often as a hundredth of the time allows.
//! Never: takes anything in. It notes what is to be looked at, like an event.

use super::commit::At;
use super::intake::is_of_the_file;
use super::keeper::Keeper;
use super::rows::{self, Known, STAGE};
use crate::error::{ReplicaError, Result};
use model::{FileId, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::tree::{Directory, Instant, Stat};
use world::Moment;

/// All files are looked at no more often than this.
const ROUND_LEAST: Duration = Duration::from_secs(5);
/// Names that are looked at in one go, and how many times as long as that took it rests then.
const NAMES_MAX: usize = 2000;
const REST: u32 = 99;
/// Files with names outside of the tree that are watched one by one.
const LINKED_MAX: usize = 10_000;
/// Files that were noted and are not noted again before they change once more.
const NOTED_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct Patrol {
    /// The next go is not before.
    pub due: Moment,
    /// Watches of files that have names outside of the tree.
    pub linked: BTreeSet<i32>,
    /// The last name of the go before. None: a round begins.
    after: Option<At>,
    begun: Moment,
    /// When each was changed last, as it looked when it was noted.
    noted: BTreeMap<FileId, Instant>,
}

impl Patrol {
    /// It begins some time after this.
    pub fn after(now: Moment) -> Patrol {
        Patrol {
            due: now + ROUND_LEAST,
            linked: BTreeSet::new(),
            after: None,
            begun: now,
            noted: BTreeMap::new(),
        }
    }
}

impl Keeper {
    /// Looks at some more files, if it is time to.
    pub(super) fn patrol_if_due(&mut self) -> Result<()> {
        let clock = self.inner.world.clock.clone();
        let begun = clock.moment();
        if begun < self.patrol.due {
            return Ok(());
        }
        let after = self.patrol.after.take();
        if after.is_none() {
            self.patrol.begun = begun;
        }
        let read = self.inner.tables.read()?;
        let page = rows::all_names(&*read, self.volume.id, after, NAMES_MAX)?;
        drop(read);
        let last = page.last().map(|(at, _)| at.clone());
        let more = page.len() == NAMES_MAX;
        let mut opened: Option<(FileId, Option<Directory>)> = None;
        for (at, file) in page {
            if opened.as_ref().is_none_or(|(directory, _)| *directory != at.0) {
                opened = Some((at.0, unless_barred(self.directory(at.0))?));
            }
            if let Some((_, Some(directory))) = &opened {
                self.pass_by(directory, at, file)?;
            }
        }
        let ended = clock.moment();
        let rest = ended + ended.since(begun).saturating_mul(REST);
        self.patrol.after = last.filter(|_| more);
        let round = self.patrol.begun + ROUND_LEAST;
        self.patrol.due = if more { rest } else { rest.max(round) };
        Ok(())
    }

    /// A name and the file that it had. What comes to names and leaves them events tell of.
    fn pass_by(&mut self, opened: &Directory, at: At, file: FileId) -> Result<()> {
        if at.0 == STAGE {
            return Ok(());
        }
        let read = self.inner.tables.read()?;
        let known = rows::known(&*read, self.volume.id, file)?;
        drop(read);
        let Some(known) = known.filter(|known| known.kind == Kind::File) else { return Ok(()) };
        let stat = opened.stat(at.1.as_bytes()).map_err(ReplicaError::from);
        let Some(stat) = unless_barred(stat)? else { return Ok(()) };
        if !known.is(&stat) {
            return Ok(());
        }
        if has_names_outside(&known, &stat) && self.patrol.linked.len() < LINKED_MAX {
            // Where the machine watches no more, it is passed by again.
            if let Some(watch) = self.watch.add_file(opened, at.1.as_bytes())? {
                self.watched.insert(watch, file);
                self.patrol.linked.insert(watch);
            }
        }
        if known.is_as_was(&stat) {
            return Ok(());
        }
        if self.patrol.noted.len() >= NOTED_MAX {
            self.patrol.noted.clear();
        }
        if self.patrol.noted.insert(file, stat.ctime) != Some(stat.ctime) {
            self.dirt.note(at.0, at.1, false, self.inner.world.clock.moment());
        }
        Ok(())
    }
}

/// What the server may not look at is passed over; whoever has to look at it says so.
fn unless_barred<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(ReplicaError::Store(error)) if is_of_the_file(&error) => Ok(None),
        found => found,
    }
}

/// Who writes to the file under one of those is not seen by whoever watches the tree's directories.
fn has_names_outside(known: &Known, stat: &Stat) -> bool {
    stat.links as usize > known.names.len()
}
