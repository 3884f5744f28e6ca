//! What a tree looks like: every name with all that a program can learn of it.
#![allow(unsafe_code, reason = "what is compared are system calls as they are")]

use e2e::contents::checksum;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

/// Of a larger file, its beginning and its end are read.
const READ_MAX: u64 = 32 << 20;
const ENDS_BYTES: u64 = 1 << 18;

/// What follows tells the times themselves, which are never the same.
pub const TIMES: &str = " | ";

/// Before a time that was set.
pub const AT: &str = " at ";

type Times = (i64, i64);

/// What was seen last, to tell which times have changed since.
#[derive(Default)]
pub struct Seen {
    times: BTreeMap<(String, u64), (Times, Times)>,
}

/// Of each path: what it is, and which of its times have changed since it was last looked at.
pub fn looked(tree: &Path, seen: &mut Seen, deep: bool) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut inodes: BTreeMap<u64, String> = BTreeMap::new();
    let mut times = BTreeMap::new();
    let mut ahead = vec![tree.to_owned()];
    while let Some(path) = ahead.pop() {
        let name = path.strip_prefix(tree).unwrap().display().to_string();
        let stat = match fs::symlink_metadata(&path) {
            Ok(stat) => stat,
            Err(error) => {
                found.insert(name, format!("{error}"));
                continue;
            }
        };
        if stat.is_dir() {
            let mut inside: Vec<_> =
                fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
            inside.sort();
            ahead.extend(inside);
        }
        let first = inodes.entry(stat.ino()).or_insert_with(|| name.clone()).clone();
        let key = (name.clone(), stat.ino());
        let now = ((stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec()));
        let (mut line, mut moved) = (what(&stat, &first), String::new());
        if let Some((modified, changed)) = seen.times.get(&key) {
            line += if *modified == now.0 { " -" } else { " m" };
            line += if *changed == now.1 { "-" } else { "c" };
            moved = format!("{TIMES}{modified:?}, {changed:?}, now {now:?}");
        }
        times.insert(key, now);
        if deep {
            line += &inside(&path, &stat);
        }
        found.insert(name, line + &moved);
    }
    seen.times = times;
    found
}

fn what(stat: &fs::Metadata, first: &str) -> String {
    let kind = stat.file_type();
    let size = if stat.is_dir() { 0 } else { stat.len() };
    let device = if kind.is_char_device() || kind.is_block_device() { stat.rdev() } else { 0 };
    // A time that was set is told by its seconds.
    let long_ago = if stat.mtime() < 1_700_000_000 { stat.mtime() } else { 0 };
    format!(
        "{:o} {}:{} {}x is {first:?} {size} bytes device {device:x}{AT}{long_ago}",
        stat.mode(),
        stat.uid(),
        stat.gid(),
        stat.nlink(),
    )
}

/// Contents, target and extended attributes.
fn inside(path: &Path, stat: &fs::Metadata) -> String {
    let mut line = String::new();
    if stat.is_symlink() {
        line += &format!(" to {:?}", fs::read_link(path));
    }
    if stat.is_file() {
        line += &format!(" {}", held(path, stat.len()).unwrap_or_else(|error| error.to_string()));
    }
    line + &attributes(path)
}

fn held(path: &Path, size: u64) -> std::io::Result<String> {
    let file = fs::File::open(path)?;
    let part = |at, end: u64| -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; (end - at) as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], at + filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    };
    if size <= READ_MAX {
        let bytes = part(0, size)?;
        return Ok(format!("sum {:x} of {}", quick_sum(&bytes), bytes.len()));
    }
    let bytes = [part(0, ENDS_BYTES)?, part(size - ENDS_BYTES, size)?].concat();
    Ok(format!("sum {:x} of {}", quick_sum(&bytes), bytes.len()))
}

/// As `checksum`, by words: a large file is looked at often.
fn quick_sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.fold(checksum(rest), |sum, word| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}

fn attributes(path: &Path) -> String {
    let mut line = String::new();
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut names = vec![0_u8; 65_536];
    // SAFETY: the paths and names end in a zero, and the buffers are as long as is told.
    unsafe {
        let bytes = libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len());
        if bytes < 0 {
            return format!(" no list: {}", std::io::Error::last_os_error());
        }
        names.truncate(bytes as usize);
        let mut names: Vec<_> =
            names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        for name in names {
            let mut value = vec![0_u8; 65_536];
            let key = CString::new(name).unwrap();
            let at = value.as_mut_ptr().cast();
            let bytes = libc::lgetxattr(path.as_ptr(), key.as_ptr(), at, value.len());
            value.truncate(bytes.max(0) as usize);
            line += &format!(" {}={value:?}", String::from_utf8_lossy(name));
        }
    }
    line
}
