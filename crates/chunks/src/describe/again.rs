//! Describing a file again of which some stretches were written: what lies between them is not
//! read, and the description is the same as if all of it had been.
//! Holds: cutting begins anew at a piece before a written stretch and goes on until it makes a
//! cut where there was one, since from there on the same bytes are cut alike. It begins behind a
//! byte that is not zero, because a stretch of zeros is judged as a whole.
//! From: LBFS, "Dividing files into chunks": a change moves no cut but those near it.

use super::{Described, FEATURES_BYTES_MAX, Found, Naming, describe};
use crate::cut::Cutting;
use crate::error::ChunksError;
use crate::fingerprint::Secret;
use crate::recipe::Placed;
use model::Piece;
use protocol::Cutter;
use std::ops::Range;

/// Bytes that are asked for at once: a change ends within a few chunks.
const READ_BYTES: usize = 64 << 10;

/// Describes a file of `size` bytes that was as `before` says, all of it, and in which `changed`
/// was written since, in any order. `read` as in `describe`. Gives the pieces too that were cut
/// anew. Errors: as `describe`.
pub fn describe_again<E: From<ChunksError>>(
    secret: &Secret,
    cutter: Cutter,
    size: u64,
    before: &[Placed],
    changed: &[Range<u64>],
    mut read: impl FnMut(u64, &mut [u8]) -> Result<Found, E>,
) -> Result<(Described, Vec<Placed>), E> {
    // Small files are described by features too, which need every byte.
    if size <= FEATURES_BYTES_MAX {
        let described = describe(secret, cutter, size, read)?;
        let pieces = described.pieces.clone();
        return Ok((described, pieces));
    }
    let mut naming = Naming::new(secret);
    let fresh = cut_again(&mut naming, cutter, size, before, changed, &mut read)?;
    Ok((naming.finish(Vec::new()), fresh))
}

/// A written stretch, and where cutting begins for it.
struct Stretch {
    begin: u64,
    end: u64,
}

fn cut_again<E: From<ChunksError>>(
    naming: &mut Naming,
    cutter: Cutter,
    size: u64,
    before: &[Placed],
    changed: &[Range<u64>],
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<Found, E>,
) -> Result<Vec<Placed>, E> {
    let mut stretches = Vec::new();
    for range in joined(size, before.last().map_or(0, Placed::end), changed) {
        stretches.push(Stretch { begin: beginning(before, range.start, read)?, end: range.end });
    }
    let mut fresh = Vec::new();
    // Of the pieces before, the first that has not been gone by.
    let mut next = 0;
    let mut at = 0;
    while at < stretches.len() {
        while before.get(next).is_some_and(|placed| placed.end() <= stretches[at].begin) {
            naming.keep(before[next].piece);
            next += 1;
        }
        let from = naming.pieces.len();
        let mut cutting = Cutting::of_rest(cutter, size, size - stretches[at].begin);
        let mut offset = stretches[at].begin;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            offset = step(naming, &mut cutting, offset, size, &mut buffer, read)?;
            if offset >= size {
                cutting.finish(&mut |cut| naming.take(cut))?;
                next = before.len();
                at = stretches.len();
                break;
            }
            // What was cut already is not begun anew for the next stretch.
            while stretches.get(at + 1).is_some_and(|after| after.begin < naming.offset) {
                at += 1;
            }
            if naming.offset >= stretches[at].end
                && let Ok(found) = before.binary_search_by_key(&naming.offset, |old| old.offset)
            {
                next = found;
                at += 1;
                break;
            }
        }
        fresh.extend_from_slice(&naming.pieces[from..]);
    }
    before[next..].iter().for_each(|placed| naming.keep(placed.piece));
    Ok(fresh)
}

/// Cuts what lies at `offset`. Gives back where to go on.
fn step<E: From<ChunksError>>(
    naming: &mut Naming,
    cutting: &mut Cutting,
    offset: u64,
    size: u64,
    buffer: &mut [u8],
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<Found, E>,
) -> Result<u64, E> {
    let left = size.saturating_sub(offset);
    let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
    let went = match read(offset, &mut buffer[..wanted])? {
        // It is shorter than it was said to be, which the end of the cutting tells.
        Found::Bytes(0) | Found::Hole(0) => left,
        Found::Bytes(found) => {
            let found = found.min(wanted);
            cutting.push(&buffer[..found], &mut |cut| naming.take(cut));
            found as u64
        }
        Found::Hole(zeros) => {
            let zeros = zeros.min(left);
            cutting.push_zeros(zeros);
            zeros
        }
    };
    Ok(offset + went)
}

/// The written stretches in order, joined where they touch, and the end of the file if it moved:
/// its last chunk is as short as it is because the file ended there.
pub(super) fn joined(size: u64, size_before: u64, changed: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = changed
        .iter()
        .map(|range| range.start.min(size)..range.end.min(size))
        .filter(|range| !range.is_empty())
        .collect();
    if size != size_before {
        let end = size.min(size_before);
        ranges.push(end.saturating_sub(1)..size);
    }
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

/// The last beginning of a chunk, not after `start`, that lies behind a byte other than zero.
fn beginning<E>(
    before: &[Placed],
    start: u64,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<Found, E>,
) -> Result<u64, E> {
    let mut at = before.partition_point(|placed| placed.offset <= start);
    while at > 0 {
        at -= 1;
        let Placed { offset, piece } = before[at];
        // Of a stretch of zeros that is broken, what is left may be data of the chunk before.
        if matches!(piece, Piece::Zeros { .. }) {
            continue;
        }
        let mut byte = [0];
        if offset == 0 || matches!(read(offset - 1, &mut byte)?, Found::Bytes(1..)) && byte[0] != 0
        {
            return Ok(offset);
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe_bytes;
    use proptest::prelude::*;

    fn secret() -> Secret {
        Secret::new([7; 32])
    }

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let key: [u8; 32] = std::array::from_fn(|at| seed.to_le_bytes()[at % 8]);
        blake3::Hasher::new_keyed(&key).finalize_xof().fill(&mut bytes);
        bytes
    }

    /// What was cut anew, and how many bytes were read for it.
    fn again(
        cutter: Cutter,
        before: &[u8],
        after: &[u8],
        changed: &[Range<u64>],
    ) -> (Described, Vec<Placed>, usize) {
        let secret = secret();
        let old = describe_bytes(&secret, cutter, before);
        let mut naming = Naming::new(&secret);
        let mut bytes = 0;
        let mut read = |offset: u64, buffer: &mut [u8]| {
            let rest = &after[usize::try_from(offset).expect("it is in memory")..];
            let found = rest.len().min(buffer.len());
            buffer[..found].copy_from_slice(&rest[..found]);
            bytes += found;
            Ok::<_, ChunksError>(Found::Bytes(found))
        };
        let size = after.len() as u64;
        let fresh =
            cut_again(&mut naming, cutter, size, &old.pieces, changed, &mut read).expect("it fits");
        (naming.finish(Vec::new()), fresh, bytes)
    }

    #[test]
    fn a_byte_in_a_large_file_is_cut_anew_with_its_neighbours_only() {
        let before = noise(1, 8 << 20);
        let mut after = before.clone();
        after[4 << 20] ^= 1;
        let whole = describe_bytes(&secret(), Cutter::Gear, &after);
        let change = 4 << 20..(4 << 20) + 1;
        let (described, fresh, read) = again(Cutter::Gear, &before, &after, &[change]);
        assert_eq!(described.tree.contents, whole.tree.contents);
        assert!(!fresh.is_empty() && fresh.len() < 30, "{} pieces", fresh.len());
        assert!(read < 400 << 10, "{read} bytes were read");
    }

    #[test]
    fn what_was_not_written_is_described_without_a_look() {
        let bytes = noise(2, 3 << 20);
        let (described, fresh, read) = again(Cutter::Rabin, &bytes, &bytes, &[]);
        let whole = describe_bytes(&secret(), Cutter::Rabin, &bytes);
        assert_eq!(described.pieces, whole.pieces);
        assert_eq!((fresh.len(), read), (0, 0));
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
        #![proptest_config(ProptestConfig::with_cases(96))]

        #[test]
        fn prop_it_is_described_as_if_all_of_it_had_been_read(
            before in stretches(),
            writes in writes(),
            size in prop::option::of(any::<prop::sample::Index>()),
            rabin in any::<bool>(),
        ) {
            let cutter = if rabin { Cutter::Rabin } else { Cutter::Gear };
            let mut after = before.clone();
            let mut changed = Vec::new();
            for (place, zeros, length) in writes {
                let start = place.index(after.len() + 1);
                let bytes = if zeros { vec![0; length] } else { noise(start as u64, length) };
                after.resize(after.len().max(start + length), 0);
                after[start..start + length].copy_from_slice(&bytes);
                changed.push(start as u64..(start + length) as u64);
            }
            if let Some(size) = size {
                after.truncate(size.index(after.len() + 1));
            }
            let whole = describe_bytes(&secret(), cutter, &after);
            let (described, fresh, _) = again(cutter, &before, &after, &changed);
            prop_assert_eq!(&described.pieces, &whole.pieces);
            prop_assert_eq!(described.tree.contents, whole.tree.contents);
            let old = describe_bytes(&secret(), cutter, &before);
            for placed in &whole.pieces {
                prop_assert!(fresh.contains(placed) || old.pieces.contains(placed));
            }
        }
    }
}
