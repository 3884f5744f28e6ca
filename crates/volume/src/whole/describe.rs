//! What a row is about, in words, by its key alone: its value may be damaged.

use super::{keys, table};
use model::{FileId, ReplicaId, Stamp};

/// None: the table is none of a tree's, or the key none of the table's.
pub fn describe(table: &str, key: &[u8]) -> Option<String> {
    let (volume, rest) = key.split_first_chunk()?;
    let volume = keys::VolumeId(u32::from_be_bytes(*volume));
    let about = match table {
        table::HEAD => return rest.is_empty().then(|| format!("{volume}")),
        table::NODES => format!("file {}", keys::file_in(key)?),
        table::ENTRIES | table::ENTRIES_NOW => {
            let name = rest.get(8..)?.split(|byte| *byte == 0).next()?;
            format!("the name {:?} in directory {}", text(name), keys::file_in(key)?)
        }
        table::NAMES_NOW => {
            let directory = FileId(u64::from_be_bytes(*rest.get(8..)?.first_chunk()?));
            let name = text(rest.get(16..)?);
            format!("file {}, its name {name:?} in directory {directory}", keys::file_in(key)?)
        }
        table::CONTENTS => {
            let (file, stamp) = keys::file_and_stamp(key)?;
            format!("the contents of file {file}, version {stamp}")
        }
        table::LOG => format!("the update at {}", keys::last_number(key)?),
        table::WRITERS => {
            format!("replica {}", ReplicaId(u32::from_be_bytes(*rest.first_chunk()?)))
        }
        table::VERDICTS => {
            let replica = ReplicaId(u32::from_be_bytes(*rest.first_chunk()?));
            format!("the verdict on update {}", Stamp::new(replica, keys::last_number(key)?))
        }
        table::SNAPSHOTS => format!("snapshot {}", u32::from_be_bytes(*rest.first_chunk()?)),
        table::USAGE => format!("what user {} has", keys::user_in(key)?),
        table::TIMES => "the position at a time".to_owned(),
        table::RUNS => format!("the run of the server from {}", keys::last_number(key)?),
        _ => return None,
    };
    Some(format!("{about}, of {volume}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Name, Seq};

    #[test]
    fn a_row_is_described_by_its_key() {
        let (volume, file) = (keys::VolumeId(3), FileId(0x17));
        let stamp = Stamp::new(ReplicaId(2), 9);
        let name = Name::new(b"tea").unwrap();
        let cases = [
            (table::HEAD, keys::volume(volume), format!("{volume}")),
            (
                table::NODES,
                keys::file_at(volume, file, Seq(5)),
                format!("file {file}, of {volume}"),
            ),
            (
                table::ENTRIES,
                keys::entry_at(volume, file, &name, Seq(5)),
                format!("the name \"tea\" in directory {file}, of {volume}"),
            ),
            (
                table::NAMES_NOW,
                keys::name_of(volume, file, FileId::ROOT, &name),
                format!("file {file}, its name \"tea\" in directory {}, of {volume}", FileId::ROOT),
            ),
            (
                table::CONTENTS,
                keys::contents(volume, file, stamp),
                format!("the contents of file {file}, version {stamp}, of {volume}"),
            ),
            (table::LOG, keys::log(volume, Seq(5)), format!("the update at 5, of {volume}")),
            (
                table::VERDICTS,
                keys::verdict(volume, stamp),
                format!("the verdict on update {stamp}, of {volume}"),
            ),
        ];
        for (table, key, expected) in cases {
            assert_eq!(describe(table, &key), Some(expected));
            // Any bytes may be met in a damaged file.
            for length in 0..key.len() {
                let _ = describe(table, &key[..length]);
            }
        }
        assert_eq!(describe("another", &keys::volume(volume)), None);
    }
}
