//! Opening ordinary files, whatever has come to stand in the place of one.
//! Holds: a pipe is never waited for; what is opened is an ordinary file; of a link its target is
//! neither shown, written to nor cut short, but for files that people may have elsewhere.

use std::ffi::OsString;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Things of one name that are put aside.
const ASIDE_MAX: u32 = 100;
/// How often, and for how many times, it is looked whether a lease has ended: for longer than Linux
/// lets one last that somebody is asked to give up (45 s).
const LEASE_LOOK_EVERY: Duration = Duration::from_millis(20);
const LEASE_LOOKS_MAX: u32 = 3000;
/// How often, and for how many times, it is tried again where no descriptor is left: those that are
/// taken for a moment come back soon.
const DESCRIPTOR_TRY_EVERY: Duration = Duration::from_millis(10);
const DESCRIPTOR_TRIES_MAX: u32 = 500;

const LINK: &str = "a symbolic link";

/// What is there is no ordinary file, or no directory where one is to be. It is the source of an
/// `io::Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Strange {
    #[error(
        "it is {0}{more} and not an ordinary file: move it away, and put back the file that was there if \
         you have it",
        more = unfollowed(.0)
    )]
    File(&'static str),
    #[error(
        "it is {0} and not a directory: move it away, and put back the directory that was there, with what \
         was in it, if you have it"
    )]
    Directory(&'static str),
    /// In the place of a directory. Where its end is on a disk that is not mounted, it is none of
    /// ours to put aside.
    #[error(
        "it is a symbolic link that leads to no directory: mount the disk to which it leads, or move it \
         away, and put back the directory that was there if you have it"
    )]
    Astray,
}

impl Strange {
    /// None: the error says something else.
    pub fn of(error: &io::Error) -> Option<Strange> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// What stands where a directory is to be, or where one that leads there is to be, and its place.
    /// None: nothing, or what is there cannot be looked at.
    pub fn for_directory(path: &Path) -> Option<(PathBuf, Strange)> {
        let found = |path: &Path| std::fs::symlink_metadata(path).ok();
        let there = path.ancestors().find_map(|path| Some((path, found(path)?.file_type())));
        let (path, kind) = there?;
        let strange = match kind {
            kind if kind.is_dir() || kind.is_symlink() && path.is_dir() => return None,
            kind if kind.is_symlink() => Strange::Astray,
            kind => Strange::Directory(name_of(kind)),
        };
        Some((path.to_path_buf(), strange))
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_symlink() => LINK,
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe (FIFO)",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_file() => "an ordinary file",
        _ => "a device",
    }
}

fn unfollowed(what: &str) -> &'static str {
    if what == LINK { ", which is not followed here," } else { "" }
}

impl From<Strange> for io::Error {
    fn from(strange: Strange) -> io::Error {
        io::Error::new(ErrorKind::InvalidInput, strange)
    }
}

/// Opens with these options, which are to set no flags of their own.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    when_there_is_one(|| open_at_once(path, options))
}

/// The same, and waits for no descriptor.
pub fn open_at_once(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = unhurried(path, options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK));
    let file = opened.map_err(|error| metadata(path).err().filter(is_strange).unwrap_or(error))?;
    checked(file.metadata()?)?;
    Ok(file)
}

/// The same of a file that people may have elsewhere, with a link to it in its place. It is made if
/// there is neither.
pub fn open_or_make_even_linked(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match unhurried(path, options.create(false).custom_flags(libc::O_NONBLOCK)) {
        // A link that leads nowhere makes no file where it leads.
        Err(error) if error.kind() == ErrorKind::NotFound => open(path, options.create(true)),
        Err(error) => {
            let strange = std::fs::metadata(path).and_then(checked).err().filter(is_strange);
            Err(strange.unwrap_or(error))
        }
        Ok(file) => checked(file.metadata()?).map(|_| file),
    }
}

/// A file on which somebody has a lease is waited for. What comes into its place meanwhile, as a pipe,
/// is not: each time it is opened as one is that is not waited for.
fn unhurried(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let mut looks = 0;
    loop {
        match options.open(path) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && looks < LEASE_LOOKS_MAX => {
                looks += 1;
                std::thread::sleep(LEASE_LOOK_EVERY);
            }
            opened => return opened,
        }
    }
}

/// Opens, when there is a descriptor for it: who has begun something is not told that there is none,
/// unless that lasts.
pub fn when_there_is_one<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut tries = 0;
    loop {
        match open() {
            Err(error) if is_short_of_descriptors(&error) && tries < DESCRIPTOR_TRIES_MAX => {
                tries += 1;
                std::thread::sleep(DESCRIPTOR_TRY_EVERY);
            }
            opened => return opened,
        }
    }
}

/// This process, or the machine, has no descriptor left.
pub fn is_short_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Of an ordinary file, without opening it.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    checked(std::fs::symlink_metadata(path)?)
}

/// Whether a file is missing, or there is nothing in it. What is no file is told of when it is
/// opened.
pub fn is_empty(path: &Path) -> bool {
    metadata(path).map_or_else(|error| !is_strange(&error), |metadata| metadata.len() == 0)
}

/// The same at the end of a link, where people may want a file that they write. What is missing is
/// no error.
pub fn is_at_the_end(path: &Path) -> io::Result<()> {
    std::fs::metadata(path).map_or(Ok(()), |metadata| checked(metadata).map(drop))
}

pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, OpenOptions::new().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path, OpenOptions::new().read(true))?.read_to_string(&mut text)?;
    Ok(text)
}

/// These bytes and no others are in the file then, which comes back to be synced.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = open(path, OpenOptions::new().write(true).create(true).truncate(true))?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Gives what has the name another one beside it, and says so. For places in which a file can be
/// made anew.
pub fn put_aside(path: &Path) -> io::Result<()> {
    let kind = std::fs::symlink_metadata(path)?.file_type();
    let what = name_of(kind);
    let aside = unused_beside(path)?;
    std::fs::rename(path, &aside)?;
    tracing::warn!(
        path = %path.display(), aside = %aside.display(), what,
        "something else was in the place of a file of ours: it is put aside, and can be removed"
    );
    Ok(())
}

/// Gives a file that is whole the name of another. A directory of that name is put aside.
pub fn replace(whole: &Path, path: &Path) -> io::Result<()> {
    match std::fs::rename(whole, path) {
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            put_aside(path)?;
            std::fs::rename(whole, path)
        }
        renamed => renamed,
    }
}

/// An ordinary file that is there has another name, too, and stays when something is put in its place.
pub fn leave_beside(path: &Path) -> io::Result<()> {
    if metadata(path).is_err() {
        return Ok(());
    }
    let aside = unused_beside(path)?;
    std::fs::hard_link(path, &aside)?;
    tracing::warn!(
        path = %path.display(), aside = %aside.display(),
        "another program has put something in the place of a file in use: it is put aside, and can be \
         removed"
    );
    Ok(())
}

fn unused_beside(path: &Path) -> io::Result<PathBuf> {
    let mut aside = (1..=ASIDE_MAX).map(|number| beside(path, number));
    let unused = aside.find(|path| std::fs::symlink_metadata(path).is_err());
    unused.ok_or_else(|| io::Error::from(ErrorKind::AlreadyExists))
}

fn beside(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(format!(".aside-{number}"));
    path.with_file_name(name)
}

fn checked(metadata: Metadata) -> io::Result<Metadata> {
    match metadata.file_type() {
        kind if kind.is_file() => Ok(metadata),
        kind => Err(Strange::File(name_of(kind)).into()),
    }
}

fn is_strange(error: &io::Error) -> bool {
    Strange::of(error).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Something of each kind, and what it is called.
    fn strange(folder: &Path) -> Vec<(PathBuf, &'static str)> {
        let at = |name: &str| folder.join(name);
        std::fs::write(at("target"), "precious").unwrap();
        symlink(at("target"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        assert!(is_at_the_end(&at("pipe")).is_err() && is_at_the_end(&at("link")).is_ok());
        drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
        vec![
            (at("link"), "a symbolic link"),
            (at("dangling"), "a symbolic link"),
            (at("directory"), "a directory"),
            (at("pipe"), "a pipe (FIFO)"),
            (at("socket"), "a socket"),
        ]
    }

    #[test]
    fn what_is_no_ordinary_file_is_neither_followed_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        for (path, what) in strange(folder.path()) {
            let ways: [fn(&mut OpenOptions) -> &mut OpenOptions; 4] = [
                |options| options.read(true),
                |options| options.read(true).write(true).create(true),
                |options| options.write(true).create(true).truncate(true),
                |options| options.append(true).create(true),
            ];
            for way in ways {
                let mut options = OpenOptions::new();
                way(&mut options);
                let error = open(&path, &mut options).unwrap_err();
                assert_eq!(Strange::of(&error), Some(Strange::File(what)), "{error}");
            }
            assert!(read(&path).is_err() && write(&path, b"x").is_err());
        }
        assert_eq!(std::fs::read(folder.path().join("target")).unwrap(), b"precious");
        assert!(!folder.path().join("nowhere").exists());
    }

    #[test]
    fn a_descriptor_is_waited_for_a_while_and_any_other_error_is_told_at_once() {
        let failing = |times: u32, errno| {
            let mut left = times;
            move || {
                let error = Err(io::Error::from_raw_os_error(errno));
                left.checked_sub(1).map_or(Ok(()), |fewer| {
                    left = fewer;
                    error
                })
            }
        };
        assert!(when_there_is_one(failing(3, libc::EMFILE)).is_ok());
        assert!(when_there_is_one(failing(3, libc::ENFILE)).is_ok());
        assert!(when_there_is_one(failing(DESCRIPTOR_TRIES_MAX + 1, libc::EMFILE)).is_err());
        assert!(when_there_is_one(failing(1, libc::ENOENT)).is_err());
    }

    #[test]
    fn what_is_in_the_way_is_kept_beside() {
        let folder = tempfile::tempdir().unwrap();
        for (path, what) in strange(folder.path()) {
            put_aside(&path).unwrap();
            drop(write(&path, b"ours").unwrap());
            put_aside(&path).unwrap();
            let kind = std::fs::symlink_metadata(beside(&path, 1)).unwrap().file_type();
            assert_eq!(name_of(kind), what);
            assert_eq!(read(&beside(&path, 2)).unwrap(), b"ours");
            std::fs::create_dir(&path).unwrap();
            replace(&beside(&path, 2), &path).unwrap();
            assert_eq!(read(&path).unwrap(), b"ours");
        }
    }

    #[test]
    fn what_people_may_have_elsewhere_is_followed_to_an_ordinary_file_and_to_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let strange = strange(folder.path());
        let follow = |path: &Path| {
            let mut options = OpenOptions::new();
            open_or_make_even_linked(path, options.append(true))
        };
        let to_pipe = (folder.path().join("to a pipe"), "a pipe (FIFO)");
        symlink(folder.path().join("pipe"), &to_pipe.0).unwrap();
        for (path, what) in strange.iter().skip(1).chain([&to_pipe]) {
            let error = follow(path).unwrap_err();
            assert_eq!(Strange::of(&error), Some(Strange::File(what)), "{error}");
        }
        assert!(!folder.path().join("nowhere").exists());
        follow(&strange[0].0).unwrap().write_all(b" still").unwrap();
        assert_eq!(std::fs::read(folder.path().join("target")).unwrap(), b"precious still");
        follow(&folder.path().join("new")).unwrap();
        assert!(metadata(&folder.path().join("new")).is_ok());
    }

    #[test]
    fn of_a_link_it_is_said_that_it_is_not_followed() {
        let said = [Strange::File(LINK), Strange::File("a socket")].map(|what| what.to_string());
        assert!(said[0].starts_with("it is a symbolic link, which is not followed here, and not"));
        assert!(said[1].starts_with("it is a socket and not an ordinary file: move it away"));
    }

    #[test]
    fn what_stands_in_the_place_of_a_directory_is_named_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        symlink(folder.path(), at("link")).unwrap();
        let named = |path: &str| Strange::for_directory(&at(path));
        for fine in ["", "new", "new/below", "link", "link/new"] {
            assert_eq!(named(fine), None, "{fine}");
        }
        for path in ["file", "file/new", "link/file/new"] {
            let (place, strange) = named(path).unwrap();
            assert!(place.ends_with("file"), "{}", place.display());
            assert_eq!(strange, Strange::Directory("an ordinary file"));
        }
        assert_eq!(named("dangling/new"), Some((at("dangling"), Strange::Astray)));
    }

    #[test]
    fn a_pipe_that_comes_into_the_place_of_a_leased_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leased");
        let held = write(&path, b"x").unwrap();
        if lease(&held, libc::F_WRLCK) != 0 {
            return; // Not every file system has leases.
        }
        let (told, hears) = std::sync::mpsc::channel();
        let opens = path.clone();
        std::thread::spawn(move || told.send(read(&opens).map_err(|error| error.to_string())));
        std::thread::sleep(Duration::from_millis(100));
        strange(folder.path());
        std::fs::rename(folder.path().join("pipe"), &path).unwrap();
        let outcome = hears.recv_timeout(Duration::from_secs(5)).expect("it goes on");
        assert!(outcome.unwrap_err().contains("a pipe"));
        assert_eq!(lease(&held, libc::F_UNLCK), 0);
    }

    #[allow(unsafe_code, reason = "no library offers the leases of fcntl(2)")]
    fn lease(held: &File, kind: libc::c_int) -> libc::c_int {
        use std::os::fd::AsRawFd;
        // SAFETY: with these commands fcntl(2) takes numbers alone.
        unsafe {
            libc::fcntl(held.as_raw_fd(), 10, libc::SIGURG);
            libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, kind)
        }
    }

    #[test]
    fn a_file_on_which_somebody_has_a_lease_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("leased");
        let held = write(&path, b"x").unwrap();
        if lease(&held, libc::F_WRLCK) != 0 {
            return; // Not every file system has leases.
        }
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| read(&path));
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert_eq!(lease(&held, libc::F_UNLCK), 0);
            assert_eq!(opened.join().unwrap().unwrap(), b"x");
        });
    }
}
