//! The figures of LBFS's evaluation, with today's systems in them.
//! Holds: each value is one run; what took too long is shown as more than the limit.
//! From: LBFS, Bandwidth: emacs recompile, to: Effect of network latency on performance.

mod words;

use crate::backend::System;
use crate::machine::{self, Machine};
use crate::measure::{self, Bench};
use crate::plot::{Bar, Bars, Lines, Point, Series};
use crate::stage::{Sample, Unfinished};
use crate::table::{Table, bytes, seconds};
use crate::workload::{self, Material, Workload};
use anyhow::{Context, Result};
use bench::profile::rate;
use bench::{Lane, Profile};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is varied, and which figures are measured.
pub struct Plan {
    pub figures: Vec<Figure>,
    pub rates_kbits: Vec<u64>,
    pub round_trips_ms: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Bandwidth and time by system, over ADSL
    Systems,
    /// Recompiling over links of several rates
    Rates,
    /// Saving over several round trips
    DelaysDocument,
    /// Recompiling over several round trips
    DelaysRecompile,
}

/// The round trip while the rate varies, and the rate while the round trip does.
const ROUND_TRIP_MS: u64 = 10;
const RATE_KBITS: u64 = 1_500;

/// In the order of the legends.
const COMPARED: &[System] = &[
    System::Farfs,
    System::FarfsConnected,
    System::Sshfs,
    System::SshfsC,
    System::RsyncZ,
    System::Ext4,
];
/// Those that make each call over the link, or not: the lines.
const OVER_THE_LINK: &[System] =
    &[System::Farfs, System::FarfsConnected, System::Sshfs, System::SshfsC];

/// One value of a figure.
#[derive(Serialize, Deserialize)]
struct Measured {
    figure: Figure,
    workload: String,
    system: String,
    link: String,
    /// What is varied, in the unit of its axis.
    x: f64,
    /// The one phase, or why there is none.
    sample: Sample,
}

#[derive(Serialize, Deserialize)]
struct Report {
    date: String,
    machine: Machine,
    systems: Vec<String>,
    link: String,
    measured: Vec<Measured>,
}

/// Measures the figures one by one, writes each when it is done, and returns where the text is.
pub fn run(bench: &Bench, material: &Material, plan: &Plan, out: &Path) -> Result<PathBuf> {
    let mut written = None;
    for &figure in &plan.figures {
        let mut report = Report {
            date: machine::today(),
            machine: Machine::this(&bench.work.path),
            systems: COMPARED.iter().map(|&one| measure::version(one, &bench.farfs)).collect(),
            link: material.profile.words(),
            measured: Vec::new(),
        };
        report.measure(bench, material, plan, figure)?;
        written = Some(report.save(out)?);
    }
    written.context("there is no figure to measure")
}

fn symmetric(kbits: u64, round_trip_ms: u64) -> Profile {
    let lane = Lane::new(kbits * 1000, Duration::from_micros(round_trip_ms * 500));
    Profile::symmetric(&format!("{kbits} kb/s, {round_trip_ms} ms"), lane)
}

impl Measured {
    fn more(&self) -> bool {
        self.sample.unfinished.is_some()
    }

    /// Until everything is at the origin, or until it is known to be slower than that.
    fn time(&self) -> String {
        let more = if self.more() { "> " } else { "" };
        format!("{more}{}", seconds(self.sample.home_seconds))
    }

    /// Until the program goes on.
    fn wait(&self) -> String {
        let over = self.sample.unfinished == Some(Unfinished::Work);
        format!("{}{}", if over { "> " } else { "" }, seconds(self.sample.seconds))
    }

    fn traffic(&self) -> String {
        let more = if self.more() { "> " } else { "" };
        format!("{more}{}", bytes(self.sample.up_bytes + self.sample.down_bytes))
    }
}

impl Report {
    fn measure(
        &mut self,
        bench: &Bench,
        material: &Material,
        plan: &Plan,
        figure: Figure,
    ) -> Result<()> {
        let recompile = workload::named("recompile").context("there is a workload recompile")?;
        let workload = match figure {
            Figure::DelaysDocument => &workload::SAVE_TEXT,
            _ => recompile,
        };
        let varied = match figure {
            Figure::Systems => {
                for workload in [&workload::SAVE_TEXT, &workload::SAVE_DOCX, recompile] {
                    for &system in COMPARED {
                        self.add(bench, material, figure, workload, system, 0)?;
                    }
                }
                return Ok(());
            }
            Figure::Rates => &plan.rates_kbits,
            Figure::DelaysDocument | Figure::DelaysRecompile => &plan.round_trips_ms,
        };
        for &x in varied {
            let profile = match figure {
                Figure::Rates => symmetric(x, ROUND_TRIP_MS),
                _ => symmetric(RATE_KBITS, x),
            };
            let material = Material { profile: &profile, ..*material };
            for &system in OVER_THE_LINK {
                self.add(bench, &material, figure, workload, system, x)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        bench: &Bench,
        material: &Material,
        figure: Figure,
        workload: &Workload,
        system: System,
        x: u64,
    ) -> Result<()> {
        println!(
            "{figure:?}: {} on {}, {}",
            workload.name,
            system.name(),
            material.profile.words()
        );
        let link = material.profile.words();
        let samples = bench.measure(workload, system, 0, material)?;
        let sample = samples.into_iter().next_back().context("a workload leaves a sample")?;
        let (workload, system) = (workload.name.into(), system.name().into());
        self.measured.push(Measured { figure, workload, system, link, x: x as f64, sample });
        Ok(())
    }

    fn of(&self, figure: Figure, workload: &str) -> Vec<&Measured> {
        let here = |one: &&Measured| one.figure == figure && one.workload == workload;
        self.measured.iter().filter(here).collect()
    }

    /// What could not be measured, in words.
    fn failures(&self) -> Vec<String> {
        let failed = self.measured.iter().filter_map(|one| {
            let why = one.sample.failed.as_ref()?.replace('\n', " ");
            Some(format!("{} on {} over {}: {why}", one.workload, one.system, one.link))
        });
        failed.collect()
    }

    /// Adds what was measured of other figures today.
    fn save(mut self, out: &Path) -> Result<PathBuf> {
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let base = format!("{}-lbfs", self.date);
        let json = out.join(format!("{base}.json"));
        if let Some(old) = fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok())
        {
            self = self.after(old);
        }
        let text = serde_json::to_string_pretty(&self).context("cannot write JSON")? + "\n";
        let markdown = out.join(format!("{base}.md"));
        let mut files = vec![(json, text), (markdown.clone(), words::markdown(&self, &base))];
        files.extend(self.plots().map(|(name, svg)| (out.join(format!("{base}-{name}.svg")), svg)));
        for (path, text) in files {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(markdown)
    }

    fn after(mut self, old: Report) -> Report {
        let again = |one: &Measured| self.measured.iter().any(|new| new.figure == one.figure);
        let mut measured: Vec<_> = old.measured.into_iter().filter(|one| !again(one)).collect();
        measured.append(&mut self.measured);
        Report { measured, ..self }
    }

    fn plots(&self) -> impl Iterator<Item = (&'static str, String)> {
        let bytes_of = |one: &Measured| {
            let count = one.sample.up_bytes + one.sample.down_bytes;
            (count as f64 / 1e3, one.traffic())
        };
        let time_of = |one: &Measured| (one.sample.home_seconds, one.time());
        let link = |what: &str| format!("{what}, link of {RATE_KBITS} kb/s each way");
        [
            ("bandwidth", self.bars("Bytes over the link, both ways, over ADSL", "kB", bytes_of)),
            ("time", self.bars("Time until all is at the server, over ADSL", "s", time_of)),
            (
                "rates",
                self.lines(
                    Figure::Rates,
                    "recompile",
                    format!("Edit and recompile, round trip {ROUND_TRIP_MS} ms"),
                    "rate of the link each way, kb/s",
                ),
            ),
            (
                "delays-document",
                self.lines(
                    Figure::DelaysDocument,
                    "save text",
                    link("Save 1.4 MB"),
                    "round trip, ms",
                ),
            ),
            (
                "delays-recompile",
                self.lines(
                    Figure::DelaysRecompile,
                    "recompile",
                    link("Edit and recompile"),
                    "round trip, ms",
                ),
            ),
        ]
        .into_iter()
    }

    fn bars(&self, title: &str, y: &str, value: impl Fn(&Measured) -> (f64, String)) -> String {
        let workloads = ["save text", "save docx", "recompile"];
        let series = COMPARED.iter().filter(|system| system.has_link()).map(|system| {
            let bars = workloads.map(|workload| {
                let found = self.of(Figure::Systems, workload);
                let one = found.into_iter().find(|one| one.system == system.name())?;
                let (value, label) = value(one);
                one.sample.failed.is_none().then_some(Bar { value, label })
            });
            (system.name().to_owned(), bars.into())
        });
        let groups = workloads.map(str::to_owned).into();
        Bars { title: title.into(), y: y.into(), groups, series: series.collect() }.to_svg()
    }

    fn lines(&self, figure: Figure, workload: &str, title: String, x: &str) -> String {
        let found = self.of(figure, workload);
        let series = OVER_THE_LINK.iter().map(|system| {
            let good =
                |one: &&&Measured| one.system == system.name() && one.sample.failed.is_none();
            let points = found.iter().filter(good).map(|one| Point {
                x: one.x,
                y: one.sample.home_seconds,
                more: one.more(),
            });
            Series { name: system.name().into(), points: points.collect() }
        });
        let y = "time until all is at the server, s".into();
        Lines { title, x: x.into(), y, series: series.collect() }.to_svg()
    }

    /// One row for each system.
    fn by_system(&self, workload: &str) -> Table {
        let heads = &["system", "time", "fsync, close", "at origin", "up", "down"];
        let mut table = Table::new(1, heads);
        for one in self.of(Figure::Systems, workload) {
            if one.sample.failed.is_some() {
                table.row([one.system.as_str(), "failed"]);
                continue;
            }
            table.row([
                one.system.clone(),
                one.wait(),
                one.sample.close_seconds.map(seconds).unwrap_or_default(),
                one.time(),
                bytes(one.sample.up_bytes),
                bytes(one.sample.down_bytes),
            ]);
        }
        table
    }

    /// One row for each value of what is varied, one column for each system.
    fn by_value(&self, figure: Figure, workload: &str) -> Table {
        let mut heads = vec![if figure == Figure::Rates { "rate" } else { "round trip" }];
        heads.extend(OVER_THE_LINK.iter().map(|system| system.name()));
        let mut table = Table::new(1, &heads);
        let found = self.of(figure, workload);
        for group in found.chunk_by(|one, other| one.x == other.x) {
            let x = group[0].x;
            let first = match figure {
                Figure::Rates => rate(x as u64 * 1000),
                _ => format!("{x} ms"),
            };
            let cells = OVER_THE_LINK.iter().map(|system| {
                let one = group.iter().find(|one| one.system == system.name());
                match one {
                    Some(one) if one.sample.failed.is_some() => "failed".into(),
                    Some(one) => format!("{}, {}", one.time(), one.traffic()),
                    None => String::new(),
                }
            });
            table.row(std::iter::once(first).chain(cells));
        }
        table
    }
}

#[cfg(test)]
mod tests;
