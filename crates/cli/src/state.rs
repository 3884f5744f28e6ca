//! A mount's state directory: the device's key, what is known of the server, and the stores.
//! Holds: once it has been let in it belongs to one volume of one server for good; one mount uses
//! it at a time.
//! Draws: `lock`, `device.pem`, `server.toml`, `tables.redb`, `log/`, `cache/`, `control.sock`,
//! `farfs.log`.

use crate::connection;
use crate::exit::{self, Exit, fail};
use crate::lock::{Lock, lock, try_lock};
use crate::mounts;
use crate::plan::Consent;
use crate::private;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::ordinary;

/// How long a process that has no mount any more may take to end.
const ENDING: Duration = Duration::from_secs(15);
/// How often it is looked who uses the mount of one that is out of sight: at first that may just be ending.
const USED_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const FORMAT: u32 = 1;

/// What is known of the server and the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Known {
    pub format: u32,
    /// `farfs://HOST:PORT/VOLUME?key=…`, without an invitation.
    pub url: String,
    /// The fingerprint of the server's key.
    pub key: String,
    pub volume: String,
    /// An invitation that has not let this device in yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invitation: Option<String>,
    pub mountpoint: PathBuf,
    /// No server has let this device in with this yet, so nothing is kept here that another
    /// volume could be taken for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattached: bool,
}

impl Known {
    pub fn new(url: String, key: String, volume: String, mountpoint: PathBuf) -> Known {
        Known { format: FORMAT, url, key, volume, invitation: None, mountpoint, unattached: true }
    }
}

pub struct State {
    pub directory: PathBuf,
    lock: Lock,
}

impl State {
    /// Makes what is missing. A mount that has just been unmounted may still be ending there: it
    /// is waited for.
    pub fn open(directory: &Path) -> Result<State> {
        State::open_there(directory).map_err(|error| match exit::is_read_only(&error) {
            true => error.context(format!(
                "the state directory {} lies on a file system that is mounted read-only: have \
                 that mounted for writing, or name another directory with --state DIR",
                directory.display()
            )),
            false => error,
        })
    }

    fn open_there(directory: &Path) -> Result<State> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|source| store::no_directory(directory, source))
            .with_context(|| format!("cannot make the state directory {}", directory.display()))?;
        private::keep();
        if let Some(lock) = try_lock(directory)? {
            return Ok(State { directory: directory.into(), lock });
        }
        connection::end_of_dead(|left| left.state_directory == directory)?;
        let (begun, mut looks) = (Instant::now(), 0);
        while begun.elapsed() < ENDING {
            let user = mounts::with_state(directory);
            if let Some(lock) = try_lock(directory)? {
                return Ok(State { directory: directory.into(), lock });
            }
            match user {
                Some(user) if !user.is_away() => break,
                Some(user) if begun.elapsed() >= USED_EVERY * (looks + 1) => {
                    looks += 1;
                    is_unused(directory, &user, &[])?;
                }
                _ => std::thread::sleep(LOOK_EVERY),
            }
        }
        if let Some(user) = mounts::with_state(directory).filter(mounts::Entry::is_away) {
            is_unused(directory, &user, &["programs that cannot be seen from here".into()])?;
        }
        let lock = lock(directory)?;
        Ok(State { directory: directory.into(), lock })
    }

    pub fn device_key(&self) -> PathBuf {
        self.directory.join(KEY)
    }

    pub fn tables(&self) -> PathBuf {
        self.directory.join(TABLES)
    }

    /// Of a device that was let in there were tables: made anew they would say that nothing of
    /// what is cached is pending.
    pub fn tables_are_there(&self, known: &Known) -> Result<()> {
        let path = self.tables();
        let there = !ordinary::is_empty(&path);
        if there || known.unattached || self.holds_nothing() {
            return Ok(());
        }
        let said = format!("{} is missing or empty: a backup may have it", path.display());
        Err(fail(Exit::Damaged, said))
    }

    /// Neither contents nor a log: there is nothing that tables could be wrong about.
    fn holds_nothing(&self) -> bool {
        let is_empty = |directory: PathBuf| {
            std::fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
        };
        is_empty(self.cache()) && is_empty(self.log())
    }

    pub fn log(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Room that is kept aside.
    pub fn reserve(&self) -> PathBuf {
        self.directory.join("reserve")
    }

    pub fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    /// Compares what is known with what the user says, and joins them. What is said in place of
    /// what is known is kept only when it has proved right: see `bind` and `remember`.
    pub fn recognise(&self, wanted: Known, consent: Consent) -> Result<Known> {
        match known(&self.directory)? {
            Some(before) => join(before, wanted, &self.directory, consent),
            None => Ok(wanted),
        }
    }

    /// A device that was let in is known by its key: with another one nobody would let it in.
    /// `let_in`: the stores say that it was.
    pub fn device_key_is_there(&self, let_in: bool, consent: Consent) -> Result<()> {
        let key = self.device_key();
        let there = std::fs::symlink_metadata(&key).is_ok();
        let let_in = let_in || known(&self.directory)?.is_some_and(|known| !known.unattached);
        if there || !let_in || consent.new_device_key {
            return Ok(());
        }
        Err(fail(
            Exit::Damaged,
            format!(
                "the key of this device, {}, is missing, and a server has let it in: restore it \
                 from a backup. If it is lost, have a new invitation made (`farfs invite` on the \
                 server) and mount once with its URL and --new-device-key: what was changed here \
                 and not yet sent is sent then",
                key.display()
            ),
        ))
    }

    /// What can be done about a key that is there and cannot be used.
    pub fn device_key_is_unusable(&self, error: link::Error) -> anyhow::Error {
        let shown = self.directory.display();
        let lost = match &error {
            link::Error::KeyDamaged { .. } => format!(
                " (if it is in no backup, move it away, have a new invitation made (`farfs invite` \
                 on the server), and mount once with its URL and --new-device-key: what was changed \
                 here and not yet sent is sent then; `farfs salvage {shown} OUT` copies that out \
                 before)"
            ),
            _ => String::new(),
        };
        anyhow::Error::new(error)
            .context(format!("cannot use the key of this device in {shown}{lost}"))
    }

    /// Before the first request: makes a directory that belongs to nobody this volume's.
    /// `attached`: the stores say that this device has been let in.
    pub fn bind(&self, wanted: &Known, attached: bool, consent: Consent) -> Result<()> {
        match known(&self.directory)? {
            // A process that was killed had no time to note that it was let in.
            Some(before) if attached => strange(&before, wanted, &self.directory, consent),
            Some(before) if before.volume == wanted.volume && before.key == wanted.key => Ok(()),
            _ => self.remember(wanted),
        }
    }

    /// Nothing is written where it is as it was: there may be no room for it.
    pub fn remember(&self, wanted: &Known) -> Result<()> {
        if known(&self.directory).is_ok_and(|before| before.as_ref() == Some(wanted)) {
            return Ok(());
        }
        let path = self.directory.join(SERVER);
        let fresh = self.directory.join("server.new");
        let write = || -> Result<()> {
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = ordinary::open(&fresh, &mut options)?;
            file.write_all(toml::to_string(wanted)?.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&fresh, &path)?;
            std::fs::File::open(&self.directory)?.sync_all()?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Of a mount that is out of sight. `unseen`: who is taken to use it if nobody is seen to.
fn is_unused(directory: &Path, away: &mounts::Entry, unseen: &[String]) -> Result<()> {
    let seen = away.who_uses_it();
    let users = if seen.is_empty() { unseen } else { &seen };
    if users.is_empty() {
        return Ok(());
    }
    let said =
        format!("the state directory {} is in use: {}", directory.display(), away.away(users));
    Err(fail(Exit::Busy, said))
}

/// Takes away what a first mount has made that has come to nothing. `is_made`: the directory
/// itself, too.
pub fn undo(state: State, is_made: bool) {
    for path in [state.device_key(), state.tables(), state.reserve(), state.directory.join(LOG)] {
        // What is not there need not be removed.
        let _ = std::fs::remove_file(path);
    }
    for path in [state.log(), state.cache()] {
        let _ = std::fs::remove_dir_all(path);
    }
    let _ = std::fs::remove_file(state.directory.join(SERVER));
    let State { directory, lock } = state;
    lock.remove(&directory);
    if is_made {
        // Unless somebody has put something there.
        let _ = std::fs::remove_dir(&directory);
    }
}

/// Whether nothing of a device is in a directory, nor of anybody who might become one.
pub fn is_new(directory: &Path) -> bool {
    let ours = [SERVER, KEY, TABLES, "log", "cache"];
    !ours.iter().any(|name| std::fs::symlink_metadata(directory.join(name)).is_ok())
}

pub const SERVER: &str = "server.toml";
const KEY: &str = "device.pem";
pub const TABLES: &str = "tables.redb";
/// What the mount says, where there is no journal.
const LOG: &str = "farfs.log";

/// None: the directory is not there, or has not been used yet.
pub fn known(directory: &Path) -> Result<Option<Known>> {
    store::is_directory(directory)?;
    let path = directory.join(SERVER);
    let text = match ordinary::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(damaged(&path, "it is not text"));
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    let known: Known = toml::from_str(&text).map_err(|error| damaged(&path, error.message()))?;
    if known.format != FORMAT {
        return Err(fail(
            Exit::Damaged,
            format!(
                "{} has format {}, this farfs knows {FORMAT}: use a newer farfs",
                path.display(),
                known.format
            ),
        ));
    }
    Ok(Some(known))
}

/// Of one whose `server.toml` is damaged: the mount point, where what is left of that says it.
pub fn still_says_where(directory: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct There {
        mountpoint: PathBuf,
    }
    let text = ordinary::read_to_string(&directory.join(SERVER)).ok()?;
    text.lines().find_map(|line| toml::from_str::<There>(line).ok()).map(|there| there.mountpoint)
}

/// What is to be mounted cannot be had from a directory without `server.toml`.
pub fn says_nothing(directory: &Path) -> anyhow::Error {
    let shown = directory.display();
    if is_new(directory) {
        return fail(
            Exit::Usage,
            format!(
                "nothing has been mounted with the state directory {shown} yet: give the URL that \
                 `farfs invite` printed on the server as well"
            ),
        );
    }
    fail(
        Exit::Damaged,
        format!(
            "{} is missing, which says what was mounted with this state directory: put it back, \
             or {}",
            directory.join(SERVER).display(),
            with_url(directory)
        ),
    )
}

fn damaged(path: &Path, what: &str) -> anyhow::Error {
    let directory = path.parent().unwrap_or(path);
    fail(
        Exit::Damaged,
        format!(
            "{} is damaged ({what}), which says what was mounted with this state directory: put it \
             back from a backup, or move it away and {}. `farfs salvage {} OUT` copies that out",
            path.display(),
            with_url(directory),
            directory.display()
        ),
    )
}

/// How to go on without `server.toml`.
fn with_url(directory: &Path) -> String {
    let shown = directory.display();
    format!(
        "give the URL as well, as in `farfs mount URL MOUNTPOINT --state {shown}` (the one that \
         `farfs invite` printed; it need not be good any more). What was changed here and not yet \
         sent is in {shown}, and is used then"
    )
}

/// Of one that is damaged.
pub fn unusable(directory: &str) -> String {
    format!(
        "cannot use the state directory {directory}; what was changed here and not yet sent is in it: \
         `farfs salvage {directory} OUT` copies it out; then {}",
        begin_anew(directory)
    )
}

/// How to go on where tables or the log are damaged: the server knows the device by its key.
pub fn begin_anew(directory: &str) -> String {
    format!(
        "copy {KEY} and {SERVER} from {directory}, and nothing else, into a new directory NEW, and \
         mount with --state NEW (and the URL, if {SERVER} is gone): the server knows this device by \
         its key, so that it takes no new invitation"
    )
}

/// What is to be used from now on: the new address of the same server and volume.
fn join(before: Known, wanted: Known, directory: &Path, consent: Consent) -> Result<Known> {
    match strange(&before, &wanted, directory, consent) {
        Ok(()) => {
            let invitation = wanted.invitation.or(before.invitation);
            Ok(Known { invitation, unattached: before.unattached, ..wanted })
        }
        Err(_) if before.unattached => Ok(wanted),
        Err(error) => Err(error),
    }
}

/// An error if it is another volume, or one of another server that the user has not agreed to.
fn strange(before: &Known, wanted: &Known, directory: &Path, consent: Consent) -> Result<()> {
    if before.volume != wanted.volume {
        return Err(fail(
            Exit::Usage,
            format!(
                "{} belongs to the volume {:?}, not {:?}; give another --state",
                directory.display(),
                before.volume,
                wanted.volume
            ),
        ));
    }
    if before.key != wanted.key && !consent.accept_new_key {
        return Err(other_key(&before.key, &wanted.key, directory));
    }
    Ok(())
}

/// The server seems to be another one than before.
pub fn other_key(before: &str, wanted: &str, directory: &Path) -> anyhow::Error {
    fail(
        Exit::TurnedAway,
        format!(
            "{} belongs to a server with the key {before}, and the URL names the key {wanted}. If \
             whoever runs the server confirms that the same volumes have another key now, add \
             --accept-new-key: what is not yet sent goes to it then (a server that has forgotten \
             this device needs a new invitation in the URL). If it is another server, give \
             another --state; else somebody may be in its place",
            directory.display(),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Consent =
        Consent { accept_new_key: false, new_device_key: false, accept_set_back: false };

    fn wanted(host: &str, key: &str) -> Known {
        let url = format!("farfs://{host}:1/main?key={key}");
        Known::new(url, key.into(), "main".into(), "/mnt".into())
    }

    #[test]
    fn what_a_mount_keeps_is_nobody_elses_to_read() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let others = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), others).unwrap();
        let state = State::open(directory.path()).unwrap();
        std::fs::create_dir(state.cache()).unwrap();
        std::fs::write(state.tables(), "").unwrap();
        for made in [state.cache(), state.tables()] {
            let mode = made.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}: {mode:o}", made.display());
        }
    }

    #[test]
    fn a_server_may_move_but_not_become_another() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let first = Known { invitation: Some("once".into()), ..wanted("a", "k") };
        assert_eq!(state.recognise(first.clone(), NONE).unwrap(), first);
        state.remember(&Known { unattached: false, ..first }).unwrap();
        let moved = state.recognise(wanted("b", "k"), NONE).unwrap();
        assert_eq!(
            (moved.url.as_str(), moved.invitation.as_deref()),
            ("farfs://b:1/main?key=k", Some("once"))
        );
        state.remember(&moved).unwrap();
        assert_eq!(known(directory.path()).unwrap(), Some(moved));
        let error = state.recognise(wanted("b", "other"), NONE).unwrap_err();
        assert_eq!(crate::exit::code(&error), Exit::TurnedAway);
        assert!(error.to_string().contains("--accept-new-key"), "{error}");
        let other = Known { volume: "docs".into(), ..wanted("b", "k") };
        assert_eq!(crate::exit::code(&state.recognise(other, NONE).unwrap_err()), Exit::Usage);
    }

    #[test]
    fn another_key_of_the_server_is_taken_if_the_user_agrees() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        state.remember(&Known { unattached: false, ..wanted("a", "k") }).unwrap();
        let agreed = Consent { accept_new_key: true, ..NONE };
        let invited = Known { invitation: Some("fresh".into()), ..wanted("a", "other") };
        let joined = state.recognise(invited.clone(), agreed).unwrap();
        assert_eq!(joined, Known { unattached: false, ..invited });
        state.bind(&joined, true, agreed).unwrap();
        state.remember(&joined).unwrap();
        assert!(state.recognise(wanted("a", "other"), NONE).is_ok());
        let other = Known { volume: "docs".into(), ..wanted("a", "other") };
        assert!(state.recognise(other, agreed).is_err());
    }

    #[test]
    fn a_device_that_was_let_in_gets_no_other_key_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        state.remember(&wanted("a", "k")).unwrap();
        state.device_key_is_there(false, NONE).unwrap();
        for let_in_by_tables in [true, false] {
            let unattached = let_in_by_tables;
            state.remember(&Known { unattached, ..wanted("a", "k") }).unwrap();
            let error = state.device_key_is_there(let_in_by_tables, NONE).unwrap_err();
            assert!(error.to_string().contains("--new-device-key"), "{error}");
            assert_eq!(crate::exit::code(&error), Exit::Damaged);
            let agreed = Consent { new_device_key: true, ..NONE };
            state.device_key_is_there(let_in_by_tables, agreed).unwrap();
        }
        std::fs::write(state.device_key(), "a key").unwrap();
        state.device_key_is_there(true, NONE).unwrap();
    }

    #[test]
    fn a_directory_that_was_never_let_in_is_bound_to_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let wrong = Known { invitation: Some("once".into()), ..wanted("a", "k") };
        state.bind(&state.recognise(wrong.clone(), NONE).unwrap(), false, NONE).unwrap();
        assert_eq!(known(directory.path()).unwrap(), Some(wrong));
        let right = Known { volume: "docs".into(), ..wanted("a", "other") };
        assert_eq!(state.recognise(right.clone(), NONE).unwrap(), right);
        // Unless it was let in without having noted it.
        assert_eq!(crate::exit::code(&state.bind(&right, true, NONE).unwrap_err()), Exit::Usage);
        state.bind(&right, false, NONE).unwrap();
        assert_eq!(known(directory.path()).unwrap(), Some(right.clone()));
        // Once let in, it is bound.
        state.remember(&Known { unattached: false, ..right }).unwrap();
        let error = state.recognise(wanted("a", "k"), NONE).unwrap_err();
        assert_eq!(crate::exit::code(&error), Exit::Usage);
    }

    #[test]
    fn a_damaged_server_file_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        for bytes in [&b"format = "[..], b"\xff\xfe", b"", b"format = 7\nurl=''"] {
            std::fs::write(directory.path().join(SERVER), bytes).unwrap();
            let error = known(directory.path()).unwrap_err();
            assert_eq!(crate::exit::code(&error), Exit::Damaged);
            assert!(error.to_string().contains("server.toml"), "{error}");
        }
    }
}
