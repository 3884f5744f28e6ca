//! The line in which pending updates stand: what each waits for, and how much goes before it.
//! Holds: what is said to stand behind a file leaves no sooner than that; what may pass, as `passing`
//! lets it, stands behind nothing.
//! Never: reads the log, or a clock.

use model::{Change, FileId, Update};
use replay::Held;

/// How the first contents of the log stand to what comes after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passing {
    /// Contents that take the link as long as so many bytes are passed. None: nothing is.
    pub long_bytes: Option<u64>,
    /// What is sent unasked passes what is twice as long.
    pub eager_bytes: u64,
    /// Others pass only what is so many times as long.
    pub shorter_by: u64,
}

/// Where an update stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// Nothing has to leave before it, or what does leaves with it.
    Next,
    /// The first contents of this file leave before it.
    Behind(FileId),
}

/// One pending update, and how much of its contents the replica above has not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InLine<'a> {
    pub update: &'a Update,
    pub left: u64,
    /// The last number that there was when a program first made sure of what it stores.
    pub sure_at: Option<u64>,
}

/// Takes the updates of a log in their order.
#[derive(Debug)]
pub(crate) struct Line {
    passing: Passing,
    held: Held,
    /// The file of the first contents, and how much of them is left.
    head: Option<(FileId, u64)>,
    /// Bytes of all so far, and of those that pass the first.
    all: u64,
    passed: u64,
}

impl Line {
    pub fn new(passing: Passing) -> Line {
        Line { passing, held: Held::default(), head: None, all: 0, passed: 0 }
    }

    /// Where the next one stands, and how many bytes leave up to and with it.
    pub fn stand(&mut self, next: InLine<'_>) -> (Stands, u64) {
        let InLine { update, left, sure_at } = next;
        self.all = self.all.saturating_add(left);
        let Some((head, head_left)) = self.head else {
            if let Change::Store { file, .. } = update.change {
                self.head = Some((file, left));
            }
            self.held.hold(update, sure_at);
            return (Stands::Next, self.all);
        };
        if self.may_pass(left, head_left) && self.held.lets(update) {
            self.passed = self.passed.saturating_add(left);
            return (Stands::Next, self.passed);
        }
        self.held.hold(update, sure_at);
        (Stands::Behind(head), self.all)
    }

    fn may_pass(&self, left: u64, head_left: u64) -> bool {
        let Passing { long_bytes, eager_bytes, shorter_by } = self.passing;
        let is_long = long_bytes.is_some_and(|long| head_left >= long);
        let most = (head_left / shorter_by.max(1)).max(eager_bytes.min(head_left / 2));
        is_long && left <= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, Name, ReplicaId, Stamp, Time};

    const FIRST: FileId = FileId(7);
    const PASSING: Passing = Passing { long_bytes: Some(1000), eager_bytes: 100, shorter_by: 8 };

    fn update(number: u64, change: Change) -> Update {
        let at = Time { secs: 0, nanos: 0 };
        Update { stamp: Stamp::new(ReplicaId(1), number), uid: 0, at, change }
    }

    fn store(number: u64, file: FileId, size: u64) -> Update {
        let contents = Contents { size, root: None, holes: None };
        let (expects, mtime) = (Stamp::default(), Time { secs: 0, nanos: 0 });
        update(number, Change::Store { file, expects, contents, mtime })
    }

    fn unlink(number: u64, file: FileId) -> Update {
        let (parent, name) = (FileId::ROOT, Name::new("n").unwrap());
        update(number, Change::Unlink { parent, name, file, expects: None })
    }

    fn check(passing: Passing, updates: &[Update], expected: &[(Stands, u64)]) {
        let mut line = Line::new(passing);
        let stood: Vec<_> = updates
            .iter()
            .map(|update| {
                let left = match update.change {
                    Change::Store { contents, .. } => contents.size,
                    _ => 0,
                };
                line.stand(InLine { update, left, sure_at: None })
            })
            .collect();
        assert_eq!(stood, expected, "{passing:?}");
    }

    #[test]
    fn what_may_pass_stands_behind_nothing_and_the_rest_behind_what_is_passed() {
        let (small, large) = (FileId(8), FileId(9));
        let updates = [
            store(1, FIRST, 8000),
            store(2, small, 1000),
            store(3, large, 5000),
            unlink(4, large),
            unlink(5, FIRST),
            store(6, FileId(10), 10),
        ];
        let behind = Stands::Behind(FIRST);
        let next = Stands::Next;
        let expected = [
            (next, 8000),
            (next, 1000),
            (behind, 14_000),
            (behind, 14_000),
            (behind, 14_000),
            (next, 1010),
        ];
        check(PASSING, &updates, &expected);
    }

    #[test]
    fn where_nothing_passes_all_stands_behind_the_first() {
        let updates = [store(1, FIRST, 8000), store(2, FileId(8), 1), unlink(3, FileId(9))];
        let behind = Stands::Behind(FIRST);
        let expected = [(Stands::Next, 8000), (behind, 8001), (behind, 8001)];
        check(Passing { long_bytes: None, ..PASSING }, &updates, &expected);
        let short = [store(1, FIRST, 900), store(2, FileId(8), 1)];
        check(PASSING, &short, &[(Stands::Next, 900), (behind, 901)]);
    }

    #[test]
    fn what_was_done_after_a_program_had_made_sure_stands_behind() {
        let mut line = Line::new(PASSING);
        let first = store(1, FIRST, 8000);
        line.stand(InLine { update: &first, left: 8000, sure_at: Some(2) });
        for (number, expected) in [(2, Stands::Next), (3, Stands::Behind(FIRST))] {
            let update = store(number, FileId(number + 20), 1);
            let (stands, _) = line.stand(InLine { update: &update, left: 1, sure_at: None });
            assert_eq!(stands, expected, "{number}");
        }
    }
}
