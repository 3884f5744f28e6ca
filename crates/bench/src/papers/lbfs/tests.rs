use super::*;

fn measured(
    figure: Figure,
    workload: &str,
    system: System,
    x: f64,
    unfinished: Option<Unfinished>,
) -> Measured {
    let sample = Sample {
        workload: workload.into(),
        phase: "phase".into(),
        system: system.name().into(),
        run: 0,
        seconds: 1.5,
        close_seconds: None,
        home_seconds: 30.0,
        up_bytes: 12_000,
        down_bytes: 1_000,
        unfinished,
        failed: None,
    };
    let (workload, system) = (workload.into(), system.name().into());
    Measured { figure, workload, system, link: "a link".into(), x, sample }
}

fn report(measured: Vec<Measured>) -> Report {
    Report {
        date: "2026-01-01".into(),
        machine: Machine::this(Path::new("/")),
        systems: vec!["farfs 1".into()],
        link: "slow".into(),
        measured,
    }
}

#[test]
fn tables_have_a_row_for_each_system_and_each_value() {
    let late = Some(Unfinished::Home);
    let report = report(vec![
        measured(Figure::Systems, "save text", System::Farfs, 0.0, None),
        measured(Figure::Systems, "save text", System::Sshfs, 0.0, late),
        measured(Figure::Rates, "recompile", System::Farfs, 128.0, None),
        measured(Figure::Rates, "recompile", System::SshfsC, 128.0, late),
        measured(Figure::Rates, "recompile", System::Farfs, 2000.0, None),
    ]);
    let text = words::markdown(&report, "base");
    assert!(text.contains("| farfs | 1.50 s |  | 30.0 s | 12 kB | 1000 B |"), "{text}");
    assert!(text.contains("| sshfs | 1.50 s |  | > 30.0 s |"), "{text}");
    let row = "| 128 kb/s | 30.0 s, 13 kB |  |  | > 30.0 s, > 13 kB |";
    assert!(text.contains(row), "{text}");
    assert!(text.contains("| 2 Mb/s | 30.0 s, 13 kB |"), "{text}");
    for (name, _) in report.plots() {
        assert!(text.contains(&format!("(base-{name}.svg)")), "{name} is not shown");
    }
}

#[test]
fn what_failed_is_said_and_not_drawn() {
    let mut one = measured(Figure::Systems, "recompile", System::Farfs, 0.0, None);
    one.sample.failed = Some("it\nbroke".into());
    let report = report(vec![one]);
    let text = words::markdown(&report, "base");
    assert!(text.contains("| farfs | failed |") && text.contains("a link: it broke"), "{text}");
    let (_, bars) = report.plots().next().unwrap();
    assert!(!bars.contains("13 kB"), "{bars}");
}

#[test]
fn figures_of_the_same_day_stand_together_and_the_newer_replaces_its_like() {
    let old = report(vec![
        measured(Figure::Rates, "recompile", System::Farfs, 128.0, None),
        measured(Figure::Systems, "recompile", System::Farfs, 0.0, None),
    ]);
    let new = report(vec![measured(Figure::Rates, "recompile", System::Farfs, 64.0, None)]);
    let text = serde_json::to_string(&old).unwrap();
    let both = new.after(serde_json::from_str(&text).unwrap());
    let found: Vec<_> = both.measured.iter().map(|one| (one.figure, one.x)).collect();
    assert_eq!(found, [(Figure::Systems, 0.0), (Figure::Rates, 64.0)]);
}
