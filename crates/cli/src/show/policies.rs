//! Policies, and what is not current under them, in words.

use crate::output::name;
use crate::units::{show_secs, show_size};
use client::{Consistency, PolicyReport, PolicyShown, StaleShown};
use std::fmt::Write;

/// What counts for one file.
pub fn policy(policy: &PolicyShown, path: &str) -> String {
    format!("{}: {}\n", name(path), said(policy))
}

pub fn policies(report: &PolicyReport) -> String {
    if report.policies.is_empty() {
        return "There are no policies: everything is strict.\n".into();
    }
    let mut text = String::new();
    for policy in &report.policies {
        let path = named(policy.path.as_deref(), policy.file);
        let removed = if policy.removed { "; removed, and waits for the name" } else { "" };
        let _ = writeln!(text, "{path}: {}{removed}", said(policy));
    }
    text
}

pub fn stale(report: &PolicyReport) -> String {
    if report.stale.is_empty() {
        return "All that is cached is current, as far as is known.\n".into();
    }
    report.stale.iter().map(|stale| format!("{}\n", line(stale))).collect()
}

fn line(stale: &StaleShown) -> String {
    let mut line = named(stale.path.as_deref(), stale.file);
    let what = match (stale.size, stale.replaced) {
        (Some(size), false) => format!("changed elsewhere, {} now", show_size(size)),
        (Some(size), true) => format!("replaced elsewhere, {} now", show_size(size)),
        (None, _) => "changed elsewhere".into(),
    };
    let _ = write!(line, ": {what}; ");
    let _ = match stale.age_secs {
        Some(secs) => write!(line, "was current {} ago", show_secs(secs)),
        None => write!(line, "nobody knows when it was current"),
    };
    let _ = match (stale.coming, stale.consistency) {
        (true, _) => write!(line, "; it is on its way"),
        (false, Consistency::Manual) => write!(line, "; comes with `farfs refresh`"),
        (false, Consistency::Bounded(secs)) => {
            write!(line, "; shows for {} at most", show_secs(u64::from(secs)))
        }
        (false, Consistency::Strict) => Ok(()),
    };
    line
}

fn said(policy: &PolicyShown) -> String {
    let consistency = policy.consistency.map(|consistency| consistency.to_string());
    let ask_above = policy.ask_above.map(|secs| match secs {
        0 => "fetches whatever it takes".to_owned(),
        secs => format!("asks before it fetches for more than {}", show_secs(u64::from(secs))),
    });
    [consistency, ask_above].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn named(path: Option<&str>, file: u64) -> String {
    match path {
        Some("") => "the whole volume".into(),
        Some(path) => name(path).into_owned(),
        None => format!("file {file}, which has no name that is known here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_told_a_line_each() {
        let of = |path: &str, consistency, ask_above| PolicyShown {
            file: 7,
            path: Some(path.into()),
            consistency,
            ask_above,
            removed: false,
        };
        let report = PolicyReport {
            policies: vec![
                of("", Some(Consistency::Bounded(300)), Some(30)),
                of("docs", None, Some(0)),
                of("photos", Some(Consistency::Manual), None),
            ],
            stale: Vec::new(),
        };
        let expected = "\
the whole volume: bounded 300, asks before it fetches for more than 30 s
docs: fetches whatever it takes
photos: manual
";
        assert_eq!(policies(&report), expected);
        assert!(policies(&PolicyReport::default()).contains("everything is strict"));
    }

    #[test]
    fn what_is_not_current_is_told_with_its_time() {
        let shown = StaleShown {
            file: 7,
            path: Some("docs/a".into()),
            size: Some(2048),
            age_secs: Some(60),
            consistency: Consistency::Bounded(50),
            replaced: false,
            coming: false,
            no_room: false,
        };
        let manual = StaleShown {
            age_secs: None,
            consistency: Consistency::Manual,
            replaced: true,
            ..shown.clone()
        };
        let coming = StaleShown { coming: true, ..shown.clone() };
        let stale_ones = vec![shown, manual, coming];
        let report = PolicyReport { policies: Vec::new(), stale: stale_ones };
        let expected = "\
docs/a: changed elsewhere, 2.0 KiB now; was current 60 s ago; shows for 50 s at most
docs/a: replaced elsewhere, 2.0 KiB now; nobody knows when it was current; comes with `farfs refresh`
docs/a: changed elsewhere, 2.0 KiB now; was current 60 s ago; it is on its way
";
        assert_eq!(stale(&report), expected);
    }
}
