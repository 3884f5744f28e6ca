//! Where state directories are: in the default place, or where `--state` said, to which a link in
//! the default place leads back.
//! Holds: what was mounted last at a mount point is found again without its URL.

use crate::exit::{self, Exit, fail};
use crate::mounts;
use crate::state::{self, Known};
use anyhow::{Context, Result};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How much of the server's fingerprint is in the name of a state directory.
const SHORT_KEY: usize = 8;
/// How the names of links begin.
const ELSEWHERE: &str = "elsewhere-";

/// The default place.
fn base() -> Result<PathBuf> {
    if rustix::process::getuid().is_root() {
        return Ok("/var/lib/farfs".into());
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_STATE_HOME")
        .or_else(|| Some(set("HOME")?.join(".local/state")))
        .map(|base| base.join("farfs"))
        .ok_or_else(|| fail(Exit::Usage, "HOME is not set; give --state"))
}

/// The default state directory of a volume.
pub fn default_directory(volume: &str, key: &str) -> Result<PathBuf> {
    let short: String = key.chars().take(SHORT_KEY).collect();
    // A volume's name is chosen elsewhere; as a file's name it must stay in its place.
    let volume = volume.replace(['/', '\0'], "_");
    Ok(base()?.join(format!("{volume}-{short}")))
}

/// The state directory that was last mounted there, for a mount without a URL.
pub fn last_mounted_at(mountpoint: &Path) -> Result<Option<(PathBuf, Known)>> {
    let base = base()?;
    // Who may not remove them passes them over.
    let _ = remove_stale(&base);
    Ok(last_below(&base, mountpoint))
}

fn last_below(base: &Path, mountpoint: &Path) -> Option<(PathBuf, Known)> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let directory = entry.path().canonicalize().ok()?;
            let known = state::known(&directory).ok()??;
            let used = used(&directory)?;
            (known.mountpoint == mountpoint).then_some((used, directory, known))
        })
        .collect();
    found.sort_by_key(|(used, ..)| *used);
    found.pop().map(|(_, directory, known)| (directory, known))
}

/// When it was mounted last.
fn used(directory: &Path) -> Option<SystemTime> {
    directory.join(state::SERVER).metadata().and_then(|metadata| metadata.modified()).ok()
}

/// Why it cannot be told what was mounted there since `directory` was, of a state directory that still
/// says that it was mounted there.
pub fn damaged_since(mountpoint: &Path, directory: &Path) -> Option<anyhow::Error> {
    damaged_below_since(&base().ok()?, mountpoint, directory)
}

fn damaged_below_since(base: &Path, mountpoint: &Path, directory: &Path) -> Option<anyhow::Error> {
    let before = used(directory);
    damaged_in(base)
        .filter(|(newer, ..)| used(newer) > before)
        .find(|(.., there)| there.as_deref() == Some(mountpoint))
        .map(|(_, error, _)| error)
}

/// Why it cannot be told of a state directory what was mounted with it: of one that was mounted there, or
/// else of one of which that cannot be told either. The second: whether it was.
pub fn damaged(mountpoint: &Path) -> Option<(anyhow::Error, bool)> {
    damaged_below(&base().ok()?, mountpoint)
}

fn damaged_below(base: &Path, mountpoint: &Path) -> Option<(anyhow::Error, bool)> {
    damaged_in(base)
        .filter_map(|(_, error, there)| match there {
            Some(there) if there != mountpoint => None,
            there => Some((error, there.is_some())),
        })
        .max_by_key(|(_, is_there)| *is_there)
}

/// State directories of which it cannot be told what was mounted with them, with why, and where they were mounted
/// if they still say so.
fn damaged_in(base: &Path) -> impl Iterator<Item = (PathBuf, anyhow::Error, Option<PathBuf>)> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.path().canonicalize().ok()).filter_map(|directory| {
        let error = state::known(&directory).err().filter(|e| exit::code(e) == Exit::Damaged)?;
        let there = state::still_says_where(&directory);
        Some((directory, error, there))
    })
}

/// Notes a state directory that has been mounted, so that it is found again.
pub fn note(directory: &Path) -> Result<()> {
    let base = mounts::spelled(&base()?)?;
    note_below(&base, directory).with_context(|| format!("cannot write in {}", base.display()))
}

fn note_below(base: &Path, directory: &Path) -> std::io::Result<()> {
    if directory.parent() == Some(base) {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    remove_stale(base)?;
    let mut hasher = DefaultHasher::new();
    directory.hash(&mut hasher);
    let name = format!("{ELSEWHERE}{:016x}", hasher.finish());
    let fresh = base.join(format!("{name}.{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    symlink(directory, &fresh)?;
    std::fs::rename(&fresh, base.join(name))
}

/// Links to directories that are gone.
fn remove_stale(base: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(base)?.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(ELSEWHERE)
            && entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let gone = || {
            std::fs::metadata(entry.path())
                .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        if ours && gone() {
            // Another mount may have removed it.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// The command that mounts again what was mounted there.
pub fn mount_again(mountpoint: &str, state_directory: &str) -> String {
    let base = base().and_then(|base| mounts::spelled(&base)).ok();
    command(base.as_deref(), mountpoint, state_directory)
}

fn command(base: Option<&Path>, mountpoint: &str, state_directory: &str) -> String {
    if base.is_some() && Path::new(state_directory).parent() == base {
        return format!("farfs mount {mountpoint}");
    }
    format!("farfs mount --state {state_directory} {mountpoint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounted(directory: &Path, mountpoint: &str) {
        let known = Known::new("farfs://h:1/v".into(), "k".into(), "v".into(), mountpoint.into());
        state::State::open(directory).unwrap().remember(&known).unwrap();
    }

    #[test]
    fn a_state_directory_elsewhere_is_found_by_its_mount_point() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (base, default) = (folder.join("base"), folder.join("base/v-k"));
        let found = |mountpoint: &str| last_below(&base, Path::new(mountpoint)).map(|it| it.0);
        assert_eq!(found("/mnt"), None);
        mounted(&default, "/default");
        let [one, two] = ["one", "two"].map(|name| folder.join(name));
        mounted(&one, "/mnt");
        mounted(&two, "/other");
        // Noted twice is noted once; what is in the default place needs no note.
        for directory in [&one, &one, &two, &default] {
            note_below(&base, directory).unwrap();
        }
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), 3);
        assert_eq!(found("/mnt"), Some(one.clone()));
        assert_eq!(found("/other"), Some(two.clone()));
        assert_eq!(found("/default"), Some(default));
        let damaged = |at: &str| {
            damaged_below(&base, Path::new(at))
                .map(|(error, is_there)| (error.to_string(), is_there))
        };
        assert_eq!(damaged("/mnt"), None);
        let kept = std::fs::read(one.join(state::SERVER)).unwrap();
        let torn = (kept[..20].to_vec(), Some(false));
        // What is left says where it was mounted.
        let strange = ([&kept[..], b"="].concat(), None);
        for (wrong, elsewhere) in [torn, strange] {
            std::fs::write(one.join(state::SERVER), &wrong).unwrap();
            assert_eq!(found("/mnt"), None);
            let (said, is_there) = damaged("/mnt").expect("one is damaged");
            assert!(said.contains(&one.display().to_string()), "{said}");
            assert_eq!(is_there, elsewhere.is_none());
            assert_eq!(damaged("/elsewhere").map(|damaged| damaged.1), elsewhere);
        }
        std::fs::write(one.join(state::SERVER), &kept).unwrap();
        std::fs::remove_dir_all(&one).unwrap();
        assert_eq!(found("/mnt"), None);
        note_below(&base, &two).unwrap();
        assert_eq!(std::fs::read_dir(&base).unwrap().count(), 2);
    }

    #[test]
    fn a_damaged_state_directory_is_not_passed_over_for_one_that_was_mounted_there_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let [older, newer] = ["v-older", "v-newer"].map(|name| base.join(name));
        let age = |directory: &Path, seconds: u64| {
            let file = std::fs::File::options().write(true).open(directory.join(state::SERVER));
            let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.unwrap().set_modified(then).unwrap();
        };
        let since = |directory: &Path, at: &str| {
            damaged_below_since(&base, Path::new(at), directory).map(|error| error.to_string())
        };
        for (directory, seconds) in [(&older, 1_000), (&newer, 2_000)] {
            mounted(directory, "/mnt");
            age(directory, seconds);
        }
        assert_eq!(last_below(&base, Path::new("/mnt")).unwrap().0, newer);
        assert_eq!(since(&older, "/mnt"), None);
        let mut text = std::fs::read(newer.join(state::SERVER)).unwrap();
        text.push(b'=');
        std::fs::write(newer.join(state::SERVER), text).unwrap();
        age(&newer, 2_000);
        assert_eq!(last_below(&base, Path::new("/mnt")).unwrap().0, older);
        let said = since(&older, "/mnt").expect("the newer one is damaged");
        assert!(said.contains(&newer.display().to_string()), "{said}");
        assert_eq!(since(&older, "/other"), None);
        age(&older, 3_000);
        assert_eq!(since(&older, "/mnt"), None);
    }

    #[test]
    fn the_command_that_mounts_again_names_a_state_directory_elsewhere() {
        let base = Some(Path::new("/var/lib/farfs"));
        assert_eq!(command(base, "/m", "/var/lib/farfs/main-abc"), "farfs mount /m");
        assert_eq!(command(base, "/m", "/srv/state"), "farfs mount --state /srv/state /m");
        assert_eq!(command(None, "/m", "/state"), "farfs mount --state /state /m");
    }
}
