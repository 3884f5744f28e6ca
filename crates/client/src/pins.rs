//! What the user wants to have here whatever happens: pinned files, and directories with all that
//! is below them.
//! Holds: what is pinned is here as soon as the link allows, follows what others change, and does
//! not leave the cache; a pin holds for what bears its name, goes along when that is renamed, and
//! stays until it is taken away.
//! Never: has more of a pinned tree in memory than the ids of one directory and of the directories
//! that are still to be walked.
//! From: partially connected operation, section 4; DESIGN, "The client".

mod bring;
mod keep;
mod report;

pub(crate) use keep::lacks;
pub(crate) use report::lasts;

pub use report::{Lacking, PinShown, PinsReport};

use crate::following::{Following, Place};
use crate::misses::Misses;
use crate::policies::Choosing;
use minicbor::{Decode, Encode};
use model::{FileId, Time};
use protocol::PinsStatus;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;
use store::{Read, StoreError, Tables, Write};
use tokio::sync::Notify;
use world::Moment;

/// Of what the user has pinned, by file.
const PINS: &str = "client-pins";
/// What a walk has found to be pinned, and by which pin, by file.
const PINNED: &str = "client-pinned";
const FORMAT: u8 = 1;
/// Pins of one mount. Each is kept in memory.
pub(crate) const PINS_MAX: usize = 1_000;
/// Changes that wait to be followed; where there are more, everything is walked anew.
const CHANGED_MAX: usize = 4_096;
/// What was changed is fetched when it has rested so long, and at the latest after so long.
const RESTS_FOR: Duration = Duration::from_secs(2);
const WAITS_AT_MOST: Duration = Duration::from_secs(30);
/// What could not be fetched is tried again, and what has left a pinned directory is forgotten,
/// by a walk after so long at the latest.
const WALKED_EVERY: Duration = Duration::from_secs(3600);
/// The same where something could not be fetched.
const TRIED_EVERY: Duration = Duration::from_secs(30);

/// What the user has pinned.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct Pin {
    /// The higher one is fetched first.
    #[n(0)]
    pub priority: u32,
    /// With all that is below.
    #[n(1)]
    pub recursive: bool,
    /// Seconds since 1970.
    #[n(2)]
    pub since: i64,
    /// Number of the last walk that was begun, and of the last that came to its end: what only an
    /// earlier one has seen is not pinned any more.
    #[n(3)]
    pub begun: u32,
    #[n(4)]
    pub ended: u32,
    /// The name that it goes by. None: of the root, and of what has none that is known.
    #[n(5)]
    pub place: Option<Place>,
}

/// A file that a walk has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(crate) struct Mark {
    #[n(0)]
    pin: u64,
    #[n(1)]
    walk: u32,
}

/// Something pinned, or something that may be, was changed.
#[derive(Clone, Copy, Debug)]
struct Change {
    first: Moment,
    last: Moment,
}

#[derive(Default)]
pub(crate) struct Pins {
    pins: BTreeMap<FileId, Pin>,
    changed: BTreeMap<FileId, Change>,
    /// To be walked, and since when that is due.
    due: BTreeMap<FileId, Option<Moment>>,
    /// To be fetched once, though nothing of it is pinned.
    once: VecDeque<FileId>,
    /// The cache has no room for more of what is pinned.
    full: bool,
}

/// What there is of it while a client runs. Its locks are taken after the others, and let go before
/// another is taken.
#[derive(Default)]
pub(crate) struct Keeping {
    pins: Mutex<Pins>,
    pub misses: Mutex<Misses>,
    pub choosing: Choosing,
    pub following: Mutex<Following>,
    /// Something was pinned, or what is pinned has to be looked at.
    wanted: Notify,
}

impl Keeping {
    pub fn load(tables: &dyn Tables) -> Result<Keeping, StoreError> {
        let read = tables.read()?;
        let misses = Misses::load(&*read)?;
        let mut pins = Pins::load(&*read)?;
        pins.once.extend(misses.coming());
        Ok(Keeping {
            pins: Mutex::new(pins),
            misses: Mutex::new(misses),
            choosing: Choosing::load(&*read)?,
            ..Keeping::default()
        })
    }

    pub fn look_at_pins(&self) {
        self.wanted.notify_one();
    }
}

impl Pins {
    pub fn load(read: &dyn Read) -> Result<Pins, StoreError> {
        let mut pins = Pins::default();
        for (key, value) in read.scan(PINS, &[], &u64::MAX.to_be_bytes(), PINS_MAX)? {
            pins.pins.insert(file_of(&key)?, decode(&value)?);
        }
        pins.walk_all();
        Ok(pins)
    }

    /// There was no room for what was fetched last.
    pub fn is_full(&self) -> bool {
        self.full
    }

    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    pub fn rows(&self) -> impl Iterator<Item = (&FileId, &Pin)> {
        self.pins.iter()
    }

    pub fn status(&self) -> PinsStatus {
        PinsStatus { pins: self.pins.len() as u64, full: self.full && !self.is_empty() }
    }

    /// All are walked as soon as may be.
    fn walk_all(&mut self) {
        self.changed.clear();
        self.due = self.pins.keys().map(|pin| (*pin, None)).collect();
    }

    fn counts(&self, mark: Mark) -> bool {
        let pin = self.pins.get(&FileId(mark.pin));
        pin.is_some_and(|pin| mark.walk >= pin.ended)
    }

    fn note_changed(&mut self, file: FileId, now: Moment) {
        if self.pins.is_empty() {
            return;
        }
        self.changed.entry(file).or_insert(Change { first: now, last: now }).last = now;
        if self.changed.len() > CHANGED_MAX {
            self.walk_all();
        }
    }

    /// What was changed and has rested, or has waited long enough; it is waited for no more.
    fn rested(&mut self, now: Moment) -> BTreeSet<FileId> {
        let is_due = |change: &Change| {
            now.since(change.last) >= RESTS_FOR || now.since(change.first) >= WAITS_AT_MOST
        };
        let due = self.changed.iter().filter(|(_, change)| is_due(change));
        let due: BTreeSet<FileId> = due.map(|(file, _)| *file).collect();
        self.changed.retain(|file, _| !due.contains(file));
        due
    }

    /// The pin to be walked next: of those whose time has come that of the highest priority, the
    /// oldest of several.
    fn next(&self, now: Moment) -> Option<FileId> {
        let has_come = |at: &Option<Moment>| at.is_none_or(|at| now >= at);
        let due = self.due.iter().filter(|(_, at)| has_come(at));
        let pins = due.filter_map(|(file, _)| Some((*file, self.pins.get(file)?)));
        let order =
            |(file, pin): &(FileId, &Pin)| (std::cmp::Reverse(pin.priority), pin.since, file.0);
        pins.min_by_key(order).map(|(file, _)| file)
    }

    /// One of a higher priority waits to be walked.
    fn is_overtaken(&self, walked: FileId, now: Moment) -> bool {
        let priority = |pin: FileId| self.pins.get(&pin).map(|pin| pin.priority);
        self.next(now).is_some_and(|next| priority(next) > priority(walked))
    }
}

/// The mark of a file, whether or not it still counts.
fn mark_of(read: &dyn Read, file: FileId) -> Result<Option<Mark>, StoreError> {
    read.get(PINNED, &file.0.to_be_bytes())?.map(|bytes| decode(&bytes)).transpose()
}

/// What counts where the user has pinned two files, and one has taken the other's name.
fn both(one: &Pin, other: &Pin) -> Pin {
    let priority = one.priority.max(other.priority);
    Pin { priority, recursive: one.recursive || other.recursive, ..one.clone() }
}

fn save_pin(write: &mut dyn Write, file: FileId, pin: &Pin) -> Result<(), StoreError> {
    write.put(PINS, &file.0.to_be_bytes(), &encode(pin))
}

fn save_mark(write: &mut dyn Write, file: FileId, mark: Mark) -> Result<(), StoreError> {
    if mark_of(&*write, file)? == Some(mark) {
        return Ok(());
    }
    write.put(PINNED, &file.0.to_be_bytes(), &encode(&mark))
}

fn encode<T: Encode<()>>(row: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    // A vector takes every byte.
    let _ = minicbor::encode(row, &mut bytes);
    bytes
}

fn decode<T: for<'a> Decode<'a, ()>>(bytes: &[u8]) -> Result<T, StoreError> {
    let Some((&FORMAT, rest)) = bytes.split_first() else {
        return Err(damaged("a row of what is pinned has an unknown format"));
    };
    minicbor::decode(rest).map_err(|error| damaged(&error.to_string()))
}

fn file_of(key: &[u8]) -> Result<FileId, StoreError> {
    let key = key.try_into().map_err(|_| damaged("a row of what is pinned has no file"))?;
    Ok(FileId(u64::from_be_bytes(key)))
}

fn damaged(what: &str) -> StoreError {
    StoreError::Damaged { place: PINS.into(), what: what.into() }
}

fn seconds(time: Time) -> i64 {
    time.secs
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    fn pin(priority: u32, since: i64) -> Pin {
        Pin { priority, recursive: true, since, begun: 0, ended: 0, place: None }
    }

    fn pins(of: &[(u64, Pin)]) -> Pins {
        let pins = of.iter().map(|(file, pin)| (FileId(*file), pin.clone())).collect();
        let mut pins = Pins { pins, ..Pins::default() };
        pins.walk_all();
        pins
    }

    #[test]
    fn the_highest_priority_comes_first_and_of_several_the_oldest() {
        let now = World::simulated(0, 1).clock.moment();
        let mut pins = pins(&[(1, pin(0, 5)), (2, pin(3, 9)), (3, pin(3, 7))]);
        let mut order = Vec::new();
        while let Some(next) = pins.next(now) {
            order.push(next.0);
            pins.due.insert(next, Some(now + WALKED_EVERY));
        }
        assert_eq!(order, [3, 2, 1]);
        assert_eq!(pins.next(now + WALKED_EVERY), Some(FileId(3)));
    }

    #[test]
    fn a_walk_is_overtaken_by_a_higher_priority_alone() {
        let now = World::simulated(0, 1).clock.moment();
        let mut pins = pins(&[(1, pin(1, 5)), (2, pin(1, 9))]);
        assert!(!pins.is_overtaken(FileId(2), now));
        pins.pins.insert(FileId(3), pin(2, 10));
        pins.due.insert(FileId(3), None);
        assert!(pins.is_overtaken(FileId(1), now));
    }

    #[test]
    fn what_is_replaced_again_and_again_waits_until_it_rests_and_not_for_ever() {
        let begun = World::simulated(0, 1).clock.moment();
        let mut pins = pins(&[(1, pin(0, 0))]);
        let step = Duration::from_secs(1);
        let mut taken = Vec::new();
        for second in 0..100_u32 {
            let now = begun + step * second;
            pins.note_changed(FileId(7), now);
            if !pins.rested(now).is_empty() {
                taken.push(second);
            }
        }
        assert_eq!(taken, [30, 61, 92], "{taken:?}");
        let last = begun + step * 99;
        assert!(pins.rested(last + step).is_empty());
        assert_eq!(pins.rested(last + RESTS_FOR), BTreeSet::from([FileId(7)]));
        assert!(pins.rested(last + WAITS_AT_MOST).is_empty(), "it was taken");
    }

    #[test]
    fn where_too_much_has_changed_everything_is_walked() {
        let now = World::simulated(0, 1).clock.moment();
        let mut pins = pins(&[(1, pin(0, 0))]);
        pins.due.insert(FileId(1), Some(now + WALKED_EVERY));
        (0..=CHANGED_MAX as u64).for_each(|file| pins.note_changed(FileId(file), now));
        assert!(pins.changed.is_empty());
        assert_eq!(pins.next(now), Some(FileId(1)));
    }

    #[test]
    fn a_mark_counts_while_its_pin_is_there_and_no_later_walk_has_missed_it() {
        let pins = pins(&[(1, Pin { begun: 3, ended: 2, ..pin(0, 0) })]);
        let counts = |pin, walk| pins.counts(Mark { pin, walk });
        assert!(!counts(1, 1) && counts(1, 2) && counts(1, 3) && !counts(2, 3));
    }

    /// The bytes of a row never change their meaning.
    #[test]
    fn golden_rows_still_read() {
        let place = Place { directory: FileId(3), name: model::Name::new("a").unwrap() };
        let named = Pin { place: Some(place), ..pin(2, 7) };
        for (golden, row) in [
            (&[1, 0x85, 2, 0xf5, 7, 0, 0][..], pin(2, 7)),
            (&[1, 0x86, 2, 0xf5, 7, 0, 0, 0x82, 3, 0x41, b'a'], named),
        ] {
            assert_eq!(encode(&row), golden);
            assert_eq!(decode::<Pin>(golden).unwrap(), row);
        }
    }

    #[test]
    fn of_two_pins_that_become_one_the_more_counts() {
        let (low, high) = (Pin { recursive: false, ..pin(1, 5) }, pin(3, 9));
        for (one, other) in [(&low, &high), (&high, &low)] {
            let both = both(one, other);
            assert_eq!((both.priority, both.recursive, both.since), (3, true, one.since));
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let pin = pin(7, 1_700_000_000);
        let place = Place { directory: FileId(3), name: model::Name::new("a").unwrap() };
        for place in [None, Some(place)] {
            let pin = Pin { place, ..pin.clone() };
            assert_eq!(decode::<Pin>(&encode(&pin)).unwrap(), pin);
        }
        assert!(decode::<Mark>(&encode(&pin)).is_err() || decode::<Mark>(&[9]).is_err());
        assert!(decode::<Pin>(&[]).is_err());
        assert!(file_of(&[1, 2]).is_err());
    }
}
