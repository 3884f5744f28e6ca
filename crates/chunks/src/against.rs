//! Chunks against a stretch of a version that the receiver has: which stretch, made and undone.
//! Holds: what comes out is what went in, or the receiver says that the base is of no use to it;
//! whatever arrives, no more memory is taken than the caller allows.
//! From: beyond LBFS, which sends a changed chunk whole.

use crate::delta::{self, Codec, Effort};
use crate::error::Result;
use crate::fingerprint::Secret;
use crate::payload::{lengths_of, split, total_of};
use protocol::{BASE_BYTES_MAX, Base, Delta, Range, Sequel};

/// Of a file that is longer than a base may be, so much is taken on both sides of the place where
/// the target should be.
const MARGIN_BYTES: u64 = 256 << 10;

/// The stretch of a version of `base_size` bytes that is most like `wanted`, a stretch of one of
/// `size` bytes. What lies before the first difference of the two stands at the same offset, what
/// lies behind the last one as far from the end, and all else somewhere between. None: an empty
/// version.
pub fn stretch_of(base_size: u64, size: u64, wanted: Range) -> Option<Range> {
    if base_size <= BASE_BYTES_MAX {
        return (base_size > 0).then_some(Range { offset: 0, length: base_size });
    }
    let end = wanted.offset.saturating_add(wanted.length);
    let shifted = |at: u64| base_size.saturating_sub(size.saturating_sub(at));
    let from = wanted.offset.min(shifted(wanted.offset)).saturating_sub(MARGIN_BYTES);
    let to = end.max(shifted(end)).saturating_add(MARGIN_BYTES).min(base_size);
    if from < to && to - from <= BASE_BYTES_MAX {
        return Some(Range { offset: from, length: to - from });
    }
    // The two are of too different sizes for that: what did not move is the best guess.
    let from = wanted.offset.saturating_sub(MARGIN_BYTES).min(base_size - BASE_BYTES_MAX);
    Some(Range { offset: from, length: BASE_BYTES_MAX })
}

/// These chunks for a receiver that has `bytes` as `base`. None: they are better sent by
/// themselves, as far as so much effort shows.
pub fn pack_against(
    secret: &Secret,
    (base, bytes): (Base, &[u8]),
    chunks: &[&[u8]],
    effort: Effort,
) -> Option<Delta> {
    let target = chunks.concat();
    let coded = delta::encode_with(effort, bytes, &target)?;
    Some(Delta {
        base,
        lengths: lengths_of(chunks),
        codec: coded.codec.number(),
        bytes: coded.bytes.into(),
        check: check_of(secret, &target),
    })
}

/// How many bytes the chunks of a delta have. Errors: `BadPayload`, if they are more than
/// `bytes_max`, or make no sense.
pub fn target_bytes(delta: &Delta, bytes_max: usize) -> Result<usize> {
    total_of(&delta.lengths, bytes_max)
}

/// The chunks of a delta, of `bytes_max` bytes together at most, for who has `base`. None: with
/// these bytes nothing comes of it, so the two sides do not have the same base, or the codec is
/// not known here. Errors: `BadPayload`.
pub fn unpack_against(
    secret: &Secret,
    delta: &Delta,
    base: &[u8],
    bytes_max: usize,
) -> Result<Option<Vec<Vec<u8>>>> {
    undo(secret, (&delta.lengths, delta.codec, &delta.bytes, delta.check), base, bytes_max)
}

/// These chunks for a receiver that has `before`, which may be much longer and need not be like
/// them. None: they are better sent by themselves.
pub fn pack_after(secret: &Secret, before: &[u8], chunks: &[&[u8]]) -> Option<Sequel> {
    let target = chunks.concat();
    let coded = delta::encode_after(before, &target)?;
    Some(Sequel {
        lengths: lengths_of(chunks),
        codec: coded.codec.number(),
        bytes: coded.bytes.into(),
        check: check_of(secret, &target),
    })
}

/// The chunks of a sequel. As `unpack_against`.
pub fn unpack_after(
    secret: &Secret,
    sequel: &Sequel,
    before: &[u8],
    bytes_max: usize,
) -> Result<Option<Vec<Vec<u8>>>> {
    let coded = (&sequel.lengths[..], sequel.codec, &sequel.bytes[..], sequel.check);
    undo(secret, coded, before, bytes_max)
}

/// The chunks of a delta that was assembled from many parts, whose bytes are `reference`, one after
/// another. As `unpack_against`.
pub fn unpack_assembled(
    secret: &Secret,
    delta: &Delta,
    reference: &[u8],
    bytes_max: usize,
) -> Result<Option<Vec<Vec<u8>>>> {
    let total = total_of(&delta.lengths, bytes_max)?;
    let Ok(target) = delta::make_assembled(reference, &delta.bytes, total) else { return Ok(None) };
    if check_of(secret, &target) != delta.check {
        return Ok(None);
    }
    split(&delta.lengths, total, &target).map(Some)
}

fn undo(
    secret: &Secret,
    (lengths, codec, bytes, check): (&[u32], u8, &[u8], u64),
    base: &[u8],
    bytes_max: usize,
) -> Result<Option<Vec<Vec<u8>>>> {
    let total = total_of(lengths, bytes_max)?;
    let Some(codec) = Codec::from_number(codec) else { return Ok(None) };
    let Ok(target) = delta::decode(codec, base, bytes, total) else { return Ok(None) };
    if check_of(secret, &target) != check {
        return Ok(None);
    }
    split(lengths, total, &target).map(Some)
}

pub(crate) fn check_of(secret: &Secret, target: &[u8]) -> u64 {
    let name = secret.name(target).0;
    u64::from_be_bytes(std::array::from_fn(|at| name[at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ChunksError;
    use model::{FileId, ReplicaId, Stamp};

    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    fn base_of(bytes: &[u8]) -> Base {
        let stretch = Range { offset: 0, length: bytes.len() as u64 };
        Base { file: FileId(7), version: Stamp::new(ReplicaId(1), 2), stretch }
    }

    fn made() -> (Secret, Vec<u8>, Vec<Vec<u8>>, Delta) {
        let secret = Secret::new([7; 32]);
        let base = noise(50_000, 1);
        let target = [&base[..20_000], b"something else", &base[20_000..]].concat();
        let chunks = vec![target[..10_000].to_vec(), target[10_000..].to_vec()];
        let parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let delta = pack_against(&secret, (base_of(&base), &base), &parts, Effort::Usual).unwrap();
        (secret, base, chunks, delta)
    }

    #[test]
    fn chunks_come_out_as_they_went_in_and_take_few_bytes() {
        let (secret, base, chunks, delta) = made();
        assert!(delta.bytes.len() < 200, "{} bytes", delta.bytes.len());
        assert_eq!(unpack_against(&secret, &delta, &base, 1 << 20).unwrap(), Some(chunks));
    }

    #[test]
    fn another_base_gives_nothing_rather_than_something_else() {
        let (secret, mut base, _, delta) = made();
        base[300] ^= 1;
        assert_eq!(unpack_against(&secret, &delta, &base, 1 << 20).unwrap(), None);
        assert_eq!(unpack_against(&secret, &delta, &[], 1 << 20).unwrap(), None);
    }

    #[test]
    fn a_codec_that_is_not_known_gives_nothing() {
        let (secret, base, _, delta) = made();
        let delta = Delta { codec: 255, ..delta };
        assert_eq!(unpack_against(&secret, &delta, &base, 1 << 20).unwrap(), None);
    }

    #[test]
    fn lengths_that_make_no_sense_are_refused() {
        let (secret, base, _, delta) = made();
        for lengths in [vec![0], vec![u32::MAX; 3], vec![1; 20_000]] {
            let delta = Delta { lengths, ..delta.clone() };
            let refused = unpack_against(&secret, &delta, &base, 1 << 20);
            assert!(matches!(refused, Err(ChunksError::BadPayload(_))), "{refused:?}");
        }
        let refused = unpack_against(&secret, &delta, &base, 50_000);
        assert!(matches!(refused, Err(ChunksError::BadPayload(_))), "longer than allowed");
    }

    #[test]
    fn contents_that_are_like_nothing_go_by_themselves() {
        let secret = Secret::new([7; 32]);
        let (base, target) = (noise(50_000, 1), noise(50_000, 2));
        let of = (base_of(&base), &base[..]);
        assert_eq!(pack_against(&secret, of, &[&target], Effort::Usual), None);
    }

    fn stretch(base_size: u64, size: u64, offset: u64, length: u64) -> (u64, u64) {
        let found = stretch_of(base_size, size, Range { offset, length }).unwrap();
        assert!(found.length <= BASE_BYTES_MAX && found.offset + found.length <= base_size);
        (found.offset, found.offset + found.length)
    }

    #[test]
    fn what_comes_after_other_contents_takes_from_them_and_comes_out_as_it_went_in() {
        let (secret, before, ..) = made();
        let chunks = [&before[30_000..40_000], &b"new"[..], &before[100..5_000]];
        let sequel = pack_after(&secret, &before, &chunks).unwrap();
        assert!(sequel.bytes.len() < 200, "{} bytes", sequel.bytes.len());
        let whole: Vec<Vec<u8>> = chunks.iter().map(|chunk| chunk.to_vec()).collect();
        assert_eq!(unpack_after(&secret, &sequel, &before, 1 << 20).unwrap(), Some(whole));
        let mut other = before.clone();
        other[35_000] ^= 1;
        assert_eq!(unpack_after(&secret, &sequel, &other, 1 << 20).unwrap(), None);
        assert!(unpack_after(&secret, &sequel, &before, 100).is_err(), "longer than allowed");
        assert_eq!(pack_after(&secret, &before, &[&noise(50_000, 9)]), None);
    }

    #[test]
    fn a_base_that_is_not_long_is_taken_whole() {
        assert_eq!(stretch(1000, 2_000_000, 5, 10), (0, 1000));
        assert_eq!(stretch_of(0, 10, Range { offset: 0, length: 10 }), None);
    }

    #[test]
    fn of_a_long_base_the_neighbourhood_is_taken_wherever_the_change_was() {
        const MIB: u64 = 1 << 20;
        // 1000 bytes were inserted before the place, or behind it.
        let (from, to) = stretch(100 * MIB, 100 * MIB + 1000, 50 * MIB, 4096);
        assert!(from < 50 * MIB - 1000 - 4096 && to > 50 * MIB + 4096 && to - from < MIB);
        // Something long was taken out: the end may be where it was, seen from the end.
        let (from, to) = stretch(100 * MIB, 98 * MIB, 97 * MIB, MIB);
        assert!(from <= 97 * MIB && to == 100 * MIB);
        // Sizes that have nothing to do with each other.
        stretch(100 * MIB, 5000, 0, 5000);
        stretch(5 * MIB, 500 * MIB, 499 * MIB, MIB);
        stretch(5 * MIB, u64::MAX, u64::MAX - 1, u64::MAX);
    }
}
