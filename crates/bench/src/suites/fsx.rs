//! `fsx`: random calls on one file, with a copy of it in memory that says what each must show.

use super::silence::{Count, Silence, Turns};
use super::{Place, Section, Stage};
use crate::process::{end_within, tail};
use crate::table::seconds;
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;
use std::time::Instant;

/// All that the suite knows: mappings, holes, copies, room set aside, and closing in between.
const CONFIGURATION: &str = "\
flen = 1048576

[opsize]
min = 1
max = 65536

[weights]
close_open = 1.0
invalidate = 1.0
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 5.0
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 3.0
punch_hole = 5.0
sendfile = 3.0
posix_fadvise = 1.0
copy_file_range = 5.0
";

/// Calls of one process: of each file that it maps something stays with it, until it can have no
/// more.
const CALLS_MAX: u64 = 100_000;

/// Random calls from `seed` on.
#[derive(Clone, Copy)]
pub struct Calls {
    pub operations: u64,
    pub seed: u64,
    /// On mounts the server is silent and answers in turns, all the while.
    pub cut: Option<Turns>,
}

impl Calls {
    /// How many calls from which seed: one process after another.
    fn runs(self) -> impl Iterator<Item = (u64, u64)> {
        let runs = self.operations.div_ceil(CALLS_MAX);
        (0..runs).map(move |run| {
            (CALLS_MAX.min(self.operations - run * CALLS_MAX), self.seed.wrapping_add(run))
        })
    }
}

/// What one file system made of it.
struct Ran {
    /// Nothing if all was well.
    said: String,
    secs: f64,
    cut: Count,
}

fn on(place: &Place, stage: &Stage<'_>, calls: Calls) -> Result<Ran> {
    let (file, log) = (place.beside.join("fsx.toml"), place.beside.join("fsx.log"));
    fs::write(&file, CONFIGURATION).context("cannot write the configuration")?;
    let silence = calls.cut.map(|turns| place.silence(turns)).transpose()?.flatten();
    let (start, mut said) = (Instant::now(), String::new());
    let mut paths = Vec::new();
    for (operations, seed) in calls.runs() {
        let path = place.path.join(format!("file-{seed}"));
        let mut command = Command::new(&stage.suite);
        command.arg("-f").arg(&file).arg("-P").arg(&place.beside);
        command.args(["-N", &operations.to_string(), "-S", &seed.to_string()]);
        let left = stage.limit.saturating_sub(start.elapsed());
        let status = end_within(command.arg(&path), &log, left)?;
        paths.push(path);
        if !status.success() {
            said = format!("seed {seed}: {status}: {}", tail(&log));
            break;
        }
    }
    let secs = start.elapsed().as_secs_f64();
    let is_cut = silence.is_some();
    let cut = silence.map_or(Count::default(), Silence::over);
    if said.is_empty() && is_cut && cut.missed == 0 {
        // Then it has shown nothing of a link that is cut.
        said = format!("the mount was never without its link, in {} silences", cut.silences);
    }
    if said.is_empty()
        && let Err(error) = place.agrees_elsewhere(&paths)
    {
        said = format!("{error:#}");
    }
    if !said.is_empty() {
        println!("{said}");
    }
    Ok(Ran { said, secs, cut })
}

pub fn run(stage: &Stage<'_>, calls: Calls) -> Result<Section> {
    let ran = stage.on_each(|place| on(place, stage, calls))?;
    let version = super::report::version(&stage.suite);
    let mut section = Section::new(
        &version,
        &["file system", "failed", "calls", "seed", "cut", "missed", "time"],
    );
    section.said.push(format!("Configuration:\n\n```toml\n{CONFIGURATION}```"));
    section.said.push(format!("{CALLS_MAX} calls from each seed, and the rest from the next."));
    let disk_passes = ran[0].1.said.is_empty();
    if let Some(turns) = calls.cut {
        section.said.push(format!(
            "While it ran on a mount, the server was stopped for {} s and ran for {} s in turns, so \
             often as *cut* says; *missed*: how often the mount worked without a link at the end.",
            turns.silent.as_secs(),
            turns.heard.as_secs()
        ));
    }
    for (name, Ran { said, secs, cut }) in &ran {
        let failed = u32::from(!said.is_empty()).to_string();
        let counts = [calls.operations, calls.seed, cut.silences, cut.missed];
        let counts = counts.map(|count| count.to_string());
        section.row([name.clone(), failed].into_iter().chain(counts).chain([seconds(*secs)]));
        if disk_passes && !said.is_empty() {
            // Where in the suite that was explains nothing.
            let why = said.lines().find(|line| !line.contains("panicked at"));
            section.worse.push(format!("{name}: {}", why.unwrap_or_default()));
        }
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_calls_are_made_by_one_process_after_another() {
        let runs = |operations| Calls { operations, seed: 7, cut: None }.runs().collect::<Vec<_>>();
        assert_eq!(runs(20), [(20, 7)]);
        assert_eq!(runs(2 * CALLS_MAX + 1), [(CALLS_MAX, 7), (CALLS_MAX, 8), (1, 9)]);
    }
}
