//! Whether contents that were not sent are what was written: the update that stored them has their
//! root, and the tables the secret by which it was made.
//! Never: takes what cannot be compared for altered.

use crate::meta::Meta;
use crate::part::PartRow;
use crate::plan::describe_container;
use chunks::{Growing, Secret};
use model::{ChunkName, Contents, FileId};
use protocol::Cutter;
use store::container::Key;
use store::{Container, Containers, Read};
use update_log::Record;

/// Of contents that were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    AsWritten,
    Altered,
    /// They were being written to: nothing says what they should be.
    Unstored,
    /// The tables cannot be read, or a record of the log is missing.
    Not,
}

/// The last update of a file that stored contents and was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub number: u64,
    pub contents: Contents,
}

pub(super) struct Comparer<'a, C> {
    read: Option<&'a dyn Read>,
    records: &'a [Record],
    containers: &'a C,
    /// None: it is not to be had.
    secret: Option<(Secret, Cutter)>,
}

impl<'a, C: Containers> Comparer<'a, C> {
    pub fn new(
        read: Option<&'a dyn Read>,
        records: &'a [Record],
        containers: &'a C,
        meta: &Meta,
    ) -> Comparer<'a, C> {
        let secret = meta.replica.map(|_| (Secret::new(meta.secret), meta.cutter));
        Comparer { read, records, containers, secret }
    }

    pub fn of(&self, key: Key, stored: Stored, is_part: bool) -> Compared {
        let is_same = match is_part {
            true => self.has_its_part(key, stored),
            false => self.has_all(key, stored),
        };
        match is_same {
            Some(true) => Compared::AsWritten,
            Some(false) => Compared::Altered,
            None => Compared::Not,
        }
    }

    fn has_all(&self, key: Key, stored: Stored) -> Option<bool> {
        let (secret, cutter) = self.secret.as_ref()?;
        let container = self.containers.open(key, false).ok()??;
        let size = container.length().ok()?;
        let growing = Growing::new(secret, *cutter);
        let described = describe_container(&container, growing, size, 0, |_| Ok(())).ok()?;
        Some(described.tree.contents == stored.contents)
    }

    /// What was written to it. What was not here has no name to compare with.
    fn has_its_part(&self, key: Key, stored: Stored) -> Option<bool> {
        let (secret, _) = self.secret.as_ref()?;
        let pieces = self.pieces(FileId(key.file), stored)?;
        let container = self.containers.open(key, false).ok()??;
        if container.length().ok()? < stored.contents.size {
            return Some(false);
        }
        for (offset, length, name) in pieces {
            let bytes = container.read(offset, usize::try_from(length).ok()?).ok()?;
            if secret.check(&name, &bytes).is_err() {
                return Some(false);
            }
        }
        Some(true)
    }

    /// As the log has them, or the tables.
    fn pieces(&self, of: FileId, stored: Stored) -> Option<Vec<(u64, u64, ChunkName)>> {
        let logged = self.records.iter().rev().find_map(|record| match record {
            Record::Part { file, number, contents, pieces, .. }
                if (*file, *number, *contents) == (of, stored.number, stored.contents) =>
            {
                Some(pieces.clone())
            }
            _ => None,
        });
        let noted = || {
            let row = PartRow::load(self.read?, of, stored.number, &stored.contents);
            row.ok().flatten().map(|row| row.pieces)
        };
        logged.or_else(noted)
    }
}
