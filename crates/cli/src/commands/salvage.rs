//! `farfs salvage`.

use crate::exit::{self, Exit, OrExit, fail};
use crate::lock::lock;
use crate::state;
use crate::{output, units};
use anyhow::{Context, Result};
use client::{Salvaged, Unsent};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use store::container::DirectoryContainers;
use store::embedded::Database;
use store::journal::salvage;
use store::{Container, Containers, Tables};

const COPY_BYTES: usize = 1 << 20;

/// Copy what was not yet sent out of a state directory that is damaged
///
/// For where `farfs mount` says that the state directory cannot be used. The files of which
/// something had not been sent are written below OUT, under the names that they had in the volume;
/// those of which no name can be found, as `unnamed/NUMBER`; some that had just been sent may be among
/// them. What cannot be read is said. The state directory is left as it is.
#[derive(clap::Args)]
#[command(after_help = exit::after(
    "farfs salvage ~/.local/state/farfs/work ~/salvaged",
    &[Exit::Busy, Exit::Damaged, Exit::NotFound],
))]
pub struct Salvage {
    /// The state directory, as `farfs mount` named it
    #[arg(value_name = "STATE")]
    state: PathBuf,
    /// Where to write them: a directory that is empty, or is made
    #[arg(value_name = "OUT")]
    out: PathBuf,
}

impl Salvage {
    pub fn run(self) -> Result<()> {
        let shown = self.state.display();
        if !matches!(state::known(&self.state), Ok(Some(_)) | Err(_)) || !self.state.is_dir() {
            return Err(fail(Exit::NotFound, format!("{shown} is not the state of a mount")));
        }
        let _lock = lock(&self.state)?;
        make_empty(&self.out)?;
        let log = salvage(&self.state.join("log"))?;
        let mut told: String = log.damage.iter().map(unreadable).collect();
        let tables = Database::open(&self.state.join(state::TABLES));
        if let Err(error) = &tables {
            let _ = writeln!(told, "names are those of the log alone: {error}");
        }
        let containers = DirectoryContainers::open(&self.state.join("cache"))?;
        let records: Vec<Vec<u8>> = log.records.into_iter().map(|(_, record)| record).collect();
        let read = tables.as_ref().ok().and_then(|tables| tables.read().ok());
        let Salvaged { files, unread } = client::unsent(read.as_deref(), &records, &containers)?;
        told.push_str(&doubts(unread, log.damage.is_empty()));
        let (mut copied, mut lost) = (0, 0);
        for file in &files {
            match self.copy(&containers, file) {
                Ok(line) => {
                    copied += 1;
                    let _ = writeln!(told, "{line}");
                }
                Err(error) => {
                    lost += 1;
                    let name = file.path.clone().unwrap_or_else(|| file.file.to_string());
                    let _ = writeln!(told, "{name}: {}", exit::words(&error));
                }
            }
        }
        output::text(&told)?;
        eprintln!("farfs: {} below {}", units::count(copied, "file"), self.out.display());
        match lost {
            0 => Ok(()),
            lost => {
                let lost = units::count(lost, "file");
                Err(fail(Exit::Damaged, format!("of {lost} there is nothing left to copy")))
            }
        }
    }

    fn copy(&self, containers: &DirectoryContainers, file: &Unsent) -> Result<String> {
        let found = file.key.map(|key| containers.open(key, false)).transpose()?.flatten();
        let found = found.context("its contents are not there")?;
        let named = file.path.as_ref().map(|path| self.out.join(within(Path::new(path))));
        // Two may have had one name, one after the other.
        let named = named.filter(|path| fs::symlink_metadata(path).is_err());
        let unnamed = || self.out.join("unnamed").join(file.file.0.to_string());
        let path = named.unwrap_or_else(unnamed);
        let above = path.parent().unwrap_or(&self.out);
        fs::create_dir_all(above).with_context(|| format!("cannot make {}", above.display()))?;
        let bytes =
            copy_to(&found, &path).with_context(|| format!("cannot write {}", path.display()))?;
        let part = match file.is_part {
            true => "; parts of it that were not here are zeros: the server has them",
            false => "",
        };
        Ok(format!("{}: {}{part}", path.display(), units::show_size(bytes)))
    }
}

fn unreadable((path, offset, bytes): &(PathBuf, u64, u64)) -> String {
    let (path, bytes) = (path.display(), units::count(*bytes, "byte"));
    format!("{path}: {bytes} from offset {offset} on cannot be read\n")
}

/// What may be wrong with the copies for want of what cannot be read.
fn doubts(unread: usize, sound: bool) -> String {
    let mut told = String::new();
    if unread > 0 {
        let records = units::count(unread as u64, "record");
        let _ = writeln!(
            told,
            "{records} of the log cannot be read; if a newer farfs wrote this log, use that one"
        );
    }
    if unread > 0 || !sound {
        told.push_str(
            "so files may be lacking or have another name, and what was not here of a file may be \
             zeros where that is not said\n",
        );
    }
    told
}

/// Names of the volume lead nowhere else.
fn within(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

fn make_empty(out: &Path) -> Result<()> {
    let cannot = || format!("cannot use {}", out.display());
    fs::create_dir_all(out).with_context(cannot)?;
    match fs::read_dir(out).with_context(cannot)?.next() {
        None => Ok(()),
        Some(_) => Err(fail(Exit::Busy, format!("{} is not empty", out.display()))),
    }
}

/// What it holds, with its holes. Gives its length.
fn copy_to(container: &impl Container, path: &Path) -> Result<u64> {
    let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let length = container.length()?;
    file.set_len(length)?;
    for (offset, bytes) in container.data(0, length)? {
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let read = container.read(at, most)?;
            if read.is_empty() {
                break;
            }
            file.write_all_at(&read, at)?;
            at += read.len() as u64;
        }
    }
    file.sync_all().or_exit(Exit::Failure, "it may not be on the disk")?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_volume_lead_nowhere_else() {
        for (path, safe) in [("a/b", "a/b"), ("/etc/x", "etc/x"), ("../x", "x"), ("a/./b", "a/b")] {
            assert_eq!(within(Path::new(path)), Path::new(safe));
        }
    }
}
