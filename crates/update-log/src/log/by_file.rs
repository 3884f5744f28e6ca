//! Which pending updates are about a file: two words for each, and little beside.

use model::{Change, FileId, Update};

/// Pairs that stand in one piece. What is made follows what was made before, so that pieces are
/// full but for the last.
const PIECE_MAX: usize = 256;

/// What an update does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Makes,
    Stores,
    Else,
}

/// A file, and the number of an update with what that does to it in the lowest bits.
type Pair = (u64, u64);

#[derive(Default)]
pub struct ByFile {
    /// In order, within the pieces and one after the other; none is empty.
    pieces: Vec<Vec<Pair>>,
    stores: usize,
}

/// The files whose own rows an update changes, other than the directories of their names.
pub fn subjects(update: &Update) -> impl Iterator<Item = (FileId, What)> {
    let (file, what, other) = match &update.change {
        Change::Make { file, .. } => (*file, What::Makes, None),
        Change::Store { file, .. } => (*file, What::Stores, None),
        Change::Rename { file, over, .. } => (*file, What::Else, *over),
        Change::Link { file, .. }
        | Change::Unlink { file, .. }
        | Change::SetAttributes { file, .. }
        | Change::SetXattr { file, .. }
        | Change::RemoveXattr { file, .. } => (*file, What::Else, None),
    };
    let other = other.filter(|other| *other != file).map(|other| (other, What::Else));
    let made = update.makes().filter(|made| *made != file).map(|made| (made, What::Makes));
    std::iter::once((file, what)).chain(other).chain(made)
}

fn pair(file: FileId, number: u64, what: What) -> Pair {
    let bits = match what {
        What::Makes => 0,
        What::Stores => 1,
        What::Else => 2,
    };
    (file.0, number << 2 | bits)
}

fn read((_, number): Pair) -> (u64, What) {
    let what = match number & 3 {
        0 => What::Makes,
        1 => What::Stores,
        _ => What::Else,
    };
    (number >> 2, what)
}

impl ByFile {
    pub fn add(&mut self, update: &Update) {
        for (file, what) in subjects(update) {
            self.insert(pair(file, update.stamp.number, what));
            self.stores += usize::from(what == What::Stores);
        }
    }

    pub fn remove(&mut self, update: &Update) {
        for (file, what) in subjects(update) {
            if self.take(pair(file, update.stamp.number, what)) && what == What::Stores {
                self.stores -= 1;
            }
        }
    }

    /// How many stores there are.
    pub fn stores(&self) -> usize {
        self.stores
    }

    /// Updates of a file, the last first.
    pub fn backwards(&self, file: FileId) -> impl Iterator<Item = (u64, What)> {
        let beyond = self.piece_of((file.0, u64::MAX)).map_or(0, |last| last + 1);
        let pairs = self.pieces[..beyond].iter().rev().flat_map(|piece| piece.iter().rev());
        let pairs = pairs.skip_while(move |(found, _)| *found > file.0);
        pairs.take_while(move |(found, _)| *found == file.0).map(|pair| read(*pair))
    }

    /// Files beyond `after` with stores among their updates, in order.
    pub fn stored_after(&self, after: Option<FileId>) -> impl Iterator<Item = FileId> {
        let from = after.map_or((0, 0), |after| (after.0, u64::MAX));
        let begin = self.piece_of(from).unwrap_or(0);
        let pairs = self.pieces[begin..].iter().flatten().filter(move |pair| **pair > from);
        let mut last = None;
        pairs.filter(|pair| read(**pair).1 == What::Stores).filter_map(move |(file, _)| {
            let is_new = last.replace(*file) != Some(*file);
            is_new.then_some(FileId(*file))
        })
    }

    /// The piece in which a pair is, or would be.
    fn piece_of(&self, pair: Pair) -> Option<usize> {
        let behind = self.pieces.partition_point(|piece| piece.first().is_some_and(|f| *f <= pair));
        if self.pieces.is_empty() { None } else { Some(behind.saturating_sub(1)) }
    }

    fn insert(&mut self, pair: Pair) {
        let Some(mut at) = self.piece_of(pair) else {
            self.pieces.push(vec![pair]);
            return;
        };
        if self.pieces[at].len() >= PIECE_MAX {
            let is_last = at + 1 == self.pieces.len();
            if is_last && self.pieces[at].last().is_some_and(|last| *last < pair) {
                self.pieces.push(Vec::with_capacity(PIECE_MAX));
            } else {
                let half = self.pieces[at].split_off(PIECE_MAX / 2);
                self.pieces[at].shrink_to_fit();
                self.pieces.insert(at + 1, half);
            }
            at += usize::from(self.pieces[at + 1].first().is_none_or(|first| *first <= pair));
        }
        let piece = &mut self.pieces[at];
        if let Err(place) = piece.binary_search(&pair) {
            piece.insert(place, pair);
        }
    }

    /// False: it was not there.
    fn take(&mut self, pair: Pair) -> bool {
        let Some(at) = self.piece_of(pair) else { return false };
        let piece = &mut self.pieces[at];
        let Ok(place) = piece.binary_search(&pair) else { return false };
        piece.remove(place);
        if piece.is_empty() {
            self.pieces.remove(at);
        } else if piece.len() < piece.capacity() / 4 {
            piece.shrink_to(piece.len() * 2);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, Kind, Name, ReplicaId, Stamp, Time};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn update(number: u64, file: u64, kind: u8) -> Update {
        let (file, name) = (FileId(file), Name::new("a").expect("a name"));
        let (expects, mtime) = (Stamp::default(), Time::default());
        let change = match kind {
            0 => Change::Make {
                parent: FileId::ROOT,
                name,
                file,
                kind: Kind::File,
                mode: 0,
                uid: 0,
                gid: 0,
                target: None,
                rdev: None,
                born: None,
            },
            1 => Change::Store { file, expects, contents: Contents::EMPTY, mtime },
            _ => Change::Rename {
                from: FileId::ROOT,
                from_name: name.clone(),
                to: FileId::ROOT,
                to_name: name,
                file,
                over: Some(FileId(file.0 / 2 + 1)),
                exchange: false,
                whiteout: None,
                expects: None,
            },
        };
        Update { stamp: Stamp::new(ReplicaId(1), number), uid: 0, at: mtime, change }
    }

    fn check(calls: &[(u64, u8, bool)], piece: u64) {
        let (mut by_file, mut naive) = (ByFile::default(), BTreeSet::new());
        for (number, (file, kind, forwards)) in calls.iter().enumerate() {
            // In long runs, as when a tree is unpacked.
            for step in 0..piece {
                let file = 1 + if *forwards { file + step } else { file.abs_diff(step) };
                let number = (number as u64 * piece + step) % (calls.len() as u64 * piece / 2 + 1);
                let update = update(number, file, *kind);
                let pairs: Vec<Pair> =
                    subjects(&update).map(|(file, what)| pair(file, number, what)).collect();
                if naive.contains(&pairs[0]) {
                    by_file.remove(&update);
                    naive.retain(|pair| !pairs.contains(pair));
                } else {
                    by_file.add(&update);
                    naive.extend(pairs);
                }
            }
        }
        let kept: Vec<Pair> = by_file.pieces.iter().flatten().copied().collect();
        assert_eq!(kept, naive.iter().copied().collect::<Vec<_>>());
        assert!(by_file.pieces.iter().all(|piece| (1..=PIECE_MAX).contains(&piece.len())));
        let stores = || naive.iter().filter(|pair| read(**pair).1 == What::Stores);
        assert_eq!(by_file.stores(), stores().count());
        let stored: BTreeSet<u64> = stores().map(|pair| pair.0).collect();
        for file in (0..1100).step_by(7) {
            let wanted: Vec<_> =
                naive.range((file, 0)..(file + 1, 0)).rev().map(|pair| read(*pair)).collect();
            assert_eq!(by_file.backwards(FileId(file)).collect::<Vec<_>>(), wanted);
            let wanted: Vec<_> = stored.range(file + 1..).map(|file| FileId(*file)).collect();
            assert_eq!(by_file.stored_after(Some(FileId(file))).collect::<Vec<_>>(), wanted);
        }
        assert_eq!(by_file.stored_after(None).count(), stored.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn prop_it_is_a_set_of_pairs(
            calls in prop::collection::vec((0_u64..1000, 0_u8..3, any::<bool>()), 1..12),
            piece in prop::sample::select(vec![1_u64, 40, 700]),
        ) {
            check(&calls, piece);
        }
    }

    #[test]
    fn what_is_made_one_after_the_other_fills_its_pieces() {
        let mut by_file = ByFile::default();
        for number in 1..=1000 {
            by_file.add(&update(2 * number, number, 0));
            by_file.add(&update(2 * number + 1, number, 1));
        }
        assert_eq!(by_file.pieces.len(), 2000_usize.div_ceil(PIECE_MAX));
    }
}
