//! What is about to be written to is first as the server has it: what the disk has lost of it would
//! become part of the next version, and everybody's.
//! Holds: a container that is cut whole when it is stored was compared with the root of the version
//! that it was before its first change, unless nothing of that remains; what differed has been written
//! anew, or nobody writes to it. Who writes and syncs again and again has what was not written taken over
//! by name, but for what is small, and all of it compared once in a while: it may have to be cut whole.

use super::ReadThrough;
use crate::client::{Client, error_of};
use crate::files::Grip;
use crate::recipes;
use crate::types::{Error, Need, Step, Stop};
use model::FileId;
use protocol::{Class, Upstream};
use std::time::Duration;
use store::Containers;

/// How long what a program keeps open and stores again and again counts as compared.
const COMPARED_FOR: Duration = Duration::from_secs(60);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Before the first change of a container that is a stored version, which may leave most of it where it
    /// is: `in_place`. The caller sees to it that nobody else begins to.
    pub(crate) fn want_sound(&self, grip: &Grip<C::Container>, in_place: bool) -> Step<()> {
        let now = self.inner.world.clock.moment();
        let (presence, is_mended) = {
            let mut files = self.files();
            let open = files.get_mut(grip.file, grip.generation).ok_or(Error::BadHandle)?;
            let is_mended = open.mended_as.take() == Some(open.presence.version);
            let lately = open.compared.is_some_and(|then| now.since(then) < COMPARED_FOR);
            let by_name = in_place && lately && open.is_cut_in_parts();
            if !open.is_clean() || !open.presence.is_whole() || by_name {
                return Ok(());
            }
            (open.presence.clone(), is_mended)
        };
        // Of one that is larger, what is not written to is taken over by name.
        let contents = presence.contents;
        let is_cut_whole = contents.size < self.inner.settings.again_bytes_min;
        let is_compared = contents.root.is_some() && (is_cut_whole || !recipes::is_kept(&contents));
        // What is pending is here alone.
        if !is_compared || self.core().log.pending_store(grip.file).is_some() {
            return Ok(());
        }
        if !self.is_as_cut(&contents, &grip.container)? {
            if is_mended {
                // A newer version may have come meanwhile, and what is older is not looked at.
                return Err(self.unsound(grip.file, "it could not be mended").into());
            }
            return Err(Stop::Need(Need::Sound { file: grip.file, generation: grip.generation }));
        }
        if let Some(open) = self.files().get_mut(grip.file, grip.generation) {
            open.compared = Some(now);
        }
        Ok(())
    }

    /// Mends a version that is open and is not as it was stored, for who waits to write to it.
    pub(crate) async fn make_sound(&self, file: FileId, generation: u32) -> Result<(), Error> {
        let _held = self.hold(file, generation)?;
        let client = self.clone();
        let is_it = self.off_the_runtime(move || {
            let copy = client.copy_of(file, Class::Demand)?;
            Ok(copy.is_some_and(|(copy, _)| copy.presence.generation == generation))
        });
        if !is_it.await.map_err(error_of)? {
            let is_clean = self.files().get(file, generation).is_some_and(|open| open.is_clean());
            // Somebody else has begun to write to it, or it has gone: who waits looks again.
            return if is_clean {
                Err(self.unsound(file, "another version is current"))
            } else {
                Ok(())
            };
        }
        let (mut done, mut from) = (ReadThrough::default(), Some(0));
        while let Some(offset) = from {
            from = self.read_window(file, offset, Class::Demand, &mut done).await?.until;
        }
        match done.wrong.into_iter().find_map(|wrong| wrong.left) {
            Some(left) => Err(self.unsound(file, &left)),
            None => {
                if let Some(open) = self.files().get_mut(file, generation) {
                    open.mended_as = Some(open.presence.version);
                }
                Ok(())
            }
        }
    }

    fn unsound(&self, file: FileId, why: &str) -> Error {
        let path = self.name_for_people(file);
        tracing::warn!(path, why, "the disk has lost something of it: it is not written to");
        Error::Unreadable(format!("the disk here has lost something of {path}: {why}"))
    }
}
