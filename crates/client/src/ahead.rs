//! What is fetched before anybody asks for it, because a program that opens files one after
//! another will open the next ones too.
//! Holds: what was fetched and not opened yet is bounded by a window, which grows by what was
//! opened and is halved by what was not; nobody who waits for contents waits long for a guess.
//! Never: asks, reads or writes anything: that is `gather`.
//! From: DESIGN, "The client" (traffic classes). Dynamic sets are told what is wanted; this guesses.

pub(crate) mod bounds;
mod gather;
pub(crate) mod held;
pub(crate) mod walk;

use crate::kin::Recent;
pub(crate) use bounds::Bounds;
pub(crate) use held::{Kept, joined};
use model::{FileId, Name, Stamp};
use protocol::PrefetchStatus;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::oneshot;
use walk::Order;
use world::Moment;

/// What programs looked at and has not been followed yet; older ones are forgotten.
const SEEN_MAX: usize = 256;
/// A guess that nobody has opened for so long was wrong.
const GUESS_HOLDS: Duration = Duration::from_secs(30);

/// What came lately is kept in memory for so long after the last that came.
const HELD_FOR: Duration = Duration::from_secs(60);
/// Files of which it is remembered in which directory they were last seen, and by which name.
const PLACES_MAX: usize = 1 << 17;
/// After so many plans of which nobody followed any, there is none for the same directory for a
/// while: whoever reads it goes from file to file in no order.
const VAIN_MAX: u32 = 4;
const VAIN_FOR: Duration = Duration::from_secs(10);

/// What a program did with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Its contents were not here.
    Missed,
    /// They had been fetched ahead.
    Foreseen,
}

/// A file that a program has looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub file: FileId,
    pub look: Look,
    pub at: Moment,
}

/// Plans for files of a directory, since a program last went as one of them said.
#[derive(Clone, Copy)]
struct Vain {
    plans: u32,
    last: Moment,
}

/// A version that somebody may open soon.
struct Guess {
    version: Stamp,
    bytes: u64,
    stage: Stage,
}

enum Stage {
    /// Asked for, and who waits for it. `late`: nobody waits for it any more.
    UnderWay {
        waiting: Vec<oneshot::Sender<()>>,
        late: bool,
    },
    Here(Moment),
}

#[derive(Default)]
pub(crate) struct Ahead {
    seen: VecDeque<Seen>,
    /// Where files were last seen; all are forgotten when they are too many.
    places: BTreeMap<FileId, (FileId, Name)>,
    trail: walk::Trail,
    order: Order,
    /// Files to fetch next, in this order.
    coming: VecDeque<FileId>,
    /// The plan reached the end of the walk: there is nothing to add to it.
    all_planned: bool,
    vain: Recent<FileId, Vain>,
    guesses: BTreeMap<FileId, Guess>,
    /// Versions that cannot be had together with others.
    hopeless: Recent<(FileId, Stamp), ()>,
    /// What came lately.
    pub held: held::Held,
    arrived_at: Option<Moment>,
    /// Bytes of the guesses.
    out: u64,
    /// None: nothing has been guessed yet.
    window: Option<u64>,
    halved_at: Option<Moment>,
    files: u64,
    bytes: u64,
    used_bytes: u64,
    expired_bytes: u64,
}

impl Ahead {
    /// The file has a name in this directory.
    pub fn note_place(&mut self, directory: FileId, name: &Name, file: FileId) {
        if self.name_in(directory, file) == Some(name) {
            return;
        }
        if self.places.len() >= PLACES_MAX {
            self.places.clear();
        }
        self.places.insert(file, (directory, name.clone()));
    }

    /// The name by which a file was last seen, if that was in this directory.
    pub fn name_in(&self, directory: FileId, file: FileId) -> Option<&Name> {
        let (seen_in, name) = self.places.get(&file)?;
        (*seen_in == directory).then_some(name)
    }

    /// Contents were not here, and are fetched now.
    pub fn missed(&mut self, file: FileId, at: Moment) {
        self.see(Seen { file, look: Look::Missed, at });
    }

    /// Contents are read. True: they had been fetched ahead, and this is the first time.
    pub fn read(&mut self, file: FileId, at: Moment) -> bool {
        let here = |guess: &Guess| matches!(guess.stage, Stage::Here(_));
        if !self.guesses.get(&file).is_some_and(here) {
            return false;
        }
        let guess = self.guesses.remove(&file).expect("it was found");
        self.out -= guess.bytes;
        self.used_bytes += guess.bytes;
        self.window = self.window.map(|window| window.saturating_add(guess.bytes));
        self.see(Seen { file, look: Look::Foreseen, at });
        true
    }

    /// What somebody waited for is here.
    pub fn arrived(&mut self, file: FileId, at: Moment) {
        self.arrived_at = Some(at);
        self.trail.arrived(file, at);
    }

    /// A program has looked at a file. True: it goes on as was planned.
    fn goes_on(&mut self, seen: &Seen) -> bool {
        if let Some(at) = self.coming.iter().position(|file| *file == seen.file) {
            // What lies before it was passed over.
            self.coming.drain(..=at);
            return !self.coming.is_empty() || self.all_planned;
        }
        seen.look == Look::Foreseen && (!self.coming.is_empty() || self.all_planned)
    }

    /// Plans for this directory are of use, if this file was in one.
    fn note_followed(&mut self, directory: FileId, seen: &Seen) {
        let was_planned = seen.look == Look::Foreseen
            || self.guesses.contains_key(&seen.file)
            || self.coming.contains(&seen.file);
        if was_planned && let Some(vain) = self.vain.get_mut(&directory) {
            vain.plans = 0;
        }
    }

    /// Whether to plan for a directory, which counts as done then.
    fn may_plan(&mut self, directory: FileId, now: Moment) -> bool {
        let before = self.vain.get(&directory).map_or(Vain { plans: 0, last: now }, |vain| *vain);
        if before.plans >= VAIN_MAX && now.since(before.last) < VAIN_FOR {
            return false;
        }
        self.vain.insert(directory, Vain { plans: before.plans.saturating_add(1), last: now });
        true
    }

    fn see(&mut self, seen: Seen) {
        self.seen.push_back(seen);
        if self.seen.len() > SEEN_MAX {
            self.seen.pop_front();
        }
    }

    /// Who lacks a file that is under way waits for it, as long as `patience` says for the bytes
    /// that are.
    pub fn join(&mut self, file: FileId) -> Option<(oneshot::Receiver<()>, u64)> {
        let bytes = self.under_way();
        match &mut self.guesses.get_mut(&file)?.stage {
            Stage::UnderWay { waiting, late: false } => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                Some((receiver, bytes))
            }
            _ => None,
        }
    }

    /// It took too long: whoever lacks the file fetches it by itself.
    pub fn overtake(&mut self, file: FileId) {
        if let Some(Guess { stage: Stage::UnderWay { late, .. }, .. }) = self.guesses.get_mut(&file)
        {
            *late = true;
        }
    }

    fn under_way(&self) -> u64 {
        let under_way = |guess: &&Guess| matches!(guess.stage, Stage::UnderWay { .. });
        self.guesses.values().filter(under_way).map(|guess| guess.bytes).sum()
    }

    /// Bytes that may be asked for now; none where it is better to wait for more room.
    fn room(&mut self, bounds: &Bounds) -> Option<u64> {
        let window = self.window.unwrap_or(bounds.window_first);
        let window = window.clamp(bounds.window_least, bounds.window_most);
        self.window = Some(window);
        let room = window.saturating_sub(self.out).min(bounds.batch);
        (room >= bounds.batch.min(window / 2)).then_some(room)
    }

    fn is_wanted(&self, file: FileId, version: Stamp) -> bool {
        !self.guesses.contains_key(&file) && self.hopeless.get(&(file, version)).is_none()
    }

    fn ask_for(&mut self, file: FileId, version: Stamp, bytes: u64) {
        let stage = Stage::UnderWay { waiting: Vec::new(), late: false };
        self.out += bytes;
        if let Some(before) = self.guesses.insert(file, Guess { version, bytes, stage }) {
            self.out -= before.bytes;
        }
    }

    /// What was asked for has come, or will not. Whoever waits for it looks again.
    fn land(&mut self, file: FileId, came: bool, now: Moment) {
        let Some(guess) = self.guesses.get_mut(&file) else { return };
        if !matches!(guess.stage, Stage::UnderWay { .. }) {
            return;
        }
        let stage = std::mem::replace(&mut guess.stage, Stage::Here(now));
        if came {
            self.arrived_at = Some(now);
            self.files += 1;
            self.bytes += guess.bytes;
        } else {
            self.out -= guess.bytes;
            self.guesses.remove(&file);
        }
        if let Stage::UnderWay { waiting, .. } = stage {
            for waiter in waiting {
                // Who does not wait any more need not be told.
                let _ = waiter.send(());
            }
        }
    }

    /// It cannot be had together with others: whoever opens it fetches it.
    fn give_up(&mut self, file: FileId) {
        if let Some(guess) = self.guesses.get(&file) {
            self.hopeless.insert((file, guess.version), ());
        }
    }

    /// Gives up guesses that nobody has opened for long, and guesses less from then on.
    fn expire(&mut self, now: Moment) {
        if self.arrived_at.is_some_and(|at| now.since(at) >= HELD_FOR) {
            self.held.clear();
            self.arrived_at = None;
        }
        let old = |guess: &Guess| match guess.stage {
            Stage::Here(at) => now.since(at) >= GUESS_HOLDS,
            Stage::UnderWay { .. } => false,
        };
        let gone: Vec<FileId> =
            self.guesses.iter().filter(|(_, guess)| old(guess)).map(|(file, _)| *file).collect();
        if gone.is_empty() {
            return;
        }
        for file in gone {
            let guess = self.guesses.remove(&file).expect("it was found");
            self.out -= guess.bytes;
            self.expired_bytes += guess.bytes;
        }
        if self.halved_at.is_none_or(|at| now.since(at) >= GUESS_HOLDS) {
            self.window = self.window.map(|window| window / 2);
            self.halved_at = Some(now);
        }
    }

    /// Nothing may be fetched now.
    fn stop(&mut self) {
        self.seen.clear();
        self.coming.clear();
    }

    pub fn status(&self) -> PrefetchStatus {
        PrefetchStatus {
            files: self.files,
            bytes: self.bytes,
            used_bytes: self.used_bytes,
            unused_bytes: self.expired_bytes + self.out - self.under_way(),
            window_bytes: self.window.unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests;
