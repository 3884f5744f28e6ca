//! Trees of very many small files, and files that are nearly all holes.

use anyhow::{Context, Result, bail, ensure};
use bench::random::Random;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files of a directory, and directories of one.
const FILES: u64 = 100;
const DIRECTORIES: u64 = 50;
/// So many files are read, spread over all.
const READ: u64 = 1000;

/// What is written and read of a large file at once, and how often a block is made another.
const BLOCK_BYTES: usize = 1 << 20;
const STAMP_EVERY: usize = 1 << 10;

/// Written places of a sparse file, and their bytes.
const PLACES: u64 = 64;
const PLACE_BYTES: usize = 64 << 10;
const CHANGED_PLACE: u64 = 17;
const CHANGED_OFFSET: u64 = 4321;
/// The byte that is put there.
pub const CHANGED: u8 = b'!';
/// How long another client may not see a change.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What was found below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub files: u64,
    pub directories: u64,
}

fn directory_of(tree: &Path, file: u64) -> PathBuf {
    let directory = file / FILES;
    tree.join((directory / DIRECTORIES).to_string()).join((directory % DIRECTORIES).to_string())
}

fn path_of(tree: &Path, file: u64) -> PathBuf {
    directory_of(tree, file).join(format!("file-{file:07}.txt"))
}

fn text_of(file: u64) -> String {
    format!("this is the file of number {file}\n")
}

/// As a tree that is unpacked: directory by directory, each file written and closed.
pub fn make(tree: &Path, files: u64) -> Result<()> {
    for file in 0..files {
        if file % FILES == 0 {
            let directory = directory_of(tree, file);
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let path = path_of(tree, file);
        fs::write(&path, text_of(file))
            .with_context(|| format!("cannot make {}", path.display()))?;
    }
    Ok(())
}

/// As `find` with a question about each file: lists every directory, asks for every file's size.
pub fn count(tree: &Path) -> Result<Counted> {
    let mut counted = Counted::default();
    let mut left = vec![tree.to_owned()];
    while let Some(directory) = left.pop() {
        counted.directories += 1;
        let shown = || format!("cannot list {}", directory.display());
        for entry in fs::read_dir(&directory).with_context(shown)? {
            let entry = entry.with_context(shown)?;
            let metadata = entry.metadata().with_context(shown)?;
            match metadata.is_dir() {
                true => left.push(entry.path()),
                false => counted.files += 1,
            }
        }
    }
    Ok(counted)
}

/// Reads files from all over the tree.
pub fn read(tree: &Path, files: u64) -> Result<()> {
    let mut random = Random::new(files);
    for _ in 0..READ.min(files) {
        let file = random.below(files);
        let path = path_of(tree, file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(text == text_of(file), "{} has other contents", path.display());
    }
    Ok(())
}

/// Asks for the size of a file.
pub fn look_at(tree: &Path, file: u64) -> Result<()> {
    let path = path_of(tree, file);
    let shown = || format!("cannot look at {}", path.display());
    let bytes = fs::metadata(&path).with_context(shown)?.len();
    ensure!(bytes == text_of(file).len() as u64, "{} has {bytes} bytes", path.display());
    Ok(())
}

/// A new file that is none of the tree's.
pub fn make_beside(tree: &Path, number: u64) -> Result<()> {
    let beside = tree.with_file_name("beside");
    fs::create_dir_all(&beside).context("cannot make a directory")?;
    fs::write(beside.join(number.to_string()), "new").context("cannot make a file")
}

/// Some files that every client may write to.
pub fn store_shared(point: &Path, files: u64, text: &str) -> Result<()> {
    let shared = point.join("shared");
    fs::create_dir_all(&shared).context("cannot make a directory")?;
    (0..files).try_for_each(|file| {
        fs::write(shared.join(file.to_string()), text).context("cannot write a file")
    })
}

/// New bytes, of which no chunk comes twice.
pub fn make_large(path: &Path, bytes: u64) -> Result<()> {
    write_large(path, bytes, 1)
}

pub fn make_other(path: &Path, bytes: u64) -> Result<()> {
    write_large(path, bytes, 2)
}

fn write_large(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let mut file = File::create(path).context("cannot make the file")?;
    let mut block = vec![0; BLOCK_BYTES];
    Random::new(seed).fill(&mut block);
    let mut left = bytes;
    while left > 0 {
        // As cheap as can be, for it is counted with the writing.
        for place in (0..BLOCK_BYTES).step_by(STAMP_EVERY) {
            block[place..place + 8]
                .copy_from_slice(&left.rotate_left(place as u32 % 64).to_le_bytes());
        }
        let some = left.min(BLOCK_BYTES as u64) as usize;
        file.write_all(&block[..some]).context("cannot write")?;
        left -= some as u64;
    }
    // What `close` says is lost when a file is dropped.
    rustix::fs::fsync(&file).context("cannot sync")
}

pub fn read_large(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::open(path).context("cannot open the file")?;
    let (mut block, mut read) = (vec![0; BLOCK_BYTES], 0);
    loop {
        match file.read(&mut block).context("cannot read")? {
            0 => break,
            some => read += some as u64,
        }
    }
    ensure!(read == bytes, "{read} bytes were read of {bytes}");
    Ok(())
}

fn place(bytes: u64, number: u64) -> u64 {
    bytes / PLACES * number
}

fn written(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; PLACE_BYTES];
    Random::new(number + 1).fill(&mut bytes);
    bytes
}

pub fn make_sparse(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path).context("cannot make the file")?;
    file.set_len(bytes).context("cannot make it long")?;
    for number in 0..PLACES {
        file.write_all_at(&written(number), place(bytes, number)).context("cannot write")?;
    }
    Ok(())
}

pub fn change_sparse(path: &Path, bytes: u64) -> Result<()> {
    change(path, place(bytes, CHANGED_PLACE) + CHANGED_OFFSET)
}

/// One byte of a file becomes another.
pub fn change(path: &Path, at: u64) -> Result<()> {
    let file = File::options().write(true).open(path).context("cannot open the file")?;
    file.write_all_at(&[CHANGED], at).context("cannot write")
}

/// Reads the written places with what is around them; with a change, once that is there.
pub fn read_sparse(path: &Path, bytes: u64, changed: Option<u8>) -> Result<()> {
    let start = Instant::now();
    loop {
        match File::open(path) {
            Ok(file) if is_changed(&file, bytes, changed)? => {
                return read_places(&file, bytes, changed);
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).context("cannot open the file");
            }
            _ if start.elapsed() > SEEN_WITHIN => bail!("the file is not as it was written"),
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
}

fn is_changed(file: &File, bytes: u64, changed: Option<u8>) -> Result<bool> {
    let Some(changed) = changed else { return Ok(true) };
    let mut byte = [0];
    let at = place(bytes, CHANGED_PLACE) + CHANGED_OFFSET;
    file.read_exact_at(&mut byte, at).context("cannot read")?;
    Ok(byte[0] == changed)
}

fn read_places(file: &File, bytes: u64, changed: Option<u8>) -> Result<()> {
    let length = file.metadata().context("cannot ask for its length")?.len();
    ensure!(length == bytes, "it has {length} bytes instead of {bytes}");
    let mut found = vec![0; 3 * PLACE_BYTES];
    for number in 0..PLACES {
        let at = place(bytes, number);
        let before = at.min(PLACE_BYTES as u64);
        let got = file.read_at(&mut found, at - before).context("cannot read")?;
        let mut expected = vec![0; before as usize];
        expected.extend(written(number));
        expected.resize(got, 0);
        if let (CHANGED_PLACE, Some(byte)) = (number, changed) {
            expected[(before + CHANGED_OFFSET) as usize] = byte;
        }
        ensure!(got >= 2 * PLACE_BYTES, "{got} bytes were read at {at}");
        ensure!(found[..got] == expected[..], "place {number} has other contents");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_counted_and_read() {
        let directory = std::env::temp_dir().join(format!("bench-scale-{}", std::process::id()));
        let tree = directory.join("tree");
        make(&tree, 250).unwrap();
        assert_eq!(count(&tree).unwrap(), Counted { files: 250, directories: 5 });
        read(&tree, 250).unwrap();
        let (image, bytes) = (directory.join("image"), 64_000_000);
        make_sparse(&image, bytes).unwrap();
        read_sparse(&image, bytes, None).unwrap();
        change_sparse(&image, bytes).unwrap();
        read_sparse(&image, bytes, Some(CHANGED)).unwrap();
        let large = directory.join("large");
        make_large(&large, 2_500_000).unwrap();
        read_large(&large, 2_500_000).unwrap();
        assert!(read_large(&large, 2_500_001).is_err());
        let file = File::open(&image).unwrap();
        assert!(read_places(&file, bytes, None).is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
