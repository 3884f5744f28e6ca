//! Trees of files, made, copied, scanned and read by plain calls.

use anyhow::{Context, Result};
use bench::command;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The directories of a tree, without its files.
pub fn copy_directories(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in list(from)? {
        if entry.file_type()?.is_dir() {
            copy_directories(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// The files of a tree, into directories that are there. Times are kept, for make.
pub fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for entry in list(from)? {
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_files(&entry.path(), &to)?;
        } else {
            copy_file(&entry.path(), &to)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy to {}", to.display()))?;
    let modified = fs::metadata(from).and_then(|metadata| metadata.modified())?;
    let file = fs::File::options().write(true).open(to)?;
    file.set_modified(modified).with_context(|| format!("cannot set times of {}", to.display()))
}

/// A whole tree.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    copy_directories(from, to)?;
    copy_files(from, to)
}

/// A whole tree that is built, as it is: make goes by the times of all its files.
pub fn copy_built(from: &Path, to: &Path) -> Result<()> {
    command::run(Command::new("cp").arg("-a").arg(from).arg(to))?;
    Ok(())
}

/// Looks at the attributes of every file, and says how many there are.
pub fn scan(tree: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in list(tree)? {
        let metadata = entry.metadata()?;
        files += if metadata.is_dir() { scan(&entry.path())? } else { 1 };
    }
    Ok(files)
}

/// Reads every byte, and says how many there are.
pub fn read(tree: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in list(tree)? {
        let path = entry.path();
        bytes += if entry.file_type()?.is_dir() {
            read(&path)?
        } else {
            let contents =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            contents.len() as u64
        };
    }
    Ok(bytes)
}

/// In the order of the names, so that every system is asked for the same.
fn list(directory: &Path) -> Result<Vec<fs::DirEntry>> {
    let shown = || format!("cannot list {}", directory.display());
    let mut entries: Vec<_> = fs::read_dir(directory)
        .with_context(shown)?
        .collect::<Result<_, _>>()
        .with_context(shown)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}
