//! Where messages for the people who look after farfs go.
//! Holds: a log file and its predecessor together stay below twice `LOG_BYTES_MAX`.

use crate::last_words;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use store::embedded::Panicked;
use store::ordinary;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

const LOG_BYTES_MAX: u64 = 4 << 20;
const LOG_NAME: &str = "farfs.log";
const FILTER: &str = "FARFS_LOG";
/// Libraries whose news are not ours.
const DEFAULT_FILTER: &str = "info,quinn=warn,quinn_proto=warn,rustls=warn";

fn filter() -> EnvFilter {
    EnvFilter::try_from_env(FILTER).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER))
}

/// To the terminal.
pub fn to_stderr() {
    let colours = std::io::stderr().is_terminal();
    // A line that cannot be written is let go.
    let layer = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let layer = layer.with_target(false).with_ansi(colours);
    let _ = tracing_subscriber::registry().with(filter()).with(layer).try_init();
}

/// To the journal where there is one, else to a file in `directory`.
pub fn to_journal_or_file(directory: &Path) -> Result<()> {
    if let Ok(journal) = tracing_journald::layer() {
        let _ = tracing_subscriber::registry().with(filter()).with(journal).try_init();
    } else {
        let log = LogFile::open(directory)?;
        let layer = fmt::layer().with_ansi(false).with_writer(move || log.clone());
        let _ = tracing_subscriber::registry().with(filter()).with(layer).try_init();
    }
    Ok(())
}

/// A daemon's standard error leads nowhere.
pub fn panics_are_logged() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| match Panicked::of(panic) {
        Panicked::Caught => {}
        Panicked::Ends(damage) => last_words::say(damage),
        Panicked::Elsewhere => {
            tracing::error!(%panic, "farfs has a bug: please report this");
            before(panic);
        }
    }));
}

#[derive(Clone)]
struct LogFile(Arc<Mutex<Open>>);

struct Open {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl LogFile {
    fn open(directory: &Path) -> Result<LogFile> {
        let path = directory.join(LOG_NAME);
        let file = appending(&path).with_context(|| format!("cannot open {}", path.display()))?;
        // Where a link leads elsewhere, a log that has become too large stays beside the new one there.
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let bytes = file.metadata()?.len();
        Ok(LogFile(Arc::new(Mutex::new(Open { path, file, bytes }))))
    }
}

/// The name of the log that was full.
fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

fn appending(path: &Path) -> std::io::Result<File> {
    ordinary::open_or_make_even_linked(path, OpenOptions::new().append(true).mode(0o600))
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.bytes >= LOG_BYTES_MAX {
            std::fs::rename(&open.path, before(&open.path))?;
            open.file = appending(&open.path)?;
            open.bytes = 0;
        }
        let written = open.file.write(bytes)?;
        open.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_no_file_is_named_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(LOG_NAME);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = LogFile::open(directory.path()).map(drop).unwrap_err();
        let said = crate::exit::words(&error);
        assert!(said.contains(LOG_NAME) && said.contains("a pipe"), "{said}");
    }

    #[test]
    fn a_log_may_be_elsewhere_and_stays_there_when_it_is_full() {
        let [directory, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (link, target) = (directory.path().join(LOG_NAME), elsewhere.path().join("mine.txt"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = LogFile::open(directory.path()).map(drop).unwrap_err();
        let said = crate::exit::words(&error);
        assert!(said.contains("which is not followed"), "{said}");
        std::fs::write(&target, "").unwrap();
        let mut log = LogFile::open(directory.path()).unwrap();
        for _ in 0..6 {
            log.write_all(&vec![b'x'; 1 << 20]).unwrap();
        }
        let length = |name: &str| elsewhere.path().join(name).metadata().unwrap().len();
        assert_eq!((length("mine.txt"), length("mine.txt.1")), (2 << 20, 4 << 20));
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_full_log_moves_aside_and_the_one_before_it_goes() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = LogFile::open(directory.path()).unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..11 {
            log.write_all(&line).unwrap();
        }
        let length = |name: &str| directory.path().join(name).metadata().unwrap().len();
        assert_eq!((length("farfs.log"), length("farfs.log.1")), (3 << 20, 4 << 20));
        drop(log);
        assert_eq!(LogFile::open(directory.path()).unwrap().0.lock().unwrap().bytes, 3 << 20);
    }
}
