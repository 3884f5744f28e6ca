//! What the tests of a suite come to on the disk and on mounts, and what of it is worse here.

use super::Section;
use crate::process::{TooLong, end_within, tail};
use crate::table::seconds;
use anyhow::{Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Skipped => "skipped",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub outcome: Outcome,
    /// Why, if it did not pass.
    pub said: String,
}

impl Case {
    pub fn passed() -> Self {
        Self { outcome: Outcome::Passed, said: String::new() }
    }

    pub fn failed(said: impl Into<String>) -> Self {
        Self { outcome: Outcome::Failed, said: said.into() }
    }

    /// By how a program ends. That it takes too long is a failure too: a mount may not hang.
    pub fn of(command: &mut Command, log: &Path, limit: Duration) -> Result<Self> {
        match end_within(command, log, limit) {
            Ok(status) if status.success() => Ok(Self::passed()),
            Ok(status) => Ok(Self::failed(format!("{status}: {}", last_words(&tail(log))))),
            Err(error) if error.is::<TooLong>() => Ok(Self::failed(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

/// By name.
pub type Cases = BTreeMap<String, Case>;

/// What each file system came to, the disk first, and the seconds that it took.
pub type Ran = Vec<(String, (Cases, f64))>;

/// What does not pass here, or not always, and why.
pub type Explained = [(&'static str, &'static str)];

/// Of what a program printed, so many lines say why it failed.
const LINES_MAX: usize = 3;

fn last_words(printed: &str) -> String {
    let lines: Vec<_> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("; ")
}

/// The table of a suite, with what is worse than on the disk.
/// What passes nothing even on the disk was not run, and says nothing of a mount.
pub fn section(title: &str, ran: &Ran, explained: &Explained) -> Result<Section> {
    let mut section = Section::new(title, &["file system", "passed", "failed", "skipped", "time"]);
    let Some((_, (disk, _))) = ran.first() else { return Ok(section) };
    let passes = disk.values().any(|case| case.outcome == Outcome::Passed);
    ensure!(passes, "{title} passes nothing on the disk: {}", not_passed(disk).join("; "));
    for (name, (cases, secs)) in ran {
        let count =
            |wanted| cases.values().filter(|case| case.outcome == wanted).count().to_string();
        let counts = [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(count);
        section.row(std::iter::once(name.clone()).chain(counts).chain([seconds(*secs)]));
        for (test, case) in worse(disk, cases) {
            let said = format!("{test}, on {name}: {}", case.said);
            match explained.iter().find(|(known, _)| *known == test) {
                Some((_, why)) => section.exceptions.push(format!("{said}: {why}")),
                None => section.worse.push(said),
            }
        }
    }
    section.exceptions.extend(not_passed(disk));
    Ok(section)
}

/// The name of every test, together with those that came to the same on each file system.
pub fn by_outcome(ran: &Ran) -> String {
    let names: BTreeSet<&String> = ran.iter().flat_map(|(_, (cases, _))| cases.keys()).collect();
    let mut groups = BTreeMap::<Vec<Option<Outcome>>, Vec<&str>>::new();
    for name in names {
        let outcome = |(_, (cases, _)): &(String, (Cases, f64))| Some(cases.get(name)?.outcome);
        groups.entry(ran.iter().map(outcome).collect()).or_default().push(name);
    }
    let group = |(outcomes, tests): (Vec<Option<Outcome>>, Vec<&str>)| {
        let word = |outcome: &Option<Outcome>| outcome.map_or("not run", Outcome::word);
        let places = ran.iter().map(|(place, _)| place).zip(&outcomes);
        let heading: Vec<String> =
            places.map(|(place, outcome)| format!("{} on {place}", word(outcome))).collect();
        let heading = heading.join("; ");
        format!("\n\n- {heading} ({}): {}.", tests.len(), tests.join(", "))
    };
    format!("Every test:{}", groups.into_iter().map(group).collect::<String>())
}

/// What does not pass even on the disk, by reason.
fn not_passed(disk: &Cases) -> Vec<String> {
    let mut reasons = BTreeMap::<&str, Vec<&str>>::new();
    for (test, case) in disk.iter().filter(|(_, case)| case.outcome != Outcome::Passed) {
        reasons.entry(&case.said).or_default().push(test);
    }
    let line = |(why, tests): (&str, Vec<&str>)| format!("on none: {} ({why})", tests.join(", "));
    reasons.into_iter().map(line).collect()
}

/// What the disk passes, or has none of, and another place fails or cannot even run.
fn worse<'a>(disk: &Cases, there: &'a Cases) -> Vec<(&'a str, &'a Case)> {
    let passes = |case: &Case| case.outcome == Outcome::Passed;
    let differs =
        |(name, case): &(&String, &Case)| !passes(case) && disk.get(*name).is_none_or(passes);
    there.iter().filter(differs).map(|(name, case)| (name.as_str(), case)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(of: &[(&str, Outcome, &str)]) -> Cases {
        let case = |outcome, said: &str| Case { outcome, said: said.into() };
        of.iter().map(|(name, outcome, said)| ((*name).into(), case(*outcome, said))).collect()
    }

    #[test]
    fn only_what_the_disk_passes_is_worse_elsewhere() {
        let there = cases(&[
            ("a", Outcome::Failed, "no"),
            ("b", Outcome::Skipped, "none"),
            ("c", Outcome::Passed, ""),
            ("d", Outcome::Failed, "known"),
        ]);
        let disk = cases(&[
            ("a", Outcome::Passed, ""),
            ("b", Outcome::Skipped, "none"),
            ("c", Outcome::Passed, ""),
            ("d", Outcome::Passed, ""),
        ]);
        let found = worse(&disk, &there);
        assert_eq!(found.iter().map(|(test, _)| *test).collect::<Vec<_>>(), ["a", "d"]);
        assert!(worse(&there, &there).is_empty());
        // What the disk runs must be run.
        let disk_runs = cases(&[("a", Outcome::Failed, ""), ("b", Outcome::Passed, "")]);
        assert_eq!(worse(&disk_runs, &there)[0].0, "b");
        // A mount that is killed is a test for which there is nothing on the disk.
        assert_eq!(worse(&Cases::new(), &there).len(), 3);
        let ran = vec![("disk".to_owned(), (disk, 1.0)), ("mount".to_owned(), (there, 1.0))];
        let section = section("x 1", &ran, &[("d", "it must")]).unwrap();
        assert_eq!(section.worse, ["a, on mount: no"]);
        let nothing = cases(&[("a", Outcome::Failed, "no")]);
        assert!(super::section("x 1", &vec![("disk".into(), (nothing, 1.0))], &[]).is_err());
        assert_eq!(section.exceptions, ["d, on mount: known: it must", "on none: b (none)"]);
    }

    #[test]
    fn every_test_is_listed_once_beside_those_that_came_to_the_same() {
        use Outcome::{Failed, Passed};
        let disk = cases(&[("a", Passed, ""), ("b", Passed, ""), ("c", Passed, "")]);
        let mount = cases(&[("a", Passed, ""), ("b", Failed, "no"), ("d", Passed, "")]);
        let ran = vec![("ext4".into(), (disk, 1.0)), ("mount".into(), (mount, 1.0))];
        let lines: Vec<_> =
            ["d", "a", "b", "c"].iter().map(|test| format!(" (1): {test}.")).collect();
        let told = by_outcome(&ran);
        assert!(lines.iter().all(|line| told.matches(line.as_str()).count() == 1), "{told}");
        assert!(told.contains("- passed on ext4; failed on mount (1): b."), "{told}");
        assert!(told.contains("- not run on ext4; passed on mount (1): d."), "{told}");
        assert!(told.contains("- passed on ext4; not run on mount (1): c."), "{told}");
    }

    #[test]
    fn what_does_not_pass_on_the_disk_is_told_by_reason() {
        let disk = cases(&[
            ("a", Outcome::Skipped, "no"),
            ("b", Outcome::Failed, "never"),
            ("c", Outcome::Skipped, "no"),
            ("d", Outcome::Passed, ""),
        ]);
        assert_eq!(not_passed(&disk), ["on none: b (never)", "on none: a, c (no)"]);
    }

    #[test]
    fn who_fails_is_quoted_and_who_takes_too_long_has_failed() {
        let log = std::env::temp_dir().join(format!("bench-cases-{}", std::process::id()));
        let run = |script: &str, limit| {
            Case::of(Command::new("sh").args(["-c", script]), &log, limit).unwrap()
        };
        let long = Duration::from_secs(1000);
        assert_eq!(run("exit 0", long), Case::passed());
        let said = run("for i in 1 2 3 4; do echo $i; done; exit 3", long).said;
        assert!(said.ends_with(": 2; 3; 4"), "{said}");
        assert_eq!(run("exec sleep 1000", Duration::ZERO).outcome, Outcome::Failed);
        std::fs::remove_file(log).unwrap();
    }
}
