//! A server's data directory: the server's key, the stores, and what the server is called.
//! Holds: one process uses it at a time; what `invite` prints is what `serve` listens on.
//! Draws: `lock`, `server.pem`, `tables.redb`, `tables.log/`, `chunks/`, `address`, `control.sock`, and
//! `farfs.toml` if somebody wrote one.

use crate::config::text_of;
use crate::exit::{self, Exit, OrExit, fail};
use crate::lock::{Lock, in_use, try_lock};
use crate::private;
use crate::reserve::{self, Reserve};
use crate::units::Size;
use anyhow::{Context, Error, Result};
use link::Identity;
use replica::{Limits, Origin, ReplicaError};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::embedded::{self, Database, GivenUp, IsOurs, Settings as DatabaseSettings, Words};
use store::packs::Packs;
use store::{Tables, Writes, ordinary};
use volume::whole;
use world::World;

mod look;

pub use look::Unwritable;

pub const PORT: u16 = 7440;
pub const MAIN_VOLUME: &str = "main";
const KEY: &str = "server.pem";
const TABLES: &str = "tables.redb";
/// What was committed to them last, as a log.
const TABLES_LOG: &str = "tables.log";
const CHUNKS: &str = "chunks";
const ADDRESS: &str = "address";

/// `farfs.toml`: what `farfs serve` would be told by flags.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    pub listen: Option<String>,
    pub advertise: Option<String>,
    /// What the trash may hold, if not a share of the store.
    pub trash_size: Option<Size>,
}

impl Settings {
    fn limits(&self) -> Limits {
        let limits = Limits::default();
        match self.trash_size {
            Some(Size(bytes)) => Limits { trash_percent: 0, trash_bytes_min: bytes, ..limits },
            None => limits,
        }
    }
}

/// What to do about a server's key that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostKey {
    Refused,
    /// The user goes on with another one, which every device must be told.
    Replaced,
}

/// A data directory that this process alone uses.
pub struct Data {
    pub directory: PathBuf,
    pub identity: Identity,
    pub origin: Origin,
    pub reserve: Reserve,
    /// Nothing can be written to it, so it is only looked at.
    pub unwritable: Option<Unwritable>,
    _lock: Lock,
}

impl Data {
    /// Makes what is missing. None: another process has it.
    pub fn open_or_create(directory: &Path) -> Result<Option<Data>> {
        Data::open_with(directory, LostKey::Refused)
    }

    /// The same, for a user who says what to do about a key that is lost.
    pub fn open_with(directory: &Path, lost: LostKey) -> Result<Option<Data>> {
        Data::open_as(directory, lost, words(directory, Asker::Other))
    }

    fn open_as(directory: &Path, lost: LostKey, words: Words) -> Result<Option<Data>> {
        Data::open_there(directory, lost, words).map_err(|error| match exit::is_read_only(&error) {
            true => error.context(format!(
                "the data directory {} lies on a file system that is mounted read-only: have that \
                 mounted for writing, or name another directory with --data DIR",
                directory.display()
            )),
            false => error,
        })
    }

    fn open_there(directory: &Path, lost: LostKey, words: Words) -> Result<Option<Data>> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|source| store::no_directory(directory, source))
            .with_context(|| format!("cannot make the directory {}", directory.display()))?;
        private::keep();
        let Some(lock) = try_lock(directory)? else { return Ok(None) };
        let identity = identity(directory, lost)?;
        store::make_directory(&directory.join(CHUNKS))?;
        let reserve = Reserve::of(directory);
        // On a disk without a byte left also what only reads and removes begins with this.
        let (origin, _) = reserve.with_room(|| origin(directory, words.clone(), Writes::Kept))?;
        private::look(directory, &directory.join(TABLES));
        let (directory, unwritable) = (directory.into(), None);
        Ok(Some(Data { directory, identity, origin, reserve, unwritable, _lock: lock }))
    }

    /// None: another process has it.
    pub fn open(directory: &Path) -> Result<Option<Data>> {
        exists(directory)?;
        Data::open_or_create(directory)
    }

    /// The address that invitations show.
    pub fn address(&self) -> Result<String> {
        let path = self.directory.join(ADDRESS);
        match ordinary::read_to_string(&path) {
            Ok(address) if !address.trim().is_empty() => return Ok(address.trim().to_owned()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        }
        let settings = settings(&self.directory)?;
        advertised(settings.advertise, listen_address(settings.listen.as_deref())?)
    }

    /// Remembered, so that an invitation can be made while the server does not run. One that is
    /// there already is no reason not to serve when it cannot be replaced.
    pub fn remember_address(&self, address: &str) -> Result<()> {
        let path = self.directory.join(ADDRESS);
        let before = ordinary::read_to_string(&path).unwrap_or_default();
        let before = before.trim();
        if before == address {
            return Ok(());
        }
        let fresh = self.directory.join("address.new");
        let written = ordinary::write(&fresh, format!("{address}\n").as_bytes())
            .and_then(|_| ordinary::replace(&fresh, &path))
            .with_context(|| format!("cannot write {}", path.display()));
        match written {
            Err(error) if !before.is_empty() => {
                let error = exit::words(&error);
                tracing::warn!(
                    error,
                    "invitations that are made while no server runs here show the address {before}, \
                     and not {address}, until a start can write that down"
                );
                Ok(())
            }
            written => written,
        }
    }
}

/// The server's key, where the tables are there whose key it is.
fn identity(directory: &Path, lost: LostKey) -> Result<Identity> {
    tables_are_there(directory)?;
    key_is_there(directory, lost)?;
    Identity::load_or_create(&directory.join(KEY))
        .map_err(|error| key_is_unusable(directory, error))
}

/// The volumes, with what they are kept in; and where that is only read, what would have been mended,
/// in words.
fn origin(directory: &Path, words: Words, writes: Writes) -> Result<(Origin, Vec<String>)> {
    let shown = directory.display();
    let [tables, log, chunks] = [TABLES, TABLES_LOG, CHUNKS].map(|name| directory.join(name));
    let over = writes.above(&tables)?;
    let is_ours = Some(replica::are_of_an_origin as IsOurs);
    let kept =
        DatabaseSettings { log: Some(&log), words, is_ours, over, ..DatabaseSettings::default() };
    let file = tables.display().to_string();
    let tables = Database::open_as(&tables, kept)?;
    if !replica::has_had_volumes(&*tables.read()?) && Packs::has_records(&chunks)? {
        return Err(whole_is_missing(directory, "holds no volume"));
    }
    let blobs = match writes {
        Writes::Kept => Packs::open(&chunks)?,
        Writes::Forgotten => Packs::look(&chunks)?,
    };
    if let Some(what) = blobs.lost()? {
        tracing::error!(
            what,
            "contents are lost: `farfs check --data {shown}` names the files; put the packs \
             back from a backup, or end this message with `farfs check --repair`"
        );
    }
    let unmended = tables.unmended().into_iter().map(str::to_owned);
    let unmended = unmended.chain(blobs.unmended().iter().cloned()).collect();
    let limits = settings(directory)?.limits();
    let open = match writes {
        Writes::Kept => Origin::open,
        Writes::Forgotten => Origin::look,
    };
    let origin = open(Arc::new(tables), Arc::new(blobs), World::real(), limits);
    let origin = origin.map_err(|error| {
        let place = if is_of_a_record(&error) { file } else { shown.to_string() };
        Error::new(error).context(format!("cannot use the volumes in {place}"))
    })?;
    Ok((origin, unmended))
}

/// It does not say where it was met.
fn is_of_a_record(error: &ReplicaError) -> bool {
    matches!(error, ReplicaError::Tree(whole::Error::Damaged { .. }))
}

/// Who meets damaged tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// `farfs check`, which says what is affected as far as that can be seen.
    Check,
    Other,
}

/// What is said of damaged tables, without which there is no volume left.
fn words(directory: &Path, asker: Asker) -> Words {
    let shown = directory.display();
    let see = match asker {
        Asker::Check => String::new(),
        Asker::Other => format!("see with `farfs check --data {shown}` what is affected, "),
    };
    let restore = format!("keep a copy of {shown}, and restore it from a backup");
    let without_log = format!(
        "who has none goes on without the last changes with `farfs check --data {shown} --repair \
         --without-log`, and devices that know of them say that the server was set back"
    );
    Words {
        advice: format!("do not remove it; {see}{restore}"),
        // Nobody sees more of one that cannot be opened.
        unopened: Some(format!("do not remove it; {restore}")),
        log: Some(format!("do not remove it; {restore}; {without_log}")),
        missing: format!(
            "if it was moved, put it back; otherwise keep a copy of {shown}, and restore all of it \
             from a backup of one moment, with {TABLES_LOG}; {without_log}"
        ),
        describe: replica::describe_row,
    }
}

/// What is in a data directory before a server runs there for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The directory is to be made, too.
    Missing,
    Empty,
    /// It is not the first time.
    Not,
}

impl First {
    pub fn look(directory: &Path) -> First {
        let ours = [KEY, TABLES, TABLES_LOG, CHUNKS, ADDRESS];
        let is_there = |name: &&str| std::fs::symlink_metadata(directory.join(name)).is_ok();
        match (directory.exists(), ours.iter().any(is_there)) {
            (false, _) => First::Missing,
            (true, false) => First::Empty,
            (true, true) => First::Not,
        }
    }

    /// Takes away what was made for a server that failed before anybody was told of it.
    pub fn undo(self, directory: &Path) {
        let was_told = || directory.join(ADDRESS).exists();
        if self == First::Not || was_told() {
            return;
        }
        let Ok(Some(lock)) = try_lock(directory) else { return };
        if was_told() {
            return;
        }
        for name in [KEY, TABLES, reserve::NAME, reserve::TIDYING_NAME] {
            // What is not there need not be removed.
            let _ = std::fs::remove_file(directory.join(name));
        }
        for name in [TABLES_LOG, CHUNKS] {
            let _ = std::fs::remove_dir_all(directory.join(name));
        }
        lock.remove(directory);
        if self == First::Missing {
            // Unless somebody has put something there.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// Where a server has run before there are tables, and without them it would be another server.
fn tables_are_there(directory: &Path) -> Result<()> {
    if has_tables(directory) || !has_run(directory)? {
        return Ok(());
    }
    Err(whole_is_missing(directory, "is missing or empty"))
}

/// The key does not say so: it is made first.
fn has_run(directory: &Path) -> Result<bool> {
    let [log, chunks] = [TABLES_LOG, CHUNKS].map(|name| directory.join(name));
    Ok(directory.join(ADDRESS).exists()
        || Packs::has_records(&chunks)?
        || !store::journal::salvage(&log)?.records.is_empty())
}

fn whole_is_missing(directory: &Path, how: &str) -> anyhow::Error {
    let shown = directory.join(TABLES);
    let shown = shown.display();
    fail(
        Exit::Damaged,
        format!("{shown} {how}, and a server has run here: restore it from a backup"),
    )
}

fn has_tables(directory: &Path) -> bool {
    !ordinary::is_empty(&directory.join(TABLES))
}

/// Devices know a server by its key: with another one it would lock them all out.
fn key_is_there(directory: &Path, lost: LostKey) -> Result<()> {
    let key = directory.join(KEY);
    let shown = key.display();
    // Whatever else is wrong with it is found when it is read.
    let missing = std::fs::symlink_metadata(&key)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    match lost {
        LostKey::Replaced if !missing => Err(fail(
            Exit::Usage,
            format!(
                "the server's key {shown} is there, and --new-key is for a server that has lost \
                 it: to give it another one on purpose, move that file away first"
            ),
        )),
        LostKey::Refused if missing && has_tables(directory) => Err(fail(
            Exit::Damaged,
            format!(
                "the server's key {shown} is missing, and a server has run here: restore it from a \
                 backup. If it is lost, `farfs serve --new-key` goes on with another one; no \
                 device connects then before it has been mounted with the server's new URL and \
                 --accept-new-key, which sends what it had still to send"
            ),
        )),
        _ => Ok(()),
    }
}

/// What can be done about a key that is there and cannot be used.
fn key_is_unusable(directory: &Path, error: link::Error) -> anyhow::Error {
    let shown = directory.display();
    let lost = match &error {
        link::Error::KeyDamaged { .. } if has_tables(directory) => {
            " (if it is in no backup, move it away, and `farfs serve --new-key` goes on with another \
             one; no device connects then before it has been mounted with the server's new URL and \
             --accept-new-key, which sends what it had still to send)"
        }
        link::Error::KeyDamaged { .. } => {
            " (if it is in no backup, move it away: there is no store yet)"
        }
        _ => "",
    };
    anyhow::Error::new(error).context(format!("cannot use the server's key in {shown}{lost}"))
}

/// The next who opens the store makes the index of its chunks again from the packs.
pub fn rebuild_index(directory: &Path) -> Result<()> {
    let shown = directory.display();
    let _lock = try_lock(directory)?
        .ok_or_else(|| in_use(directory, ": stop that server, and repair it then"))?;
    Packs::forget_index(&directory.join(CHUNKS))
        .with_context(|| format!("cannot remove the index of the chunks in {shown}"))
}

/// From now on the tables go without the last changes, those from the first damage of their log on.
/// None: it is whole, or not needed.
pub fn give_up_log(directory: &Path) -> Result<Option<GivenUp>> {
    let shown = directory.display();
    let _lock = try_lock(directory)?
        .ok_or_else(|| in_use(directory, ": stop that server, and repair it then"))?;
    tables_are_there(directory)?;
    let [tables, log] = [TABLES, TABLES_LOG].map(|name| directory.join(name));
    let is_ours = Some(replica::are_of_an_origin as IsOurs);
    let words = words(directory, Asker::Check);
    let settings =
        DatabaseSettings { log: Some(&log), words, is_ours, ..DatabaseSettings::default() };
    Reserve::of(directory)
        .with_room(|| Ok(embedded::give_up_log(&tables, &settings)?))
        .with_context(|| format!("the tables in {shown} cannot go on without their log"))
}

/// A mistyped path must not become an empty server.
pub fn exists(directory: &Path) -> Result<()> {
    let shown = directory.display();
    match std::fs::symlink_metadata(directory.join(TABLES)) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(fail(
                Exit::Failure,
                format!("no permission to use {shown}: run this as the user whose server it is"),
            ));
        }
        Err(_) => {}
    }
    tables_are_there(directory)?;
    Err(fail(Exit::NotFound, format!("{shown} holds no farfs server; `farfs serve` makes one")))
}

pub fn settings(directory: &Path) -> Result<Settings> {
    store::is_directory(directory)?;
    let path = directory.join("farfs.toml");
    // People write it, and may have it elsewhere.
    ordinary::is_at_the_end(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let Some(text) = text_of(&path)? else { return Ok(Settings::default()) };
    toml::from_str(&text).map_err(|error| fail(Exit::Usage, format!("{}: {error}", path.display())))
}

/// `ADDR:PORT`, or one of both.
pub fn listen_address(text: Option<&str>) -> Result<SocketAddr> {
    let Some(text) = text else { return Ok(SocketAddr::from(([0, 0, 0, 0], PORT))) };
    let address: Option<SocketAddr> = text.parse().ok();
    let with_default_port = || Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, PORT));
    let with_default_host =
        || Some(SocketAddr::from(([0, 0, 0, 0], text.trim_start_matches(':').parse().ok()?)));
    address.or_else(with_default_port).or_else(with_default_host).ok_or_else(|| {
        fail(
            Exit::Usage,
            format!("{text:?} is not an address to listen on, such as 0.0.0.0:{PORT}"),
        )
    })
}

/// What clients are told: as the user says, else where the server listens; if that is everywhere,
/// the machine's own address.
pub fn advertised(said: Option<String>, listening: SocketAddr) -> Result<String> {
    if let Some(said) = said {
        // The rest of an invitation's URL is only there to have it checked.
        let key = link::Fingerprint::of(b"");
        format!("farfs://{said}/{MAIN_VOLUME}?key={key}")
            .parse::<link::Address>()
            .or_exit(Exit::Usage, format!("{said:?} is no HOST:PORT to advertise"))?;
        return Ok(said);
    }
    if !listening.ip().is_unspecified() {
        return Ok(listening.to_string());
    }
    let port = listening.port();
    Ok(match own_address() {
        Some(address) => SocketAddr::new(address, port).to_string(),
        None => format!("{}:{port}", rustix::system::uname().nodename().to_string_lossy()),
    })
}

/// The address from which this machine would speak to the rest of the world. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    // Addresses kept for documentation: they are routed like any other.
    [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")].iter().find_map(|(own, far)| {
        let socket = UdpSocket::bind(own).ok()?;
        socket.connect(far).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_loopback() && !address.is_unspecified()).then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_may_lack_its_port_or_its_host() {
        let read = |text| listen_address(text).map(|address| address.to_string()).ok();
        assert_eq!(read(None).as_deref(), Some("0.0.0.0:7440"));
        assert_eq!(read(Some("10.0.0.1:9")).as_deref(), Some("10.0.0.1:9"));
        assert_eq!(read(Some("10.0.0.1")).as_deref(), Some("10.0.0.1:7440"));
        assert_eq!(read(Some("::1")).as_deref(), Some("[::1]:7440"));
        assert_eq!(read(Some(":9")).as_deref(), Some("0.0.0.0:9"));
        assert_eq!(read(Some("nowhere")), None);
    }

    #[test]
    fn clients_are_told_an_address_that_they_can_use() {
        let everywhere = listen_address(None).unwrap();
        let said = advertised(Some("files.example.org:9".into()), everywhere).unwrap();
        assert_eq!(said, "files.example.org:9");
        assert!(advertised(Some("files.example.org".into()), everywhere).is_err());
        let one: SocketAddr = "[::1]:9".parse().unwrap();
        assert_eq!(advertised(None, one).unwrap(), "[::1]:9");
        let own = advertised(None, everywhere).unwrap();
        assert!(own.ends_with(":7440") && !own.starts_with("0.0.0.0"), "{own}");
    }

    #[test]
    fn a_settings_file_with_an_unknown_key_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("farfs.toml"), "listen = '::'\nlisen = ''").unwrap();
        let error = settings(directory.path()).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
        assert_eq!(crate::exit::code(&error), Exit::Usage);
    }
}
