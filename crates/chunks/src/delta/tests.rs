use super::*;
use proptest::prelude::*;

/// Bytes that nothing compresses, others for each seed.
pub(super) fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
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

proptest! {
    #[test]
    fn prop_targets_come_back((base, target) in related()) {
        check(&base, &target);
    }
}
