//! What has been fetched for a call that has not come back for it yet.
//! Holds: it does not leave before that, or a call could fetch for ever in a small cache.

use super::stretches::{Stretches, without};
use model::FileId;
use std::collections::VecDeque;
use std::time::Duration;
use world::Moment;

/// Whoever has not come back by then does not come.
const AWAITED_FOR: Duration = Duration::from_secs(10);
/// Calls that are remembered.
const AWAITED_MAX: usize = 256;

#[derive(Default)]
pub(super) struct Awaited(VecDeque<Call>);

struct Call {
    file: FileId,
    from: u64,
    to: u64,
    since: Moment,
}

impl Awaited {
    /// A call waits for the stretch, or it has just come.
    pub fn note(&mut self, file: FileId, from: u64, to: u64, now: Moment) {
        self.0.retain(|call| now.since(call.since) < AWAITED_FOR);
        self.0.retain(|call| (call.file, call.from, call.to) != (file, from, to));
        self.0.push_back(Call { file, from, to, since: now });
        if self.0.len() > AWAITED_MAX {
            self.0.pop_front();
        }
    }

    /// A call has come back for the stretch.
    pub fn taken(&mut self, file: FileId, from: u64, to: u64) {
        self.0.retain(|call| call.file != file || call.from < from || to < call.to);
    }

    pub fn is_any_of(&self, file: FileId, now: Moment) -> bool {
        self.0.iter().any(|call| call.file == file && now.since(call.since) < AWAITED_FOR)
    }

    /// Of stretches of a file, those that nobody waits for.
    pub fn others(&self, file: FileId, stretches: Stretches, now: Moment) -> Stretches {
        let waits = |call: &&Call| call.file == file && now.since(call.since) < AWAITED_FOR;
        let calls = self.0.iter().filter(waits);
        calls.fold(stretches, |left, call| without(&left, call.from, call.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::World;

    const FILE: FileId = FileId(7);

    #[test]
    fn what_a_call_waits_for_stays_until_it_was_taken_or_for_a_while() {
        let now = World::simulated(0, 1).clock.moment();
        let mut awaited = Awaited::default();
        awaited.note(FILE, 10, 20, now);
        awaited.note(FILE, 30, 40, now);
        let others = |awaited: &Awaited, at| awaited.others(FILE, vec![(0, 100)], at);
        assert_eq!(others(&awaited, now), [(0, 10), (20, 30), (40, 100)]);
        assert_eq!(awaited.others(FileId(8), vec![(0, 100)], now), [(0, 100)]);
        awaited.taken(FILE, 11, 20);
        awaited.taken(FILE, 25, 50);
        assert_eq!(others(&awaited, now), [(0, 10), (20, 100)]);
        assert!(awaited.is_any_of(FILE, now) && !awaited.is_any_of(FileId(8), now));
        assert!(!awaited.is_any_of(FILE, now + AWAITED_FOR));
        assert_eq!(others(&awaited, now + AWAITED_FOR), [(0, 100)]);
    }

    #[test]
    fn of_very_many_calls_the_last_are_remembered() {
        let now = World::simulated(0, 1).clock.moment();
        let mut awaited = Awaited::default();
        (0..=AWAITED_MAX as u64).for_each(|at| awaited.note(FILE, at, at + 1, now));
        assert_eq!(awaited.others(FILE, vec![(0, 2)], now), [(0, 1)]);
    }
}
