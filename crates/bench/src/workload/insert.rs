//! One byte more at the start of a large file: everything moves, and nothing else changes.
//! From: LBFS, Dividing files into chunks (the straw man).

use super::Material;
use crate::stage::Stage;
use crate::table;
use anyhow::{Context, Result};
use bench::Profile;
use bench::profile::LAN;
use bench::random::Random;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const NAME: &str = "large";
const BLOCK: usize = 64 << 10;
/// In a sparse file one block stands at the beginning of each such distance.
const SPARSE_EVERY: u64 = 16 << 20;
const MB: u64 = 1_000_000;
const LAN_MB: u64 = 1_000;
const SLOW_MB: u64 = 64;

/// What the large file is.
#[derive(Clone, Copy, Debug)]
pub struct Insert {
    pub bytes: u64,
    pub content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Content {
    /// Bytes by chance, which do not compress
    Random,
    /// Holes, with 64 KiB by chance every 16 MiB
    Sparse,
}

impl Insert {
    pub fn over(profile: &Profile, megabytes: Option<u64>, content: Content) -> Self {
        let usual = if profile.name == LAN { LAN_MB } else { SLOW_MB };
        Self { bytes: megabytes.unwrap_or(usual).saturating_mul(MB), content }
    }
}

pub fn run(stage: &mut Stage, material: &Material) -> Result<()> {
    let insert = material.insert;
    stage.prepare_warm(|root| write(&root.join(NAME), insert, &[]).map(drop))?;
    let phase = format!("a byte into {}", table::bytes(insert.bytes));
    stage.phase_closing(&phase, |root| {
        let new = root.join(".large.new");
        let closing = write(&new, insert, b"!")?;
        fs::rename(&new, root.join(NAME)).context("cannot replace the file")?;
        Ok(closing)
    })
}

/// Returns how long `close` took.
fn write(path: &Path, insert: Insert, before: &[u8]) -> Result<Duration> {
    let file = File::create(path).context("cannot make the file")?;
    match insert.content {
        Content::Random => dense(&file, insert.bytes, before),
        Content::Sparse => sparse(&file, insert.bytes, before),
    }
    .context("cannot write the file")?;
    let closing = Instant::now();
    drop(file);
    Ok(closing.elapsed())
}

fn dense(file: &File, bytes: u64, before: &[u8]) -> std::io::Result<()> {
    let mut writer = BufWriter::with_capacity(BLOCK, file);
    writer.write_all(before)?;
    let (mut random, mut block, mut left) = (Random::new(bytes), vec![0; BLOCK], bytes);
    while left > 0 {
        random.fill(&mut block);
        let some = left.min(BLOCK as u64);
        writer.write_all(&block[..some as usize])?;
        left -= some;
    }
    writer.flush()
}

fn sparse(file: &File, bytes: u64, before: &[u8]) -> std::io::Result<()> {
    let shift = before.len() as u64;
    file.set_len(bytes + shift)?;
    file.write_all_at(before, 0)?;
    let (mut random, mut block, mut at) = (Random::new(bytes), vec![0; BLOCK], 0);
    while at < bytes {
        random.fill(&mut block);
        let some = (bytes - at).min(BLOCK as u64);
        file.write_all_at(&block[..some as usize], at + shift)?;
        at += SPARSE_EVERY;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn check(content: Content, bytes: u64) {
        let directory =
            std::env::temp_dir().join(format!("bench-insert-{}-{content:?}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let insert = Insert { bytes, content };
        let [old, again, new] = [("old", ""), ("again", ""), ("new", "!")].map(|(name, before)| {
            let path = directory.join(name);
            write(&path, insert, before.as_bytes()).unwrap();
            (fs::read(&path).unwrap(), fs::metadata(path).unwrap().blocks())
        });
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(old.0.len() as u64, bytes);
        assert_eq!(old.0, again.0);
        assert_eq!(new.0[0], b'!');
        assert!(new.0[1..] == old.0[..], "only the first byte is new");
        if content == Content::Sparse {
            assert!(new.1 * 512 < bytes / 2, "{} blocks", new.1);
        }
    }

    #[test]
    fn a_file_of_chance_moves_by_one_byte() {
        check(Content::Random, 200_001);
    }

    #[test]
    fn a_sparse_file_moves_by_one_byte_and_stays_sparse() {
        check(Content::Sparse, 20_000_000);
    }

    #[test]
    fn the_file_is_as_large_as_one_says_and_else_as_the_link_allows() {
        let bytes = |name, size| {
            let profile = Profile::named(name).unwrap();
            Insert::over(&profile, size, Content::Random).bytes
        };
        assert_eq!(bytes("lan", None), 1_000_000_000);
        assert_eq!(bytes("64k", None), 64_000_000);
        assert_eq!(bytes("64k", Some(5)), 5_000_000);
    }
}
