use super::*;
use crate::ChunksError;
use crate::delta::tests::{noise, words as text};
use flate2::{Compress, Compression, FlushCompress, Status};
use proptest::prelude::*;

fn zlib(plain: &[u8], level: u32) -> Vec<u8> {
    let mut packed = Vec::with_capacity(plain.len() + 1000);
    let mut compress = Compress::new(Compression::new(level), false);
    let status = compress.compress_vec(plain, &mut packed, FlushCompress::Finish).unwrap();
    assert_eq!(status, Status::StreamEnd);
    packed
}

fn check(packed: &[u8]) -> Option<Apart> {
    let (plain, length) = inflate(packed, 1 << 24).unwrap();
    assert_eq!(length, packed.len());
    let apart = take_apart(packed, plain)?;
    assert_eq!(rebuild(&apart.plain, &apart.corrections, packed.len()).unwrap(), packed);
    Some(apart)
}

#[test]
fn streams_of_zlib_need_next_to_nothing_at_any_level() {
    let text = text(400_000);
    for level in 1..=9 {
        let packed = zlib(&text, level);
        let apart = check(&packed).unwrap();
        assert_eq!(apart.plain, text);
        let (have, most) = (apart.corrections.len(), 40);
        assert!(have < most, "level {level}: {have} bytes for {}", packed.len());
    }
}

#[test]
fn the_ends_of_alphabets_are_as_zlib_writes_them() {
    for plain in [&b""[..], b"a", b"aaaa", b"ab", &[255; 1000], &[0; 70_000], &noise(3, 3000)] {
        for level in [0, 1, 6, 9] {
            assert_eq!(check(&zlib(plain, level)).unwrap().plain, plain);
        }
    }
}

#[test]
fn a_stream_that_was_flushed_now_and_then_comes_back() {
    let text = text(100_000);
    let mut packed = Vec::with_capacity(200_000);
    let mut compress = Compress::new(Compression::new(6), false);
    for some in text.chunks(9_999) {
        compress.compress_vec(some, &mut packed, FlushCompress::Sync).unwrap();
    }
    compress.compress_vec(&[], &mut packed, FlushCompress::Finish).unwrap();
    let apart = check(&packed).unwrap();
    assert!(apart.corrections.len() < 2000, "{} bytes", apart.corrections.len());
}

#[test]
fn a_stream_that_ends_too_early_is_none() {
    let packed = zlib(&text(3000), 6);
    for length in 0..packed.len() {
        assert_eq!(inflate(&packed[..length], 1 << 20), None);
    }
}

#[test]
fn a_stream_that_would_be_large_is_left_alone() {
    let bomb = zlib(&vec![0; 4 << 20], 9);
    assert!(bomb.len() < 5000);
    assert_eq!(inflate(&bomb, (4 << 20) - 1), None);
    assert!(inflate(&bomb, 4 << 20).is_some());
}

#[test]
fn a_stream_of_empty_blocks_is_left_alone() {
    let mut packed = [0, 0, 0, 0xff, 0xff].repeat(10_000);
    packed.extend([1, 0, 0, 0xff, 0xff]);
    assert_eq!(inflate(&packed, 1 << 20), None);
}

#[test]
fn corrections_that_make_no_sense_are_refused() {
    let plain = text(1000);
    // A manner that there is not, a block too many, a match with itself, one beyond the end.
    let nonsense: [&[u8]; 6] = [
        &[],
        &[0, 1, 1, 5],
        &[6, 0x80, 0x80, 0x80, 0x80, 1],
        &[6, 1, 1, 4 << 2 | 1, 0, 1, 0],
        &[6, 1, 2, 0x81, 0x7d, 0, 200, 1],
        &[6, 1, 2, 0xff, 0xff],
    ];
    for corrections in nonsense {
        let made = rebuild(&plain, corrections, 500);
        assert!(matches!(made, Err(ChunksError::BadDelta(_))), "{corrections:?}: {made:?}");
    }
}

proptest! {
    #[test]
    fn prop_streams_of_zlib_come_back(
        plain in prop::collection::vec(prop_oneof![0..4u8, any::<u8>()], 0..3000),
        level in 0..=9u32,
    ) {
        // Small streams may be left alone, but not changed.
        let packed = zlib(&plain, level);
        if let Some(apart) = check(&packed) {
            prop_assert_eq!(apart.plain, plain);
        }
    }

    #[test]
    fn prop_arbitrary_streams_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz_deflate(&bytes);
    }

    #[test]
    fn prop_damaged_corrections_do_not_panic(
        at in any::<prop::sample::Index>(), flip in 1..=255u8, level in 1..=9u32,
    ) {
        let packed = zlib(&text(5000), level);
        let mut apart = check(&packed).unwrap();
        let at = at.index(apart.corrections.len());
        apart.corrections[at] ^= flip;
        if let Ok(made) = rebuild(&apart.plain, &apart.corrections, packed.len()) {
            prop_assert_eq!(made.len(), packed.len());
        }
    }
}
