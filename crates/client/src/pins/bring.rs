//! Fetching what is pinned, or asked for: small files several at once, and larger ones each by itself.
//! Holds: what comes is checked as what somebody waits for is, and travels in the class that yields
//! to all others; nothing is fetched for which the cache has no room.

use super::keep::lacks;
use crate::client::{Client, error_of};
use crate::fetch::Target;
use crate::presence::Presence;
use crate::room::Wanted;
use crate::together::{Gathering, Small};
use crate::types::Error;
use model::{FileId, Node};
use protocol::{Class, Range, Upstream};
use store::Containers;
use tokio::task::JoinSet;

/// Requests that are under way at once, for one file or for several.
const UNDER_WAY_MAX: usize = 8;

/// What a walk has under way.
#[derive(Default)]
pub(super) struct Bringing {
    under_way: JoinSet<bool>,
    gathering: Gathering,
    /// Something could not be fetched.
    lacks: bool,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Fetches files in the background, and no more than that.
    pub(crate) fn bring_once(&self, files: Vec<FileId>) {
        self.pins().once.extend(files);
        self.inner.keeping.wanted.notify_one();
    }

    pub(super) async fn bring_those_once(&self) {
        while self.may_keep_pins() && !self.is_stopping() {
            let Some(file) = self.pins().once.pop_front() else { return };
            match self.bring_pinned(file).await {
                Ok(is_here) => self.missed_came(file, is_here),
                Err(error) => {
                    tracing::debug!(%error, %file, "it was missed, and did not come");
                    if matches!(error, Error::Retry | Error::Unreachable(_) | Error::TimedOut(_)) {
                        self.pins().once.push_front(file);
                        return;
                    }
                    self.missed_came(file, false);
                }
            }
        }
    }

    /// Fetches a file that a walk has found, if something of it lacks: a small one when there are
    /// enough of them.
    pub(super) async fn bring_in_turn(
        &self,
        bringing: &mut Bringing,
        file: FileId,
        node: Node,
    ) -> Result<(), Error> {
        let row = self.row_of(file)?;
        if lacks(&node, row.as_ref()) == 0 {
            return Ok(());
        }
        let bounds = self.bounds();
        if self.is_small(&node, row.as_ref(), &bounds) && !self.files().is_open(file) {
            // No version that is open bears this generation: it is the current one that is wanted.
            let small = Small { file, generation: u32::MAX, node };
            if let Some(enough) = bringing.gathering.add(small, bounds.batch) {
                let client = self.clone();
                bringing.has_room().await;
                bringing.under_way.spawn(async move { client.bring_small(enough).await });
            }
            return Ok(());
        }
        let client = self.clone();
        bringing.has_room().await;
        bringing.under_way.spawn(async move { client.bring_alone(file).await });
        Ok(())
    }

    /// Waits for all of it. Says whether something lacks.
    pub(super) async fn bring_rest(&self, mut bringing: Bringing) -> bool {
        let rest = std::mem::take(&mut bringing.gathering).files;
        let all = rest.is_empty() || self.bring_small(rest).await;
        while let Some(brought) = bringing.under_way.join_next().await {
            bringing.lacks |= !matches!(brought, Ok(true));
        }
        bringing.lacks || !all
    }

    /// Fetches small files together, and what did not come so, one by one.
    async fn bring_small(&self, files: Vec<Small>) -> bool {
        let wanted: Vec<FileId> = files.iter().map(|small| small.file).collect();
        let here = match self.bring_together(files).await {
            Ok(here) => here,
            Err(error) => {
                tracing::debug!(%error, files = wanted.len(), "pinned, and did not come");
                return false;
            }
        };
        let mut all = true;
        for file in wanted.into_iter().filter(|file| !here.contains(file)) {
            all &= self.bring_alone(file).await;
        }
        all
    }

    async fn bring_alone(&self, file: FileId) -> bool {
        self.bring_pinned(file).await.unwrap_or_else(|error| {
            tracing::debug!(%error, %file, "pinned, and did not come");
            false
        })
    }

    fn lacks_some(&self, file: FileId, node: &Node) -> Result<bool, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        Ok(lacks(node, Presence::load(&*read, file).map_err(error_of)?.as_ref()) > 0)
    }

    /// Fetches what lacks of a file. False: there is no room for it, or it has changed again.
    pub(crate) async fn bring_pinned(&self, file: FileId) -> Result<bool, Error> {
        let mut before = None;
        loop {
            let Some(node) = self.found_pinned(file).await? else { return Ok(true) };
            if !self.lacks_some(file, &node)? {
                return Ok(true);
            }
            let held = match self.hold(file, u32::MAX) {
                Err(Error::Objection(_)) => return Ok(true),
                held => held?,
            };
            let Some(generation) = held.generation() else { return Ok(false) };
            let Some(fetching) =
                self.files().get(file, generation).map(|open| open.fetching.clone())
            else {
                return Ok(false);
            };
            let step = self.window_most().max(1);
            let _alone = fetching.write().await;
            let secret = self.secret().0;
            let (target, size, (from, to)) = {
                let files = self.files();
                let Some(open) = files.get(file, generation) else { return Ok(false) };
                let here = &open.presence;
                // Who writes upon what is not here gets it when it is stored.
                if here.dirty.is_some() || here.ground.is_some() {
                    return Ok(false);
                }
                let size = here.contents.size;
                let Some(&lacking) = here.absent(0, size).first() else { return Ok(true) };
                (Target::of(file, open, secret), size, lacking)
            };
            if before == Some((generation, from)) || !self.may_keep_pins() {
                return Ok(false);
            }
            before = Some((generation, from));
            let length = (to - from).min(step);
            let mine = Some((file, generation));
            self.make_room_aside(Wanted::Room(length), mine).await;
            let full = self.room_lacks(length)? > 0;
            self.pins().full = full;
            if full {
                return Ok(false);
            }
            let target = Target { class: Class::Prefetch, ..target };
            self.fetch_range(&target, size, Range { offset: from, length }).await?;
        }
    }
}

impl Bringing {
    async fn has_room(&mut self) {
        while self.under_way.len() >= UNDER_WAY_MAX {
            self.lacks |= !matches!(self.under_way.join_next().await, Some(Ok(true)));
        }
    }
}
