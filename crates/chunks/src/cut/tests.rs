use super::*;
use crate::fingerprint::Secret;
use model::ChunkName;
use proptest::prelude::*;
use std::collections::HashSet;

const BOTH: [Cutter; 2] = [Cutter::Gear, Cutter::Rabin];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Chunk(Vec<u8>),
    Zeros(u64),
}

fn own(cut: Cut<'_>) -> Owned {
    match cut {
        Cut::Chunk(bytes) => Owned::Chunk(bytes.to_vec()),
        Cut::Zeros(length) => Owned::Zeros(length),
    }
}

fn cut(cutter: Cutter, bytes: &[u8]) -> Vec<Owned> {
    cut_from(cutter, 0, bytes)
}

/// As if the bytes came so far behind the beginning of a file, where a chunk begins.
fn cut_from(cutter: Cutter, offset: u64, bytes: &[u8]) -> Vec<Owned> {
    let mut pieces = Vec::new();
    let length = bytes.len() as u64;
    let mut cutting = Cutting::of_rest(cutter, offset + length, length);
    cutting.push(bytes, &mut |cut| pieces.push(own(cut)));
    cutting.finish(&mut |cut| pieces.push(own(cut))).unwrap();
    pieces
}

fn join(pieces: &[Owned]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        match piece {
            Owned::Chunk(chunk) => bytes.extend_from_slice(chunk),
            Owned::Zeros(length) => bytes.resize(bytes.len() + *length as usize, 0),
        }
    }
    bytes
}

/// Bytes that look random and are the same on every run.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let key: [u8; 32] = std::array::from_fn(|at| seed.to_le_bytes()[at % 8]);
    blake3::Hasher::new_keyed(&key).finalize_xof().fill(&mut bytes);
    bytes
}

fn names(pieces: &[Owned]) -> Vec<ChunkName> {
    let secret = Secret::new([9; 32]);
    let chunks = pieces.iter().filter_map(|piece| match piece {
        Owned::Chunk(bytes) => Some(secret.name(bytes)),
        Owned::Zeros(_) => None,
    });
    chunks.collect()
}

/// What must hold of every file that is cut.
fn check(cutter: Cutter, bytes: &[u8]) {
    let pieces = cut(cutter, bytes);
    assert_eq!(join(&pieces), bytes);
    let sizes = sizes(0);
    for (at, piece) in pieces.iter().enumerate() {
        let last = matches!(pieces.get(at + 1), None | Some(Owned::Zeros(_)));
        match piece {
            Owned::Chunk(chunk) => {
                assert!(chunk.len() <= sizes.most && !chunk.is_empty());
                assert!(last || chunk.len() >= sizes.least);
            }
            Owned::Zeros(length) => {
                assert!(*length >= ZEROS_BYTES_MIN as u64);
                assert!(!matches!(pieces.get(at + 1), Some(Owned::Zeros(_))));
            }
        }
    }
}

#[test]
fn the_average_is_what_the_sizes_say() {
    for (cutter, about) in [(Cutter::Gear, 8 * KIB), (Cutter::Rabin, 10 * KIB)] {
        let bytes = noise(1, 16 << 20);
        let average = bytes.len() / cut(cutter, &bytes).len();
        assert!(average.abs_diff(about) < about / 20, "{cutter:?}: {average}");
    }
}

#[test]
fn what_lies_further_on_is_cut_more_coarsely() {
    let bytes = noise(2, 8 << 20);
    for (offset, average) in [(1 << 30, 32 * KIB), (1 << 40, 128 * KIB)] {
        let pieces = cut_from(Cutter::Gear, offset, &bytes);
        assert_eq!(join(&pieces), bytes);
        let found = bytes.len() / pieces.len();
        assert!(found.abs_diff(average) < average / 3, "{found} for {average}");
    }
}

#[test]
fn sizes_change_at_the_bounds() {
    assert_eq!(sizes(0).average, 8 * KIB);
    assert_eq!(sizes((256 << 20) - 1).average, 8 * KIB);
    assert_eq!(sizes(256 << 20).average, 32 * KIB);
    assert_eq!(sizes((4 << 30) - 1).average, 32 * KIB);
    assert_eq!(sizes(4 << 30).average, 128 * KIB);
    assert_eq!(sizes(u64::MAX).most, CHUNK_BYTES_MAX);
}

/// A cut does not depend on what comes after it, and behind a bound it is as if one began there.
#[test]
fn sizes_change_with_the_first_chunk_behind_a_bound() {
    let bytes = noise(4, 4 << 20);
    for cutter in BOTH {
        let offset = (256 << 20) - (1 << 20);
        let pieces = cut_from(cutter, offset, &bytes);
        let mut at = offset;
        let behind = pieces.iter().position(|piece| {
            let is_behind = at >= 256 << 20;
            at += join(std::slice::from_ref(piece)).len() as u64;
            is_behind
        });
        let (fine, coarse) = pieces.split_at(behind.unwrap());
        let begin = join(fine).len();
        assert!((1 << 20..(1 << 20) + 64 * KIB).contains(&begin));
        assert_eq!(fine, cut_from(cutter, 0, &bytes[..begin]));
        assert_eq!(coarse, cut_from(cutter, 1 << 30, &bytes[begin..]));
    }
}

#[test]
fn zeros_lead_over_a_bound() {
    let bytes = noise(5, 2 << 20);
    let mut pieces = Vec::new();
    let mut cutting = Cutting::growing(Cutter::Gear);
    cutting.push_zeros(5 << 30);
    cutting.push(&bytes, &mut |cut| pieces.push(own(cut)));
    cutting.finish(&mut |cut| pieces.push(own(cut))).unwrap();
    assert_eq!(pieces[0], Owned::Zeros(5 << 30));
    assert_eq!(pieces[1..], cut_from(Cutter::Gear, 5 << 30, &bytes));
}

#[test]
fn the_cuts_of_known_bytes_are_pinned() {
    // Another rule would still be right, but would find nothing of what was stored before.
    let bytes = noise(3, 100_000);
    let lengths = |cutter| {
        let pieces = cut(cutter, &bytes);
        pieces.iter().map(|piece| join(std::slice::from_ref(piece)).len()).collect::<Vec<_>>()
    };
    assert_eq!(
        lengths(Cutter::Gear),
        [
            6438, 6285, 2704, 12385, 9645, 3272, 2797, 8483, 6989, 12343, 12327, 6608, 2534, 3408,
            3782
        ]
    );
    assert_eq!(
        lengths(Cutter::Rabin),
        [2435, 5461, 42872, 3780, 8424, 7134, 4540, 7304, 6796, 11254]
    );
}

#[test]
fn the_gear_rule_is_what_its_definition_says() {
    let bytes = noise(8, 500_000);
    let Sizes { least, average, most } = sizes(0);
    let mut lengths = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let ends = |length: &usize| {
            let window = &rest[length - 64..*length];
            let add = |hash: u64, byte: &u8| {
                (hash << 1).wrapping_add(gearhash::DEFAULT_TABLE[*byte as usize])
            };
            window.iter().fold(0, add) <= u64::MAX / (average - least) as u64
        };
        let length = (least..most.min(rest.len())).find(ends).unwrap_or(most.min(rest.len()));
        lengths.push(length);
        rest = &rest[length..];
    }
    let pieces = cut(Cutter::Gear, &bytes);
    let found: Vec<usize> =
        pieces.iter().map(|piece| join(std::slice::from_ref(piece)).len()).collect();
    assert_eq!(found, lengths);
}

#[test]
fn an_empty_file_has_no_pieces() {
    for cutter in BOTH {
        assert_eq!(cut(cutter, &[]), []);
    }
}

#[test]
fn an_insertion_changes_only_the_chunks_around_it() {
    for cutter in BOTH {
        let old = noise(4, 2 << 20);
        let known: HashSet<_> = names(&cut(cutter, &old)).into_iter().collect();
        for at in [0, 1, 5_000, 1 << 20, old.len()] {
            let new = [&old[..at], b"inserted", &old[at..]].concat();
            let fresh = names(&cut(cutter, &new)).into_iter().filter(|name| !known.contains(name));
            let fresh = fresh.count();
            assert!((1..=8).contains(&fresh), "{cutter:?} at {at}: {fresh} new chunks");
        }
    }
}

#[test]
fn one_byte_repeated_stays_in_bounds_and_repeats() {
    for cutter in BOTH {
        for byte in 0..=255u8 {
            let bytes = vec![byte; 300_000];
            check(cutter, &bytes);
            let distinct: HashSet<_> = names(&cut(cutter, &bytes)).into_iter().collect();
            assert!(distinct.len() <= 2, "{cutter:?} {byte}: {} distinct chunks", distinct.len());
        }
    }
}

#[test]
fn windows_repeated_stay_in_bounds() {
    for cutter in BOTH {
        for period in [2, 3, 47, 48, 49, 63, 64, 65, 2048, 2049] {
            let window = noise(period as u64, period);
            let bytes: Vec<u8> = window.iter().copied().cycle().take(400_000).collect();
            check(cutter, &bytes);
        }
    }
}

#[test]
fn a_long_stretch_of_zeros_stands_alone() {
    let (head, tail) = (noise(5, 10_000), noise(6, 20_000));
    for cutter in BOTH {
        for zeros in [ZEROS_BYTES_MIN, ZEROS_BYTES_MIN + 1, 1_000_000] {
            let bytes = [&head[..], &vec![0; zeros], &tail].concat();
            let pieces = cut(cutter, &bytes);
            let without: Vec<Owned> =
                pieces.iter().filter(|piece| matches!(piece, Owned::Chunk(_))).cloned().collect();
            assert_eq!(pieces.len(), without.len() + 1);
            assert!(pieces.contains(&Owned::Zeros(zeros as u64)));
            assert_eq!(without, [cut(cutter, &head), cut(cutter, &tail)].concat());
        }
        let bytes = [&head[..], &vec![0; ZEROS_BYTES_MIN - 1], &tail].concat();
        assert!(cut(cutter, &bytes).iter().all(|piece| matches!(piece, Owned::Chunk(_))));
        assert_eq!(cut(cutter, &vec![0; 500_000]), [Owned::Zeros(500_000)]);
    }
}

#[test]
fn a_hole_larger_than_memory_is_one_piece() {
    let mut pieces = Vec::new();
    let mut cutting = Cutting::new(Cutter::Gear, 1 << 62);
    cutting.push_zeros(1 << 62);
    cutting.finish(&mut |cut| pieces.push(own(cut))).unwrap();
    assert_eq!(pieces, [Owned::Zeros(1 << 62)]);
}

#[test]
fn a_file_that_changes_its_length_is_told() {
    let mut cutting = Cutting::new(Cutter::Gear, 10);
    cutting.push(b"short", &mut |_| ());
    let told = cutting.finish(&mut |_| ());
    assert!(matches!(told, Err(ChunksError::SizeChanged { stated: 10, found: 5 })));
}

#[test]
fn no_more_than_one_chunk_is_held() {
    let bytes = noise(7, 3 << 20);
    for cutter in BOTH {
        let mut cutting = Cutting::new(cutter, bytes.len() as u64);
        for some in bytes.chunks(1000) {
            cutting.push(some, &mut |_| ());
            assert!(cutting.held.len() <= 64 * KIB);
        }
    }
}

/// A file made of stretches that lead the cutter into temptation.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let stretch = prop_oneof![
        (any::<u64>(), 0..40_000usize).prop_map(|(seed, length)| noise(seed, length)),
        (0..200_000usize).prop_map(|length| vec![0; length]),
        (ZEROS_BYTES_MIN - 2..ZEROS_BYTES_MIN + 3).prop_map(|length| vec![0; length]),
        (any::<u8>(), 0..100_000usize).prop_map(|(byte, length)| vec![byte; length]),
        (any::<[u8; 3]>(), 0..20_000usize).prop_map(|(window, times)| window.repeat(times)),
    ];
    prop::collection::vec(stretch, 0..6).prop_map(|stretches| stretches.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn prop_pieces_give_back_the_file_within_the_bounds(bytes in file()) {
        for cutter in BOTH {
            check(cutter, &bytes);
        }
    }

    #[test]
    fn prop_the_fuzzer_finds_nothing_in_files(bytes in file()) {
        crate::fuzz_cut(&bytes);
    }

    #[test]
    fn prop_the_sizes_of_reads_do_not_matter(
        bytes in file(),
        reads in prop::collection::vec(1..100_000usize, 1..5),
    ) {
        for cutter in BOTH {
            let mut pieces = Vec::new();
            let mut cutting = Cutting::new(cutter, bytes.len() as u64);
            let mut rest = &bytes[..];
            for read in reads.iter().cycle() {
                let (now, later) = rest.split_at((*read).min(rest.len()));
                cutting.push(now, &mut |cut| pieces.push(own(cut)));
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            cutting.finish(&mut |cut| pieces.push(own(cut))).unwrap();
            prop_assert_eq!(pieces, cut(cutter, &bytes));
        }
    }

    #[test]
    fn prop_holes_do_not_matter(
        bytes in file(),
        page in prop_oneof![Just(1usize), Just(100), Just(4096)],
        real in any::<u64>(),
    ) {
        let mut pieces = Vec::new();
        let mut cutting = Cutting::new(Cutter::Gear, bytes.len() as u64);
        for (number, some) in bytes.chunks(page).enumerate() {
            // Some pages of zeros are holes, and some are there.
            if some.iter().all(|byte| *byte == 0) && real >> (number % 64) & 1 == 0 {
                cutting.push_zeros(some.len() as u64);
            } else {
                cutting.push(some, &mut |cut| pieces.push(own(cut)));
            }
        }
        cutting.finish(&mut |cut| pieces.push(own(cut))).unwrap();
        prop_assert_eq!(pieces, cut(Cutter::Gear, &bytes));
    }
}
