//! The link driven by hand, with times as arguments.

use super::*;

use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

fn lane(bits_per_sec: u64, delay: Duration) -> Lane {
    Lane { queue_bytes_max: 10_000, ..Lane::new(bits_per_sec, delay) }
}

/// Everything that arrives, with the moment at which it does.
fn arrivals(shape: &mut Shape<u32>) -> Vec<(Duration, u32)> {
    let mut all = Vec::new();
    while let Some(at) = shape.next_at() {
        while let Some(packet) = shape.due(at) {
            all.push((at, packet));
        }
    }
    all
}

#[test]
fn packets_take_their_time_at_the_rate_and_then_the_delay() {
    // 1000 bytes at 8 kb/s take a second each.
    let mut shape = Shape::new(lane(8_000, 50 * MS), 1);
    for packet in 0..3 {
        assert_eq!(shape.offer(Duration::ZERO, Run::one(1000), packet), Fate::Queued);
    }
    let expected = [(1050 * MS, 0), (2050 * MS, 1), (3050 * MS, 2)];
    assert_eq!(arrivals(&mut shape), expected);
    assert_eq!(shape.counters().carried, Tally { packets: 3, bytes: 3000 });
    assert_eq!(shape.counters().delivered, Tally { packets: 3, bytes: 3000 });
}

#[test]
fn a_caller_who_comes_late_changes_nothing_of_the_rate() {
    let mut shape = Shape::new(lane(8_000_000, Duration::ZERO), 1);
    for packet in 0..10 {
        shape.offer(Duration::ZERO, Run::one(1000), packet);
    }
    let came = std::iter::from_fn(|| shape.due(5 * MS)).count();
    assert_eq!(came, 5, "one packet a millisecond, although nobody looked before the fifth");
    assert_eq!(shape.next_at(), Some(6 * MS));
}

#[test]
fn an_idle_link_sends_at_once_and_saves_no_time_up() {
    let mut shape = Shape::new(lane(8_000, Duration::ZERO), 1);
    shape.offer(Duration::ZERO, Run::one(1000), 0);
    assert_eq!(arrivals(&mut shape), [(1000 * MS, 0)]);
    shape.offer(9000 * MS, Run::one(1000), 1);
    assert_eq!(arrivals(&mut shape), [(10_000 * MS, 1)]);
}

#[test]
fn a_full_queue_drops_the_newest() {
    let mut shape = Shape::new(Lane { queue_bytes_max: 2500, ..lane(8_000, MS) }, 1);
    let fates: Vec<_> =
        (0..5).map(|packet| shape.offer(Duration::ZERO, Run::one(1000), packet)).collect();
    // One is being sent, two wait.
    assert_eq!(fates, [Fate::Queued, Fate::Queued, Fate::Queued, Fate::Full, Fate::Full]);
    let came: Vec<_> = arrivals(&mut shape).into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(came, [0, 1, 2]);
    assert_eq!(shape.counters().full, Tally { packets: 2, bytes: 2000 });
}

#[test]
fn a_packet_larger_than_the_queue_passes_when_the_link_is_idle() {
    let mut shape = Shape::new(Lane { queue_bytes_max: 100, ..lane(8_000, MS) }, 1);
    assert_eq!(shape.offer(Duration::ZERO, Run::one(1500), 0), Fate::Queued);
    assert_eq!(shape.offer(Duration::ZERO, Run::one(1500), 1), Fate::Full);
}

#[test]
fn loss_comes_out_about_right_and_costs_the_link_its_time() {
    let mut shape =
        Shape::new(Lane { loss: 0.1, queue_bytes_max: usize::MAX, ..lane(8_000_000, MS) }, 42);
    for packet in 0..10_000 {
        shape.offer(Duration::ZERO, Run::one(1000), packet);
    }
    let came = arrivals(&mut shape);
    let counters = shape.counters();
    assert!((850..1150).contains(&counters.lost.packets), "{counters:?}");
    assert_eq!(counters.carried.packets, 10_000);
    assert_eq!(counters.delivered.packets + counters.lost.packets, 10_000);
    // 10,000 packets of one millisecond each: those that were lost took theirs.
    assert!(came.last().unwrap().0 > 9_900 * MS);
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    let run = |seed| {
        let mut shape = Shape::new(Lane { loss: 0.3, ..lane(8_000_000, MS) }, seed);
        (0..10).for_each(|packet| _ = shape.offer(Duration::ZERO, Run::one(100), packet));
        arrivals(&mut shape)
    };
    assert_eq!(run(1), run(1));
    assert!((2..10).any(|seed| run(seed) != run(1)));
}

#[test]
fn a_cut_loses_what_is_on_the_link_and_lets_nothing_in() {
    let mut shape = Shape::new(lane(8_000, 500 * MS), 1);
    (0..3).for_each(|packet| _ = shape.offer(Duration::ZERO, Run::one(1000), packet));
    // The first is flying, the second being sent, the third waiting.
    assert_eq!(shape.due(1200 * MS), None);
    shape.cut();
    assert!(shape.is_cut());
    assert_eq!(shape.offer(1300 * MS, Run::one(1000), 3), Fate::Cut);
    assert_eq!(arrivals(&mut shape), []);
    assert_eq!(shape.counters().cut.packets, 4);
    shape.restore(2000 * MS);
    assert_eq!(shape.offer(2000 * MS, Run::one(1000), 4), Fate::Queued);
    assert_eq!(arrivals(&mut shape), [(3500 * MS, 4)]);
}

#[test]
fn a_new_rate_holds_from_the_next_packet_on() {
    let mut shape = Shape::new(lane(8_000, Duration::ZERO), 1);
    (0..3).for_each(|packet| _ = shape.offer(Duration::ZERO, Run::one(1000), packet));
    shape.set_lane(500 * MS, lane(8_000_000, Duration::ZERO));
    assert_eq!(arrivals(&mut shape), [(1000 * MS, 0), (1001 * MS, 1), (1002 * MS, 2)]);
}

#[test]
fn counters_start_again() {
    let mut shape = Shape::new(lane(8_000, Duration::ZERO), 1);
    shape.offer(Duration::ZERO, Run::one(1000), 0);
    arrivals(&mut shape);
    shape.reset_counters();
    assert_eq!(shape.counters(), Counters::default());
}

proptest! {
    #[test]
    fn prop_every_packet_is_accounted_for_and_none_overtakes(
        steps in proptest::collection::vec((0u64..20, 1usize..2000, 0u8..20), 1..200),
        loss in 0.0f64..0.5,
        jitter in 0u64..50,
        rate in 1_000u64..10_000_000,
    ) {
        let jitter = jitter as u32 * MS;
        let mut shape =
            Shape::new(Lane { loss, jitter, ..lane(rate, 5 * MS) }, 7);
        let (mut now, mut offered, mut came) = (Duration::ZERO, 0u32, Vec::new());
        for (wait, bytes, event) in steps {
            now += wait as u32 * MS;
            came.extend(std::iter::from_fn(|| shape.due(now)));
            match event {
                0 => shape.cut(),
                1 | 2 if shape.is_cut() => shape.restore(now),
                _ => {
                    shape.offer(now, Run::one(bytes), offered);
                    offered += 1;
                }
            }
        }
        came.extend(arrivals(&mut shape).into_iter().map(|(_, packet)| packet));
        prop_assert!(came.is_sorted());
        let c = shape.counters();
        let known = [c.delivered, c.full, c.lost, c.cut].iter().map(|tally| tally.packets).sum::<u64>();
        prop_assert_eq!(known, u64::from(offered));
        prop_assert_eq!(c.delivered.packets as usize, came.len());
    }

    #[test]
    fn prop_no_more_is_carried_than_the_rate_allows(
        packets in proptest::collection::vec((0u64..5, 1usize..2000), 1..300),
        rate in 1_000u64..100_000_000,
    ) {
        let mut shape = Shape::new(
            Lane { queue_bytes_max: usize::MAX, ..lane(rate, Duration::ZERO) }, 1);
        let mut now = Duration::ZERO;
        for (number, (wait, bytes)) in packets.into_iter().enumerate() {
            now += wait as u32 * MS;
            shape.offer(now, Run::one(bytes), number as u32);
            while shape.due(now).is_some() {}
            let allowed = now.as_secs_f64() * rate as f64 / 8.0;
            prop_assert!(shape.counters().carried.bytes as f64 <= allowed + 1.0);
        }
    }
}
