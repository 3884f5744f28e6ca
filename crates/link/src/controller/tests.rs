//! The state machine against a bottleneck in plain arithmetic: packets queue before a link of a
//! given rate, travel, and are acknowledged one by one.

use super::*;
use std::collections::VecDeque;
use world::Entropy;

const PACKET: u64 = 1_200;

/// A path. Times in seconds, rates in bytes a second.
#[derive(Clone, Copy)]
struct Path {
    rate: f64,
    round_trip: f64,
    /// Bytes that wait before the link at most; what comes then is dropped.
    queue_most: f64,
    /// One packet in so many is lost by chance.
    loss: Option<u64>,
}

/// What came of it, after the time that was given to settle.
#[derive(Debug)]
struct Outcome {
    /// Share of the link's rate that was delivered.
    used: f64,
    /// Mean of the time that packets waited before the link, in seconds.
    queued_mean: f64,
    lost_share: f64,
}

struct Flight {
    sent: f64,
    queued: f64,
    acknowledged: f64,
    lost: bool,
}

/// Sends as much as `delay` allows for `seconds`, and looks at what happens after `settle`.
fn run(delay: &mut Delay, start: Instant, path: Path, settle: f64, seconds: f64) -> Outcome {
    run_with(PACKET, delay, start, path, settle, seconds)
}

/// The same with packets of `size` bytes, before each of which there is room for the longest.
fn run_with(
    size: u64,
    delay: &mut Delay,
    start: Instant,
    path: Path,
    settle: f64,
    seconds: f64,
) -> Outcome {
    let at = |time: f64| start + Duration::from_secs_f64(time);
    let chance = Entropy::seeded(3);
    let mut flights: VecDeque<Flight> = VecDeque::new();
    let (mut time, mut link_free, mut under_way) = (0.0_f64, 0.0_f64, 0);
    let (mut delivered, mut lost, mut queued) = (0_u64, 0_u64, 0.0);
    while time < seconds {
        while under_way + PACKET <= delay.window() {
            let waits = (link_free - time).max(0.0);
            let dropped = waits * path.rate > path.queue_most
                || path.loss.is_some_and(|one_in| chance.below(one_in) == 0);
            if !dropped {
                link_free = link_free.max(time) + size as f64 / path.rate;
            }
            flights.push_back(Flight {
                sent: time,
                queued: waits,
                acknowledged: link_free.max(time) + path.round_trip,
                lost: dropped,
            });
            under_way += size;
        }
        // A lost packet is known to be lost when what was sent after it has been acknowledged,
        // which is about when its own acknowledgement would have come.
        let flight = flights.pop_front().expect("the window is never below a packet");
        time = time.max(flight.acknowledged);
        under_way -= size;
        let counts = time >= settle;
        if flight.lost {
            lost += u64::from(counts);
            delay.lost(size);
            continue;
        }
        delay.acked(at(time), at(flight.sent), size, true);
        if counts {
            delivered += 1;
            queued += flight.queued;
        }
    }
    Outcome {
        used: (delivered * size) as f64 / path.rate / (time - settle),
        queued_mean: queued / delivered.max(1) as f64,
        lost_share: lost as f64 / (lost + delivered).max(1) as f64,
    }
}

fn fresh() -> (Delay, Instant) {
    let now = Instant::now();
    (Delay::new(now, 1_200), now)
}

fn bits(per_second: f64) -> f64 {
    per_second / 8.0
}

fn deep(rate: f64, round_trip: f64) -> Path {
    Path { rate, round_trip, queue_most: rate * 5.0, loss: None }
}

#[test]
fn the_window_begins_small_and_never_gets_below_two_packets() {
    let (mut delay, now) = fresh();
    assert_eq!(delay.window(), 4 * PACKET);
    delay.all_lost(now);
    assert_eq!(delay.window(), 2 * PACKET);
}

#[test]
fn bulk_fills_links_of_every_speed_and_the_queue_stays_near_the_target() {
    for (name, rate, round_trip, settle, seconds) in [
        ("9.6 kb/s", bits(9.6e3), 0.2, 60.0, 400.0),
        ("64 kb/s", bits(64e3), 0.2, 30.0, 300.0),
        ("256 kb/s", bits(256e3), 0.05, 20.0, 200.0),
        ("1 Mb/s", bits(1e6), 0.1, 10.0, 200.0),
        ("satellite 10 Mb/s", bits(10e6), 0.6, 20.0, 120.0),
        ("100 Mb/s", bits(100e6), 0.02, 5.0, 60.0),
        ("1 Gb/s", bits(1e9), 0.05, 3.0, 15.0),
    ] {
        let (mut delay, start) = fresh();
        let outcome = run(&mut delay, start, deep(rate, round_trip), settle, seconds);
        assert!(outcome.used >= 0.85, "{name}: {outcome:?}");
        // On the slowest links there is a packet more: the window is never less than two.
        let target = (round_trip / 2.0).clamp(0.010, 0.250) + PACKET as f64 / rate;
        assert!(outcome.queued_mean <= target * 1.25, "{name}: {outcome:?}, target {target}");
    }
}

#[test]
fn short_packets_wait_less_and_fill_a_slow_link_all_the_same() {
    for (name, rate, size) in [("57.6 kb/s", bits(57.6e3), 560), ("128 kb/s", bits(128e3), 1_060)] {
        let outcome = |size| {
            let (mut delay, start) = fresh();
            run_with(size, &mut delay, start, deep(rate, 0.2), 60.0, 400.0)
        };
        let (short, long) = (outcome(size), outcome(PACKET));
        assert!(short.used >= 0.85, "{name}: {short:?}");
        assert!(short.queued_mean < long.queued_mean, "{name}: {short:?}, {long:?}");
        // What waits is less than two of them.
        assert!(short.queued_mean < 2.0 * size as f64 / rate, "{name}: {short:?}");
    }
}

#[test]
fn a_fast_near_link_is_not_held_back() {
    // Loopback: what limits it is the processor, here 4 Gb/s.
    let (mut delay, start) = fresh();
    let path = Path { rate: bits(4e9), round_trip: 0.000_1, queue_most: 4e6, loss: None };
    let outcome = run(&mut delay, start, path, 0.2, 1.0);
    assert!(outcome.used >= 0.95, "{outcome:?}");
    assert!(outcome.lost_share < 0.02, "{outcome:?}");
}

#[test]
fn a_long_link_with_random_loss_is_used_all_the_same() {
    let (mut delay, start) = fresh();
    let path = Path { loss: Some(100), ..deep(bits(10e6), 0.6) };
    let outcome = run(&mut delay, start, path, 30.0, 120.0);
    assert!(outcome.used >= 0.85, "{outcome:?}");
    assert!(outcome.lost_share < 0.02, "{outcome:?}");
}

#[test]
fn a_queue_too_short_for_the_target_is_noticed_by_its_losses() {
    let (mut delay, start) = fresh();
    // A fifth of the round trip: the target is never reached.
    let path = Path { queue_most: bits(10e6) * 0.02, ..deep(bits(10e6), 0.1) };
    let outcome = run(&mut delay, start, path, 10.0, 120.0);
    assert!(outcome.used >= 0.85, "{outcome:?}");
    assert!(outcome.lost_share < 0.03, "{outcome:?}");
}

#[test]
fn a_full_queue_of_somebody_else_drives_the_window_down() {
    let (mut delay, start) = fresh();
    let at = |millis: u64| start + Duration::from_millis(millis);
    // An empty path of 100 ms first, then one on which 900 ms of others' packets wait.
    let mut now = 0;
    for _ in 0..50 {
        now += 100;
        delay.acked(at(now), at(now - 100), PACKET, true);
    }
    assert!(delay.window() > 10 * PACKET);
    now += 1_000;
    for _ in 0..20 {
        now += 1_000;
        delay.acked(at(now), at(now - 1_000), PACKET, true);
    }
    assert_eq!(delay.window(), 2 * PACKET);
}

#[test]
fn a_path_that_becomes_longer_is_learned() {
    let (mut delay, start) = fresh();
    let near = deep(bits(10e6), 0.02);
    run(&mut delay, start, near, 1.0, 20.0);
    let far = deep(bits(10e6), 0.3);
    let outcome = run(&mut delay, start + Duration::from_secs(25), far, 90.0, 150.0);
    assert!(outcome.used >= 0.85, "{outcome:?}");
}

#[test]
fn a_queue_of_our_own_making_is_never_taken_for_the_length_of_the_path() {
    let (mut delay, start) = fresh();
    let path = deep(bits(2e6), 0.1);
    // Longer than all that is remembered of the path, several times.
    let outcome = run(&mut delay, start, path, 600.0, 1_200.0);
    assert!(outcome.queued_mean <= 0.05 * 1.5, "{outcome:?}");
    assert!(outcome.used >= 0.85, "{outcome:?}");
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let (mut delay, start) = fresh();
    for millis in 1..2_000 {
        let sent = start + Duration::from_millis(millis);
        delay.acked(sent + Duration::from_millis(20), sent, PACKET, false);
    }
    assert_eq!(delay.window(), 4 * PACKET);
}

#[test]
fn no_window_is_beyond_its_bounds_whatever_is_told() {
    let chance = Entropy::seeded(11);
    let (mut delay, start) = fresh();
    let mut now = start;
    for _ in 0..200_000 {
        now += Duration::from_micros(chance.below(5_000));
        match chance.below(100) {
            0 => delay.lost(PACKET * chance.below(20)),
            1 => delay.marked(),
            2 => delay.all_lost(now),
            _ => {
                let sent = start + (now - start).mul_f64(chance.below(1_000) as f64 / 1_000.0);
                delay.acked(now, sent, PACKET, chance.below(2) == 0);
            }
        }
        assert!((PACKET..=WINDOW_MOST as u64).contains(&delay.window()));
    }
}
