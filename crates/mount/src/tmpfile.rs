//! Files without a name: open(2), O_TMPFILE.

use crate::attributes::{flags_asked, mode_asked, shown};
use crate::calls::{Created, Held, Seen, as_inherited, making};
use crate::contents::open_flags;
use crate::driver::{Call, Driver, at_once};
use crate::replies::{caller, file};
use client::{Caller, Client, Making, OpenFlags, Step};
use fuse::{FileHandle, INodeNo, ReplyCreate, Request};
use model::{FileId, Kind};
use protocol::Upstream;
use store::Containers;

/// Makes an open file in a directory that has no name for it. Whether it may be given one later the
/// kernel knows.
pub(crate) fn create<U: Upstream, C: Containers>(
    driver: &Driver<U, C>,
    request: &Request,
    directory: INodeNo,
    (mode, umask, flags): (u32, u32, i32),
    reply: ReplyCreate,
) {
    let (caller, flags) = (caller(request), flags_asked(flags));
    let (making, umask) = (making(caller, Kind::File, mode_asked(mode)), mode_asked(umask));
    driver.serve_kept(
        Call::within("tmpfile", request, directory),
        move |client| made(client, caller, file(directory), (&making, umask), flags).map(at_once),
        move |outcome| match outcome {
            Ok(((seen, held), keep)) => {
                let opened = held.hand_over();
                let (attributes, fh) = (shown(&seen.hand_over()), FileHandle(opened.handle.0));
                reply.created(&keep, &attributes, fh, open_flags(&opened, flags.write));
            }
            Err(errno) => reply.error(errno),
        },
    );
}

fn made<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    caller: Caller,
    directory: FileId,
    (making, umask): (&Making, u16),
    flags: OpenFlags,
) -> Step<Created<U, C>> {
    let making = as_inherited(client, directory, making, umask)?;
    let (found, opened) = client.create_unborn(caller, directory, &making, flags)?;
    client.tell_unborn(&found);
    Ok((Seen::noted(client, found), Held::new(client, opened)))
}
