use super::*;
use proptest::prelude::*;

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

fn why(payload: &Payload, bytes_max: usize) -> String {
    match unpack(payload, bytes_max) {
        Err(ChunksError::BadPayload(what)) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn chunks_that_are_alike_are_compressed_together() {
    let unit = noise(4096);
    let chunks = [&unit[..]; 20];
    let payload = pack(&chunks);
    assert!(!payload.plain);
    assert!(payload.bytes.len() < 4500, "{} bytes", payload.bytes.len());
    assert_eq!(unpack(&payload, 20 * 4096).unwrap(), chunks);
}

#[test]
fn what_cannot_be_compressed_goes_as_it_is() {
    for length in [1, 100, 10_000, 1 << 20] {
        let bytes = noise(length);
        let payload = pack(&[&bytes]);
        assert!(payload.plain);
        assert_eq!(payload.bytes[..], bytes);
        assert_eq!(unpack(&payload, length).unwrap(), [bytes]);
    }
}

#[test]
fn text_is_compressed_at_every_size() {
    let line = b"A chunk is named by its hash, and whoever has it can give it. ";
    for length in [100, 40 << 10, 300 << 10, 1 << 20] {
        let text: Vec<u8> = line.iter().copied().cycle().take(length).collect();
        let payload = pack(&[&text]);
        assert!(!payload.plain && payload.bytes.len() < length);
        assert_eq!(unpack(&payload, length).unwrap(), [text]);
    }
}

#[test]
fn no_chunks_are_a_payload_too() {
    let payload = pack(&[]);
    assert_eq!(unpack(&payload, 0).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn the_layout_is_pinned() {
    // A frame of 100 bytes that consists of one block: the letter a, 100 times.
    const FRAME: &[u8] = b"\x28\xb5\x2f\xfd\x20\x64\x23\x03\x00a";
    let payload = Payload { lengths: vec![40, 60], bytes: FRAME.to_vec().into(), plain: false };
    assert_eq!(unpack(&payload, 100).unwrap(), [vec![b'a'; 40], vec![b'a'; 60]]);
    let plain = Payload { lengths: vec![2, 1], bytes: b"abc".to_vec().into(), plain: true };
    assert_eq!(unpack(&plain, 3).unwrap(), [&b"ab"[..], b"c"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let text = vec![b'x'; 1000];
    let good = pack(&[&text]);
    assert!(!good.plain);
    assert_eq!(why(&good, 999), "more than 999 bytes");
    assert_eq!(why(&Payload { lengths: vec![1000, 0], ..good.clone() }, 2000), "an empty chunk");
    assert!(unpack(&Payload { lengths: vec![999], ..good.clone() }, 2000).is_err());
    let long = Payload { lengths: vec![1001], ..good.clone() };
    assert_eq!(why(&long, 2000), "1000 bytes for chunks of 1001");
    let huge = Payload { lengths: vec![u32::MAX; 1000], ..good.clone() };
    assert_eq!(why(&huge, 1 << 20), "more than 1048576 bytes");
    let many = Payload { lengths: vec![1; PAYLOAD_CHUNKS_MAX + 1], ..good.clone() };
    assert_eq!(why(&many, 1 << 20), "too many chunks");
    let plain = Payload { lengths: vec![3], bytes: b"ab".to_vec().into(), plain: true };
    assert_eq!(why(&plain, 10), "2 bytes for chunks of 3");
    let twice = [&good.bytes[..], &good.bytes[..]].concat();
    let twice = Payload { lengths: vec![2000], bytes: twice.into(), plain: false };
    assert_eq!(why(&twice, 2000), "something after the compressed chunks");
    let mut cut_off = good.bytes.to_vec();
    cut_off.pop();
    assert!(unpack(&Payload { bytes: cut_off.into(), ..good }, 2000).is_err());
}

#[test]
fn a_small_frame_that_would_be_large_is_refused() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
    assert!(bomb.len() < 10_000);
    let payload = Payload { lengths: vec![1000], bytes: bomb.into(), plain: false };
    assert!(matches!(unpack(&payload, 1 << 20), Err(ChunksError::BadPayload(_))));
}

proptest! {
    #[test]
    fn prop_chunks_come_back(
        chunks in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 1..3000),
                (any::<u8>(), 1..60_000usize).prop_map(|(byte, length)| vec![byte; length]),
            ],
            0..20,
        ),
    ) {
        let borrowed: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let total = chunks.iter().map(Vec::len).sum();
        prop_assert_eq!(unpack(&pack(&borrowed), total).unwrap(), chunks);
    }

    #[test]
    fn prop_arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz_payload(&bytes);
    }

    #[test]
    fn prop_damaged_frames_do_not_panic(at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let mut payload = pack(&[&[b'x'; 5000], &noise(100)]);
        let at = at.index(payload.bytes.len());
        payload.bytes[at] ^= flip;
        if let Ok(chunks) = unpack(&payload, 5100) {
            prop_assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [5000, 100]);
        }
    }
}

#[test]
fn a_fast_link_is_not_kept_waiting_for_the_last_byte() {
    assert_eq!(Squeeze::for_rate(None), Squeeze::Hard, "it may be slow");
    assert_eq!(Squeeze::for_rate(Some(200_000)), Squeeze::Hard);
    assert_eq!(Squeeze::for_rate(Some(1_000_000)), Squeeze::Quick(6));
    assert_eq!(Squeeze::for_rate(Some(12_500_000)), Squeeze::Quick(3));
    assert_eq!(Squeeze::for_rate(Some(125_000_000)), Squeeze::Quick(1));
}

#[test]
fn however_hard_chunks_were_squeezed_they_come_out_and_are_smaller() {
    let text = b"as often as you like ".repeat(3000);
    for squeeze in [Squeeze::Hard, Squeeze::Quick(6), Squeeze::Quick(1)] {
        let payload = pack_for(&[&text, b"end"], squeeze);
        assert!(payload.bytes.len() < text.len() / 10, "{squeeze:?}");
        assert_eq!(unpack(&payload, 1 << 20).unwrap(), [&text[..], b"end"]);
    }
}
