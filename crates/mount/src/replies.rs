//! Outcomes as the replies that the kernel waits for, where more than one call has the same.

use crate::attributes::shown;
use crate::calls::Seen;
use crate::numbers::Numbers;
use client::{Caller, Found};
use fuse::{Errno, INodeNo, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyStatfs, Request};
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
    numbers: &Numbers,
    outcome: Result<(Seen<U, C>, Duration), Errno>,
) {
    match outcome {
        Ok((seen, keep)) => {
            let found = seen.hand_over();
            reply.entry(&kept(numbers, found.file, keep), &numbers.found(shown(&found)));
        }
        Err(errno) => reply.error(errno),
    }
}

/// How long the kernel may keep what it is told of a file that it has by several numbers: what is
/// changed by the one it does not know of the other.
pub(crate) fn kept(numbers: &Numbers, file: FileId, keep: Duration) -> Duration {
    if numbers.has_several(file) { Duration::ZERO } else { keep }
}

pub(crate) fn answer_attributes(
    reply: ReplyAttr,
    numbers: &Numbers,
    outcome: Result<(Found, Duration), Errno>,
) {
    match outcome {
        Ok((found, keep)) => reply.attr(&kept(numbers, found.file, keep), &shown(&found)),
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
