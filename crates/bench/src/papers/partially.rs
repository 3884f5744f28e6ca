//! The tables of "Partially connected operation" and its figure, on today's systems; and what FarFS
//! aims at beyond them.
//! Holds: what is compared is measured in one run, in turns, so that what the machine does beside
//! meets all of them; each run is kept, tables show medians.
//! From: partially connected operation, 6.

mod aims;
mod andrew;
mod calls;
mod live;
mod log;
mod tables;
mod words;

use crate::backend::{FarfsOptions, System};
use crate::machine::{self, Machine};
use crate::measure::{self, Bench};
use crate::workload::Material;
use anyhow::{Context, Result};
use bench::Profile;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// What is measured, how often, and over which slow link.
pub struct Plan {
    pub parts: Vec<Part>,
    pub runs: usize,
    pub slow: Profile,
    /// Cached files of the reconnection.
    pub files: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Table 1: single calls
    Calls,
    /// Tables 2, 4 and 5: the Andrew benchmark, by link, cache and replay
    Andrew,
    /// Table 2, what waits for the link in each call: once, and given up after the limit
    AndrewSlow,
    /// Table 3 and figure 1: the log while the Andrew benchmark runs
    Log,
    /// A foreground that hits the cache, replay on and off
    Foreground,
    /// Round trips of another program's stream while a file is replayed
    Stream,
    /// A file fetched on demand while a file is replayed
    Demand,
    /// Coming back to a volume with many cached files, of which a few have changed
    Reconnect,
    /// What one mkdir costs on the wire
    Mkdir,
    /// What is cancelled of work without a link
    Cancelled,
}

/// The links, by the words that tables have for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    Fast,
    Slow,
}

/// One column: a system, over which link, with what in its cache, and how it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    pub name: &'static str,
    pub system: System,
    pub mode: Option<&'static str>,
    pub speed: Speed,
    /// What is cached counts at once; else it has just been mounted anew.
    pub hot: bool,
    /// The mode to go on with once everything is there.
    pub then: Option<&'static str>,
}

/// One value, measured once. `what` is the row and `on` the column of its table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    pub part: Part,
    pub what: String,
    pub on: String,
    pub run: usize,
    pub value: f64,
    /// It was not waited for: it is at least this.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The log at one moment of the Andrew benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Moment {
    on: String,
    secs: f64,
    pending: u64,
}

#[derive(Serialize, Deserialize)]
pub struct Report {
    date: String,
    machine: Machine,
    systems: Vec<String>,
    link: String,
    values: Vec<Value>,
    moments: Vec<Moment>,
    /// What was not measured, and why.
    failures: Vec<String>,
}

const fn farfs(name: &'static str, mode: &'static str, speed: Speed) -> Condition {
    Condition { name, system: System::Farfs, mode: Some(mode), speed, hot: true, then: None }
}

const fn other(name: &'static str, system: System, speed: Speed) -> Condition {
    Condition { name, system, mode: None, speed, hot: true, then: None }
}

const EXT4: Condition = other("ext4", System::Ext4, Speed::Fast);
const SSHFS_FAST: Condition = other("sshfs, 1 Gb/s", System::Sshfs, Speed::Fast);
const SSHFS_SLOW: Condition = other("sshfs, slow", System::Sshfs, Speed::Slow);
const CONNECTED_FAST: Condition = farfs("connected, 1 Gb/s", "connected", Speed::Fast);
const CONNECTED_SLOW: Condition = farfs("connected, slow", "connected", Speed::Slow);
const PARTIAL_FAST: Condition = farfs("partial, 1 Gb/s", "partial", Speed::Fast);
const PARTIAL_SLOW: Condition = farfs("partial, slow", "partial", Speed::Slow);

impl Condition {
    fn profile<'a>(&self, fast: &'a Profile, slow: &'a Profile) -> &'a Profile {
        match self.speed {
            Speed::Fast => fast,
            Speed::Slow => slow,
        }
    }

    fn options(&self, farfs: &FarfsOptions) -> FarfsOptions {
        FarfsOptions { mode: self.mode.map(str::to_owned), program: farfs.program.clone() }
    }
}

/// What measuring needs, and what has been measured.
pub struct Run<'a> {
    pub bench: &'a Bench<'a>,
    pub material: &'a Material<'a>,
    pub plan: &'a Plan,
    pub fast: Profile,
    part: Part,
    values: Vec<Value>,
    moments: Vec<Moment>,
    failures: Vec<String>,
}

impl Run<'_> {
    fn add(&mut self, what: impl Into<String>, on: impl Into<String>, run: usize, value: f64) {
        let (part, what, on) = (self.part, what.into(), on.into());
        println!("{part:?}: {what}, {on}, run {run}: {value:.6}");
        self.values.push(Value { part, what, on, run, value, more: false });
    }

    fn measure(&mut self) -> Result<()> {
        match self.part {
            Part::Calls => calls::measure(self),
            Part::Andrew => andrew::measure(self),
            Part::AndrewSlow => andrew::measure_slow(self),
            Part::Log => log::measure(self),
            Part::Foreground => live::foreground(self),
            Part::Stream => live::stream(self),
            Part::Demand => live::demand(self),
            Part::Reconnect => aims::reconnect(self),
            Part::Mkdir => aims::mkdir(self),
            Part::Cancelled => aims::cancelled(self),
        }
    }
}

/// Measures the parts one by one, writes each when it is done, and returns where the text is.
pub fn run(bench: &Bench, material: &Material, plan: &Plan, out: &Path) -> Result<PathBuf> {
    let mut written = None;
    for &part in &plan.parts {
        let mut run = Run {
            bench,
            material,
            plan,
            fast: Profile::lan(),
            part,
            values: Vec::new(),
            moments: Vec::new(),
            failures: Vec::new(),
        };
        let measured = run.measure();
        bench::undo::hold_if_ending();
        if let Err(error) = measured {
            eprintln!("{part:?}: {error:#}");
            run.failures.push(format!("{part:?}: {error:#}").replace('\n', " "));
        }
        let systems = [System::Farfs, System::Ext4, System::Sshfs];
        let report = Report {
            date: machine::today(),
            machine: Machine::this(&bench.work.path),
            systems: systems.iter().map(|&one| measure::version(one, &bench.farfs)).collect(),
            link: plan.slow.words(),
            values: run.values,
            moments: run.moments,
            failures: run.failures,
        };
        written = Some(report.save(part, out)?);
    }
    written.context("there is no part to measure")
}

impl Report {
    /// The median of all runs; none if nothing was measured.
    fn median(&self, part: Part, what: &str, on: &str) -> Option<f64> {
        let values = self.values.iter();
        let here = values.filter(|one| one.part == part && one.what == what && one.on == on);
        middle(here.map(|one| one.value).collect())
    }

    fn is_more(&self, part: Part, what: &str, on: &str) -> bool {
        let mut values = self.values.iter();
        values.any(|one| one.part == part && one.what == what && one.on == on && one.more)
    }

    /// Adds what was measured of other parts today.
    fn save(mut self, part: Part, out: &Path) -> Result<PathBuf> {
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let base = format!("{}-partially-connected", self.date);
        let json = out.join(format!("{base}.json"));
        if let Some(old) = fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok())
        {
            self = self.after(part, old);
        }
        let text = serde_json::to_string(&self).context("cannot write JSON")?;
        // A value to a line, so that what is measured again is seen as that.
        let text = text.replace("},{", "},\n{") + "\n";
        let markdown = out.join(format!("{base}.md"));
        let mut files = vec![(json, text), (markdown.clone(), words::markdown(&self, &base))];
        if let Some(svg) = log::plot(&self.moments) {
            files.push((out.join(format!("{base}-log.svg")), svg));
        }
        for (path, text) in files {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(markdown)
    }

    fn after(mut self, part: Part, old: Report) -> Report {
        let of_part = format!("{part:?}:");
        let keep = old.values.into_iter().filter(|one| one.part != part);
        self.values = keep.chain(self.values).collect();
        if part != Part::Log {
            self.moments = old.moments;
        }
        let keep = old.failures.into_iter().filter(|failure| !failure.starts_with(&of_part));
        self.failures = keep.chain(self.failures).collect();
        self
    }
}

/// The lower of the two in the middle.
fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests;
