//! What tests write into files: noise that does not compress, and lines that carry their own
//! checksum, so that half a version is told from a whole one.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Writes a file and learns whether that went well, which a mere close does not tell.
pub fn write_and_sync(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// What there is below a folder, by path from there.
pub type Tree = BTreeMap<PathBuf, String>;

/// Bytes that look like chance and are the same for the same seed.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        noise.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

/// FNV-1a, 64 bits: against accidents, not against people.
pub fn checksum(bytes: &[u8]) -> u64 {
    checksum_on(0xcbf2_9ce4_8422_2325, bytes)
}

fn checksum_on(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A version of a file: its first line has its number, its length and its checksum.
pub fn version(number: u64, bytes: usize) -> Vec<u8> {
    let body = noise(number, bytes);
    let mut whole = format!("{number} {bytes} {:016x}\n", checksum(&body)).into_bytes();
    whole.extend_from_slice(&body);
    whole
}

/// The number of a version, or what is wrong with it.
pub fn number_of(whole: &[u8]) -> Result<u64, String> {
    let end = whole.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| format!("no first line in {} bytes", whole.len()))?;
    let line = String::from_utf8_lossy(&whole[..end]).into_owned();
    let body = &whole[end + 1..];
    let fields: Vec<&str> = line.split(' ').collect();
    let [number, bytes, sum] = fields[..] else { return Err(format!("the first line is {line}")) };
    if bytes != body.len().to_string() || sum != format!("{:016x}", checksum(body)) {
        let is = format!("{} bytes, sum {:016x}", body.len(), checksum(body));
        return Err(format!("it says {line}, but is {is}"));
    }
    number.parse().map_err(|_| format!("the number is {number}"))
}

/// Every file below a folder by its path from there: what it is and what is in it.
#[track_caller]
pub fn tree(folder: &Path) -> Tree {
    tree_now(folder).unwrap_or_else(|error| panic!("{error}"))
}

/// The same while others may be at work in it: what is listed and gone when it is looked at is an
/// error, for the caller to look again.
pub fn tree_now(folder: &Path) -> Result<Tree, String> {
    walk(folder, |_| String::new())
}

/// The same with mode, owner, links and time of change.
#[track_caller]
pub fn tree_with_attributes(folder: &Path) -> Tree {
    let found = walk(folder, |stat| {
        let (mode, uid, gid) = (stat.mode(), stat.uid(), stat.gid());
        let (links, seconds, nanos) = (stat.nlink(), stat.mtime(), stat.mtime_nsec());
        format!(", mode {mode:o} of {uid}:{gid}, {links} links, {seconds}.{nanos:09}")
    });
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// The same with the time of birth, of what has one.
#[track_caller]
pub fn tree_with_births(folder: &Path) -> Tree {
    let mut found = tree_with_attributes(folder);
    for (name, what) in &mut found {
        let stat = std::fs::symlink_metadata(folder.join(name));
        let stat = stat.unwrap_or_else(|error| panic!("{}: {error}", name.display()));
        *what += &format!(", born {:?}", stat.created().ok());
    }
    found
}

/// The same as `tree_now` with modes, and of files with how many names each has.
pub fn tree_with_links_now(folder: &Path) -> Result<Tree, String> {
    walk(folder, |stat| {
        let mode = stat.mode();
        if stat.is_file() {
            format!(", mode {mode:o}, {} links", stat.nlink())
        } else {
            format!(", mode {mode:o}")
        }
    })
}

fn walk(folder: &Path, more: impl Fn(&Metadata) -> String) -> Result<Tree, String> {
    let mut found = Tree::new();
    let mut ahead = vec![folder.to_owned()];
    while let Some(directory) = ahead.pop() {
        let entries = std::fs::read_dir(&directory)
            .map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
        for entry in entries {
            let entry = entry
                .map_err(|error| format!("cannot read on in {}: {error}", directory.display()))?;
            let path = entry.path();
            let unseen = |error| format!("cannot look at {}: {error}", path.display());
            let stat = std::fs::symlink_metadata(&path).map_err(unseen)?;
            if stat.is_dir() {
                ahead.push(path.clone());
            }
            let name = path.strip_prefix(folder).expect("it lies below the folder").to_owned();
            let what = what(&path, &stat).map_err(unseen)? + &more(&stat);
            assert_eq!(found.insert(name, what), None, "{} is listed twice", path.display());
        }
    }
    Ok(found)
}

fn what(path: &Path, stat: &Metadata) -> std::io::Result<String> {
    let kind = stat.file_type();
    if kind.is_dir() {
        return Ok("directory".into());
    }
    if kind.is_symlink() {
        return Ok(format!("link to {}", std::fs::read_link(path)?.display()));
    }
    if !kind.is_file() {
        return Ok(format!("{kind:?}, device {}", stat.rdev()));
    }
    Ok(format!("{} bytes, sum {:016x}", stat.len(), sum_of(path)?))
}

/// The checksum of a file's contents.
fn sum_of(path: &Path) -> std::io::Result<u64> {
    let mut file = std::fs::File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut sum = checksum(b"");
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(sum),
            bytes => sum = checksum_on(sum, &buffer[..bytes]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_version_tells_its_number_and_a_half_one_does_not() {
        let whole = version(7, 1000);
        assert_eq!(number_of(&whole), Ok(7));
        for bad in [&whole[..whole.len() - 1], &whole[..5], &whole[1..], b"" as &[u8]] {
            assert!(number_of(bad).is_err());
        }
        let mut mixed = whole.clone();
        mixed[500] ^= 1;
        assert!(number_of(&mixed).is_err());
    }

    #[test]
    fn noise_is_the_same_again_and_other_for_another_seed() {
        assert_eq!(noise(1, 33), noise(1, 33));
        assert_ne!(noise(1, 33), noise(2, 33));
        assert_eq!(noise(1, 33).len(), 33);
    }
}
