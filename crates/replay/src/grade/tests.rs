use super::*;
use crate::trace::{Link, Trace};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn figures(millis: u64, rate: Option<u64>, loss: Option<f64>) -> Figures {
    Figures { delay: Some(Duration::from_millis(millis)), rate, loss }
}

#[test]
fn a_link_is_good_when_nothing_about_it_is_bad() {
    let kib = |rate: u64| Some(rate << 10);
    for (said, link) in [
        (Some(Grade::Good), figures(1, None, None)),
        (Some(Grade::Good), figures(8, kib(128), Some(0.02))),
        (Some(Grade::Poor), figures(12, kib(9_000), Some(0.0))),
        (Some(Grade::Poor), figures(1, kib(60), Some(0.0))),
        (Some(Grade::Poor), figures(1, kib(9_000), Some(0.05))),
        (None, figures(10, None, None)),
        (None, figures(1, kib(100), None)),
        (None, figures(1, None, Some(0.03))),
        (None, Figures::default()),
    ] {
        assert_eq!(grade_of(&link), said, "{link}");
        assert_eq!(lack_of(&link).is_some(), said == Some(Grade::Poor), "{link}");
    }
    assert_eq!(lack_of(&figures(1, Some(1_000), None)), Some(Lack::Rate));
    assert_eq!(lack_of(&figures(1, None, Some(0.3))), Some(Lack::Loss));
}

#[test]
fn a_return_waits_longer_each_time() {
    let secs = |returns| stay(Grade::Good, returns).as_secs();
    assert_eq!([secs(0), secs(1), secs(3), secs(7), secs(1_000)], [5, 10, 40, 600, 600]);
    assert_eq!(stay(Grade::Poor, 1_000), STAY_LEAST);
}

#[test]
fn what_the_first_samples_say_is_gone_by_at_once() {
    let mut judged = Judged::default();
    let mut quality = LinkQuality::default();
    let mut look = |judged: &mut Judged, at: u32, millis: u64| {
        quality.round_trip_lately = Some(Duration::from_millis(millis));
        quality.counts.round_trips += 100;
        judged.look(&quality, SECOND * at);
        judged.grade()
    };
    // A handshake on a machine that is busy.
    assert_eq!(look(&mut judged, 1, 15), Some(Grade::Poor));
    assert_eq!(look(&mut judged, 2, 1), Some(Grade::Good));
    assert_eq!(look(&mut judged, 3, 90), Some(Grade::Good));
    // The next session is taken to be over the same link until it has been measured.
    judged.begin_session();
    for at in 10..14 {
        assert_eq!(look(&mut judged, at, 60), Some(Grade::Good));
    }
    assert_eq!(look(&mut judged, 14, 60), Some(Grade::Poor));
}

/// The changes of grade, with the seconds at which they were made, over what a trace is like.
fn changes(trace: &mut Trace, parts: &[(u64, Link)]) -> Vec<(u64, Grade)> {
    let mut judged = Judged::default();
    let mut changes = Vec::new();
    let mut at = 0;
    for (secs, link) in parts {
        for _ in 0..*secs {
            at += 1;
            trace.second(link);
            let before = judged.grade();
            judged.look(&trace.quality, SECOND * u32::try_from(at).unwrap());
            if judged.grade() != before {
                changes.push((at, judged.grade().unwrap()));
            }
        }
    }
    changes
}

/// Of each of many seeds, from its first second on a good link.
fn after_a_good_minute(parts: &[(u64, Link)]) -> Vec<Vec<(u64, Grade)>> {
    (0..50)
        .map(|seed| {
            let parts: Vec<_> = [(60, Link::CABLE)].iter().chain(parts).copied().collect();
            let mut changes = changes(&mut Trace::new(seed), &parts);
            assert_eq!(changes.remove(0), (1, Grade::Good), "seed {seed}");
            changes
        })
        .collect()
}

#[test]
fn a_step_in_delay_rate_or_loss_is_followed_within_a_few_samples() {
    let steps = [
        ("delay", Link { delay_ms: 60.0, ..Link::CABLE }),
        ("rate", Link { rate: 20_000.0, ..Link::CABLE }),
        ("loss", Link { loss: 0.15, ..Link::CABLE }),
        ("all", Link::TELEPHONE),
    ];
    for (what, link) in steps {
        for changes in after_a_good_minute(&[(30, link), (60, Link::CABLE)]) {
            let [(poor, Grade::Poor), (good, Grade::Good)] = changes[..] else {
                panic!("{what}: {changes:?}");
            };
            assert!((61..=66).contains(&poor), "{what}: poor at {poor}");
            // Loss and rate are taken for gone when some samples have said so.
            assert!((91..=115).contains(&good), "{what}: good at {good}");
        }
    }
}

#[test]
fn noise_does_not_change_the_grade() {
    for changes in after_a_good_minute(&[(3600, Link::CABLE)]) {
        assert!(changes.is_empty(), "{changes:?}");
    }
    // In fifty hours over the air it comes about by chance that three seconds in a row are late.
    let hours = after_a_good_minute(&[(3600, Link::RADIO)]);
    let changed: Vec<_> = hours.into_iter().filter(|changes| !changes.is_empty()).collect();
    assert!(changed.len() <= 4, "{changed:?}");
    assert!(changed.iter().all(|changes| changes.len() == 2), "{changed:?}");
    for seed in 0..50 {
        let changes = changes(&mut Trace::new(seed), &[(3600, Link::TELEPHONE)]);
        assert_eq!(changes, [(1, Grade::Poor)], "seed {seed}");
    }
}

#[test]
fn single_samples_out_of_the_way_change_nothing() {
    let bad = [
        Link { delay_ms: 900.0, ..Link::CABLE },
        Link { rate: 500.0, ..Link::CABLE },
        Link { loss: 0.9, ..Link::CABLE },
    ];
    for link in bad {
        let parts: Vec<_> = (0..60).flat_map(|_| [(1, link), (29, Link::CABLE)]).collect();
        for changes in after_a_good_minute(&parts) {
            assert!(changes.is_empty(), "{link:?}: {changes:?}");
        }
    }
}

/// What comes of a link that is made to be as bad for the grade as can be.
#[test]
fn a_link_at_the_edge_changes_its_grade_a_few_times_an_hour() {
    let edge = Link { delay_ms: 9.8, jitter: 0.5, ..Link::RADIO };
    for seed in 0..20 {
        let changes = changes(&mut Trace::new(seed), &[(3 * 3600, edge)]);
        assert!(changes.len() <= 1 + 3 * 2 * RETURNS_A_WHILE_MAX, "{changes:?}");
    }
}

proptest! {
    /// Whatever the figures do, also with no filter before them.
    #[test]
    fn prop_a_grade_does_not_flap(said in prop::collection::vec((1_u64..60, 0..3), 1..600)) {
        let (mut grading, mut at) = (Grading::default(), 0);
        let mut returns: Vec<u64> = Vec::new();
        for (secs, said) in said {
            let said = [None, Some(Grade::Good), Some(Grade::Poor)][said as usize];
            for _ in 0..secs {
                at += 1;
                let before = grading.grade;
                grading.judge(said, Duration::from_secs(at));
                if before == Some(Grade::Poor) && grading.grade == Some(Grade::Good) {
                    returns.push(at);
                }
            }
        }
        for (number, last) in returns.iter().enumerate() {
            let within = returns[..=number].iter().filter(|at| last - *at < WHILE.as_secs()).count();
            prop_assert!(within <= RETURNS_A_WHILE_MAX, "{within} in one while: {returns:?}");
        }
    }
}
