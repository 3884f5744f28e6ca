use super::*;
use crate::cut::CHUNK_BYTES_MAX;
use crate::describe::{Found, describe, describe_bytes};
use crate::error::ChunksError;
use crate::fingerprint::Secret;
use model::{CHUNK_NAME_BYTES, ChunkName, Contents, Piece, Root};
use proptest::prelude::*;
use protocol::{Cutter, Range};
use std::collections::{HashMap, HashSet};

const ALL: Range = Range { offset: 0, length: u64::MAX };

fn secret() -> Secret {
    Secret::new([3; 32])
}

/// Chunks with names that look random, the same on every run.
fn chunks(count: u64) -> Vec<Piece> {
    let name = |number: u64| secret().name(&number.to_le_bytes());
    (0..count).map(|n| Piece::Chunk { name: name(n), length: 2048 + n % 9000 }).collect()
}

fn placed(pieces: &[Piece]) -> Vec<Placed> {
    let mut offset = 0;
    let place = |piece: &Piece| {
        let placed = Placed { offset, piece: *piece };
        offset = placed.end();
        placed
    };
    pieces.iter().map(place).collect()
}

fn shelf(tree: &Tree) -> HashMap<ChunkName, Vec<u8>> {
    tree.chunks.iter().cloned().collect()
}

fn cover_of(tree: &Tree, range: Range, pieces_max: usize) -> Cover {
    let shelf = shelf(tree);
    let fetch = |name: &ChunkName| Ok(shelf.get(name).cloned());
    cover(&secret(), &tree.contents, range, pieces_max, fetch).unwrap()
}

fn why(result: crate::error::Result<Cover>) -> String {
    match result {
        Err(ChunksError::BadRecipe(what)) => what,
        other => panic!("{other:?}"),
    }
}

/// A contents whose root is these bytes, and what is wrong with it.
fn refused(size: u64, depth: u8, chunk: Vec<u8>) -> String {
    let root = Root { name: secret().name(&chunk), depth };
    let contents = Contents { size, root: Some(root), holes: None };
    why(cover(&secret(), &contents, ALL, 1000, |_| Ok(Some(chunk.clone()))))
}

#[test]
fn an_empty_file_has_no_root() {
    let tree = build(&secret(), []);
    assert_eq!(tree, Tree { contents: Contents::EMPTY, chunks: vec![] });
    assert_eq!(cover_of(&tree, ALL, 10), Cover::default());
}

#[test]
fn a_file_of_one_chunk_has_it_as_its_root() {
    let piece = chunks(1)[0];
    let tree = build(&secret(), [piece]);
    let Piece::Chunk { name, length } = piece else { unreachable!() };
    let root = Some(Root { name, depth: 0 });
    assert_eq!(
        tree,
        Tree { contents: Contents { size: length, root, holes: None }, chunks: vec![] }
    );
    assert_eq!(cover_of(&tree, ALL, 10).pieces, placed(&[piece]));
}

#[test]
fn a_file_of_zeros_is_one_recipe_chunk_of_a_few_bytes() {
    let zeros = Piece::Zeros { length: FILE_BYTES_MAX };
    let tree = build(&secret(), [zeros]);
    assert_eq!(tree.contents.root.unwrap().depth, 1);
    assert_eq!(tree.chunks.len(), 1);
    assert!(tree.chunks[0].1.len() <= 12);
    assert_eq!(cover_of(&tree, ALL, 10).pieces, placed(&[zeros]));
}

#[test]
fn a_tree_is_pinned_by_the_format() {
    let pieces = [chunks(2), vec![Piece::Zeros { length: 70_000 }]].concat();
    let tree = build(&secret(), pieces);
    let [(name, bytes)] = &tree.chunks[..] else { panic!("{tree:?}") };
    assert_eq!(
        tree.contents,
        Contents { size: 74_097, root: Some(Root { name: *name, depth: 1 }), holes: None }
    );
    assert_eq!(bytes.len(), 2 + 2 * (2 + 24) + 3);
    assert_eq!(name.to_string(), "9046cf9dcf71d479");
}

#[test]
fn a_large_file_has_a_tree_and_every_chunk_comes_after_its_parent() {
    let pieces = chunks(20_000);
    let tree = build(&secret(), pieces.clone());
    let root = tree.contents.root.unwrap();
    assert_eq!(root.depth, 3);
    let mut named = HashSet::from([root.name]);
    for (name, bytes) in &tree.chunks {
        assert!(named.contains(name), "{name} before whoever names it");
        assert!(bytes.len() <= RECIPE_BYTES_MAX);
        for piece in decode(bytes).unwrap().pieces {
            if let Piece::Chunk { name, .. } = piece {
                named.insert(name);
            }
        }
    }
    let average = pieces.len() / tree.chunks.len();
    assert!((50..80).contains(&average), "{average} entries a recipe chunk");
    assert_eq!(cover_of(&tree, ALL, usize::MAX).pieces, placed(&pieces));
}

#[test]
fn a_small_change_of_a_large_file_changes_few_recipe_chunks() {
    let old = chunks(50_000);
    let known = shelf(&build(&secret(), old.clone()));
    for at in [0, 1, 777, 25_000, 49_999] {
        let mut new = old.clone();
        new[at] = Piece::Chunk { name: ChunkName([0xee; CHUNK_NAME_BYTES]), length: 5000 };
        new.insert(at, Piece::Chunk { name: ChunkName([0xdd; CHUNK_NAME_BYTES]), length: 300 });
        let tree = build(&secret(), new);
        let depth = usize::from(tree.contents.root.unwrap().depth);
        let fresh = tree.chunks.iter().filter(|(name, _)| !known.contains_key(name)).count();
        assert!(fresh <= 3 * depth, "{fresh} new recipe chunks at depth {depth}");
    }
}

#[test]
fn the_same_chunk_over_and_over_is_a_small_tree() {
    let same = chunks(1)[0];
    let tree = build(&secret(), std::iter::repeat_n(same, 100_000));
    assert!(tree.chunks.len() < 10, "{} recipe chunks", tree.chunks.len());
    assert_eq!(cover_of(&tree, ALL, usize::MAX).pieces.len(), 100_000);
    let shelf = shelf(&tree);
    let lacking =
        lacking(&secret(), &tree.contents, 10, |name| Ok(shelf.get(name).cloned()), |_| Ok(false));
    let Piece::Chunk { name, .. } = same else { unreachable!() };
    assert_eq!(lacking.unwrap(), [name]);
}

#[test]
fn a_range_needs_only_the_recipe_chunks_above_it() {
    let pieces = chunks(20_000);
    let tree = build(&secret(), pieces.clone());
    let shelf = shelf(&tree);
    let all = placed(&pieces);
    let range = Range { offset: all[10_000].offset + 5, length: 1 };
    let mut asked = Vec::new();
    let cover = cover(&secret(), &tree.contents, range, 100, |name| {
        asked.push(*name);
        Ok(shelf.get(name).cloned())
    });
    assert_eq!(cover.unwrap().pieces, [all[10_000]]);
    assert_eq!(asked.len(), usize::from(tree.contents.root.unwrap().depth));
}

#[test]
fn a_walk_that_was_stopped_goes_on_where_it_says() {
    let pieces = chunks(1_000);
    let tree = build(&secret(), pieces.clone());
    let (mut found, mut offset) = (Vec::new(), 0);
    loop {
        let cover = cover_of(&tree, Range { offset, length: u64::MAX }, 33);
        assert!(cover.pieces.len() <= 33);
        found.extend(cover.pieces);
        match cover.next {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(found, placed(&pieces));
}

#[test]
fn what_is_missing_is_named_and_the_rest_is_found() {
    let pieces = chunks(1_000);
    let tree = build(&secret(), pieces.clone());
    let mut shelf = shelf(&tree);
    let (gone, bytes) = tree.chunks.last().unwrap();
    shelf.remove(gone);
    let fetch = |name: &ChunkName| Ok(shelf.get(name).cloned());
    let cover = cover(&secret(), &tree.contents, ALL, usize::MAX, fetch).unwrap();
    assert_eq!(cover.missing, [*gone]);
    assert_eq!(cover.pieces.len(), 1_000 - decode(bytes).unwrap().pieces.len());

    let last = &pieces[999];
    let has =
        |name: &ChunkName| Ok(!matches!(last, Piece::Chunk { name: lost, .. } if lost == name));
    let fetch = |name: &ChunkName| Ok(shelf.get(name).cloned());
    let names = lacking(&secret(), &tree.contents, 100, fetch, has).unwrap();
    assert_eq!(names.len(), 2);
    assert!(names.contains(gone));
    let few = lacking(&secret(), &tree.contents, 7, fetch, |_| Ok(false)).unwrap();
    assert_eq!(few.len(), 7);
}

#[test]
fn bytes_of_another_chunk_are_refused() {
    let tree = build(&secret(), chunks(1_000));
    let other = tree.chunks[1].1.clone();
    let result = cover(&secret(), &tree.contents, ALL, 10, |_| Ok(Some(other.clone())));
    assert!(matches!(result, Err(ChunksError::WrongBytes(name)) if name == tree.chunks[0].0));
}

#[test]
fn a_recipe_that_lies_is_refused() {
    let zeros = |length| encode(1, &[Piece::Zeros { length }]);
    assert!(refused(11, 1, zeros(10)).contains("covers 10 bytes, and 11 were expected"));
    assert!(refused(10, 2, zeros(10)).contains("is of depth 1, and 2 was expected"));
    assert_eq!(refused(10, 17, zeros(10)), "a depth of 17");
    assert_eq!(refused(0, 1, zeros(10)), "an empty file with a root");
    assert_eq!(refused(u64::MAX, 1, zeros(10)), format!("a file of {} bytes", u64::MAX));
    let large = CHUNK_BYTES_MAX as u64 + 1;
    assert_eq!(refused(large, 0, vec![]), format!("one chunk of {large} bytes"));
    let rootless = Contents { size: 5, root: None, holes: None };
    let result = cover(&secret(), &rootless, ALL, 10, |_| Ok(None));
    assert_eq!(why(result), "5 bytes without a root");
    let result = lacking(&secret(), &rootless, 10, |_| Ok(None), |_| Ok(true));
    assert!(matches!(result, Err(ChunksError::BadRecipe(_))));
}

#[test]
fn a_tree_that_folds_into_itself_costs_no_more_than_is_asked_for() {
    // Every recipe chunk names the one below it 256 times: 2^128 pieces on paper, cut to what a
    // file may have.
    let mut chunk = encode(1, &[Piece::Zeros { length: 1 }; ENTRIES_MAX]);
    let mut shelf = HashMap::new();
    let mut length = ENTRIES_MAX as u64;
    for depth in 2..=7 {
        let name = secret().name(&chunk);
        shelf.insert(name, chunk);
        chunk = encode(depth, &[Piece::Chunk { name, length }; ENTRIES_MAX]);
        length *= ENTRIES_MAX as u64;
    }
    let root = Root { name: secret().name(&chunk), depth: 7 };
    shelf.insert(root.name, chunk);
    let contents = Contents { size: length, root: Some(root), holes: None };
    let mut fetched = 0;
    let fetch = |name: &ChunkName| {
        fetched += 1;
        Ok(shelf.get(name).cloned())
    };
    let cover = cover(&secret(), &contents, ALL, 1000, fetch).unwrap();
    assert_eq!(cover.pieces.len(), 1000);
    assert!(fetched < 20);
    let mut fetched = 0;
    let fetch = |name: &ChunkName| {
        fetched += 1;
        Ok(shelf.get(name).cloned())
    };
    assert_eq!(lacking(&secret(), &contents, 10, fetch, |_| Ok(true)).unwrap(), []);
    assert_eq!(fetched, 7);
}

#[test]
fn a_chunk_that_is_given_two_lengths_is_lacking_once() {
    let name = ChunkName([1; CHUNK_NAME_BYTES]);
    let chunk = encode(1, &[Piece::Chunk { name, length: 5 }, Piece::Chunk { name, length: 6 }]);
    let root = Some(Root { name: secret().name(&chunk), depth: 1 });
    let contents = Contents { size: 11, root, holes: None };
    let fetch = |_: &ChunkName| Ok(Some(chunk.clone()));
    assert_eq!(lacking(&secret(), &contents, 9, fetch, |_| Ok(false)).unwrap(), [name]);
}

#[test]
fn a_file_is_described_alike_with_and_without_holes() {
    let mut bytes = vec![0u8; 1 << 20];
    bytes[300_000..310_000].fill(7);
    let whole = describe_bytes(&secret(), Cutter::Gear, &bytes);
    let size = bytes.len() as u64;
    let sparse = describe(&secret(), Cutter::Gear, size, |offset, buffer| match offset {
        0..300_000 => Ok::<_, ChunksError>(Found::Hole(300_000 - offset)),
        300_000..310_000 => {
            let length = buffer.len().min(310_000 - offset as usize);
            buffer[..length].copy_from_slice(&bytes[offset as usize..][..length]);
            Ok(Found::Bytes(length))
        }
        _ => Ok(Found::Hole(u64::MAX)),
    });
    assert_eq!(sparse.unwrap(), whole);
    assert_eq!(whole.pieces[0].piece, Piece::Zeros { length: 300_000 });
    assert_eq!(whole.tree, build(&secret(), whole.pieces.iter().map(|placed| placed.piece)));
}

#[test]
fn a_file_that_becomes_shorter_while_it_is_read_is_told() {
    let told = describe(&secret(), Cutter::Gear, 100, |offset, _| {
        Ok::<_, ChunksError>(Found::Bytes(if offset == 0 { 10 } else { 0 }))
    });
    assert!(matches!(told, Err(ChunksError::SizeChanged { stated: 100, found: 10 })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn prop_a_range_is_covered_by_the_pieces_that_overlap_it(
        lengths in prop::collection::vec((1..=5000u64, any::<bool>()), 1..600),
        from in 0.0..1.2f64,
        part in 0.0..1.0f64,
    ) {
        let pieces: Vec<Piece> = lengths
            .iter()
            .enumerate()
            .map(|(n, (length, zeros))| match zeros {
                true => Piece::Zeros { length: *length },
                false => Piece::Chunk { name: secret().name(&n.to_le_bytes()), length: *length },
            })
            .collect();
        let tree = build(&secret(), pieces.clone());
        let size = tree.contents.size;
        let offset = (size as f64 * from) as u64;
        let range = Range { offset, length: (size as f64 * part) as u64 };
        let end = (range.offset + range.length).min(size);
        let mut expected = placed(&pieces);
        expected.retain(|at| at.offset < end && at.end() > offset && range.length > 0);
        prop_assert_eq!(cover_of(&tree, range, usize::MAX).pieces, expected);
    }

    #[test]
    fn prop_arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz_recipe(&bytes);
        crate::fuzz_cover(&bytes);
    }

    #[test]
    fn prop_damaged_recipes_do_not_panic(at in 0..40usize, byte in any::<u8>(), depth in 0..4u8) {
        let mut chunk = encode(1, &[chunks(1)[0], Piece::Zeros { length: 70_000 }]);
        let at = at % chunk.len();
        chunk[at] ^= byte;
        let mut bytes = vec![depth];
        bytes.extend(72_048u64.to_be_bytes());
        bytes.push(0);
        bytes.extend(chunk);
        crate::fuzz_cover(&bytes);
    }
}
