#![allow(clippy::single_range_in_vec_init, reason = "a stretch alone is meant")]

use super::*;
use crate::recipe::{Placed, Tree};
use crate::{Growing, cover, describe_bytes};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

#[derive(Default)]
struct AtHand {
    chunks: RefCell<BTreeMap<ChunkName, Vec<u8>>>,
    read: RefCell<u64>,
    /// How often something was asked for.
    asked: RefCell<u64>,
}

fn secret() -> Secret {
    Secret::new([7; 32])
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

impl AtHand {
    fn put(&self, bytes: &[u8]) -> Contents {
        let described = describe_bytes(&secret(), Cutter::Gear, bytes);
        let mut chunks = self.chunks.borrow_mut();
        for placed in &described.pieces {
            if let Piece::Chunk { name, .. } = placed.piece {
                chunks.insert(name, bytes[placed.offset as usize..placed.end() as usize].to_vec());
            }
        }
        let Tree { contents, chunks: recipes } = described.tree;
        chunks.extend(recipes);
        contents
    }

    fn all(&self, contents: &Contents) -> Vec<u8> {
        match contents.size {
            0 => Vec::new(),
            size => self.bytes(contents, 0..size).unwrap().expect("it is at hand"),
        }
    }

    fn merge(&self, [base, mine, theirs]: [&[u8]; 3], within: &[Range<u64>]) -> Option<Vec<u8>> {
        let sides = Sides { base: self.put(base), mine: self.put(mine), theirs: self.put(theirs) };
        (*self.read.borrow_mut(), *self.asked.borrow_mut()) = (0, 0);
        let room = &mut (64 << 20);
        let merged = merge((&secret(), Cutter::Gear), &sides, within, (self, room)).unwrap()?;
        let named = merged.chunks.into_iter().map(|chunk| (secret().name(&chunk), chunk));
        self.chunks.borrow_mut().extend(named);
        let bytes = self.all(&merged.contents);
        let anew = describe_bytes(&secret(), Cutter::Gear, &bytes).tree.contents;
        assert_eq!(merged.contents, anew, "it is cut as if it had been written");
        assert!(merged.contents.holes.is_none_or(|holes| Some(holes) == anew.holes));
        Some(bytes)
    }
}

impl Source for AtHand {
    fn recipe(&self, name: &ChunkName) -> Result<Option<Vec<u8>>, StoreError> {
        *self.asked.borrow_mut() += 1;
        Ok(self.chunks.borrow().get(name).cloned())
    }

    fn bytes(&self, contents: &Contents, stretch: Range<u64>) -> Result<Option<Vec<u8>>> {
        let length = stretch.end - stretch.start;
        *self.read.borrow_mut() += length;
        *self.asked.borrow_mut() += 1;
        let range = protocol::Range { offset: stretch.start, length };
        let cover = cover(&secret(), contents, range, 1 << 20, |name| self.recipe(name))?;
        let mut bytes = Vec::new();
        for placed in &cover.pieces {
            let all = match placed.piece {
                Piece::Zeros { length } => vec![0; length as usize],
                Piece::Chunk { name, .. } => match self.chunks.borrow().get(&name) {
                    Some(chunk) => chunk.clone(),
                    None => return Ok(None),
                },
            };
            let from = stretch.start.saturating_sub(placed.offset) as usize;
            let to = (placed.end().min(stretch.end) - placed.offset) as usize;
            bytes.extend_from_slice(&all[from..to]);
        }
        Ok((bytes.len() as u64 == length).then_some(bytes))
    }
}

const END: u64 = u64::MAX;

fn with(bytes: &[u8], at: usize, written: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() < at + written.len() {
        bytes.resize(at + written.len(), 0);
    }
    bytes[at..at + written.len()].copy_from_slice(written);
    bytes
}

#[test]
fn records_of_two_are_both_there() {
    let hand = AtHand::default();
    let base = noise(1, 4096);
    let (mine, theirs) = (with(&base, 64, b"mine"), with(&base, 60, b"they"));
    let merged = hand.merge([&base, &mine, &theirs], &[64..68]).expect("they do not meet");
    assert_eq!(merged, with(&theirs, 64, b"mine"));
}

#[test]
fn what_was_changed_outside_or_met_within_is_not_merged() {
    let hand = AtHand::default();
    let base = noise(1, 4096);
    let theirs = with(&base, 0, b"theirs");
    for (mine, within) in [
        (with(&base, 100, b"mine"), vec![101..200]),
        (with(&base, 100, b"mine"), vec![0..102, 103..200]),
        (with(&base, 100, b"mine"), vec![]),
        (with(&base, 100, b"mine"), vec![0..1, 100..104]),
        (with(&base, 100, b"mine"), vec![5..104]),
        (base[..4000].to_vec(), vec![4000..4096]),
        (base[..4000].to_vec(), vec![4001..END]),
    ] {
        assert_eq!(hand.merge([&base, &mine, &theirs], &within), None, "{within:?}");
    }
    // Theirs is the same there, whoever wrote it.
    assert!(hand.merge([&base, &base, &theirs], &[6..104]).is_some());
}

#[test]
fn what_is_added_keeps_what_others_have_added_and_what_is_cut_is_gone() {
    let hand = AtHand::default();
    let base = noise(1, 100);
    let (mine, theirs) = (with(&base, 100, b"mine"), with(&base, 104, b"their own"));
    let merged = hand.merge([&base, &mine, &theirs], &[100..104]).expect("they do not meet");
    assert_eq!(merged, with(&theirs, 100, b"mine"));
    let merged = hand.merge([&base, &theirs, &mine], &[104..200]).expect("they do not meet");
    assert_eq!(merged, with(&theirs, 100, b"mine"));
    let theirs = with(&base, 3, b"theirs");
    let merged = hand.merge([&base, &base[..40], &theirs], &[40..END]).expect("all of it is mine");
    assert_eq!(merged, &theirs[..40]);
    let merged = hand.merge([&base, &theirs, &base[..40]], &[3..9]).expect("they do not meet");
    assert_eq!(merged, &theirs[..40]);
    assert_eq!(hand.merge([&base, &with(&base, 90, b"x"), &base[..40]], &[90..91]), None);
    assert_eq!(hand.merge([&[], b"mine", b"\0\0\0\0theirs"], &[0..4]).unwrap(), b"minetheirs");
}

#[test]
fn more_than_there_is_room_for_is_not_compared() {
    let hand = AtHand::default();
    let (base, mine) = (noise(1, 300_000), noise(2, 300_000));
    let sides = Sides { base: hand.put(&base), mine: hand.put(&mine), theirs: hand.put(&base) };
    for (mut room, fits) in [(299_999, false), (300_000, false), (2_000_000, true)] {
        let named = (&secret(), Cutter::Gear);
        let merged = merge(named, &sides, &[0..END], (&hand, &mut room)).unwrap();
        assert_eq!(merged.map(|merged| merged.contents), fits.then_some(sides.mine));
    }
}

#[test]
fn of_a_large_file_little_is_read() {
    let hand = AtHand::default();
    let base = noise(1, 6 << 20);
    let mine = with(&base, 1 << 20, b"mine");
    let theirs = with(&base, 5 << 20, b"theirs");
    let merged =
        hand.merge([&base, &mine, &theirs], &[1 << 20..(1 << 20) + 4]).expect("they do not meet");
    assert!(merged == with(&theirs, 1 << 20, b"mine"));
    let read = *hand.read.borrow() - merged.len() as u64;
    assert!(read < 1 << 20, "{read} bytes");
    hand.chunks.borrow_mut().clear();
    let sides = Sides {
        base: describe_bytes(&secret(), Cutter::Gear, &base).tree.contents,
        mine: describe_bytes(&secret(), Cutter::Gear, &mine).tree.contents,
        theirs: describe_bytes(&secret(), Cutter::Gear, &theirs).tree.contents,
    };
    let named = (&secret(), Cutter::Gear);
    let nothing = merge(named, &sides, &[0..END], (&hand, &mut (64 << 20))).unwrap();
    assert_eq!(nothing, None, "nothing is at hand");
}

/// Contents of a size that are zeros but for these places, made as a file with holes is.
fn sparse(hand: &AtHand, size: u64, places: &[u64]) -> Contents {
    let mut growing = Growing::new(&secret(), Cutter::Gear);
    for at in places {
        growing.push_zeros(at - growing.pushed());
        growing.push(b"x", |_, _| ());
    }
    growing.push_zeros(size - growing.pushed());
    let Described { tree, pieces, .. } = growing.finish();
    for Placed { offset, piece } in pieces {
        if let Piece::Chunk { name, length } = piece {
            let x = |place| places.contains(&(offset + place));
            let bytes = (0..length).map(|place| if x(place) { b'x' } else { 0 }).collect();
            hand.chunks.borrow_mut().insert(name, bytes);
        }
    }
    hand.chunks.borrow_mut().extend(tree.chunks);
    tree.contents
}

/// A file that was made as long as it is to become, with little in it, as disk images and some
/// databases are.
#[test]
fn what_is_far_apart_in_zeros_is_merged() {
    const SIZE: u64 = 160 << 20;
    let hand = AtHand::default();
    let (near, far) = (1 << 20, 150 << 20);
    for (base, mine, theirs) in [(SIZE, SIZE, SIZE), (0, SIZE, SIZE), (0, SIZE, near + 1)] {
        let sides = Sides {
            base: sparse(&hand, base, &[]),
            mine: sparse(&hand, mine, &[far]),
            theirs: sparse(&hand, theirs, &[near]),
        };
        *hand.read.borrow_mut() = 0;
        let within = [far..far + 1];
        let room = &mut (4 << 20);
        let merged = merge((&secret(), Cutter::Gear), &sides, &within, (&hand, room)).unwrap();
        let merged = merged.unwrap_or_else(|| panic!("of {base} bytes: they do not meet"));
        let named = merged.chunks.into_iter().map(|chunk| (secret().name(&chunk), chunk));
        hand.chunks.borrow_mut().extend(named);
        assert!(*hand.read.borrow() < 4 << 20, "{} bytes", hand.read.borrow());
        assert_eq!(merged.contents.size, SIZE);
        for (from, x) in [(near, near), (far, far)] {
            let around = hand.bytes(&merged.contents, from - 9000..from + 9000).unwrap().unwrap();
            let found = around.iter().position(|byte| *byte == b'x').unwrap() as u64;
            assert_eq!(from - 9000 + found, x);
            assert_eq!(around.iter().filter(|byte| **byte == 0).count(), 17_999);
        }
    }
}

/// One writes here and there in a large stretch of a file that was empty, another far behind it: what lies
/// between counts for little, as far as cutting leaves holes there. What it leaves is known of what comes of
/// it, or nothing is merged.
#[test]
fn what_is_written_here_and_there_in_zeros_is_merged() {
    const MIB: u64 = 1 << 20;
    const PLACES: u64 = 100;
    let hand = AtHand::default();
    let places: Vec<u64> = (0..PLACES).map(|place| place * MIB).collect();
    let far = 200 * MIB;
    let sides = Sides {
        base: sparse(&hand, 0, &[]),
        mine: sparse(&hand, PLACES * MIB, &places),
        theirs: sparse(&hand, far + 1, &[far]),
    };
    let merged = |room: u64| {
        let (named, mut left) = ((&secret(), Cutter::Gear), room);
        let within = 0..PLACES * MIB;
        let merged = merge(named, &sides, &[within], (&hand, &mut left)).unwrap();
        (merged.map(|merged| (merged.contents, merged.contents.holes)), room - left)
    };
    let all = sparse(&hand, far + 1, &[&places[..], &[far]].concat());
    let all = (all, all.holes);
    let (contents, used) = merged(16 * MIB);
    assert_eq!(contents, Some(all));
    assert_eq!(merged(used), (contents, used));
    for room in (used - (16 << 10)..used).step_by(128) {
        let (contents, _) = merged(room);
        assert!(contents.is_none_or(|contents| contents == all), "with {room} of {used} bytes");
    }
}

#[test]
fn of_many_small_changes_not_each_is_looked_for_by_itself() {
    let hand = AtHand::default();
    let base = noise(1, 3 << 20);
    let theirs = with(&base, 0, b"theirs");
    let mut mine = base.clone();
    for at in (1 << 20..2 << 20).step_by(70) {
        mine[at] ^= 1;
    }
    let merged = hand.merge([&base, &mine, &theirs], &[1 << 20..2 << 20]).expect("it is all mine");
    assert!(merged == with(&mine, 0, b"theirs"));
    let asked = *hand.asked.borrow();
    assert!(asked < 2000, "{asked} times for {} changes", (1 << 20) / 70);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each of two writes where nobody else may, on what both began from: whoever comes second gets the
    /// same as if both had written to one file.
    #[test]
    fn prop_whoever_comes_second_the_result_is_that_of_one_file(
        seed in 0..3u64,
        length in 0..400_000usize,
        zeros in (0..400_000usize, 0..300_000usize),
        writes in prop::collection::vec((0..2usize, 0..40u64, 0..10_000u64, 0..9_000u64), 0..8),
    ) {
        let hand = AtHand::default();
        let mut base = noise(seed, length);
        let (from, to) = (zeros.0.min(length), (zeros.0 + zeros.1).min(length));
        base[from..to].fill(0);
        // Stretches of 10,000 bytes belong to both in turn.
        let mut sides = [base.clone(), base.clone()];
        let mut one = base.clone();
        for (number, (who, stretch, at, bytes)) in writes.into_iter().enumerate() {
            let stretch = 2 * stretch + who as u64;
            let bytes = noise(100 + number as u64, bytes.min(10_000 - at) as usize);
            let at = (10_000 * stretch + at) as usize;
            sides[who] = with(&sides[who], at, &bytes);
            one = with(&one, at, &bytes);
        }
        for who in 0..2u64 {
            let within: Vec<_> =
                (0..40).map(|n| 10_000 * (2 * n + who)..10_000 * (2 * n + who + 1)).collect();
            let (mine, theirs) = (&sides[who as usize], &sides[1 - who as usize]);
            prop_assert!(hand.merge([&base, mine, theirs], &within) == Some(one.clone()));
        }
    }
}

/// What was written under a lock into zeros that another has cut off meanwhile.
#[test]
fn what_was_written_where_another_has_cut_zeros_off_is_not_lost() {
    let hand = AtHand::default();
    let base = vec![0; 100];
    let merged = hand.merge([&base, &with(&base, 90, b"x"), &base[..40]], &[90..91]);
    assert!(merged.as_ref().is_none_or(|all| all.contains(&b'x')), "{merged:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is merged is theirs with what was changed within laid over it, and nothing that
    /// was changed is missing.
    #[test]
    fn prop_nothing_that_was_changed_is_missing(
        seed in 0..3u64,
        length in 0..700_000usize,
        zeros in (0..400_000usize, 0..300_000usize),
        writes in prop::collection::vec((0..2usize, 0..40u64, 0..10_000u64, 0..9_000u64, 0..4u8), 0..8),
        cuts in (prop::option::of(0..700_000usize), prop::option::of(0..900_000usize)),
        end in 0..3u8,
    ) {
        let hand = AtHand::default();
        let mut base = noise(seed, length);
        let (from, to) = (zeros.0.min(length), (zeros.0 + zeros.1).min(length));
        base[from..to].fill(0);
        let mut sides = [base.clone(), base.clone()];
        for (number, (who, stretch, at, bytes, zero)) in writes.into_iter().enumerate() {
            let stretch = 2 * stretch + who as u64;
            let mut bytes = noise(100 + number as u64, bytes.min(10_000 - at) as usize);
            if zero == 0 { bytes.fill(0); }
            let at = (10_000 * stretch + at) as usize;
            sides[who] = with(&sides[who], at, &bytes);
        }
        if let Some(cut) = cuts.0 { sides[1].resize(cut, 0); }
        if let (Some(cut), true) = (cuts.1, end < 2) { sides[0].resize(cut, 0); }
        let mut within: Vec<Range<u64>> =
            (0..40).map(|n| 10_000 * 2 * n..10_000 * (2 * n + 1)).collect();
        if end == 1 {
            let at = sides[0].len() as u64;
            within.retain(|own| own.end < at);
            within.push(at..END);
        }
        let [mine, theirs] = &sides;
        if let Some(all) = hand.merge([&base, mine, theirs], &within) {
            let at = |bytes: &Vec<u8>, at: usize| bytes.get(at).copied().unwrap_or(0);
            let longest = base.len().max(mine.len()).max(theirs.len()).max(all.len());
            for place in 0..longest {
                let (b, m, t) = (at(&base, place), at(mine, place), at(theirs, place));
                let expected = if b != m { m } else { t };
                prop_assert_eq!(at(&all, place), if mine.len() < base.len() && place >= mine.len() { 0 } else { expected }, "at {}: {} {} {} -> {}", place, base.len(), mine.len(), theirs.len(), all.len());
            }
        }
    }
}

/// What is compared has a bound, and what is made anew has none. Nothing in the data says where to
/// cut; theirs has its cuts elsewhere than the base; mine puts one where the base has one anyway, which
/// moves all that are behind it in theirs.
#[test]
fn what_is_made_anew_is_bounded_as_what_is_compared_is() {
    const SIZE: usize = 24 << 20;
    let hand = AtHand::default();
    let base = vec![0xff; SIZE];
    let ends = |bytes: &[u8]| -> Vec<usize> {
        let pieces = describe_bytes(&secret(), Cutter::Gear, bytes).pieces;
        pieces.iter().map(|placed| placed.end() as usize).collect()
    };
    let of_base = ends(&base);
    let most = of_base[1] - of_base[0];
    let place = *of_base.iter().find(|end| **end > 8 << 20).unwrap();
    // Such as have a long chunk there that begins elsewhere: the length of what is written moves it.
    let (theirs, of_theirs) = (0..12)
        .map(|step| {
            let mut written = noise(5, 2_000_000);
            written.truncate(2_000_000 - step * most / 11);
            let theirs = with(&base, 100_000, &written);
            let ends = ends(&theirs);
            (theirs, ends)
        })
        .find(|(_, ends)| {
            let before = *ends.iter().rfind(|end| **end <= place).unwrap();
            (most * 6 / 10..most * 95 / 100).contains(&(place - before))
        })
        .unwrap();
    // A cut that the data itself makes.
    let mut two = of_theirs.windows(2).filter(|two| (1_000_000..2_000_000).contains(&two[1]));
    let natural = two.find(|two| two[1] - two[0] < most / 2).unwrap()[1];
    let mine = with(&base, place - 200, &theirs[natural - 200..natural]);
    let sides = Sides { base: hand.put(&base), mine: hand.put(&mine), theirs: hand.put(&theirs) };
    *hand.read.borrow_mut() = 0;
    let within = [place as u64 - 200..place as u64];
    let named = (&secret(), Cutter::Gear);
    assert_eq!(merge(named, &sides, &within, (&hand, &mut (8 << 20))).unwrap(), None);
    let read = *hand.read.borrow();
    assert!(read < 9 << 20, "{read} bytes for 200");
    assert!(merge(named, &sides, &within, (&hand, &mut (64 << 20))).unwrap().is_some());
}
