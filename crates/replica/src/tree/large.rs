//! Large files are read a piece at a time, and between two pieces all else that happened is
//! looked at.
//! Holds: one is read at a time. Whoever found a large file leaves it alone until all of it is
//! read, and then looks at it anew under each name that it was found at; what was read counts
//! only if the file still looks as it did when the reading began.
//! Never: decides what becomes of a file.
//!
//! ```text
//!   found --> waits for its turn --> is read --all of it--> looked at anew, and taken in
//!     ^                                 |
//!     +------- when it rests <--changed-+
//! ```

use super::commit::At;
use super::contents::Keeping;
use super::dirt::Since;
use super::intake::{AGAIN, Held, UNSTEADY_AFTER, is_leased, is_mapped, is_of_the_file};
use super::keeper::Keeper;
use super::rows::Known;
use crate::error::{ReplicaError, Result};
use crate::upkeep::Promise;
use chunks::ChunksError;
use model::Contents;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::tree::{Directory, Stat, TreeFile};

/// Pieces that are read at once of a file that somebody asks for and waits for.
const ASKED_PIECES: usize = 8;

/// Names at which a file was found.
type Names = BTreeMap<At, Since>;

#[derive(Default)]
pub(super) struct Large {
    reading: Option<Reading>,
    /// All of it was read, and it has not been looked at since.
    read: Option<Read>,
    /// They wait for their turn.
    waiting: Names,
}

struct Reading {
    names: Names,
    file: TreeFile,
    before: Stat,
    keeping: Keeping,
    /// It is written to without end, and read to its end all the same.
    stubborn: bool,
}

struct Read {
    before: Stat,
    after: Stat,
    contents: Contents,
    stubborn: bool,
    /// Until an update names the chunks.
    promise: Promise,
}

/// What came of a piece.
enum Piece {
    More,
    Last,
    /// It is not as it was when the reading began.
    Changed,
}

impl Reading {
    fn read_piece(&mut self, bytes_max: u64) -> Result<Piece> {
        let now = self.file.stat()?;
        if now.links == 0 || (now != self.before && !self.stubborn) {
            return Ok(Piece::Changed);
        }
        let all = self.keeping.read_on(&self.file, bytes_max)?;
        Ok(if all { Piece::Last } else { Piece::More })
    }
}

impl Large {
    /// Whether there is something to go on with.
    pub fn is_busy(&self) -> bool {
        self.reading.is_some() || self.read.is_some() || !self.waiting.is_empty()
    }

    /// One of these names is that of the file that is being read.
    fn reads_any(&self, asked: &BTreeSet<At>) -> bool {
        let reading = self.reading.as_ref();
        reading.is_some_and(|reading| reading.names.keys().any(|at| asked.contains(at)))
    }

    /// Since when it is known that the file of this name has to be looked at.
    fn since(&mut self, at: &At, since: Since) -> Since {
        let waiting = self.waiting.remove(at);
        let reading = self.reading.as_mut().and_then(|reading| reading.names.get(at).copied());
        let known = waiting.into_iter().chain(reading);
        known.fold(since, |since, known| Since {
            at: since.at.min(known.at),
            whole: since.whole || known.whole,
            due: since.due,
        })
    }
}

impl Keeper {
    pub(super) fn is_large(&self, stat: &Stat) -> bool {
        stat.size > self.inner.limits.tree_piece_bytes
    }

    /// What a large file holds, if it was read. None: it is read later, or has to be left alone.
    pub(super) fn hold_large(
        &mut self,
        opened: &Directory,
        at: &At,
        stat: Stat,
        since: Since,
    ) -> Result<Option<Held>> {
        let since = self.large.since(at, since);
        if let Some(held) = self.read_of(at, &stat) {
            return Ok(Some(held));
        }
        if let Some(reading) = self.large.reading.as_mut().filter(|r| is_one(&r.before, &stat)) {
            reading.names.insert(at.clone(), since);
            if reading.before == stat || reading.stubborn {
                return Ok(None);
            }
            self.give_up_reading(AGAIN);
            return Ok(None);
        }
        if self.rests(at, &stat, since).is_none() {
            return Ok(None);
        }
        if self.large.reading.is_some() || self.large.read.is_some() {
            self.large.waiting.insert(at.clone(), since);
            return Ok(None);
        }
        self.begin_reading(opened, at, stat, since)?;
        Ok(None)
    }

    /// What was read of a file, if it is the one.
    fn read_of(&mut self, at: &At, stat: &Stat) -> Option<Held> {
        let read = self.large.read.as_ref().filter(|read| is_one(&read.before, stat))?;
        let steady = read.before == read.after && read.after == *stat;
        if !steady && !read.stubborn {
            return None;
        }
        let promise = Some(read.promise.clone());
        let held = Held { stat: read.before, contents: read.contents, steady, promise };
        if !steady {
            // It will be looked at again when this has been taken in.
            self.dirt.note(at.0, at.1.clone(), false, self.inner.world.clock.moment());
        }
        Some(held)
    }

    fn begin_reading(
        &mut self,
        opened: &Directory,
        at: &At,
        stat: Stat,
        since: Since,
    ) -> Result<()> {
        let clock = self.inner.world.clock.clone();
        let begun = || -> Result<(TreeFile, Stat)> {
            let file = opened.open(at.1.as_bytes())?;
            if is_mapped(&stat, since, clock.time()) {
                file.settle()?;
            }
            let before = file.stat()?;
            Ok((file, before))
        };
        match begun() {
            Ok((file, before)) => {
                let stubborn = clock.moment().since(since.at) >= UNSTEADY_AFTER;
                if before != stat && !stubborn {
                    self.dirt.wait(at.0, at.1.clone(), since, clock.moment() + AGAIN);
                    return Ok(());
                }
                let keeping = Keeping::new(&self.inner, &self.volume, before.size);
                let names = BTreeMap::from([(at.clone(), since)]);
                self.large.reading = Some(Reading { names, file, before, keeping, stubborn });
                Ok(())
            }
            Err(ReplicaError::Store(error)) if is_leased(&error) => {
                self.dirt.wait(at.0, at.1.clone(), since, clock.moment() + AGAIN);
                Ok(())
            }
            Err(ReplicaError::Store(error)) if is_of_the_file(&error) => {
                self.skip(&error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Its names are looked at anew after a while.
    fn give_up_reading(&mut self, pause: Duration) {
        let Some(reading) = self.large.reading.take() else { return };
        let due = self.inner.world.clock.moment() + pause;
        for (at, since) in reading.names {
            self.dirt.wait(at.0, at.1, since, due);
        }
    }

    /// Reads one more piece, or sees to it that the next file gets its turn.
    pub(super) fn read_on(&mut self) -> Result<()> {
        // Who waited for it has looked at it by now, and what was taken in is committed.
        self.large.read = None;
        let Some(mut reading) = self.large.reading.take() else {
            if let Some((at, since)) = self.large.waiting.pop_first() {
                let now = self.inner.world.clock.moment();
                self.dirt.wait(at.0, at.1, since, now);
            }
            return Ok(());
        };
        match reading.read_piece(self.inner.limits.tree_piece_bytes) {
            Ok(Piece::More) => {
                self.large.reading = Some(reading);
                Ok(())
            }
            Ok(Piece::Changed) => {
                self.large.reading = Some(reading);
                self.give_up_reading(AGAIN);
                Ok(())
            }
            Ok(Piece::Last) => self.end_reading(reading),
            Err(ReplicaError::Store(error)) if is_of_the_file(&error) => {
                self.skip(&error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn end_reading(&mut self, reading: Reading) -> Result<()> {
        let Reading { names, file, before, keeping, stubborn } = reading;
        let ended = keeping.finish().and_then(|kept| Ok((kept, file.stat()?)));
        let due = self.inner.world.clock.moment();
        match ended {
            Ok(((contents, promise), after)) => {
                let read = Read { before, after, contents, stubborn, promise };
                self.large.read = Some(read);
                for (at, since) in names {
                    self.dirt.wait(at.0, at.1, since, due);
                }
                Ok(())
            }
            Err(ReplicaError::Chunks(ChunksError::SizeChanged { .. })) => {
                for (at, since) in names {
                    self.dirt.wait(at.0, at.1, since, due + AGAIN);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// What somebody asks for and waits for is read at once, as far as he waits.
    pub(super) fn read_asked(&mut self, asked: &BTreeSet<At>) -> Result<()> {
        for _ in 0..ASKED_PIECES {
            if !self.large.reads_any(asked) {
                break;
            }
            self.read_on()?;
        }
        if self.large.read.is_some() { self.take_in() } else { Ok(()) }
    }
}

/// Whether it is the same file, whatever it holds.
fn is_one(one: &Stat, other: &Stat) -> bool {
    Known::seen(one).is(other)
}
