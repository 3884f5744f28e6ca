//! A disk that can have no more files, and has bytes: another program took the rest of its inodes.
//! Holds: few files leave, however small they are; nothing leaves for contents that cannot come.

use super::{MayBeFull, Mine, ROUNDS_MAX, Wanted};
use crate::client::{Client, error_of};
use crate::mode;
use crate::types::{Error, OpenFlags, Stop};
use model::FileId;
use protocol::Upstream;
use store::{Containers, Result as StoreResult};

/// So many files leave at once: for what is opened or made, and for the log and the tables.
const FREED_FILES: usize = 16;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether files are what a disk lacks on which something was not written.
    pub(super) fn lacks_files(&self) -> bool {
        self.inner.containers.lack_files().unwrap_or_else(|error| {
            tracing::debug!(%error, "how many files the disk can have is not known");
            false
        })
    }

    /// On a full disk, the trash goes first: some of it, or all. Says whether anything went.
    pub(super) fn trash_gives_way(&self) -> StoreResult<bool> {
        match self.lacks_files() {
            true => self.let_oldest_trash_go(FREED_FILES),
            false => self.empty_trash(0),
        }
    }

    /// Those that were used longest ago leave, and before them what is in the trash. False: none
    /// did. Who calls it makes room, and uses what is kept aside.
    pub(super) fn let_files_leave(&self) -> Result<bool, Error> {
        if self.let_oldest_trash_go(FREED_FILES).map_err(error_of)? {
            return Ok(true);
        }
        let mut left = 0;
        for _ in 0..ROUNDS_MAX {
            self.look_if_due(true)?;
            let chosen: Vec<_> = {
                let seen = self.inner.room.seen();
                seen.closed.iter().take(FREED_FILES - left).copied().collect()
            };
            for closed in &chosen {
                left += usize::from(self.let_file_leave(closed)?);
            }
            if chosen.is_empty() || left == FREED_FILES {
                break;
            }
        }
        tracing::info!(files = left, "the disk can have no more files: some left the cache");
        Ok(left > 0)
    }

    /// Whether there is a link over which contents come.
    fn may_come(&self) -> bool {
        let connection = self.connection();
        connection.attached && mode::fetches(connection.mode)
    }

    /// Before so much of a version is fetched. Nothing leaves for what cannot come.
    pub(crate) async fn make_room_to_come(&self, bytes: u64, mine: Option<Mine>) {
        if self.may_come() {
            self.make_room_aside(Wanted::Room(bytes), mine).await;
        }
    }

    /// Who opens a file to read it, and finds the disk full, is told that it cannot be had if it
    /// cannot: else others would leave for it.
    pub(crate) fn or_out_of_reach(&self, file: FileId, flags: OpenFlags, stop: Stop) -> Stop {
        if !stop.is_full() || flags.write || flags.truncate || self.may_come() {
            return stop;
        }
        match self.node_here(file) {
            Ok(Some(node)) if node.contents.size > 0 => {
                self.note_out_of_reach(file);
                Error::Unreachable(self.connection().why_not().to_string()).into()
            }
            _ => stop,
        }
    }
}
