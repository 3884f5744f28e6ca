use super::*;
use crate::describe::describe_bytes;
use crate::fingerprint::Secret;
use proptest::prelude::*;
use protocol::Cutter;

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

fn file(length: usize) -> Described {
    describe_bytes(&Secret::new([1; 32]), Cutter::Gear, &noise(length))
}

fn link(round_trip_ms: u64, rate: u64) -> Option<Link> {
    Some(Link { round_trip: Duration::from_millis(round_trip_ms), rate })
}

fn recipe_names(described: &Described) -> Vec<ChunkName> {
    described.tree.chunks.iter().map(|(name, _)| *name).collect()
}

fn data_names(described: &Described) -> Vec<ChunkName> {
    described.pieces.iter().filter_map(|at| chunk_of(&at.piece)).map(|(name, _)| name).collect()
}

#[test]
fn few_bytes_on_a_long_link_are_sent_at_once() {
    let described = file(100_000);
    let plan = plan_store(&described, |_| false, link(600, 1_000_000));
    let all = [recipe_names(&described), data_names(&described)].concat();
    assert_eq!(plan, StorePlan { eager: vec![all], ask: false });
}

#[test]
fn many_bytes_on_a_thin_link_are_asked_about_first() {
    let described = file(100_000);
    let plan = plan_store(&described, |_| false, link(30, 40_000));
    assert_eq!(plan, StorePlan { eager: vec![recipe_names(&described)], ask: true });
}

#[test]
fn on_a_link_of_which_nothing_is_known_one_asks() {
    assert!(plan_store(&file(100_000), |_| false, None).ask);
    assert!(plan_store(&file(100_000), |_| false, link(0, 0)).ask);
}

#[test]
fn what_the_receiver_has_is_not_sent() {
    let described = file(100_000);
    let data = data_names(&described);
    let plan = plan_store(&described, |name| *name != data[3], link(600, 1_000_000));
    assert_eq!(plan, StorePlan { eager: vec![vec![data[3]]], ask: false });
    assert_eq!(plan_store(&described, |_| true, None), StorePlan::default());
}

#[test]
fn a_chunk_that_comes_up_twice_is_sent_once() {
    let bytes = vec![7; 300_000];
    let described = describe_bytes(&Secret::new([1; 32]), Cutter::Gear, &bytes);
    let plan = plan_store(&described, |_| false, link(60_000, 1 << 40));
    let mut sent = plan.eager.concat();
    let count = sent.len();
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len(), count);
    assert!(count <= 3, "one chunk over and over, the last, and the recipe");
}

#[test]
fn a_link_faster_than_numbers_go_is_no_trouble() {
    let described = file(10_000);
    let link = Some(Link { round_trip: Duration::MAX, rate: u64::MAX });
    assert!(!plan_store(&described, |_| false, link).ask);
}

#[test]
fn a_whole_file_is_fetched_by_ranges_of_a_message_each() {
    let described = file(5 << 20);
    let batches = plan_fetch(&described.pieces, |_| false);
    let mut offset = 0;
    for batch in &batches {
        let [range] = batch[..] else { panic!("neighbours are one range: {batch:?}") };
        assert_eq!(range.offset, offset);
        assert!(range.length <= PAYLOAD_BYTES_MAX as u64);
        offset += range.length;
    }
    assert_eq!(offset, 5 << 20);
    assert!(batches.len() <= 6);
}

#[test]
fn only_missing_chunks_are_fetched_and_zeros_never() {
    let bytes = [noise(50_000), vec![0; 100_000], noise(40_000)].concat();
    let described = describe_bytes(&Secret::new([1; 32]), Cutter::Gear, &bytes);
    let pieces = &described.pieces;
    let data = data_names(&described);
    let batches = plan_fetch(pieces, |name| *name != data[1] && *name != data[2]);
    let length = pieces[1].piece.length() + pieces[2].piece.length();
    assert_eq!(batches, [[Range { offset: pieces[1].offset, length }]]);

    let ranges = plan_fetch(pieces, |_| false).concat();
    let zeros = pieces.iter().find(|at| matches!(at.piece, Piece::Zeros { .. })).unwrap();
    assert!(ranges.iter().all(|range| range.offset + range.length <= zeros.offset
        || range.offset >= zeros.end()));
    assert_eq!(plan_fetch(pieces, |_| true), Vec::<Vec<Range>>::new());
}

#[test]
fn many_tiny_chunks_are_split_by_their_number() {
    let secret = Secret::new([2; 32]);
    let place = |offset: u64| {
        let piece = Piece::Chunk { name: secret.name(&offset.to_le_bytes()), length: 1 };
        Placed { offset, piece }
    };
    let pieces: Vec<Placed> = (0..BATCH_MAX as u64 + 1).map(place).collect();
    let ranges = plan_fetch(&pieces, |_| false);
    let most = BATCH_MAX as u64;
    let expected = [Range { offset: 0, length: most }, Range { offset: most, length: 1 }];
    assert_eq!(ranges, expected.map(|range| vec![range]));
}

proptest! {
    #[test]
    fn prop_batches_keep_the_order_and_fit(lengths in prop::collection::vec(1..=1u64 << 20, 0..200)) {
        let secret = Secret::new([2; 32]);
        let chunks: Vec<(ChunkName, u64)> =
            lengths.iter().enumerate().map(|(n, l)| (secret.name(&n.to_le_bytes()), *l)).collect();
        let batches = batches(chunks.clone());
        let names: Vec<ChunkName> = chunks.iter().map(|(name, _)| *name).collect();
        prop_assert_eq!(batches.concat(), names);
        let mut rest = &lengths[..];
        for batch in &batches {
            let (now, later) = rest.split_at(batch.len());
            prop_assert!(now.iter().sum::<u64>() <= PAYLOAD_BYTES_MAX as u64);
            prop_assert!(!batch.is_empty());
            rest = later;
        }
    }
}
