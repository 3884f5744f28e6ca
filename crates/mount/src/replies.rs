//! Outcomes as the replies that the kernel waits for, where more than one call has the same.

use crate::attributes::shown;
use crate::calls::Seen;
use client::{Caller, Found};
use fuser::{Errno, Generation, INodeNo, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, Request};
use model::FileId;
use protocol::Upstream;
use std::time::Duration;
use store::Containers;

/// File ids are never used again, so there is one generation.
pub(crate) const GENERATION: Generation = Generation(0);

pub(crate) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

pub(crate) fn file(ino: INodeNo) -> FileId {
    FileId(ino.0)
}

pub(crate) fn answer_entry<U: Upstream, C: Containers>(
    reply: ReplyEntry,
    outcome: Result<(Seen<U, C>, Duration), Errno>,
) {
    match outcome {
        Ok((seen, keep)) => reply.entry(&keep, &shown(&seen.hand_over()), GENERATION),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn answer_attributes(reply: ReplyAttr, outcome: Result<(Found, Duration), Errno>) {
    match outcome {
        Ok((found, keep)) => reply.attr(&keep, &shown(&found)),
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
