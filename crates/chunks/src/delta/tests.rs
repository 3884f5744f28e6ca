use super::*;
use proptest::prelude::*;

/// Bytes that nothing compresses, others for each seed.
pub(super) fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

/// Text that a compressor finds both near and far matches in.
pub(super) fn words(length: usize) -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "chunk ", "update ", "log ", "the ", "of ", "a ", "client ", "origin\n", "recipe, ",
        "and ", "replay ", "lease. ",
    ];
    let mut text = Vec::new();
    for byte in noise(9, length) {
        text.extend_from_slice(WORDS[usize::from(byte) % WORDS.len()].as_bytes());
        if byte > 240 {
            text.extend_from_slice(byte.to_string().as_bytes());
        }
    }
    text.truncate(length);
    text
}

fn check(base: &[u8], target: &[u8]) -> Option<Coded> {
    let coded = encode(base, target);
    if let Some(coded) = &coded {
        assert!(coded.bytes.len() < target.len());
        let decoded = decode(coded.codec, base, &coded.bytes, target.len());
        assert_eq!(decoded.unwrap(), target);
    }
    coded
}

fn why(codec: Codec, base: &[u8], bytes: &[u8], target_len: usize) -> String {
    match decode(codec, base, bytes, target_len) {
        Err(ChunksError::BadDelta(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_of_codecs_come_back() {
    for number in 0..=u8::MAX {
        if let Some(codec) = Codec::from_number(number) {
            assert_eq!(codec.number(), number);
        }
    }
    assert_eq!(Codec::from_number(0), None);
}

#[test]
fn bytes_put_into_the_middle_cost_little_more_than_themselves() {
    let base = noise(1, 300_000);
    let target = [&base[..100_000], b"some words more", &base[100_000..]].concat();
    let coded = check(&base, &target).unwrap();
    assert!(coded.bytes.len() < 120, "{} bytes", coded.bytes.len());
}

#[test]
fn what_has_nothing_of_its_base_is_sent_by_itself() {
    assert_eq!(encode(&noise(1, 50_000), &noise(2, 50_000)), None);
    assert_eq!(encode(&noise(1, 50_000), &[]), None);
    assert_eq!(encode(&[], &noise(1, 50_000)), None);
    assert_eq!(encode(&noise(1, DELTA_BYTES_MAX + 1), &noise(1, 5000)), None);
}

#[test]
fn a_delta_against_another_base_is_refused_or_gives_other_bytes() {
    let base = noise(1, 20_000);
    let target = [&base[..9_000], b"!", &base[9_000..]].concat();
    let coded = check(&base, &target).unwrap();
    let other = decode(coded.codec, &noise(2, 20_000), &coded.bytes, target.len());
    assert!(other.map_or(true, |bytes| bytes != target));
    assert!(decode(coded.codec, &[], &coded.bytes, target.len()).is_err());
}

#[test]
fn a_delta_gives_as_many_bytes_as_were_asked_for_or_none() {
    let base = noise(1, 20_000);
    let target = [&base[..9_000], b"!", &base[9_000..]].concat();
    let coded = check(&base, &target).unwrap();
    for length in [0, 1, target.len() - 1, target.len() + 1, DELTA_BYTES_MAX] {
        assert!(decode(coded.codec, &base, &coded.bytes, length).is_err());
    }
    let much = why(coded.codec, &base, &coded.bytes, DELTA_BYTES_MAX + 1);
    assert!(much.contains("33554432"), "{much}");
    let twice = [&coded.bytes[..], &coded.bytes[..]].concat();
    assert!(decode(coded.codec, &base, &twice, 2 * target.len()).is_err());
}

#[test]
fn a_small_delta_that_would_be_large_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
    assert!(decode(Codec::Prefix, b"base", &bomb, 1000).is_err());
}

/// A base, and a target made of stretches of it, of runs and of new bytes.
fn related() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let edit =
        prop_oneof![
            (any::<prop::sample::Index>(), 1..4000usize)
                .prop_map(|(at, length)| (at, length, None)),
            (any::<prop::sample::Index>(), 1..50usize, any::<u8>())
                .prop_map(|(at, length, byte)| (at, length, Some(byte))),
        ];
    (prop::collection::vec(any::<u8>(), 1..5000), prop::collection::vec(edit, 0..12)).prop_map(
        |(base, edits)| {
            let mut target = Vec::new();
            for (at, length, byte) in edits {
                let start = at.index(base.len());
                let stretch = &base[start..base.len().min(start + length)];
                match byte {
                    None => target.extend_from_slice(stretch),
                    Some(byte) => target.extend(stretch.iter().map(|b| b.wrapping_add(byte))),
                }
            }
            (base, target)
        },
    )
}

/// Something like an object file after a line was added: records with addresses, all of which
/// grew a little.
fn records(moved: u32) -> Vec<u8> {
    let mut bytes = b"\x7fELF\0".to_vec();
    for (n, name) in noise(4, 8 * 6000).chunks(8).enumerate() {
        bytes.extend_from_slice(name);
        bytes.extend((0x40_0000 + 24 * n as u32 + moved).to_le_bytes());
    }
    bytes
}

#[test]
fn addresses_that_all_moved_take_a_patch_of_little() {
    let (old, new) = (records(0), records(17));
    let coded = check(&old, &new).unwrap();
    assert_eq!(coded.codec, Codec::Patch);
    assert!(coded.bytes.len() < 1500, "{} bytes", coded.bytes.len());
    assert!(coded.bytes.len() * 5 < prefix::encode(&old, &new).unwrap().len());
}

#[test]
fn the_layout_of_a_patch_is_pinned() {
    // Two bytes of the base, each one more, then a new one; two back, one of the base as it is.
    let control = [0, 2, 1, 3, 1, 0];
    let difference = [1, 1, 0];
    let packed = [&control[..], &difference].map(|stream| prefix::encode(&[], stream).unwrap());
    let lengths = [control.len(), packed[0].len(), difference.len(), packed[1].len()];
    let mut bytes: Vec<u8> = lengths.iter().map(|length| *length as u8).collect();
    bytes.extend(packed.concat());
    bytes.extend(prefix::encode(&[], b"!").unwrap());
    assert_eq!(decode(Codec::Patch, b"abcd", &bytes, 4).unwrap(), b"bc!a");
}

#[test]
fn patches_that_make_no_sense_are_refused() {
    let pack = |control: &[u8], difference: &[u8], extra: &[u8]| {
        let packed = [control, difference, extra].map(|s| prefix::encode(&[], s).unwrap());
        let mut bytes = Vec::new();
        for (stream, packed) in [control, difference].iter().zip(&packed) {
            bytes.extend([stream.len() as u8, packed.len() as u8]);
        }
        bytes.extend(packed.concat());
        bytes
    };
    assert_eq!(decode(Codec::Patch, b"abcd", &pack(&[0, 2, 0], &[0, 0], &[]), 2).unwrap(), b"ab");
    for bytes in [
        // Beyond the base, before it, more than there is, fewer than there are, half a number.
        pack(&[0, 9, 0], &[0, 0], &[]),
        pack(&[1, 2, 0], &[0, 0], &[]),
        pack(&[0, 3, 0], &[0, 0], &[]),
        pack(&[0, 1, 0], &[0, 0], &[]),
        pack(&[0, 2, 0, 0x80], &[0, 0], &[]),
        pack(&[0, 2, 1], &[0, 0], &[]),
        vec![],
    ] {
        assert!(decode(Codec::Patch, b"abcd", &bytes, 2).is_err(), "{bytes:?}");
    }
}

#[test]
fn what_was_chosen_is_explained() {
    let base = noise(1, 20_000);
    let target = [&base[..9_000], b"!", &base[9_000..]].concat();
    let explained = explain(&base, &target);
    assert_eq!(explained.why, Why::Smallest);
    let coded = explained.coded.unwrap();
    assert!(explained.tried.contains(&(coded.codec, coded.bytes.len())));
    assert!(explained.tried.iter().all(|(_, bytes)| *bytes >= coded.bytes.len()));
    assert_eq!(explain(&base, &target[..10]).why, Why::TooSmall);
    assert_eq!(explain(&[], &target).why, Why::NoBase);
    assert_eq!(explain(&noise(1, DELTA_BYTES_MAX + 1), &target).why, Why::TooLarge);
    let nothing = explain(&noise(2, 20_000), &target);
    assert_eq!((nothing.why, nothing.coded), (Why::NothingGained, None));
    assert_eq!(nothing.alone, Some(target.len()));
}

proptest! {
    #[test]
    fn prop_arbitrary_deltas_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz_delta(&bytes);
        crate::fuzz_delta_encode(&bytes);
    }

    #[test]
    fn prop_damaged_patches_do_not_panic(at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let (old, new) = (&records(0)[..3000], &records(17)[..3000]);
        let mut bytes = patch::encode(old, new).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(made) = decode(Codec::Patch, old, &bytes, new.len()) {
            prop_assert_eq!(made.len(), new.len());
        }
    }

    #[test]
    fn prop_patches_come_back((base, target) in related()) {
        let bytes = patch::encode(&base, &target).unwrap();
        prop_assert_eq!(decode(Codec::Patch, &base, &bytes, target.len()).unwrap(), target);
    }

    #[test]
    fn prop_targets_come_back((base, target) in related()) {
        check(&base, &target);
    }
}
