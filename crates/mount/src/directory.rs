//! Listing a directory: where a reader stands, and what comes next.
//! Holds: positions are 1 after `.`, 2 after `..`, then the client's cookies moved up by 2, so a
//! reader goes on where it stopped whatever comes and goes.

use crate::attributes::{bare, bare_directory, shown};
use crate::calls::Seen;
use crate::driver::{Call, Driver, at_once};
use crate::listings::Part;
use crate::replies::{file, found_by, kept};
use client::{Client, DirectoryEntry, Listed, Step};
use fuse::{FileAttr, INodeNo, ReplyDirectory, ReplyDirectoryPlus, Request};
use model::{FileId, Name};
use protocol::Upstream;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use store::Containers;

/// Positions before the first entry of the client's: the start, after `.`, after `..`.
const DOTS: u64 = 2;
/// The kernel's positions are signed.
const POSITION_MAX: u64 = i64::MAX as u64;
/// Entries that fill a reply of the usual 32 KiB, with attributes and without.
const PLUS_ROWS_MAX: usize = 192;
const ROWS_MAX: usize = 1024;

/// One line of a listing.
struct Row {
    name: RowName,
    attributes: FileAttr,
    /// Where a reader goes on after it.
    position: u64,
}

/// A line with a file that the kernel has once it is told: not one of the dots, nor what nobody can tell of.
type Plus<U, C> = (Row, Option<Seen<U, C>>);

enum RowName {
    Dots(&'static str),
    Entry(Name),
}

impl Row {
    fn name(&self) -> &OsStr {
        match &self.name {
            RowName::Dots(dots) => OsStr::new(dots),
            RowName::Entry(name) => OsStr::from_bytes(name.as_bytes()),
        }
    }

    fn of(entry: &DirectoryEntry) -> Row {
        let attributes = match &entry.found {
            Ok(found) => shown(found),
            Err(file) => bare(*file, None),
        };
        let position = after(entry.cookie);
        Row { attributes, name: RowName::Entry(entry.name.clone()), position }
    }

    fn bare(listed: Listed) -> Row {
        let (attributes, position) = (bare(listed.file, listed.kind), after(listed.cookie));
        Row { attributes, name: RowName::Entry(listed.name), position }
    }
}

/// The position of what has this cookie.
fn after(cookie: u64) -> u64 {
    cookie.saturating_add(DOTS).min(POSITION_MAX)
}

/// What follows a position, at most `rows_max` entries and the two dots.
fn rows<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    directory: FileId,
    position: u64,
    rows_max: usize,
) -> Step<Vec<Row>> {
    let mut rows = dots(client, directory, position)?;
    let entries = client.list_names(directory, position.saturating_sub(DOTS), rows_max)?;
    rows.extend(entries.into_iter().map(Row::bare));
    Ok(rows)
}

/// As `rows`, of files that the kernel is told of.
fn rows_plus<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    directory: FileId,
    position: u64,
) -> Step<Vec<Plus<U, C>>> {
    let dots = dots(client, directory, position)?.into_iter().map(|row| (row, None));
    let after = position.saturating_sub(DOTS);
    let entries = client.list_known(directory, after, PLUS_ROWS_MAX)?.into_iter();
    let entries = entries.map(|entry| {
        let row = Row::of(&entry);
        (row, entry.found.ok().map(|found| Seen::noted(client, found)))
    });
    Ok(dots.chain(entries).collect())
}

fn dots<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    directory: FileId,
    position: u64,
) -> Step<Vec<Row>> {
    let mut rows = Vec::new();
    if position < 1 {
        let attributes = bare_directory(directory);
        rows.push(Row { name: RowName::Dots("."), attributes, position: 1 });
    }
    if position < DOTS {
        let attributes = bare_directory(client.parent(directory)?);
        rows.push(Row { name: RowName::Dots(".."), attributes, position: DOTS });
    }
    Ok(rows)
}

/// Whether this is the reading of a directory that moves its time of access: the first of a listing.
fn counts<U: Upstream, C: Containers>(driver: &Driver<U, C>, position: u64) -> bool {
    driver.notes_reads() && position == 0
}

pub(crate) fn list<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    ino: INodeNo,
    position: u64,
    reply: ReplyDirectory,
) {
    let counts = counts(driver, position);
    driver.serve(
        // Of one that is gone, as ENOENT, readdir(3) says that nothing is left.
        Call::within("readdir", request, ino).that_asks(),
        move |client| {
            let rows = rows(client, file(ino), position, ROWS_MAX)?;
            if counts {
                client.accessed(file(ino));
            }
            Ok(at_once(rows))
        },
        move |outcome| match outcome {
            Ok(rows) => answer(&rows, reply),
            Err(errno) => reply.error(errno),
        },
    );
}

/// Lists with attributes, so that the kernel need not ask for each.
pub(crate) fn list_plus<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    ino: INodeNo,
    position: u64,
    reply: ReplyDirectoryPlus,
) {
    let (counts, listings) = (counts(driver, position), driver.listings().clone());
    let client = driver.client().clone();
    driver.serve_kept(
        Call::within("readdirplus", request, ino).that_asks(),
        move |client| {
            let rows = rows_plus(client, file(ino), position)?;
            let begins_in = match position {
                0 => Some(client.parent(file(ino))?),
                _ => None,
            };
            if counts {
                client.accessed(file(ino));
            }
            Ok(at_once((rows, begins_in)))
        },
        move |outcome| match outcome {
            Ok(((rows, begins_in), keep)) => {
                listings.note(Part { directory: file(ino), begins_in, rows: rows.len() }, keep);
                answer_plus(rows, (keep, &client), reply);
            }
            Err(errno) => reply.error(errno),
        },
    );
}

/// As many rows as fit.
fn answer(rows: &[Row], mut reply: ReplyDirectory) {
    for row in rows {
        if reply.add(&row.attributes, row.position, row.name()) {
            break;
        }
    }
    reply.ok();
}

/// As many rows as fit, with attributes, which the kernel may keep for so long.
fn answer_plus<U: Upstream, C: Containers>(
    rows: Vec<Plus<U, C>>,
    (keep, client): (Duration, &Client<U, C>),
    mut reply: ReplyDirectoryPlus,
) {
    for (row, seen) in rows {
        let is_told = seen.is_some();
        let attributes = if is_told { found_by(client, row.attributes) } else { row.attributes };
        let keep = kept(client, FileId(attributes.ino.0), keep);
        if reply.add((&attributes, is_told), row.position, row.name(), keep) {
            if is_told {
                client.numbers().forgotten(attributes.number.0, 1);
            }
            break;
        }
        seen.map(Seen::hand_over);
    }
    reply.ok();
}
