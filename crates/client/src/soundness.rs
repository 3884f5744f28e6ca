//! Whether the cache still holds of the server's versions what the server has: a disk can lose bits
//! and say nothing. All of the cache is read through in passes, slowly, or at once when somebody asks.
//! Holds: bytes are compared with names for which the version's root vouches; what differs while
//! nobody can be changing it is written anew in its place, from the cache or over the link, and people
//! are told. So they are of what is pending and is not as it was stored.
//! Never: changes what is pending, written to, or lent to be written to; lets anything go.
//! From: beyond the papers, whose caches trust their disks (LBFS, "Implementation").

mod compare;
mod first;
mod mend;
mod pass;
mod unsent;

pub(crate) use pass::Pass;

use crate::client::{Client, error_of};
use crate::damage::Unkept;
use crate::presence::Presence;
use crate::recipes::Late;
use crate::types::Error;
use compare::{Copy, Look, Stands};
use model::FileId;
use pass::{At, BEGINS_AFTER, BETWEEN, BYTES_AT_ONCE, FILES_AT_ONCE, LOOK_EVERY};
use protocol::{Class, MendedStatus, Upstream};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::Containers;
use tokio::sync::Notify;

/// Why something stays as it is that is wrong.
const NO_LINK: &str = "there is no link; check again when there is one";

/// Files of which it is remembered that what was pending of them was altered.
const ALTERED_MAX: usize = 1024;

/// What one turn has looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadThrough {
    pub files: u64,
    pub bytes: u64,
    /// Files of which something is here, and not known what it should be.
    pub unknown: u64,
    pub wrong: Vec<Wrong>,
    /// Where to go on: file and offset. None: all has been looked at.
    pub next: Option<(u64, u64)>,
}

/// A file of which something was not as the server has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wrong {
    pub path: String,
    /// None at all: it could not be read.
    pub bytes: u64,
    /// Why that is so still. None: it was mended.
    pub left: Option<String>,
    /// It was written here, and is not sent yet.
    #[serde(default)]
    pub unsent: bool,
}

/// What was found to be wrong since the mount.
#[derive(Default)]
pub(crate) struct Mended {
    status: Mutex<MendedStatus>,
    /// What is pending and is not here any more.
    pub unkept: Unkept,
    pub late: Late,
    /// Files of which something is pending that is not in its container as it was stored.
    altered: Mutex<BTreeSet<FileId>>,
    /// Some of that may have been sent, or the replica above has said what it has taken.
    wanted: Notify,
}

impl Mended {
    pub fn status(&self) -> MendedStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn note(&self, path: &str, bytes: u64) {
        let mut mended = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        mended.times += 1;
        mended.bytes += bytes;
        mended.last = Some(path.into());
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Reads through the cache when that is due, with time between for the others.
    pub(crate) async fn run_passes(&self) {
        // A new cache counts from its first moment.
        let is_new = self.core().meta.pass.is_none();
        let mut is_looked_for = false;
        let mut wait = if is_new { Duration::ZERO } else { BEGINS_AFTER };
        loop {
            tokio::select! {
                biased;
                () = self.until_stopping() => {}
                () = self.inner.mended.wanted.notified() => {
                    if !std::mem::replace(&mut is_looked_for, true) {
                        self.look_for_unsent().await;
                    }
                    self.mend_sent().await;
                    continue;
                }
                () = self.inner.world.clock.sleep(wait) => {}
            }
            if self.is_stopping() {
                break;
            }
            wait = match self.next_of_pass() {
                Some(at) if self.may_mend() => match self.read_some(at).await {
                    Ok(looked) => {
                        self.pass_went_on(looked.next);
                        BETWEEN
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the cache could not be read through");
                        LOOK_EVERY
                    }
                },
                Some(_) | None => LOOK_EVERY,
            };
        }
    }

    fn next_of_pass(&self) -> Option<At> {
        let now = self.inner.world.clock.time().secs;
        let mut core = self.core();
        let pass = Pass::next(core.meta.pass, now);
        core.unsaved |= core.meta.pass != Some(pass);
        core.meta.pass = Some(pass);
        pass.at
    }

    fn pass_went_on(&self, next: Option<At>) {
        let mut core = self.core();
        if let Some(pass) = &mut core.meta.pass {
            pass.at = next;
        }
        // Before that, whatever else is saved brings it along: at worst something is read twice.
        core.unsaved |= next.is_none();
    }

    /// What is wrong could be fetched.
    fn may_mend(&self) -> bool {
        let connection = self.connection();
        connection.attached && connection.fetches_ahead()
    }

    /// As `read_some`, for who wants to know what is wrong: from the beginning on of the tables, too.
    pub async fn read_through(&self, from: (u64, u64)) -> Result<ReadThrough, Error> {
        if from == (0, 0) {
            let client = self.clone();
            let looked = self.off_the_runtime(move || {
                crate::marred::look_at_all(&*client.inner.tables);
                Ok(())
            });
            looked.await.map_err(error_of)?;
        }
        self.read_some(from).await
    }

    /// Looks at some of the cache, from a place on, and mends what is wrong.
    async fn read_some(&self, from: (u64, u64)) -> Result<ReadThrough, Error> {
        let mut done = ReadThrough { next: Some(from), ..ReadThrough::default() };
        let mut unknown = None;
        for _ in 0..FILES_AT_ONCE {
            let Some((file, offset)) = done.next.filter(|_| done.bytes < BYTES_AT_ONCE) else {
                break;
            };
            let after = file.checked_sub(1).map(FileId);
            let client = self.clone();
            let next = move || Presence::next_file(&*client.inner.tables.read()?, after);
            let Some(found) = self.off_the_runtime(next).await.map_err(error_of)? else {
                done.next = None;
                break;
            };
            let offset = if found.0 == file { offset } else { 0 };
            let until = match self.read_window(found, offset, Class::Prefetch, &mut done).await {
                Ok(read) => {
                    if read.is_unknown && unknown.replace(found) != Some(found) {
                        done.unknown += 1;
                    }
                    read.until
                }
                // It changed meanwhile.
                Err(Error::Stale | Error::BadHandle | Error::Objection(_)) => None,
                // One file that cannot be read holds up no others.
                Err(error) => {
                    self.note_wrong(found, 0, Some(error.to_string()), &mut done);
                    None
                }
            };
            done.next = match until {
                Some(until) => Some((found.0, until)),
                None => found.0.checked_add(1).map(|next| (next, 0)),
            };
        }
        Ok(done)
    }

    /// Looks at a window of a file, and mends what is wrong in it.
    async fn read_window(
        &self,
        file: FileId,
        offset: u64,
        class: Class,
        done: &mut ReadThrough,
    ) -> Result<WindowRead, Error> {
        let client = self.clone();
        let look =
            self.off_the_runtime(move || Ok(client.look_at_window(file, offset, class))).await;
        let look = look.map_err(error_of)?;
        let look = match look {
            Ok(look) => look,
            // It may have been cut, or have gone, while it was read.
            Err(_) if !self.is_there(file) => None,
            Err(error) => return Err(error),
        };
        let Some(Look { copy, stands, bytes, until, is_unknown }) = look else {
            return self.read_unsent(file, offset, done).await;
        };
        done.bytes += bytes;
        match stands {
            Stands::Sound => {}
            Stands::Wrong(pieces) => self.mend_and_note(&copy, pieces, done).await,
            Stands::Doubtful(window) if self.connection().attached => {
                let pieces = self.compare_with_asked(&copy, window).await?;
                self.mend_and_note(&copy, pieces, done).await;
            }
            Stands::Doubtful(_) => {
                let (client, wrong) = (self.clone(), copy.clone());
                let is_wrong = move || Ok(client.is_wrong_as_a_whole(&wrong));
                if self.off_the_runtime(is_wrong).await.map_err(error_of)?? {
                    let bytes = copy.presence.contents.size;
                    self.note_wrong(file, bytes, Some(NO_LINK.into()), done);
                }
            }
        }
        let size = copy.presence.contents.size;
        let until = Some(until).filter(|until| *until < size);
        done.files += u64::from(until.is_none());
        Ok(WindowRead { until, is_unknown })
    }

    fn is_there(&self, file: FileId) -> bool {
        !matches!(self.copy_of(file, Class::Prefetch), Ok(None))
    }

    async fn mend_and_note(
        &self,
        copy: &Copy,
        pieces: Vec<chunks::Placed>,
        done: &mut ReadThrough,
    ) {
        if pieces.is_empty() {
            return;
        }
        let mended = self.mend(copy, pieces).await;
        if mended.bytes > 0 {
            self.note_wrong(copy.file, mended.bytes, None, done);
        }
        if let Some((bytes, why)) = mended.left {
            self.note_wrong(copy.file, bytes, Some(why), done);
        }
    }

    fn note_wrong(&self, file: FileId, bytes: u64, left: Option<String>, done: &mut ReadThrough) {
        let path = self.name_for_people(file);
        match &left {
            None => {
                tracing::warn!(path, bytes, "the cache had something else than the server");
                self.inner.mended.note(&path, bytes);
            }
            Some(left) => {
                tracing::warn!(path, bytes, left, "the cache has something else than the server");
            }
        }
        done.wrong.push(Wrong { path, bytes, left, unsent: false });
    }
}

/// What came of a window.
struct WindowRead {
    /// Where to go on in the file.
    until: Option<u64>,
    /// Of something in it, it is not known what it should be.
    is_unknown: bool,
}
