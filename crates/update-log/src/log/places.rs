//! Where in the journal updates stand: of one in some, and the others a little behind it.

use std::collections::VecDeque;
use store::journal::Position;

/// At most so many records lie between one that is marked and the next pending update.
const APART_MAX: u64 = 32;

/// Numbers and positions both grow.
#[derive(Default)]
pub struct Places(VecDeque<(u64, Position)>);

impl Places {
    pub fn note(&mut self, number: u64, position: Position) {
        let due = |(_, last): &(u64, Position)| position >= last + APART_MAX;
        if self.0.back().is_none_or(due) {
            self.0.push_back((number, position));
        }
    }

    /// A position from which on the update is found; 0 if nothing is known of it.
    pub fn before(&self, number: u64) -> Position {
        let behind = self.0.partition_point(|(marked, _)| *marked <= number);
        behind.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |(_, position)| *position)
    }

    /// Nobody asks for what stands before this update any more.
    pub fn forget_before(&mut self, number: u64) {
        while self.0.get(1).is_some_and(|(second, _)| *second <= number) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_found_a_little_behind_its_place() {
        let mut places = Places::default();
        assert_eq!(places.before(7), 0);
        for number in 10..1000 {
            places.note(number, 3 * number);
        }
        assert!(places.0.len() < 100);
        for number in 10..1000 {
            let apart = 3 * number - places.before(number);
            assert!(apart <= APART_MAX + 3, "{number}: {apart}");
        }
        places.forget_before(500);
        assert!(places.before(500) > 1400 && places.before(400) == 0);
        places.note(400, 3);
        assert!(places.before(999) > 2900, "what was put back is marked already");
    }
}
