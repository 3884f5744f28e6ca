//! What several requests that make or remove a name have in common.

use super::Fuse;
use crate::attributes::mode_asked;
use crate::calls;
use crate::driver::Call;
use crate::replies::{answer_empty, answer_entry, caller, file};
use client::{Caller, Making};
use fuse::{INodeNo, ReplyEmpty, ReplyEntry, Request};
use model::Name;
use protocol::Upstream;
use store::Containers;

impl<U: Upstream, C: Containers> Fuse<U, C> {
    /// What is made, and what its user's mask takes from it.
    pub(super) fn make(
        &self,
        (what, request): (&'static str, &Request),
        (directory, name): (INodeNo, Name),
        (making, umask): (Making, u32),
        reply: ReplyEntry,
    ) {
        let (caller, umask) = (Caller { uid: making.uid, gid: making.gid }, mode_asked(umask));
        let client = self.driver.client().clone();
        self.driver.serve_kept(
            Call::within(what, request, directory),
            move |client| calls::make(client, caller, file(directory), &name, (&making, umask)),
            move |outcome| answer_entry(reply, &client, outcome),
        );
    }

    pub(super) fn remove(
        &self,
        request: &Request,
        parent: INodeNo,
        name: Name,
        is_dir: bool,
        reply: ReplyEmpty,
    ) {
        let caller = caller(request);
        self.driver.serve(
            Call::within("unlink", request, parent).of_whatever_is_there(),
            move |client| client.unlink(caller, file(parent), &name, is_dir),
            move |outcome| answer_empty(reply, outcome),
        );
    }
}
