//! Programs that run, watch, list, append and lock while others change what they have.

use super::{both, errno};
use crate::calls::{Pages, in_child, positions, told_of};
use e2e::contents::checksum;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

pub fn running(place: &Path, told: &mut String) {
    let program = place.join("program");
    fs::copy("/bin/sleep", &program).unwrap();
    let start = || std::process::Command::new(&program).arg("60").spawn();
    let writer = File::options().write(true).open(&program).unwrap();
    writeln!(told, "started while it is written: {}", errno(start().map(|_| ()))).unwrap();
    drop(writer);
    let mut runs = start().unwrap();
    let open = |how: &mut fs::OpenOptions| errno(how.open(&program).map(|_| ()));
    writeln!(told, "opened to write: {}", open(File::options().write(true))).unwrap();
    writeln!(told, "to append: {}", open(File::options().append(true))).unwrap();
    let cut = rustix::io::retry_on_intr(|| {
        let path = std::ffi::CString::new(program.display().to_string()).unwrap();
        crate::calls::truncate(&path, 10)
    });
    writeln!(told, "cut: {cut:?}, opened to read: {}", open(File::options().read(true))).unwrap();
    fs::rename(&program, place.join("renamed")).unwrap();
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    runs.kill().unwrap();
    runs.wait().unwrap();
    writeln!(told, "{:?}", std::process::Command::new(&program).status().unwrap().code()).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o644)).unwrap();
    writeln!(told, "without a bit to: {}", errno(start().map(|_| ()))).unwrap();
    writeln!(told, "{}", open(File::options().write(true))).unwrap();
}

pub fn gone_below(place: &Path, told: &mut String) {
    let folder = place.join("above/below");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("file"), "x").unwrap();
    let before = std::env::current_dir().unwrap();
    std::env::set_current_dir(&folder).unwrap();
    let mut tries = |what: &str| {
        let made = errno(File::create("new").map(|_| ()));
        let folder = errno(fs::create_dir("dir"));
        let listed = errno(fs::read_dir(".").map(Iterator::count));
        let links = errno(fs::metadata(".").map(|stat| stat.nlink()));
        let above = errno(fs::metadata("..").map(|stat| stat.is_dir()));
        let file = errno(fs::metadata("file").map(|stat| stat.len()));
        let here = std::env::current_dir().map(|path| path.ends_with("below"));
        let text = [made, folder, listed, links, above, file, errno(here)].join(", ");
        writeln!(told, "{what}: {text}").unwrap();
        let _ = (fs::remove_file("new"), fs::remove_dir("dir"));
    };
    tries("there");
    fs::remove_file(folder.join("file")).unwrap();
    fs::remove_dir(&folder).unwrap();
    tries("gone");
    fs::remove_dir(place.join("above")).unwrap();
    tries("and what was above");
    fs::create_dir_all(&folder).unwrap();
    tries("another in its place");
    std::env::set_current_dir(before).unwrap();
}

/// A listing goes on from where it was, whatever comes and goes meanwhile.
pub fn places(place: &Path, told: &mut String) {
    let folder = place.join("many");
    fs::create_dir(&folder).unwrap();
    for number in 0..300 {
        fs::write(folder.join(format!("entry-{number:03}")), "").unwrap();
    }
    let open = rustix::fs::open(&folder, OFlags::DIRECTORY, 0.into()).unwrap();
    let all = positions(open.as_raw_fd(), 0, usize::MAX);
    writeln!(told, "{} entries", all.len()).unwrap();
    // From each of some places the rest follows, as it did before.
    for at in [0, 1, 7, 100, 299] {
        let rest = positions(open.as_raw_fd(), all[at].1, usize::MAX);
        let same = rest.iter().map(|entry| &entry.0).eq(all[at + 1..].iter().map(|entry| &entry.0));
        writeln!(told, "after {at}: {} {same}", rest.len()).unwrap();
    }
    // Half is read, half of it all goes, and some come.
    let first = positions(open.as_raw_fd(), 0, 150);
    for number in (0..300).step_by(2) {
        fs::remove_file(folder.join(format!("entry-{number:03}"))).unwrap();
        fs::rename(
            folder.join(format!("entry-{:03}", number + 1)),
            folder.join(format!("moved-{number:03}")),
        )
        .unwrap();
        fs::rename(
            folder.join(format!("moved-{number:03}")),
            folder.join(format!("entry-{:03}", number + 1)),
        )
        .unwrap();
        fs::write(folder.join(format!("new-{number:03}")), "").unwrap();
    }
    let last = first.last().unwrap().1;
    let rest = positions(open.as_raw_fd(), last, usize::MAX);
    let mut names: Vec<_> = first.iter().chain(&rest).map(|entry| entry.0.clone()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    writeln!(told, "none twice: {}", names.len() == count).unwrap();
    let again = positions(open.as_raw_fd(), 0, usize::MAX);
    let mut again: Vec<_> = again.into_iter().map(|entry| entry.0).collect();
    again.sort();
    writeln!(told, "{again:?}").unwrap();
    let missing = positions(open.as_raw_fd(), 0, 1);
    fs::remove_dir_all(&folder).unwrap();
    let gone = positions(open.as_raw_fd(), 0, usize::MAX);
    writeln!(told, "{} and then {}", missing.len(), gone.len()).unwrap();
}

pub fn events(place: &Path, told: &mut String) {
    let folder = place.join("watched");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("old"), "old").unwrap();
    let (old, new) = (folder.join("old"), folder.join("new"));
    *told += &told_of(&[&folder, &old], || {
        fs::write(&new, "text").unwrap();
        fs::read(&new).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
        let file = both(&new);
        file.set_len(1).unwrap();
        let pages = Pages::shared(&file, 4_096);
        pages.fill(0, 1, b'm');
        drop((pages, file));
        fs::hard_link(&new, folder.join("link")).unwrap();
        fs::rename(&new, &old).unwrap();
        fs::remove_file(folder.join("link")).unwrap();
        fs::create_dir(folder.join("inner")).unwrap();
        fs::remove_dir(folder.join("inner")).unwrap();
        fs::rename(&old, place.join("outside")).unwrap();
        let file = both(&place.join("outside"));
        fallocate(&file, FallocateFlags::empty(), 0, 100).unwrap();
        fs::remove_file(place.join("outside")).unwrap();
        drop(file);
        fs::remove_dir(&folder).unwrap();
    });
}

pub fn appended(place: &Path, told: &mut String) {
    let path = place.join("log");
    let line = |who: usize, number: usize| format!("{who} {number} {}\n", "x".repeat(number % 97));
    std::thread::scope(|scope| {
        for who in 0..3 {
            let path = &path;
            scope.spawn(move || {
                let mut file = File::options().append(true).create(true).open(path).unwrap();
                for number in 0..150 {
                    file.write_all(line(who, number).as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    for who in 0..3 {
        let own: Vec<_> = lines.iter().filter(|line| line.starts_with(&who.to_string())).collect();
        let right = own.iter().enumerate().all(|(at, own)| **own == line(who, at).trim_end());
        writeln!(told, "{who}: {} {right}", own.len()).unwrap();
    }
    lines.sort_unstable();
    writeln!(told, "{:x}", checksum(lines.concat().as_bytes())).unwrap();
}

pub fn locked(place: &Path, told: &mut String) {
    use rustix::fs::{FlockOperation, fcntl_lock};
    let path = place.join("locked");
    let (one, other) = (both(&path), both(&path));
    let lock = |file: &File, how| fcntl_lock(file, how);
    let elsewhere = |how| {
        in_child(|| {
            let file = both(&path);
            i32::from(fcntl_lock(&file, how).is_err())
        })
    };
    let (shared, exclusive) =
        (FlockOperation::NonBlockingLockShared, FlockOperation::NonBlockingLockExclusive);
    let mut tell = |what: &str| {
        let (shared, exclusive) = (elsewhere(shared), elsewhere(exclusive));
        writeln!(told, "{what}: {shared:?} {exclusive:?}").unwrap();
    };
    tell("free");
    lock(&one, exclusive).unwrap();
    tell("exclusive");
    lock(&one, shared).unwrap();
    tell("shared");
    lock(&other, exclusive).unwrap();
    tell("by the same process again");
    drop(other);
    tell("given up by closing another descriptor");
    lock(&one, exclusive).unwrap();
    let copy = one.try_clone().unwrap();
    drop(copy);
    tell("given up by closing a copy");
    rustix::fs::flock(&one, exclusive).unwrap();
    let third = both(&path);
    let denied = rustix::fs::flock(&third, shared);
    let copy = one.try_clone().unwrap();
    drop(one);
    let still = rustix::fs::flock(&third, shared);
    drop(copy);
    let free = rustix::fs::flock(&third, shared);
    writeln!(told, "{denied:?} {still:?} {free:?}").unwrap();
    drop(third);
    // Whoever has closed it has given it up.
    let at_once = (0..200).map(|_| rustix::fs::flock(both(&path), exclusive));
    let to_read = (0..200).map(|_| rustix::fs::flock(File::open(&path).unwrap(), exclusive));
    let refused: Vec<_> = at_once.chain(to_read).filter_map(Result::err).collect();
    writeln!(told, "refused: {refused:?}").unwrap();
}
