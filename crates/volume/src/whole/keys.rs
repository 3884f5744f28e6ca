//! The keys of the tables: numbers big-endian, so that bytes sort as numbers do; a name ends
//! with a NUL, which no name contains, so that names sort as names do.

use model::{FileId, Name, ReplicaId, Seq, SnapshotId, Stamp};
use std::fmt;

/// A volume of this store. Never used again for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeId(pub u32);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume {}", self.0)
    }
}

impl VolumeId {
    /// The highest id, which no volume gets, so that every volume has another after it.
    pub const NEVER: VolumeId = VolumeId(u32::MAX);

    /// The keys of everything that the volume has in a table: from the first to before the second.
    pub fn range(self) -> (Vec<u8>, Vec<u8>) {
        let after = self.0.saturating_add(1);
        (self.0.to_be_bytes().to_vec(), after.to_be_bytes().to_vec())
    }
}

pub(super) fn volume(volume: VolumeId) -> Vec<u8> {
    volume.0.to_be_bytes().to_vec()
}

pub(super) fn file(volume: VolumeId, file: FileId) -> Vec<u8> {
    let mut key = self::volume(volume);
    key.extend(file.0.to_be_bytes());
    key
}

pub(super) fn file_at(volume: VolumeId, file: FileId, seq: Seq) -> Vec<u8> {
    with_number(self::file(volume, file), seq.0)
}

/// A name in a directory, without a position.
pub(super) fn entry(volume: VolumeId, directory: FileId, name: &Name) -> Vec<u8> {
    let mut key = file(volume, directory);
    key.extend(name.as_bytes());
    key.push(0);
    key
}

pub(super) fn entry_at(volume: VolumeId, directory: FileId, name: &Name, seq: Seq) -> Vec<u8> {
    with_number(entry(volume, directory, name), seq.0)
}

/// The first key after every version of the name.
pub(super) fn after_entry(volume: VolumeId, directory: FileId, name: &Name) -> Vec<u8> {
    let mut key = entry(volume, directory, name);
    let last = key.len() - 1;
    key[last] = 1;
    key
}

/// The first key after all that begins with the file.
pub(super) fn after_file(volume: VolumeId, file: FileId) -> Vec<u8> {
    match file.0.checked_add(1) {
        Some(next) => self::file(volume, FileId(next)),
        None => volume.range().1,
    }
}

/// A name that a file bears: the file first.
pub(super) fn name_of(volume: VolumeId, file: FileId, directory: FileId, name: &Name) -> Vec<u8> {
    let mut key = self::file(volume, file);
    key.extend(directory.0.to_be_bytes());
    key.extend(name.as_bytes());
    key
}

pub(super) fn contents(volume: VolumeId, file: FileId, stamp: Stamp) -> Vec<u8> {
    let mut key = self::file(volume, file);
    key.extend(stamp.replica.0.to_be_bytes());
    with_number(key, stamp.number)
}

pub(super) fn log(volume: VolumeId, seq: Seq) -> Vec<u8> {
    with_number(self::volume(volume), seq.0)
}

/// A run that began at a position.
pub(super) fn run(volume: VolumeId, from: Seq) -> Vec<u8> {
    with_number(self::volume(volume), from.0)
}

pub(super) fn writer(volume: VolumeId, replica: ReplicaId) -> Vec<u8> {
    let mut key = self::volume(volume);
    key.extend(replica.0.to_be_bytes());
    key
}

pub(super) fn verdict(volume: VolumeId, stamp: Stamp) -> Vec<u8> {
    with_number(writer(volume, stamp.replica), stamp.number)
}

/// The number that a key ends with.
pub(super) fn number_at_end(key: &[u8]) -> Option<u64> {
    key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

pub(super) fn snapshot(volume: VolumeId, number: SnapshotId) -> Vec<u8> {
    let mut key = self::volume(volume);
    key.extend(number.0.to_be_bytes());
    key
}

/// What the files of a user count for.
pub(super) fn usage(volume: VolumeId, uid: u32) -> Vec<u8> {
    let mut key = self::volume(volume);
    key.extend(uid.to_be_bytes());
    key
}

/// The user in a key of usage.
pub(super) fn user_in(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(4..)?.try_into().ok()?))
}

/// Seconds since 1970, so that times before it sort first.
pub(super) fn time(volume: VolumeId, secs: i64) -> Vec<u8> {
    with_number(self::volume(volume), secs.cast_unsigned() ^ (1 << 63))
}

/// The file or directory that a key begins with, after the volume.
pub(super) fn file_in(key: &[u8]) -> Option<FileId> {
    let (file, _) = key.get(4..)?.split_first_chunk()?;
    Some(FileId(u64::from_be_bytes(*file)))
}

/// The file and the stamp in a key of contents.
pub(super) fn file_and_stamp(key: &[u8]) -> Option<(FileId, Stamp)> {
    let (file, stamp) = key.get(4..)?.split_first_chunk()?;
    let (replica, number) = stamp.split_first_chunk()?;
    let number = <[u8; 8]>::try_from(number).ok()?;
    let stamp = Stamp::new(ReplicaId(u32::from_be_bytes(*replica)), u64::from_be_bytes(number));
    Some((FileId(u64::from_be_bytes(*file)), stamp))
}

/// The number that a key ends with.
pub(super) fn last_number(key: &[u8]) -> Option<u64> {
    let (_, number) = key.split_last_chunk()?;
    Some(u64::from_be_bytes(*number))
}

/// The name in a key of an entry without a position.
pub(super) fn name_in_entry(key: &[u8]) -> Option<Name> {
    let name = key.get(12..)?.strip_suffix(&[0])?;
    Name::new(name).ok()
}

/// The directory and name in a key of `name_of`.
pub(super) fn name_in_name_of(key: &[u8]) -> Option<(FileId, Name)> {
    let (directory, name) = key.get(12..)?.split_first_chunk()?;
    Some((FileId(u64::from_be_bytes(*directory)), Name::new(name).ok()?))
}

fn with_number(mut key: Vec<u8>, number: u64) -> Vec<u8> {
    key.extend(number.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> Name {
        Name::new(bytes).unwrap()
    }

    #[test]
    fn versions_of_one_name_lie_together_and_names_in_their_order() {
        let (v, d) = (VolumeId(1), FileId(9));
        let a = entry_at(v, d, &name(b"a"), Seq(u64::MAX));
        let after_a = after_entry(v, d, &name(b"a"));
        let a1 = entry_at(v, d, &name(b"a\x01"), Seq(0));
        let ab = entry_at(v, d, &name(b"ab"), Seq(0));
        assert!(a < after_a && after_a <= a1 && a1 < ab);
    }

    #[test]
    fn a_range_ends_before_the_next_file_and_the_next_volume() {
        let last = FileId(u64::MAX);
        assert!(file_at(VolumeId(1), last, Seq(u64::MAX)) < after_file(VolumeId(1), last));
        assert!(after_file(VolumeId(1), last) <= volume(VolumeId(2)));
        let (from, to) = VolumeId(1).range();
        assert!(from < file_at(VolumeId(1), FileId(0), Seq(0)));
        assert!(file_at(VolumeId(1), last, Seq(u64::MAX)) < to);
    }

    #[test]
    fn what_a_key_was_made_of_can_be_read_from_it() {
        let (v, d, n) = (VolumeId(3), FileId(8), name(b"notes.txt"));
        assert_eq!(name_in_entry(&entry(v, d, &n)), Some(n.clone()));
        assert_eq!(name_in_name_of(&name_of(v, FileId(5), d, &n)), Some((d, n)));
        assert_eq!(last_number(&log(v, Seq(77))), Some(77));
        let stamp = Stamp::new(ReplicaId(2), 5);
        assert_eq!(file_and_stamp(&contents(v, d, stamp)), Some((d, stamp)));
        assert!(time(v, -1) < time(v, 0) && time(v, 0) < time(v, 1));
    }
}
