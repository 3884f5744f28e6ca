//! One large file, written and read from end to end.

use super::Material;
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use bench::Profile;
use bench::random::Random;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

const BYTES_MAX: u64 = 64 << 20;
const BYTES_MIN: u64 = 256 << 10;
/// On a slow link the file is smaller: as large as the link can carry up in this time.
const SECS: u64 = 60;
const BLOCK: usize = 128 << 10;

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    let bytes = size(material.profile);
    let shown = match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        megabytes => format!("{megabytes} MiB"),
    };
    stage.phase(&format!("write {shown}"), |root| write(&root.join("large"), bytes))?;
    stage.cold()?;
    stage.phase(&format!("read {shown}, cold"), |root| read(&root.join("large"), bytes))?;
    stage.phase(&format!("read {shown}, warm"), |root| read(&root.join("large"), bytes))
}

/// A power of two, so that runs over links that are about as fast can be compared.
fn size(profile: &Profile) -> u64 {
    let carried = profile.up.bits_per_sec / 8 * SECS;
    let power = 1 << carried.max(1).ilog2();
    power.clamp(BYTES_MIN, BYTES_MAX)
}

fn write(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path).context("cannot make the file")?;
    let (mut random, mut block) = (Random::new(bytes), vec![0; BLOCK]);
    for _ in 0..bytes / BLOCK as u64 {
        random.fill(&mut block);
        file.write_all(&block).context("cannot write")?;
    }
    Ok(())
}

fn read(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::open(path).context("cannot open the file")?;
    let (mut block, mut got) = (vec![0; BLOCK], 0);
    loop {
        match file.read(&mut block).context("cannot read")? {
            0 => break,
            some => got += some as u64,
        }
    }
    ensure!(got == bytes, "{got} bytes were read of {bytes}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_is_not_asked_to_carry_64_megabytes() {
        let size = |name| size(&Profile::named(name).unwrap());
        assert_eq!(size("lan"), BYTES_MAX);
        assert_eq!(size("adsl"), 2 << 20);
        assert_eq!(size("modem-9.6"), BYTES_MIN);
    }
}
