//! A server that was set back to an earlier state, as from a backup: it has fewer changes than this
//! client was told of, or others in their place. And one that has another volume by now.
//! Holds: what is cached here of versions that the server has lost is not let go before the user
//! has said so.
//! From: DESIGN, "The client"; nothing that was acknowledged is lost silently.

use crate::client::{Client, Core, error_of};
use crate::failures::of_missing;
use crate::meta::Meta;
use crate::presence::{NO_VERSION, Presence};
use crate::types::Error;
use crate::upkeep::LEAVE_WITHIN;
use model::{FileId, Seq};
use protocol::{Attached, Class, Heard, RUNS_MAX, Request, Run, Tail, Upstream};
use std::time::Duration;
use store::{Containers, Durability, Read, StoreError, Write};
use volume::partial;

/// Up to where the server has what it told of, as it says with the attach.
fn in_common(attached: &Attached) -> Seq {
    let position = match &attached.tail {
        Tail::TooFar(at) => *at,
        Tail::Changes(notice) => notice.upto,
    };
    attached.in_common.map_or(position, |in_common| in_common.min(position))
}

/// The user has to do something first.
pub(crate) const FOREIGN_AGAIN_AFTER: Duration = Duration::from_secs(3600);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Before anything of an attach is taken in. Of another volume the session is left, and what others
    /// do there is not told of here.
    pub(crate) async fn is_as_it_was(&self, attached: &Attached) -> Result<(), Error> {
        let of_this = self.is_of_this_volume(attached);
        if of_this.is_err() {
            self.connection().foreign = true;
            // Without an answer the lease ends by itself.
            let leave = self.inner.upstream.ask(Class::Interactive, Request::Leave);
            let left = self.inner.world.clock.within(LEAVE_WITHIN, leave).await;
            tracing::debug!(answered = left.is_some(), "left what is not this volume");
        }
        of_this.and_then(|()| self.look_for_set_back(attached))
    }

    /// An error if the server has another volume by now under the name of this one: ids of files and
    /// numbers of updates mean others there. A volume's secret is drawn when it is made, and stays.
    fn is_of_this_volume(&self, attached: &Attached) -> Result<(), Error> {
        let core = self.core();
        if core.meta.replica.is_none() || core.meta.secret == attached.secret {
            return Ok(());
        }
        Err(Error::Failed(
            "the server has another volume under this name than the one that is cached here: that \
             one was removed there and made anew, or the server's data is not what it was. Nothing \
             of what is here is sent to it. What is cached can be read; unmount, and `farfs salvage \
             STATE OUT` copies out what was not sent; then mount the new volume with another --state"
                .into(),
        ))
    }

    /// By which the server finds out whether it was set back. None: it has never said what it needs for
    /// that.
    pub(crate) fn heard(&self) -> Result<Option<Heard>, Error> {
        let (runs, seen) = {
            let core = self.core();
            (core.meta.runs.clone(), core.meta.seen)
        };
        let Some(runs) = runs else { return Ok(None) };
        let read = self.inner.tables.read().map_err(error_of)?;
        // That nothing has changed was told, too.
        let upto = partial::told(&*read).map_err(of_missing)?.max(seen);
        Ok(Some(Heard { upto, runs }))
    }

    /// In the tables before what was told in the last of these runs.
    pub(crate) fn note_runs(&self, core: &mut Core, runs: Option<Vec<Run>>) -> Result<(), Error> {
        core.meta.runs = runs.map(last_ones);
        let _pressed = self.pressed();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let kept = Meta::load(&*write).map_err(error_of)?;
        let runs = core.meta.runs.clone();
        Meta { runs, ..kept }.save(&mut *write).map_err(error_of)?;
        write.commit(Durability::Later).map_err(error_of)
    }

    /// An error if the server was set back, and something
    /// is cached here that it has no more: the cache goes on as it is, without a link.
    fn look_for_set_back(&self, attached: &Attached) -> Result<(), Error> {
        let at = in_common(attached);
        let read = self.inner.tables.read().map_err(error_of)?;
        let told = partial::told(&*read).map_err(of_missing)?;
        if at >= told {
            return Ok(());
        }
        let newer = cached_beyond(&*read, at)?;
        drop(read);
        if newer > 0 && !self.inner.settings.accepts_set_back {
            return Err(Error::Failed(format!(
                "the server was set back to an earlier state, as from a backup: of the changes that \
                 this device was told of, up to {told}, it has those up to {at}. {newer} files that are cached here \
                 are newer than what it has: copy what is to be kept to another place (with \
                 `farfs mode MOUNTPOINT disconnected` they can be read), then unmount, and mount \
                 with --accept-set-back"
            )));
        }
        tracing::warn!(%at, %told, newer, "the server was set back: all is learnt anew from it");
        {
            let mut core = self.core();
            let files = self.files();
            let mut write = self.inner.tables.write().map_err(error_of)?;
            let is_kept = |file| files.is_open(file) || core.log.pending_store(file).is_some();
            doubt_beyond(&mut *write, at, is_kept)?;
            drop(files);
            partial::set_back(&mut *write, at).map_err(of_missing)?;
            write.commit(Durability::Later).map_err(error_of)?;
            (core.meta.seen, core.epoch_since) = (at, at);
            self.begin_epoch(&mut core)?;
        }
        self.forget_all();
        Ok(())
    }
}

/// How many files have contents here that the server told of beyond a position.
fn cached_beyond(read: &dyn Read, at: Seq) -> Result<u64, Error> {
    let (mut files, mut broken) = (0, None::<StoreError>);
    partial::files_beyond(read, at, |file| match Presence::load(read, file) {
        Ok(presence) => {
            files += u64::from(presence.is_some_and(|presence| !presence.ranges.is_empty()))
        }
        Err(error) => broken = Some(error),
    })
    .map_err(of_missing)?;
    broken.map_or(Ok(files), |error| Err(error_of(error)))
}

/// What is cached of what the server told of beyond a position is no version of a file any more: the server
/// gives ids to others that it had given before, and their versions bear stamps that others have borne. What of it
/// is wanted is found by its chunks.
fn doubt_beyond(
    write: &mut dyn Write,
    at: Seq,
    is_kept: impl Fn(FileId) -> bool,
) -> Result<(), Error> {
    let mut beyond = Vec::new();
    partial::files_beyond(write, at, |file| beyond.push(file)).map_err(of_missing)?;
    for file in beyond.into_iter().filter(|file| !is_kept(*file)) {
        let row = Presence::load(write, file).map_err(error_of)?;
        if let Some(row) = row.filter(|row| row.dirty.is_none()) {
            Presence { version: NO_VERSION, ..row }.save(write, file).map_err(error_of)?;
        }
    }
    Ok(())
}

/// No more than are ever said.
pub(crate) fn last_ones(mut runs: Vec<Run>) -> Vec<Run> {
    runs.drain(..runs.len().saturating_sub(RUNS_MAX));
    runs
}
