//! `fsx`: random calls on one file, with a copy of it in memory that says what each must show.

use super::silence::Silence;
use super::{Section, Stage};
use crate::process::{end_within, tail};
use crate::table::seconds;
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

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

/// `silent`: on mounts the server is silent for so long, and answers for so long, all the while.
pub fn run(
    stage: &Stage<'_>,
    operations: u64,
    seed: u64,
    silent: Option<Duration>,
) -> Result<Section> {
    let ran = stage.on_each(|place| {
        let (file, log) = (place.beside.join("fsx.toml"), place.beside.join("fsx.log"));
        fs::write(&file, CONFIGURATION).context("cannot write the configuration")?;
        let mut command = Command::new(&stage.suite);
        command.arg("-f").arg(&file).arg("-P").arg(&place.beside);
        command.args(["-N", &operations.to_string(), "-S", &seed.to_string()]);
        let path = place.path.join("file");
        let silence = silent.map(|each| place.silence(each)).transpose()?.flatten();
        let start = Instant::now();
        let status = end_within(command.arg(&path), &log, stage.limit)?;
        let took = start.elapsed().as_secs_f64();
        let silences = silence.map_or(0, Silence::over);
        let mut said = match (status.success(), tail(&log)) {
            (true, _) => String::new(),
            (false, said) if said.is_empty() => format!("it ended with {status}"),
            (false, said) => said,
        };
        if said.is_empty()
            && let Err(error) = place.agrees_elsewhere(&path)
        {
            said = format!("{error:#}");
        }
        if !said.is_empty() {
            println!("{said}");
        }
        Ok((said, took, silences))
    })?;
    let version = super::report::version(&stage.suite);
    let mut section =
        Section::new(&version, &["file system", "failed", "calls", "seed", "cut", "time"]);
    section.said.push(format!("Configuration:\n\n```toml\n{CONFIGURATION}```"));
    let disk_passes = ran[0].1.0.is_empty();
    if let Some(each) = silent {
        section.said.push(format!(
            "While it ran on a mount, the server was stopped for {} s and ran for as long, so often \
             as *cut* says.",
            each.as_secs()
        ));
    }
    for (name, (said, secs, silences)) in &ran {
        let failed = u32::from(!said.is_empty()).to_string();
        let counts = [operations, seed, *silences].map(|count| count.to_string());
        section.row([name.clone(), failed].into_iter().chain(counts).chain([seconds(*secs)]));
        if disk_passes && !said.is_empty() {
            // Where in the suite that was explains nothing.
            let why = said.lines().find(|line| !line.contains("panicked at"));
            section.worse.push(format!("{name}: {}", why.unwrap_or_default()));
        }
    }
    Ok(section)
}
