//! `fsx`: random calls on one file, with a copy of it in memory that says what each must show.

use super::{Section, Stage};
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

pub fn run(stage: &Stage<'_>, operations: u64, seed: u64) -> Result<Section> {
    let ran = stage.on_each(|place| {
        let (file, log) = (place.beside.join("fsx.toml"), place.beside.join("fsx.log"));
        fs::write(&file, CONFIGURATION).context("cannot write the configuration")?;
        let mut command = Command::new(&stage.suite);
        command.arg("-f").arg(&file).arg("-P").arg(&place.beside);
        command.args(["-N", &operations.to_string(), "-S", &seed.to_string()]);
        let start = Instant::now();
        let status = end_within(command.arg(place.path.join("file")), &log, stage.limit)?;
        let said = if status.success() { String::new() } else { tail(&log) };
        if !said.is_empty() {
            println!("{said}");
        }
        Ok((said, start.elapsed().as_secs_f64()))
    })?;
    let version = super::report::version(&stage.suite);
    let mut section = Section::new(&version, &["file system", "failed", "calls", "seed", "time"]);
    section.said.push(format!("Configuration:\n\n```toml\n{CONFIGURATION}```"));
    let disk_passes = ran[0].1.0.is_empty();
    for (name, (said, secs)) in &ran {
        let failed = u32::from(!said.is_empty()).to_string();
        let counts = [failed, operations.to_string(), seed.to_string(), seconds(*secs)];
        section.row(std::iter::once(name.clone()).chain(counts));
        if disk_passes && !said.is_empty() {
            // Where in the suite that was explains nothing.
            let why = said.lines().find(|line| !line.contains("panicked at"));
            section.worse.push(format!("{name}: {}", why.unwrap_or_default()));
        }
    }
    Ok(section)
}
