//! What leaves the cache first.
//! Holds: of two things that may leave, the one that was used longer ago goes first; but a file
//! that can never be here as a whole lets go of its own stretches before it drives others out.
//! From: LBFS, "Implementation"; the stretches are beyond it.

use super::stretches::Stretches;
use model::FileId;
use std::collections::{BTreeMap, BTreeSet};

/// A file larger than the cache keeps one part in so many of it for itself.
pub(super) const LARGE_ONE_IN: u64 = 4;

/// What was used so much later than now, was so before the clock was set back.
const AHEAD_NANOS: i64 = 24 * 3600 * 1_000_000_000;

/// When something was used, in the order in which things leave: in nanoseconds since 1970, but of what
/// was used in time to come, far before that. It has not been used since the clock was set back, as what
/// bears an earlier time may have.
pub(super) fn in_order(used: i64, now: i64) -> i64 {
    if used.saturating_sub(now) > AHEAD_NANOS { used - i64::MAX } else { used }
}

/// A file that nobody has open. Times are as `in_order` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Closed {
    pub used: i64,
    pub file: FileId,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub used: i64,
    pub from: u64,
    pub to: u64,
}

/// A version that somebody has open, with what is here of it and may leave.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub file: FileId,
    pub generation: u32,
    pub is_large: bool,
    /// None is a hole.
    pub stretches: Vec<Stretch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Whole(Closed),
    /// The last bytes of a file that nobody has open, as many as this: who reads it once more
    /// begins at its beginning.
    End(FileId, u64),
    Stretches {
        file: FileId,
        generation: u32,
        stretches: Stretches,
    },
}

/// What is to leave so that `bytes` are free; all of it if there is not so much. `closed` and
/// `large` (files larger than the cache) come in the order of their use.
pub(super) fn choose(
    bytes: u64,
    cache_bytes_max: u64,
    closed: impl IntoIterator<Item = Closed>,
    large: &[Closed],
    mut open: Vec<Open>,
) -> Vec<Victim> {
    let mut chosen = Chosen::default();
    let own = cache_bytes_max / LARGE_ONE_IN;
    for one in &mut open {
        one.stretches.sort_unstable_by_key(|stretch| (stretch.used, stretch.from));
    }
    for file in large.iter().filter(|file| file.bytes > own) {
        if chosen.bytes >= bytes {
            break;
        }
        let end = (file.bytes - own).min(bytes - chosen.bytes);
        chosen.ends.insert(file.file, end);
        chosen.bytes += end;
    }
    for (number, one) in open.iter().enumerate().filter(|(_, one)| one.is_large) {
        let mut left: u64 = one.stretches.iter().map(|stretch| stretch.to - stretch.from).sum();
        for stretch in &one.stretches {
            if chosen.bytes >= bytes || left <= own {
                break;
            }
            left -= stretch.to - stretch.from;
            chosen.take(number, stretch);
        }
    }
    let mut rest: Vec<(usize, Stretch)> = open
        .iter()
        .enumerate()
        .flat_map(|(number, one)| one.stretches.iter().map(move |stretch| (number, *stretch)))
        .filter(|(number, stretch)| !chosen.has(*number, stretch))
        .collect();
    rest.sort_unstable_by_key(|(number, stretch)| (stretch.used, *number, stretch.from));
    let (mut closed, mut rest) = (closed.into_iter().peekable(), rest.into_iter().peekable());
    while chosen.bytes < bytes {
        match (closed.peek(), rest.peek()) {
            (Some(file), Some((_, stretch))) if file.used > stretch.used => {
                let (number, stretch) = rest.next().expect("it was just looked at");
                chosen.take(number, &stretch);
            }
            (Some(_), _) => chosen.take_whole(closed.next().expect("it was just looked at")),
            (None, Some(_)) => {
                let (number, stretch) = rest.next().expect("it was just looked at");
                chosen.take(number, &stretch);
            }
            (None, None) => break,
        }
    }
    chosen.finish(&open)
}

#[derive(Default)]
struct Chosen {
    bytes: u64,
    whole: Vec<Closed>,
    ends: BTreeMap<FileId, u64>,
    stretches: BTreeSet<(usize, u64, u64)>,
}

impl Chosen {
    fn has(&self, number: usize, stretch: &Stretch) -> bool {
        self.stretches.contains(&(number, stretch.from, stretch.to))
    }

    fn take(&mut self, number: usize, stretch: &Stretch) {
        self.stretches.insert((number, stretch.from, stretch.to));
        self.bytes += stretch.to - stretch.from;
    }

    fn take_whole(&mut self, file: Closed) {
        let end = self.ends.remove(&file.file).unwrap_or(0);
        self.bytes += file.bytes.saturating_sub(end);
        self.whole.push(file);
    }

    fn finish(self, open: &[Open]) -> Vec<Victim> {
        let mut of_open: BTreeMap<usize, Stretches> = BTreeMap::new();
        for (number, from, to) in self.stretches {
            let stretches = of_open.entry(number).or_default();
            match stretches.last_mut() {
                Some((_, end)) if *end == from => *end = to,
                _ => stretches.push((from, to)),
            }
        }
        let whole = self.whole.into_iter().map(Victim::Whole);
        let ends = self.ends.into_iter().map(|(file, bytes)| Victim::End(file, bytes));
        let stretches = of_open.into_iter().map(|(number, stretches)| {
            let Open { file, generation, .. } = open[number];
            Victim::Stretches { file, generation, stretches }
        });
        whole.chain(ends).chain(stretches).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CACHE: u64 = 1000;

    fn closed(used: i64, file: u64, bytes: u64) -> Closed {
        Closed { used, file: FileId(file), bytes }
    }

    fn open(file: u64, is_large: bool, stretches: &[(i64, u64, u64)]) -> Open {
        let stretches =
            stretches.iter().map(|&(used, from, to)| Stretch { used, from, to }).collect();
        Open { file: FileId(file), generation: 3, is_large, stretches }
    }

    fn stretches(file: u64, stretches: &[(u64, u64)]) -> Victim {
        Victim::Stretches { file: FileId(file), generation: 3, stretches: stretches.to_vec() }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_whether_it_is_open_or_not() {
        let files = [closed(1, 1, 100), closed(5, 2, 100)];
        let one = open(7, false, &[(9, 0, 50), (3, 50, 100), (4, 100, 150)]);
        let chosen = |bytes| choose(bytes, CACHE, files, &[], vec![one.clone()]);
        assert_eq!(chosen(0), vec![]);
        assert_eq!(chosen(1), vec![Victim::Whole(files[0])]);
        assert_eq!(chosen(101), vec![Victim::Whole(files[0]), stretches(7, &[(50, 100)])]);
        let both = files.map(Victim::Whole);
        assert_eq!(chosen(300), [both.to_vec(), vec![stretches(7, &[(50, 150)])]].concat());
        assert_eq!(chosen(9999), [both.to_vec(), vec![stretches(7, &[(0, 150)])]].concat());
    }

    #[test]
    fn what_was_used_in_time_to_come_goes_before_what_was_used_since_the_clock_was_set_back() {
        let day = AHEAD_NANOS;
        let now = 20_000 * day;
        let used = [now + 3_000 * day, now + 4_000 * day, 5, now - day, now, now + day, i64::MAX];
        let mut order = used;
        order.sort_by_key(|used| in_order(*used, now));
        // A clock that is set by some hours, to and fro, changes nothing.
        assert_eq!(order, [used[0], used[1], i64::MAX, 5, now - day, now, now + day]);
        assert_eq!(in_order(i64::MAX, 0), 0);
        assert_eq!(in_order(i64::MAX, i64::MAX), i64::MAX, "a clock that has gone past 2262");
    }

    #[test]
    fn a_file_larger_than_the_cache_lets_go_behind_its_reader_and_drives_nobody_out() {
        let old = [closed(1, 1, 100)];
        let reader = open(7, true, &[(5, 0, 200), (6, 200, 400), (7, 400, 600), (8, 600, 800)]);
        let chosen = choose(250, CACHE, old, &[], vec![reader.clone()]);
        assert_eq!(chosen, vec![stretches(7, &[(0, 400)])]);
        // It keeps a part for itself, as others do.
        let chosen = choose(650, CACHE, old, &[], vec![reader]);
        assert_eq!(chosen, vec![Victim::Whole(old[0]), stretches(7, &[(0, 600)])]);
    }

    #[test]
    fn of_a_closed_file_larger_than_the_cache_the_end_goes_first_and_the_rest_in_its_turn() {
        let (old, large) = (closed(1, 1, 100), closed(9, 2, 800));
        let chosen = |bytes| choose(bytes, CACHE, [old, large], &[large], vec![]);
        assert_eq!(chosen(300), vec![Victim::End(FileId(2), 300)]);
        assert_eq!(chosen(600), vec![Victim::Whole(old), Victim::End(FileId(2), 550)]);
        assert_eq!(chosen(700), vec![Victim::Whole(old), Victim::Whole(large)]);
    }

    fn some_closed() -> impl Strategy<Value = Vec<Closed>> {
        proptest::collection::vec((0..50_i64, 1..300_u64), 0..8).prop_map(|mut files| {
            files.sort_unstable();
            let closed = files.into_iter().enumerate();
            closed.map(|(file, (used, bytes))| self::closed(used, file as u64, bytes)).collect()
        })
    }

    fn some_open() -> impl Strategy<Value = Vec<Open>> {
        let stretches = proptest::collection::vec((0..50_i64, 1..100_u64), 0..8);
        proptest::collection::vec((any::<bool>(), stretches), 0..4).prop_map(|files| {
            let files = files.into_iter().enumerate();
            files
                .map(|(file, (is_large, lengths))| {
                    let mut at = 0;
                    let stretches: Vec<_> = lengths
                        .into_iter()
                        .map(|(used, length)| {
                            at += length;
                            (used, at - length, at)
                        })
                        .collect();
                    open(100 + file as u64, is_large, &stretches)
                })
                .collect()
        })
    }

    /// How late what leaves was used, at the latest, and what stays, at the earliest.
    fn turn(victims: &[Victim], closed: &[Closed], open: &[Open]) -> (Option<i64>, Option<i64>) {
        let leaves = |file: FileId, from: u64| {
            victims.iter().any(|victim| match victim {
                Victim::Whole(closed) => closed.file == file,
                Victim::End(..) => false,
                Victim::Stretches { file: other, stretches, .. } => {
                    *other == file && stretches.iter().any(|(a, b)| (*a..*b).contains(&from))
                }
            })
        };
        let closed = closed.iter().map(|closed| (closed.used, leaves(closed.file, 0)));
        let stretches = open.iter().flat_map(|open| {
            open.stretches.iter().map(|stretch| (stretch.used, leaves(open.file, stretch.from)))
        });
        let all: Vec<(i64, bool)> = closed.chain(stretches).collect();
        let latest = all.iter().filter(|(_, leaves)| *leaves).map(|(used, _)| *used).max();
        (latest, all.iter().filter(|(_, leaves)| !leaves).map(|(used, _)| *used).min())
    }

    fn freed(victims: &[Victim]) -> u64 {
        let of = |victim: &Victim| match victim {
            Victim::Whole(closed) => closed.bytes,
            Victim::End(_, bytes) => *bytes,
            Victim::Stretches { stretches, .. } => stretches.iter().map(|(a, b)| b - a).sum(),
        };
        victims.iter().map(of).sum()
    }

    proptest! {
        #[test]
        fn prop_enough_leaves_in_turn_and_not_more_than_the_last_one(
            bytes in 0..3000_u64, closed in some_closed(), mut open in some_open(),
        ) {
            let all = freed(&closed.iter().copied().map(Victim::Whole).collect::<Vec<_>>())
                + open.iter().flat_map(|o| &o.stretches).map(|s| s.to - s.from).sum::<u64>();
            let victims = choose(bytes, CACHE, closed.clone(), &[], open.clone());
            prop_assert!(freed(&victims) >= bytes.min(all));
            prop_assert!(bytes > 0 || victims.is_empty());
            // Without the last one it would not be enough.
            prop_assert!(freed(&victims) < bytes.max(1) + 300);
            open.iter_mut().for_each(|open| open.is_large = false);
            let victims = choose(bytes, CACHE, closed.clone(), &[], open.clone());
            let (leaves, stays) = turn(&victims, &closed, &open);
            prop_assert!(leaves.zip(stays).is_none_or(|(leaves, stays)| leaves <= stays));
        }
    }
}
