//! Who a device or a server is: a key pair, and the short name of its public half.
//! Holds: a key file is whole or not there, and readable by its owner only; it is never replaced.
//! From: DESIGN, "Trust".

use crate::Error;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData};
use rustix::fs::OFlags;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::str::FromStr;

/// A key file is a few lines; whatever is longer is not one.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;
const PEM_BEGINS: &str = "-----BEGIN PRIVATE KEY-----";
const FINGERPRINT_BYTES: usize = 20;
const FINGERPRINT_LETTERS: usize = FINGERPRINT_BYTES * 8 / 5;
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The key pair of a device or a server (Ed25519).
#[derive(Clone)]
pub struct Identity {
    /// PKCS #8.
    private: Vec<u8>,
    /// DER SubjectPublicKeyInfo.
    public: Vec<u8>,
    pem: String,
}

impl Identity {
    pub fn generate() -> Result<Identity, Error> {
        let pair = KeyPair::generate_for(&PKCS_ED25519).map_err(Error::KeyNotMade)?;
        Ok(Identity::of(&pair))
    }

    /// The identity in the file at `path`; a new one, put there, if there is no such file.
    pub fn load_or_create(path: &Path) -> Result<Identity, Error> {
        if let Some(identity) = Identity::load(path)? {
            return Ok(identity);
        }
        let identity = Identity::generate()?;
        if identity.create(path)? {
            return Ok(identity);
        }
        // Somebody else was faster; there is one identity, theirs.
        Identity::load(path)?.ok_or_else(|| Error::KeyUnreadable {
            path: path.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })
    }

    /// The public key, as a peer sees it: DER SubjectPublicKeyInfo.
    pub fn public_key(&self) -> Vec<u8> {
        self.public.clone()
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.public)
    }

    pub(crate) fn private_key(&self) -> &[u8] {
        &self.private
    }

    fn of(pair: &KeyPair) -> Identity {
        Identity {
            private: pair.serialize_der(),
            public: pair.subject_public_key_info(),
            pem: pair.serialize_pem(),
        }
    }

    fn load(path: &Path) -> Result<Option<Identity>, Error> {
        let unreadable = |source| Error::KeyUnreadable { path: path.to_owned(), source };
        let damaged = |what: String| Error::KeyDamaged { path: path.to_owned(), what };
        let Some(file) = opened(path)? else { return Ok(None) };
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.len() > KEY_FILE_BYTES_MAX {
            return Err(damaged(format!("it has {} bytes", metadata.len())));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "others may read the private key: chmod 600");
        }
        let mut bytes = Vec::new();
        file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
        let text = String::from_utf8(bytes).map_err(|_| damaged("it is not text".to_owned()))?;
        if !text.contains(PEM_BEGINS) {
            return Err(damaged("it holds no private key".to_owned()));
        }
        let pair = KeyPair::from_pem(&text).map_err(|error| damaged(error.to_string()))?;
        if !pair.is_compatible(&PKCS_ED25519) {
            return Err(damaged("it is not an Ed25519 key".to_owned()));
        }
        Ok(Some(Identity::of(&pair)))
    }

    /// False if there is a file at `path` already.
    fn create(&self, path: &Path) -> Result<bool, Error> {
        let unwritable = |source| Error::KeyUnwritable { path: path.to_owned(), source };
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // A temporary file of this kind has mode 0600 from the start.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(unwritable)?;
        file.write_all(self.pem.as_bytes()).map_err(unwritable)?;
        file.as_file().sync_all().map_err(unwritable)?;
        match file.persist_noclobber(path) {
            Ok(_) => {}
            Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            Err(lost) => return Err(unwritable(lost.error)),
        }
        fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(unwritable)?;
        Ok(true)
    }
}

/// A key may be kept elsewhere, as a secret that is mounted, with a link to it in its place. None: there
/// is neither.
fn opened(path: &Path) -> Result<Option<fs::File>, Error> {
    let unreadable = |source| Error::KeyUnreadable { path: path.to_owned(), source };
    let damaged = |kind| {
        let what = format!("{} is in its place", kind_of(kind));
        Error::KeyDamaged { path: path.to_owned(), what }
    };
    // A pipe is not waited for, nor what comes into the place of a file in this moment.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(source) => {
            // Of a link that leads somewhere, what is there.
            let there = fs::metadata(path).or_else(|_| fs::symlink_metadata(path));
            return match there.map(|there| there.file_type()) {
                Ok(kind) if !kind.is_file() => Err(damaged(kind)),
                Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
                _ => Err(unreadable(source)),
            };
        }
    };
    let kind = file.metadata().map_err(unreadable)?.file_type();
    if kind.is_file() { Ok(Some(file)) } else { Err(damaged(kind)) }
}

fn kind_of(other: fs::FileType) -> &'static str {
    match other {
        other if other.is_symlink() => "a symbolic link that leads nowhere",
        other if other.is_dir() => "a directory",
        other if other.is_fifo() => "a pipe (FIFO)",
        _ => "something else than a file",
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The private half must not get into a log.
        write!(f, "Identity({})", self.fingerprint())
    }
}

/// The short name of a public key: the first 20 bytes of its SHA-256, in base 32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// Of a key in DER SubjectPublicKeyInfo.
    pub fn of(public_key: &[u8]) -> Fingerprint {
        let digest = ring::digest::digest(&ring::digest::SHA256, public_key);
        let mut bytes = [0; FINGERPRINT_BYTES];
        bytes.copy_from_slice(&digest.as_ref()[..FINGERPRINT_BYTES]);
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Five bytes are eight letters.
        for group in self.0.chunks_exact(5) {
            let bits = group.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
            for letter in (0..8).rev() {
                let index = (bits >> (letter * 5)) & 31;
                write!(f, "{}", char::from(BASE32[index as usize]))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a fingerprint")]
pub struct NotAFingerprint;

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, NotAFingerprint> {
        if text.len() != FINGERPRINT_LETTERS {
            return Err(NotAFingerprint);
        }
        let mut bytes = [0; FINGERPRINT_BYTES];
        for (letters, group) in text.as_bytes().chunks_exact(8).zip(bytes.chunks_exact_mut(5)) {
            let mut bits = 0_u64;
            for letter in letters {
                let letter = letter.to_ascii_lowercase();
                let value = BASE32.iter().position(|known| *known == letter);
                bits = bits << 5 | value.ok_or(NotAFingerprint)? as u64;
            }
            group.copy_from_slice(&bits.to_be_bytes()[3..]);
        }
        Ok(Fingerprint(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_file_is_made_once_and_read_only_by_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let first = Identity::load_or_create(&path).unwrap();
        let second = Identity::load_or_create(&path).unwrap();
        assert_eq!(first.public_key(), second.public_key());
        assert_eq!(first.private_key(), second.private_key());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary stays");
    }

    #[test]
    fn whoever_comes_second_takes_the_first_ones_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (ours, theirs) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        assert!(theirs.create(&path).unwrap());
        assert!(!ours.create(&path).unwrap());
        assert_eq!(Identity::load_or_create(&path).unwrap().fingerprint(), theirs.fingerprint());
    }

    #[test]
    fn a_link_to_a_key_is_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let (key, link) = (folder.path().join("key"), folder.path().join("link"));
        let made = Identity::load_or_create(&key).unwrap();
        std::os::unix::fs::symlink(&key, &link).unwrap();
        let found = Identity::load_or_create(&link).unwrap();
        assert_eq!(found.fingerprint(), made.fingerprint());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_is_no_file_is_no_key_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (link, dangling, pipe) = (at("link"), at("dangling"), at("pipe"));
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        std::os::unix::fs::symlink(at("nowhere"), &dangling).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for (path, what) in [
            (&link, "a pipe"),
            (&dangling, "a symbolic link that leads nowhere"),
            (&pipe, "a pipe"),
            (&folder.path().to_owned(), "a directory"),
        ] {
            let error = Identity::load_or_create(path).unwrap_err();
            assert!(matches!(error, Error::KeyDamaged { .. }), "{error}");
            assert!(error.to_string().contains(what), "{error}");
        }
        assert!(!folder.path().join("nowhere").exists());
    }

    #[test]
    fn a_damaged_key_file_is_reported_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let pem = Identity::generate().unwrap().pem;
        for bad in
            [String::new(), pem[..pem.len() / 2].to_owned(), pem.replace("PRIVATE", "PUBLIC")]
        {
            fs::write(&path, &bad).unwrap();
            let error = Identity::load_or_create(&path).unwrap_err();
            assert!(matches!(error, Error::KeyDamaged { .. }), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        }
        fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert!(matches!(Identity::load_or_create(&path), Err(Error::KeyDamaged { .. })));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(Identity::load_or_create(&path), Err(Error::KeyDamaged { .. })));
    }

    #[test]
    fn what_is_shown_of_an_identity_is_not_its_private_half() {
        let identity = Identity::generate().unwrap();
        assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.fingerprint()));
    }

    proptest! {
        #[test]
        fn prop_a_fingerprint_survives_writing_and_reading(bytes: [u8; FINGERPRINT_BYTES]) {
            let fingerprint = Fingerprint(bytes);
            let text = fingerprint.to_string();
            prop_assert_eq!(text.len(), FINGERPRINT_LETTERS);
            prop_assert_eq!(text.parse(), Ok(fingerprint));
            prop_assert_eq!(text.to_uppercase().parse(), Ok(fingerprint));
        }

        #[test]
        fn prop_any_text_is_a_fingerprint_or_is_not(text: String) {
            if let Ok(fingerprint) = text.parse::<Fingerprint>() {
                prop_assert_eq!(fingerprint.to_string(), text.to_lowercase());
            }
        }
    }
}
