use super::*;

fn value(part: Part, what: &str, on: &str, run: usize, value: f64) -> Value {
    Value { part, what: what.into(), on: on.into(), run, value, more: false }
}

fn report(values: Vec<Value>) -> Report {
    Report {
        date: "2026-01-01".into(),
        machine: Machine::this(Path::new("/")),
        systems: vec!["farfs 1".into()],
        link: "57.6 kb/s".into(),
        values,
        moments: Vec::new(),
        failures: Vec::new(),
    }
}

fn totals(slow: &[f64]) -> Vec<Value> {
    let mut values = vec![
        value(Part::Andrew, "Total", PARTIAL_FAST.name, 0, 10.0),
        value(Part::Andrew, "Total", EXT4.name, 0, 9.0),
    ];
    let slow = slow.iter().enumerate();
    values.extend(
        slow.map(|(run, &secs)| value(Part::Andrew, "Total", PARTIAL_SLOW.name, run, secs)),
    );
    values
}

#[test]
fn medians_stand_beside_the_papers_values() {
    let mut values = totals(&[10.3, 10.2, 99.0]);
    values.push(value(Part::Calls, "mkdir", PARTIAL_SLOW.name, 0, 81e-6));
    values.push(value(Part::Calls, "mkdir", SSHFS_SLOW.name, 0, 0.41));
    let text = words::markdown(&report(values), "base");
    let row = "| mkdir | 129 ms | 635 ms | 73 ms |  |  | 81 µs |  |  |  | 410.0 ms |";
    assert!(text.contains(row), "{text}");
    let row = "| Total | 200 s | 783 s | 218 s |  |  | 10.30 s | 10.00 s | 9.00 s |  |  |";
    assert!(text.contains(row), "{text}");
    let row = "| Total | 155 s | 165 s | 249 s | 218 s | 152 s | 197 s | 139 s |  |  |  | 10.30 s |  | 9.00 s |";
    assert!(text.contains(row), "{text}");
}

#[test]
fn an_aim_is_met_or_missed_or_was_not_measured() {
    let met = report(totals(&[10.2])).aims().to_markdown();
    assert!(met.contains("against 1 Gb/s | 1.05 times | 1.02 times | met |"), "{met}");
    assert!(met.contains("| the same against ext4 | 1.15 times | 1.13 times | met |"), "{met}");
    assert!(met.contains("replay on against off | 1.05 times |  | not measured |"), "{met}");
    let missed = report(totals(&[10.6])).aims().to_markdown();
    assert!(missed.contains("against 1 Gb/s | 1.05 times | 1.06 times | missed |"), "{missed}");
}

#[test]
fn what_the_clock_adds_to_whole_round_trips_is_none() {
    let coming = |trips: f64| {
        let trips = value(Part::Reconnect, "round trips", aims::COMING, 0, trips);
        report(vec![trips]).aims().to_markdown()
    };
    assert!(coming(2.04).contains("round trips | 2.0 | 2.0 | met |"), "{}", coming(2.04));
    assert!(coming(2.06).contains("round trips | 2.0 | 2.1 | missed |"), "{}", coming(2.06));
}

#[test]
fn what_was_given_up_is_more_than_that() {
    let mut total = value(Part::AndrewSlow, "Total", SSHFS_SLOW.name, 0, 300.0);
    total.more = true;
    let text = report(vec![total]).andrew().to_markdown();
    assert!(text.contains("| > 300 s |\n"), "{text}");
}

#[test]
fn what_is_measured_again_replaces_its_part_alone() {
    let mut old = report(vec![
        value(Part::Andrew, "Total", "ext4", 0, 1.0),
        value(Part::Mkdir, "packets", "one mkdir", 0, 4.0),
    ]);
    old.moments.push(Moment { on: PARTIAL_SLOW.name.into(), secs: 1.0, pending: 7 });
    old.failures = vec!["Mkdir: it broke".into(), "Stream: it broke".into()];
    let old = serde_json::from_str(&serde_json::to_string(&old).unwrap()).unwrap();
    let new = report(vec![value(Part::Mkdir, "packets", "one mkdir", 0, 3.0)]);
    let both = new.after(Part::Mkdir, old);
    let values: Vec<_> = both.values.iter().map(|one| (one.part, one.value)).collect();
    assert_eq!(values, [(Part::Andrew, 1.0), (Part::Mkdir, 3.0)]);
    assert_eq!((both.moments.len(), &both.failures[..]), (1, &["Stream: it broke".to_owned()][..]));
    let text = words::markdown(&both, "base");
    assert!(text.contains("(base-log.svg)") && text.contains("- Stream: it broke"), "{text}");
}

#[test]
fn the_log_is_drawn_for_what_was_watched() {
    assert!(log::plot(&[]).is_none());
    let moments = [Moment { on: PARTIAL_SLOW.name.into(), secs: 1.0, pending: 7 }];
    let text = log::plot(&moments).unwrap();
    assert_eq!(text.matches("<polyline").count(), 1, "{text}");
}

#[test]
fn the_papers_rows_add_up_to_its_totals() {
    for column in 0..3 {
        let sum: u32 = andrew::PAPER.iter().map(|row| row[column]).sum();
        // The paper says so itself: it rounds.
        assert!(sum.abs_diff(andrew::PAPER_TOTAL[column]) <= 10, "{column}: {sum}");
    }
    for column in 0..7 {
        let sum: u32 = andrew::PAPER_INTERFERENCE.iter().map(|row| row[column]).sum();
        assert!(sum.abs_diff(andrew::PAPER_INTERFERENCE_TOTAL[column]) <= 10, "{column}: {sum}");
    }
}
