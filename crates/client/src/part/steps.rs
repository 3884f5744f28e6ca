//! Much that is wanted, in steps.
//! Holds: what is kept does not grow with the length of a stretch, nor do the steps with that of a hole.

use std::collections::VecDeque;

/// Stretches that are left, in order.
pub(super) struct Steps {
    stretches: VecDeque<(u64, u64)>,
    /// Before that nothing is left.
    from: u64,
}

impl Steps {
    pub fn of(stretches: &[(u64, u64)]) -> Steps {
        let mut stretches = stretches.to_vec();
        stretches.sort_unstable();
        Steps { stretches: stretches.into(), from: 0 }
    }

    /// The next of them, of so many bytes in all at most.
    pub fn next(&mut self, bytes_most: u64) -> Option<Vec<(u64, u64)>> {
        let mut step: Vec<(u64, u64)> = Vec::new();
        let mut room = bytes_most;
        while let (Some((from, to)), true) = (self.stretches.front().copied(), room > 0) {
            let from = from.max(self.from);
            if from >= to {
                self.stretches.pop_front();
                continue;
            }
            let upto = to.min(from.saturating_add(room));
            step.push((from, upto));
            room -= upto - from;
            self.from = upto;
        }
        (!step.is_empty()).then_some(step)
    }

    /// What is before that has come with the last step.
    pub fn go_on_from(&mut self, offset: u64) {
        self.from = self.from.max(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_much_comes_in_steps_and_each_byte_once() {
        let mut steps = Steps::of(&[(10, 31), (3, 5), (7, 7), (40, 42)]);
        let all: Vec<_> = std::iter::from_fn(|| steps.next(10)).collect();
        assert_eq!(all, [vec![(3, 5), (10, 18)], vec![(18, 28)], vec![(28, 31), (40, 42)]]);
    }

    #[test]
    fn a_hole_without_an_end_takes_as_many_steps_as_a_short_one() {
        let end = i64::MAX as u64;
        let mut steps = Steps::of(&[(1, end - 100), (end - 50, end)]);
        assert_eq!(steps.next(1000), Some(vec![(1, 1001)]));
        steps.go_on_from(end - 70);
        assert_eq!(steps.next(1000), Some(vec![(end - 50, end)]));
        steps.go_on_from(u64::MAX);
        assert_eq!(steps.next(1000), None);
    }
}
