use super::*;
use crate::describe_bytes;
use crate::recipe::{Tree, build};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn secret() -> Secret {
    Secret::new([7; 32])
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let key: [u8; 32] = std::array::from_fn(|at| seed.to_le_bytes()[at % 8]);
    blake3::Hasher::new_keyed(&key).finalize_xof().fill(&mut bytes);
    bytes
}

/// A file of which only some bytes are here, and a server that has the old version.
struct Here {
    old: Tree,
    pieces: Vec<Placed>,
    recipe: BTreeMap<ChunkName, Vec<u8>>,
    after: Vec<u8>,
    here: Vec<bool>,
    fetched: u64,
    trips: usize,
}

impl PartOf<ChunksError> for Here {
    fn recipe(&self, name: &ChunkName) -> Option<Vec<u8>> {
        self.recipe.get(name).cloned()
    }

    fn here_until(&self, offset: u64) -> u64 {
        let from = offset as usize;
        match self.here.get(from..) {
            Some(rest) => offset + rest.iter().take_while(|here| **here).count() as u64,
            None => offset,
        }
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<Found, ChunksError> {
        let end = self.here_until(offset) as usize;
        let rest = &self.after[offset as usize..end];
        let found = rest.len().min(buffer.len());
        buffer[..found].copy_from_slice(&rest[..found]);
        Ok(Found::Bytes(found))
    }
}

impl Here {
    /// Nothing is here but what was written and what was added.
    fn new(cutter: Cutter, before: &[u8], after: &[u8], changed: &[Range<u64>]) -> Here {
        let described = describe_bytes(&secret(), cutter, before);
        let mut here = vec![false; after.len()];
        here[before.len().min(after.len())..].fill(true);
        for range in changed {
            let end = (range.end as usize).min(after.len());
            here[(range.start as usize).min(end)..end].fill(true);
        }
        Here {
            old: described.tree,
            pieces: described.pieces,
            recipe: BTreeMap::new(),
            after: after.to_vec(),
            here,
            fetched: 0,
            trips: 0,
        }
    }

    fn fetch(&mut self, lacks: &Lacks) {
        self.trips += 1;
        let all: BTreeMap<ChunkName, Vec<u8>> = self.old.chunks.iter().cloned().collect();
        let mut walked = Vec::new();
        for range in lacks.recipe.iter().chain(&lacks.bytes) {
            assert!(range.start < range.end, "{lacks:?}");
            let range = Stretch { offset: range.start, length: range.end - range.start };
            cover(&secret(), &self.old.contents, range, usize::MAX, |name| {
                walked.push(*name);
                Ok(all.get(name).cloned())
            })
            .unwrap();
        }
        for name in walked {
            self.recipe.insert(name, all[&name].clone());
        }
        for range in &lacks.bytes {
            let touches = |piece: &&Placed| piece.offset < range.end && range.start < piece.end();
            for piece in self.pieces.iter().filter(touches) {
                self.fetched += piece.piece.length();
                let end = (piece.end() as usize).min(self.here.len());
                self.here[(piece.offset as usize).min(end)..end].fill(true);
            }
        }
    }

    fn describe(&mut self, cutter: Cutter, changed: &[Range<u64>]) -> Described {
        let (size, old) = (self.after.len() as u64, self.old.contents);
        for _ in 0..2000 {
            let outcome = describe_part(&secret(), cutter, size, &old, changed, self);
            match outcome {
                Ok(described) => return described,
                Err(Short::Lacks(lacks)) => self.fetch(&lacks),
                Err(Short::Failed(error)) => panic!("{error}"),
            }
        }
        panic!("more and more is lacking")
    }
}

/// It is as if all had been here, and what is not in the old version is named.
fn check(cutter: Cutter, before: &[u8], after: &[u8], changed: &[Range<u64>]) -> Here {
    let whole = describe_bytes(&secret(), cutter, after);
    let mut here = Here::new(cutter, before, after, changed);
    let found = here.describe(cutter, changed);
    assert_eq!(found.tree.contents, whole.tree.contents);
    // Which does not compare holes: they are counted right, or not at all.
    let holes = found.tree.contents.holes;
    assert!(holes.is_none() || holes == whole.tree.contents.holes);
    let known: BTreeSet<ChunkName> =
        here.old.chunks.iter().chain(&found.tree.chunks).map(|(name, _)| *name).collect();
    assert!(whole.tree.chunks.iter().all(|(name, _)| known.contains(name)));
    for placed in &whole.pieces {
        assert!(found.pieces.contains(placed) || here.pieces.contains(placed), "{placed:?}");
    }
    here
}

#[test]
fn a_byte_in_a_large_file_takes_a_chunk_or_two_and_the_recipe_above_it() {
    let before = noise(1, 8 << 20);
    for at in [0, 77_777, 4 << 20, (8 << 20) - 1] {
        let mut after = before.clone();
        after[at] ^= 1;
        let change = at as u64..at as u64 + 1;
        let here = check(Cutter::Gear, &before, &after, &[change]);
        assert!(here.fetched < 200 << 10, "{} bytes", here.fetched);
        assert!(here.trips <= 4, "{} round trips", here.trips);
        assert!(here.recipe.len() < 8, "{} recipe chunks", here.recipe.len());
    }
}

#[test]
fn holes_are_counted_where_it_is_known_what_was_there() {
    let mut before = [noise(5, 1 << 20), vec![0; 3 << 20], noise(6, 1 << 20)].concat();
    before[2 << 20..(2 << 20) + 9].fill(7);
    let mut after = before.clone();
    after[3 << 20..(3 << 20) + 5].fill(1);
    let change = 3 << 20..(3 << 20) + 5;
    let mut here = check(Cutter::Gear, &before, &after, std::slice::from_ref(&change));
    let found = here.describe(Cutter::Gear, &[change]);
    let whole = describe_bytes(&secret(), Cutter::Gear, &after);
    assert!(whole.tree.contents.holes.is_some_and(|holes| holes > 2 << 20));
    assert_eq!(found.tree.contents.holes, whole.tree.contents.holes);
}

#[test]
fn a_file_that_is_cut_short_or_goes_on_takes_its_end_alone() {
    let before = noise(2, 4 << 20);
    let shorter = check(Cutter::Gear, &before, &before[..3 << 20], &[]);
    assert!(shorter.fetched < 200 << 10);
    let longer = [&before[..], &noise(3, 100_000)].concat();
    let changed = 4 << 20..longer.len() as u64;
    let longer = check(Cutter::Rabin, &before, &longer, &[changed]);
    assert!(longer.fetched < 200 << 10);
}

#[test]
fn what_was_not_written_is_what_it_was() {
    let before = noise(4, 1 << 20);
    let here = check(Cutter::Gear, &before, &before, &[]);
    assert_eq!((here.fetched, here.trips), (0, 0));
}

/// A tree of many depths, of which the pieces are only said to be there.
#[test]
fn branches_that_are_kept_make_the_same_tree() {
    let piece = |number: u64| Piece::Chunk {
        name: secret().name(&number.to_le_bytes()),
        length: 4096 + number % 100,
    };
    let old: Vec<Piece> = (0..40_000).map(piece).collect();
    let tree = build(&secret(), old.clone());
    assert!(tree.contents.root.is_some_and(|root| root.depth >= 3));
    let placed = cover(
        &secret(),
        &tree.contents,
        Stretch { offset: 0, length: u64::MAX },
        usize::MAX,
        |name| {
            Ok(tree.chunks.iter().find(|(other, _)| other == name).map(|(_, bytes)| bytes.clone()))
        },
    )
    .unwrap()
    .pieces;
    for (from, to, fresh) in
        [(20_000, 20_001, 1), (0, 3, 7), (39_990, 40_000, 2), (17, 30_000, 5), (5_000, 5_300, 0)]
    {
        let mut here = Here::new(Cutter::Gear, &[], &[], &[]);
        here.recipe = tree.chunks.iter().cloned().collect();
        let size = |pieces: &[Piece]| pieces.iter().map(Piece::length).sum::<u64>();
        let new: Vec<Piece> = (0..fresh).map(|number| piece(100_000 + number)).collect();
        let whole = [&old[..from], &new, &old[to..]].concat();
        // As long as what they take the place of, or else the offsets would move.
        let gap = size(&old[from..to]);
        let pad = gap.checked_sub(size(&new)).filter(|pad| *pad > 0);
        let pad = pad.map(|length| Piece::Zeros { length });
        let whole = match pad {
            Some(_) => {
                [&old[..from], &new, &pad.into_iter().collect::<Vec<_>>(), &old[to..]].concat()
            }
            None if size(&new) == gap => whole,
            None => continue,
        };
        let old_size = tree.contents.size;
        let secret = secret();
        let mut work = Work {
            secret: &secret,
            old: &tree.contents,
            size: old_size,
            part: &mut here,
            builder: Builder::new(&secret),
            at: 0,
            fresh: Vec::new(),
            kept: Vec::new(),
        };
        let end = placed.get(to).map_or(old_size, |placed| placed.offset);
        work.keep_upto::<ChunksError>(placed[from].offset).unwrap();
        for piece in new.iter().copied().chain(pad) {
            work.at += piece.length();
            work.builder.push(piece);
        }
        assert_eq!(work.at, end);
        work.keep_upto::<ChunksError>(old_size).unwrap();
        let found = work.finish().tree;
        let expected = build(&secret, whole);
        assert_eq!(found.contents, expected.contents, "{from}..{to}");
        assert!(
            found.chunks.len() < 40 || to - from > 1000,
            "{} recipe chunks",
            found.chunks.len()
        );
    }
}

fn stretches() -> impl Strategy<Value = Vec<u8>> {
    let stretch = prop_oneof![
        (any::<u64>(), 0..60_000usize).prop_map(|(seed, length)| noise(seed, length)),
        (0..150_000usize).prop_map(|length| vec![0; length]),
        (65_530..65_545usize).prop_map(|length| vec![0; length]),
        (any::<u8>(), 0..100_000usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    prop::collection::vec(stretch, 0..6).prop_map(|stretches| stretches.concat())
}

/// Where, what, and how much of it.
fn writes() -> impl Strategy<Value = Vec<(prop::sample::Index, bool, usize)>> {
    let length = prop_oneof![0..20usize, 0..5_000usize, 60_000..70_000usize];
    prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), length), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn prop_it_is_described_as_if_all_of_it_had_been_here(
        before in stretches(),
        writes in writes(),
        cut in prop::option::of(any::<prop::sample::Index>()),
        size in prop::option::of(any::<prop::sample::Index>()),
        rabin in any::<bool>(),
    ) {
        let cutter = if rabin { Cutter::Rabin } else { Cutter::Gear };
        let mut after = before.clone();
        let mut changed = Vec::new();
        if let Some(cut) = cut {
            // Cut short, and perhaps longer again: the end is zeros then.
            after.truncate(cut.index(after.len() + 1));
            changed.push(after.len() as u64..before.len() as u64);
        }
        for (place, zeros, length) in writes {
            let start = place.index(after.len() + 1);
            let bytes = if zeros { vec![0; length] } else { noise(start as u64, length) };
            after.resize(after.len().max(start + length), 0);
            after[start..start + length].copy_from_slice(&bytes);
            changed.push(start as u64..(start + length) as u64);
        }
        if let Some(size) = size {
            let size = size.index(after.len() + 1);
            after.truncate(size);
            changed.push(size as u64..before.len() as u64);
        }
        check(cutter, &before, &after, &changed);
    }
}
