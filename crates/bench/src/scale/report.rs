//! The phases as a table, one for each thing that was measured today.

use crate::loopback::Memory;
use crate::machine::{self, Machine};
use crate::program;
use crate::table::{Table, bytes, seconds};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    pub seconds: f64,
    /// Of contents that it moved, where that is what it is about.
    pub bytes: Option<u64>,
    /// None: it does not take part, or it ended.
    pub client: Option<Memory>,
    pub origin: Option<Memory>,
    /// Of processor time.
    pub client_seconds: Option<f64>,
    pub origin_seconds: Option<f64>,
    pub up_bytes: Option<u64>,
    pub down_bytes: Option<u64>,
    /// Updates that are not at the origin at its end.
    pub pending: u64,
}

impl Phase {
    pub fn line(&self) -> String {
        format!("{:36} {}", self.name, self.cells().join("  "))
    }

    fn cells(&self) -> [String; 9] {
        let memory = |memory: Option<Memory>| match memory {
            Some(Memory { now_kb, peak_kb }) => {
                format!("{} / {} MB", megabytes(peak_kb), megabytes(now_kb))
            }
            None => String::new(),
        };
        let pending = if self.pending > 0 { self.pending.to_string() } else { String::new() };
        let worked = |secs: Option<f64>| secs.map(seconds).unwrap_or_default();
        let rate = |bytes: u64| format!("{:.0} MB/s", bytes as f64 / 1e6 / self.seconds);
        [
            seconds(self.seconds),
            self.bytes.map(rate).unwrap_or_default(),
            memory(self.client),
            worked(self.client_seconds),
            memory(self.origin),
            worked(self.origin_seconds),
            self.up_bytes.map(bytes).unwrap_or_default(),
            self.down_bytes.map(bytes).unwrap_or_default(),
            pending,
        ]
    }
}

fn megabytes(kb: u64) -> u64 {
    (kb * 1024).div_ceil(1_000_000)
}

/// What a report is about, and the name of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Scale,
    Throughput,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Scale => "scale",
            Self::Throughput => "throughput",
        }
    }
}

/// Everything of a kind that was measured on one day.
#[derive(Serialize, Deserialize)]
pub struct Report {
    kind: Kind,
    date: String,
    machine: Machine,
    measured: Vec<Measured>,
}

#[derive(Serialize, Deserialize)]
struct Measured {
    title: String,
    build: String,
    phases: Vec<Phase>,
}

const HEADS: &[&str] =
    &["phase", "time", "rate", "client", "worked", "origin", "worked", "up", "down", "pending"];

impl Report {
    pub fn new(kind: Kind, title: &str, program: &Path, work: &Path, phases: Vec<Phase>) -> Self {
        let build = if program::is_debug(program) { "debug" } else { "release" };
        let measured = Measured { title: title.into(), build: build.into(), phases };
        let (date, machine) = (machine::today(), Machine::this(work));
        Self { kind, date, machine, measured: vec![measured] }
    }

    /// Adds to what was measured today, in the place of what has the same title.
    pub fn save(mut self, out: &Path) -> Result<PathBuf> {
        let name = format!("{}-{}", self.date, self.kind.name());
        let (json, text) = (out.join(format!("{name}.json")), out.join(format!("{name}.md")));
        if let Some(old) = fs::read(&json).ok().and_then(|text| serde_json::from_slice(&text).ok())
        {
            self = self.after(old);
        }
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        let said = fs::read_to_string(&text).ok().map(|old| written_by_people(&old).to_owned());
        let all = serde_json::to_string_pretty(&self).context("cannot write JSON")? + "\n";
        for (path, written) in
            [(&json, all), (&text, self.to_markdown() + &said.unwrap_or_default())]
        {
            fs::write(path, written).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(text)
    }

    /// Who measures again keeps what stood there.
    fn after(mut self, old: Report) -> Self {
        let titles: Vec<_> = self.measured.iter().map(|one| one.title.clone()).collect();
        let mut measured = old.measured;
        measured.retain(|one| !titles.contains(&one.title));
        measured.append(&mut self.measured);
        Self { measured, ..self }
    }

    fn to_markdown(&self) -> String {
        let mut text = format!(
            "# {}, {}\n\n- Machine: {}\n\nClient and origin run on this machine and speak over \
             its loopback. Of their memory the peak of the phase is shown, and what is resident at \
             its end; *worked* is the processor time of the program before it, and of the kernel for \
             it. Up and down are bytes of UDP payload at the client. Pending are updates that \
             are not at the origin when the phase ends.\n",
            self.date,
            self.kind.name(),
            self.machine.words()
        );
        for one in &self.measured {
            let mut table = Table::new(1, HEADS);
            for phase in &one.phases {
                table.row(std::iter::once(phase.name.clone()).chain(phase.cells()));
            }
            text += &format!("\n## {}, {} build\n\n{}", one.title, one.build, table.to_markdown());
        }
        text
    }
}

/// The last part of a report, which stays when the tables change.
const SAID: &str = "\n## What it says\n";

fn written_by_people(text: &str) -> &str {
    text.find(SAID).map_or("", |at| &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(title: &str, secs: f64) -> Report {
        let memory = Some(Memory { now_kb: 50_000, peak_kb: 100_000 });
        let phase = Phase {
            name: "make them".into(),
            seconds: secs,
            bytes: Some(6_000_000),
            client: memory,
            origin: None,
            client_seconds: Some(0.5),
            origin_seconds: None,
            up_bytes: Some(12),
            down_bytes: None,
            pending: 0,
        };
        Report::new(Kind::Scale, title, Path::new("/debug/farfs"), Path::new("/"), vec![phase])
    }

    #[test]
    fn what_is_measured_again_takes_the_place_of_what_was_measured_before() {
        let both = report("a", 1.0).after(report("b", 2.0));
        let text = report("a", 3.0).after(both).to_markdown();
        assert!(text.contains("## a, debug build"), "{text}");
        assert!(
            text.contains(
                "| make them | 3.00 s | 2 MB/s | 103 / 52 MB | 0.50 s |  |  | 12 B |  |  |"
            ),
            "{text}"
        );
        assert!(text.contains("2.00 s") && !text.contains("1.00 s"), "{text}");
        assert_eq!(written_by_people(&text), "");
        assert_eq!(written_by_people(&(text + SAID + "much")), SAID.to_owned() + "much");
    }
}
