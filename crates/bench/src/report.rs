//! Samples, gathered into tables: in the terminal, in Markdown, and as JSON that keeps every run.

use crate::machine::Machine;
use crate::stage::{Sample, Unfinished};
use crate::table::{Table, bytes, ratio, seconds};
use crate::workload;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Everything that was measured over one profile on one day.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub date: String,
    pub profile: String,
    pub link: String,
    pub machine: Machine,
    /// What was compared, and which version of it.
    pub systems: Vec<String>,
    pub samples: Vec<Sample>,
}

/// One phase on one system: the median of its runs, each number for itself.
struct Row {
    phase: String,
    system: String,
    seconds: f64,
    close_seconds: Option<f64>,
    home_seconds: f64,
    up_bytes: u64,
    down_bytes: u64,
    /// Which of the times are only what was waited.
    more: More,
}

#[derive(Clone, Copy)]
struct More {
    time: bool,
    home: bool,
}

#[rustfmt::skip]
const HEADS: &[&str] = &[
    "phase", "system", "time", "× time", "fsync, close", "at origin", "× at origin", "up", "down",
    "× bytes",
];

impl Report {
    /// One table for each workload, with the system that the others are compared with.
    pub fn tables(&self) -> Vec<(&'static str, Table)> {
        let measured =
            workload::ALL.iter().map(|workload| (workload.name, self.rows(workload.name)));
        measured
            .filter(|(_, rows)| !rows.is_empty())
            .map(|(name, rows)| (name, table(&rows)))
            .collect()
    }

    /// What did not come to its end, and why.
    pub fn failures(&self) -> Vec<String> {
        let failed = self.samples.iter().filter_map(|sample| {
            let Sample { workload, phase, system, failed, .. } = sample;
            let late = sample.unfinished.map(|what| late(what, phase, sample.home_seconds));
            failed.clone().or(late).map(|why| format!("{workload} on {system}: {why}"))
        });
        failed.collect()
    }

    fn rows(&self, workload: &str) -> Vec<Row> {
        let good = |sample: &&Sample| sample.workload == workload && sample.failed.is_none();
        let samples: Vec<_> = self.samples.iter().filter(good).collect();
        let (mut phases, mut systems) = (Vec::new(), Vec::new());
        for sample in &samples {
            if !phases.contains(&&sample.phase) {
                phases.push(&sample.phase);
            }
            if !systems.contains(&&sample.system) {
                systems.push(&sample.system);
            }
        }
        let mut rows = Vec::new();
        for phase in phases {
            for system in &systems {
                let here = |sample: &&&Sample| sample.phase == *phase && sample.system == **system;
                let runs: Vec<_> = samples.iter().filter(here).copied().collect();
                rows.extend(Row::median(&runs));
            }
        }
        rows
    }

    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {} over {}\n\n", self.date, self.profile);
        text += &format!("- Link: {}\n- Machine: {}\n", self.link, self.machine.words());
        for system in &self.systems {
            text += &format!("- {system}\n");
        }
        text += "\nTime is until the last call returned, *at origin* until everything was at the \
                 server, that time included. Up and down are bytes of IP packets until then. \
                 Columns with × say how many times as much it was as on the first system of the \
                 phase. Medians of all runs; each run is in the JSON file beside. Where a time has \
                 a > before it, the phase was ended then, what comes after it in its workload was \
                 not run, and its bytes are those until then. *fsync, close* is the part of the \
                 time that saving spent in these two calls. rsync -z works on a local disk, and \
                 pushes what was done when it is done.\n";
        for (name, table) in self.tables() {
            let about = workload::named(name).map_or("", |workload| workload.about);
            text += &format!("\n## {name}\n\nTo {about}.\n\n{}", table.to_markdown());
        }
        let failures = self.failures();
        if !failures.is_empty() {
            text += "\n## Not finished\n\n";
            text.extend(
                failures.iter().map(|failure| format!("- {}\n", failure.replace('\n', " "))),
            );
        }
        text
    }

    /// Adds to what was measured over this profile today; of what was measured again, the newer
    /// stays. Returns where the Markdown is.
    pub fn save(mut self, directory: &Path) -> Result<PathBuf> {
        let name = format!("{}-{}", self.date, self.profile);
        let (json, markdown) =
            (directory.join(format!("{name}.json")), directory.join(format!("{name}.md")));
        if let Some(old) = fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok())
        {
            self = self.after(old);
        }
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let text = serde_json::to_string_pretty(&self).context("cannot write JSON")? + "\n";
        for (path, text) in [(&json, text), (&markdown, self.to_markdown())] {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(markdown)
    }

    fn after(mut self, old: Report) -> Report {
        let again = |sample: &Sample| {
            let same =
                |new: &&Sample| (&new.workload, &new.system) == (&sample.workload, &sample.system);
            // A failure is that of the whole; else sizes are part of the phases' names.
            self.samples
                .iter()
                .filter(same)
                .any(|new| new.phase == sample.phase || sample.failed.is_some())
        };
        let mut samples: Vec<_> = old.samples.into_iter().filter(|sample| !again(sample)).collect();
        samples.append(&mut self.samples);
        let olds = old.systems.into_iter().filter(|system| !self.systems.contains(system));
        let systems = olds.collect::<Vec<_>>();
        self.systems.extend(systems);
        Report { samples, ..self }
    }
}

impl Row {
    fn median(runs: &[&Sample]) -> Option<Self> {
        let first = runs.first()?;
        let middle = |value: fn(&Sample) -> f64| {
            let mut values: Vec<_> = runs.iter().map(|sample| value(sample)).collect();
            values.sort_by(f64::total_cmp);
            values[(values.len() - 1) / 2]
        };
        Some(Self {
            phase: first.phase.clone(),
            system: first.system.clone(),
            seconds: middle(|sample| sample.seconds),
            close_seconds: first
                .close_seconds
                .map(|_| middle(|sample| sample.close_seconds.unwrap_or(sample.seconds))),
            home_seconds: middle(|sample| sample.home_seconds),
            up_bytes: middle(|sample| sample.up_bytes as f64) as u64,
            down_bytes: middle(|sample| sample.down_bytes as f64) as u64,
            more: More {
                time: middle(|run| f64::from(run.unfinished == Some(Unfinished::Work))) > 0.0,
                home: middle(|run| f64::from(run.unfinished.is_some())) > 0.0,
            },
        })
    }

    fn over_the_link(&self) -> f64 {
        (self.up_bytes + self.down_bytes) as f64
    }
}

fn late(what: Unfinished, phase: &str, secs: f64) -> String {
    match what {
        Unfinished::Work => format!("{phase}: more than {}", seconds(secs)),
        Unfinished::Home => {
            format!("{phase}: more than {} until it is at the origin", seconds(secs))
        }
    }
}

fn more(is_more: bool, value: String) -> String {
    if is_more && !value.is_empty() { format!("> {value}") } else { value }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(2, HEADS);
    for group in rows.chunk_by(|one, other| one.phase == other.phase) {
        let base = &group[0];
        for (number, row) in group.iter().enumerate() {
            let times = |of: fn(&Row) -> f64| match number {
                0 => String::new(),
                _ => ratio(of(row), of(base)),
            };
            let over_the_link = match row.over_the_link() {
                0.0 => String::new(),
                _ => times(Row::over_the_link),
            };
            table.row([
                if number == 0 { row.phase.clone() } else { String::new() },
                row.system.clone(),
                more(row.more.time, seconds(row.seconds)),
                more(row.more.time, times(|row| row.seconds)),
                row.close_seconds.map(seconds).unwrap_or_default(),
                more(row.more.home, seconds(row.home_seconds)),
                more(row.more.home, times(|row| row.home_seconds)),
                more(row.more.home, bytes(row.up_bytes)),
                more(row.more.home, bytes(row.down_bytes)),
                more(row.more.home, over_the_link),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(workload: &str, system: &str, seconds: f64) -> Sample {
        Sample {
            workload: workload.into(),
            phase: "Make".into(),
            system: system.into(),
            run: 0,
            seconds,
            close_seconds: None,
            home_seconds: seconds,
            up_bytes: 1000,
            down_bytes: 0,
            unfinished: None,
            failed: None,
        }
    }

    fn report(samples: Vec<Sample>) -> Report {
        Report {
            date: "2026-01-01".into(),
            profile: "adsl".into(),
            link: "slow".into(),
            machine: Machine::this(Path::new("/")),
            systems: vec!["farfs 0.1".into()],
            samples,
        }
    }

    #[test]
    fn a_row_is_the_median_of_its_runs_and_compared_with_the_first_system() {
        let samples = [("farfs", 3.0), ("farfs", 1.0), ("farfs", 2.0), ("sshfs", 8.0)];
        let samples = samples.map(|(system, seconds)| sample("andrew", system, seconds)).into();
        let text = report(samples).to_markdown();
        assert!(text.contains("| Make | farfs | 2.00 s |  |  | 2.00 s |"), "{text}");
        assert!(text.contains("|  | sshfs | 8.00 s | 4.00 |  | 8.00 s | 4.00 |"), "{text}");
    }

    #[test]
    fn what_is_measured_again_replaces_what_was_measured_before() {
        let old = report(vec![sample("andrew", "farfs", 1.0), sample("git", "farfs", 2.0)]);
        let new = report(vec![sample("andrew", "farfs", 3.0)]).after(old);
        let seconds: Vec<_> = new.samples.iter().map(|sample| sample.seconds).collect();
        assert_eq!(seconds, [2.0, 3.0]);
    }

    #[test]
    fn what_failed_before_goes_and_a_phase_of_another_size_stays() {
        let failed = Sample { failed: Some("it broke".into()), ..sample("git", "farfs", 0.0) };
        let failed = Sample { phase: "failed".into(), ..failed };
        let small = Sample { phase: "1 MB".into(), ..sample("git", "farfs", 1.0) };
        let new = report(vec![sample("git", "farfs", 2.0)]).after(report(vec![failed, small]));
        let seconds: Vec<_> = new.samples.iter().map(|sample| sample.seconds).collect();
        assert_eq!(seconds, [1.0, 2.0]);
    }

    #[test]
    fn what_took_too_long_is_in_the_table_as_more_than_that() {
        let late = Sample { unfinished: Some(Unfinished::Work), ..sample("git", "sshfs", 30.0) };
        let not_home = Sample {
            unfinished: Some(Unfinished::Home),
            home_seconds: 30.0,
            ..sample("git", "farfs", 3.0)
        };
        let text = report(vec![not_home, late]).to_markdown();
        assert!(text.contains("| Make | farfs | 3.00 s |  |  | > 30.0 s |"), "{text}");
        assert!(text.contains("|  | sshfs | > 30.0 s | > 10 |  | > 30.0 s |"), "{text}");
        assert!(text.contains("- git on sshfs: Make: more than 30.0 s\n"), "{text}");
        assert!(text.contains("Make: more than 30.0 s until it is at the origin"), "{text}");
    }

    #[test]
    fn results_of_before_are_read() {
        let old = r#"{"workload": "git", "phase": "gc", "system": "ext4", "run": 0, "seconds": 1.0,
            "home_seconds": 1.0, "up_bytes": 0, "down_bytes": 0, "failed": null}"#;
        let sample: Sample = serde_json::from_str(old).unwrap();
        assert_eq!((sample.close_seconds, sample.unfinished), (None, None));
    }

    #[test]
    fn what_failed_is_said_and_not_counted() {
        let failed = Sample { failed: Some("it broke".into()), ..sample("git", "sshfs", 0.0) };
        let report = report(vec![failed]);
        assert!(report.tables().is_empty());
        assert!(report.to_markdown().contains("- git on sshfs: it broke"));
    }
}
