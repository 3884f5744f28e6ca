//! Outcomes as the replies that the kernel waits for, where more than one call has the same.

use crate::attributes::shown;
use crate::calls::Seen;
use client::{Caller, Client, Found};
use fuse::{
    Errno, FileAttr, INodeNo, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyStatfs, Request,
};
use model::{FileId, NAME_BYTES_MAX};
use protocol::{Totals, Upstream};
use std::time::Duration;
use store::Containers;

/// The unit in which `statfs` counts.
const STATFS_BLOCK_BYTES: u32 = 4096;

pub(crate) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

pub(crate) fn file(ino: INodeNo) -> FileId {
    FileId(ino.0)
}

pub(crate) fn answer_entry<U: Upstream, C: Containers>(
    reply: ReplyEntry,
    client: &Client<U, C>,
    outcome: Result<(Seen<U, C>, Duration), Errno>,
) {
    match outcome {
        Ok((seen, keep)) => {
            let found = seen.hand_over();
            let attributes = found_by(client, shown(&found));
            reply.entry(&kept(client, found.file, keep), &attributes);
        }
        Err(errno) => reply.error(errno),
    }
}

/// Before the kernel is told of what bears a name: with the number to find it by.
pub(crate) fn found_by<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    attributes: FileAttr,
) -> FileAttr {
    let (number, size) = client.number_to_tell(FileId(attributes.ino.0));
    FileAttr { number: INodeNo(number), size: size.unwrap_or(attributes.size), ..attributes }
}

/// Attributes that the kernel is told of a file by one of its numbers: by each it goes by the size of
/// what it caches by that.
pub(crate) fn sized<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    attributes: FileAttr,
    number: INodeNo,
) -> FileAttr {
    let size = client.size_by(FileId(attributes.ino.0), number.0);
    FileAttr { size: size.unwrap_or(attributes.size), ..attributes }
}

/// How long the kernel may keep what it is told of a file. Not at all if it has it by several numbers: what
/// is changed by the one it does not know of the other; nor while somebody writes around its cache.
pub(crate) fn kept<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    file: FileId,
    keep: Duration,
) -> Duration {
    let changes = client.numbers().has_several(file) || client.is_written_around(file);
    if changes { Duration::ZERO } else { keep }
}

pub(crate) fn answer_attributes<U: Upstream, C: Containers>(
    reply: ReplyAttr,
    (client, number): (&Client<U, C>, INodeNo),
    outcome: Result<(Found, Duration), Errno>,
) {
    match outcome {
        Ok((found, keep)) => {
            let attributes = sized(client, shown(&found), number);
            reply.attr(&kept(client, found.file, keep), &attributes);
        }
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn answer_empty(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn answer_data(reply: ReplyData, outcome: Result<Vec<u8>, Errno>) {
    match outcome {
        Ok(bytes) => reply.data(&bytes),
        Err(errno) => reply.error(errno),
    }
}

/// The origin tells what there is and what there is room for.
pub(crate) fn answer_totals(reply: ReplyStatfs, totals: &Totals) {
    let blocks = |bytes: u64| bytes / u64::from(STATFS_BLOCK_BYTES);
    let free = blocks(totals.bytes_free);
    reply.totals(&fuse::Totals {
        blocks: blocks(totals.bytes).saturating_add(free),
        blocks_free: free,
        files: totals.files.saturating_add(totals.files_free),
        files_free: totals.files_free,
        block_bytes: STATFS_BLOCK_BYTES,
        name_bytes_max: NAME_BYTES_MAX as u32,
    });
}
