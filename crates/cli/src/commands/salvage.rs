//! `farfs salvage`.

use crate::exit::{self, Exit, OrExit, fail};
use crate::lock::{Lock, lock};
use crate::{last_words, output, state, units};
use anyhow::{Context, Error, Result, anyhow};
use client::{Compared, LogRead, Told, Unlogged, Unsent};
use model::{FileId, Time};
use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use store::container::{DirectoryContainers, Key};
use store::embedded::Database;
use store::journal::{Salvaged, salvage};
use store::{Container, Containers, Read, Tables};

const COPY_BYTES: usize = 1 << 20;

/// Copy what was not yet sent out of a state directory that is damaged
///
/// For where `farfs mount` says that the state directory cannot be used. The files of which
/// something had not been sent are written below OUT, under the names that they had in the volume;
/// those of which no name can be found, as `unnamed/NUMBER`; some that had been sent may be among
/// them. Where the log is damaged, what the tables say was not sent is written too, and what lies in
/// the cache of which nothing says that the server has it. A line for each says what is known of it.
/// What is not as it was written is copied, and said. That and what cannot be read end it with exit
/// code 6: not all may be there then. The state directory is left as it is, and may be on a disk that
/// is mounted read-only.
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
        if !store::is_directory(&self.state)? || state::is_new(&self.state) {
            return Err(fail(Exit::NotFound, format!("{shown} is not the state of a mount")));
        }
        let _lock = locked(&self.state)?;
        make_empty(&self.out)?;
        last_words::begin_with(format!(
            "the tables end this here; what is not below {} yet, `farfs salvage` copies from a copy of \
             {shown} without {}, by the names of the log alone",
            self.out.display(),
            state::TABLES
        ));
        let tables = tables(&self.state.join(state::TABLES), &self.out);
        let read = tables.as_ref().ok().and_then(|tables| tables.read().ok());
        let applied = match (&tables, &read) {
            (Err(error), _) => Err(exit::words(error)),
            (_, None) => Err("they cannot be read".to_owned()),
            (_, Some(read)) => match client::applied(&**read) {
                Ok(Some(applied)) => Ok(applied),
                Ok(None) => Err("they say nothing of this mount".to_owned()),
                Err(error) => Err(error.to_string()),
            },
        };
        let mut report = Report::default();
        let log = salvage(&self.state.join("log")).unwrap_or_else(|error| {
            report.line(format_args!("of the log nothing can be read: {error}"));
            Salvaged::default()
        });
        let missing = log.missing(*applied.as_ref().unwrap_or(&0));
        let is_whole = log.is_there && log.damage.is_empty() && missing.is_empty();
        let logged = LogRead { records: &log.records, is_whole };
        report.log(&log, &missing, &logged.unreadable());
        if let Err(error) = &applied {
            report.line(format_args!("names are those of the log alone: the tables: {error}"));
        }
        self.copy_all(read.as_deref(), logged, &mut report)?;
        report.tables_are_damaged = applied.is_err();
        output::text(&report.told)?;
        let copied = units::count(report.copied, "file");
        let out = self.out.display().to_string();
        output::tell(format_args!("{copied} below {}", output::name(&out)));
        report.outcome()
    }

    fn copy_all(
        &self,
        read: Option<&dyn Read>,
        log: LogRead<'_>,
        report: &mut Report,
    ) -> Result<()> {
        let containers = DirectoryContainers::look(&self.state.join("cache"))?;
        let records: Vec<Vec<u8>> = log.records.iter().map(|(_, record)| record.clone()).collect();
        let logged = client::unsent(read, &records, &containers)?.files;
        // What is surely not sent first: there may not be room for all.
        for file in &logged {
            let compared = match file.compared {
                // What came after may be among the records that are missing.
                Compared::Altered if report.log_is_damaged => Compared::Not,
                compared => compared,
            };
            let copied = self.copy_logged(&containers, file, compared);
            report.altered += u64::from(copied.is_ok() && compared == Compared::Altered);
            report.copied(file.path.as_ref(), file.file, copied);
        }
        let left_over = client::unlogged(read, log, &logged, &containers)?;
        for error in &left_over.unreadable {
            report.unreadable += 1;
            report.line(error);
        }
        for file in &left_over.files {
            // A log that is whole tells of every update that is pending.
            report.log_is_damaged |= matches!(file.told, Told::Stored(_));
            report.copied(file.path.as_ref(), file.file, self.copy_unlogged(&containers, file));
        }
        Ok(())
    }

    fn copy_logged(
        &self,
        containers: &DirectoryContainers,
        file: &Unsent,
        compared: Compared,
    ) -> Result<String> {
        let key = file.key.context(NOT_THERE)?;
        let copied = self.copy(containers, key, file.path.as_deref())?;
        let part = if file.is_part { A_PART } else { "" };
        let compared = match compared {
            Compared::AsWritten | Compared::Unstored => "",
            Compared::Altered => "; it is not what was written: some of it has changed on the disk",
            Compared::Not => "; whether it is what was written could not be compared",
        };
        Ok(format!("{copied}{compared}{part}"))
    }

    fn copy_unlogged(&self, containers: &DirectoryContainers, file: &Unlogged) -> Result<String> {
        if !file.is_there {
            return Err(anyhow!(NOT_THERE));
        }
        let copied = self.copy(containers, file.key, file.path.as_deref())?;
        let part = match file.is_part {
            Some(true) => A_PART,
            None if copied.has_holes => {
                "; it has holes, which are zeros: what belongs there may not have been here"
            }
            Some(false) | None => "",
        };
        let changed = copied.changed.as_deref().unwrap_or("nobody knows when");
        let told = match file.told {
            Told::Written => "by the tables it was written to, and not stored".to_owned(),
            Told::Stored(number) => {
                format!(
                    "by the tables it was not sent; update {number}, which stored it, is not in the log"
                )
            }
            Told::Changed => format!(
                "written to or fetched since the tables were; last changed {changed}; the server may have it"
            ),
            Told::Nothing => format!(
                "nothing tells where it comes from; last changed {changed}; the server may have it"
            ),
        };
        Ok(format!("{copied}; {told}{part}"))
    }

    fn copy(
        &self,
        containers: &DirectoryContainers,
        key: Key,
        path: Option<&str>,
    ) -> Result<Copied> {
        let found = containers.open(key, false)?.context(NOT_THERE)?;
        let named = path.map(|path| self.out.join(within(Path::new(path))));
        let unnamed = self.out.join("unnamed").join(key.file.to_string());
        let other = unnamed.with_extension(key.generation.to_string());
        let path = named.into_iter().chain([unnamed]).find(|path| is_free(path)).unwrap_or(other);
        let above = path.parent().unwrap_or(&self.out);
        fs::create_dir_all(above).with_context(|| format!("cannot make {}", above.display()))?;
        let changed = found.changed_at().ok().flatten();
        let changed = changed.map(|(secs, nanos)| units::show_time(Time { secs, nanos }));
        let (bytes, held) =
            copy_to(&found, &path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Copied { path, bytes, has_holes: held < bytes, changed })
    }
}

/// Two may have had one name, one after the other, or one of them that of the other's directory.
fn is_free(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

const NOT_THERE: &str = "its contents are not there";
const A_PART: &str = "; parts of it that were not here are zeros: the server has them";

struct Copied {
    path: PathBuf,
    bytes: u64,
    has_holes: bool,
    changed: Option<String>,
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), units::show_size(self.bytes))
    }
}

/// What there is to say at the end.
#[derive(Default)]
struct Report {
    told: String,
    copied: u64,
    lost: u64,
    altered: u64,
    /// Places of the cache.
    unreadable: u64,
    log_is_damaged: bool,
    tables_are_damaged: bool,
}

impl Report {
    fn line(&mut self, line: impl fmt::Display) {
        let _ = writeln!(self.told, "{line}");
    }

    fn log(&mut self, log: &Salvaged, missing: &[(u64, u64)], unreadable: &[u64]) {
        for (path, offset, bytes) in &log.damage {
            let (path, bytes) = (path.display(), units::count(*bytes, "byte"));
            self.line(format_args!("{path}: {bytes} from offset {offset} on cannot be read"));
        }
        if !log.is_there && missing.is_empty() {
            self.line("of the log nothing is there");
        }
        for (from, to) in missing {
            self.line(format_args!("of the log the records {from} to {to} are missing"));
        }
        for position in unreadable {
            self.line(format_args!("of the log record {position} cannot be read"));
        }
        if !unreadable.is_empty() {
            self.line("if a newer farfs wrote this log, use that one");
        }
        let is_whole = log.is_there && log.damage.is_empty() && missing.is_empty();
        self.log_is_damaged = !is_whole || !unreadable.is_empty();
    }

    fn copied(&mut self, path: Option<&String>, file: FileId, outcome: Result<String>) {
        match outcome {
            Ok(line) => {
                self.copied += 1;
                self.line(line);
            }
            Err(error) => {
                self.lost += 1;
                let name = path.cloned().unwrap_or_else(|| file.to_string());
                self.line(format_args!("{name}: {}", exit::words(&error)));
            }
        }
    }

    fn outcome(&self) -> Result<()> {
        let mut said = Vec::new();
        if self.log_is_damaged {
            let more = "there may be more than this that was not sent, and what was not here of a file \
                        may be zeros where that is not said";
            said.push(format!("not all of the log could be read: {more}"));
        }
        // Of a directory in which there is nothing, nothing was lost with them.
        if self.tables_are_damaged && self.copied + self.lost > 0 {
            let names = "names may be missing, and much of this may have been sent";
            said.push(format!("the tables could not be read: {names}"));
        }
        if self.lost > 0 {
            let lost = units::count(self.lost, "file");
            said.push(format!("of {lost} there is nothing left to copy"));
        }
        if self.altered > 0 {
            let altered = units::count(self.altered, "file");
            said.push(format!("of {altered} what is left is not what was written"));
        }
        if self.unreadable > 0 {
            let places = units::count(self.unreadable, "place");
            said.push(format!(
                "{places} of the cache could not be read, and there may be more in it"
            ));
        }
        if said.is_empty() { Ok(()) } else { Err(fail(Exit::Damaged, said.join("; "))) }
    }
}

/// None: nobody can write there, so nobody needs to be kept away.
fn locked(state: &Path) -> Result<Option<Lock>> {
    match lock(state) {
        Err(error) if exit::is_read_only(&error) => {
            let shown = state.display().to_string();
            output::tell(format_args!(
                "the file system of {} is mounted read-only: it is read unlocked",
                output::name(&shown)
            ));
            Ok(None)
        }
        outcome => outcome.map(Some),
    }
}

/// The tables, if they are there: none are made.
fn tables(path: &Path, out: &Path) -> Result<Database> {
    match fs::metadata(path) {
        Ok(found) if found.len() > 0 => match Database::open(path).map_err(Error::new) {
            Err(error) if exit::is_read_only(&error) => copied_tables(path, out),
            opened => opened,
        },
        Ok(_) => Err(anyhow!("{} is empty", path.display())),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Opening them writes: where that cannot be, to a copy, of which no name stays.
fn copied_tables(path: &Path, out: &Path) -> Result<Database> {
    let copy = out.join(".tables");
    let copied = fs::copy(path, &copy).with_context(|| format!("cannot copy {}", path.display()));
    match copied.and_then(|_| Ok(Database::open(&copy)?)) {
        Ok(tables) => {
            tables.unname()?;
            Ok(tables)
        }
        Err(error) => {
            // What is not there need not be removed.
            let _ = fs::remove_file(&copy);
            Err(error)
        }
    }
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

/// What it holds, with its holes. Gives its length, and how much of that is no hole.
fn copy_to(container: &impl Container, path: &Path) -> Result<(u64, u64)> {
    let file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let length = container.length()?;
    file.set_len(length)?;
    let data = container.data(0, length)?;
    for (offset, bytes) in &data {
        let (mut at, end) = (*offset, offset + bytes);
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
    Ok((length, data.iter().map(|(_, bytes)| bytes).sum()))
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

    #[test]
    fn below_a_file_nothing_is_free() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "").unwrap();
        for (path, free) in [("a", false), ("a/b", false), ("b", true), ("c/d", true)] {
            assert_eq!(is_free(&directory.path().join(path)), free, "{path}");
        }
    }
}
