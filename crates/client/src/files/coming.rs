//! By which of the kernel's inodes whoever opens a file has come, and whether he can open it so.
//! Holds: nobody is told twice in a row to look a path up anew: the kernel does that once; of two
//! versions each has an inode of its own, unless who opens it cannot look it up.
//! From: Linux, `fs/namei.c`, `do_filp_open`.

use super::lending::Lends;
use super::{Files, HandleState};
use crate::client::Client;
use crate::numbers::{Inode, Place};
use crate::types::{Error, OpenFlags, Step};
use model::{FileId, Stamp};
use protocol::Upstream;
use store::{Container, Containers};

impl<K: Container> Files<K> {
    /// Whether the kernel has another version open by this number than whoever opens the file gets
    /// now, of which the `current` version is in the volume. What it reads by itself is not counted.
    fn has_another_open(&self, file: FileId, current: Stamp, number: u64) -> bool {
        let shared = self.shared(file, current);
        let is_another = |generation| Some(generation) != shared;
        let mut others = self.generations(file).filter(|o| is_another(o.presence.generation));
        others.any(|open| open.handles > 0)
            && self
                .handles_by(file, number)
                .any(|state| !state.lent && is_another(state.generation))
    }

    /// The generation that the kernel caches by a number, if it was current when somebody was refused or
    /// after that: no older one than `since`.
    fn cached_since(&self, file: FileId, number: u64, since: u32) -> Option<u32> {
        let mut cached = self.handles_by(file, number).filter(|state| !state.direct);
        let generation = cached.next()?.generation;
        let is_alone = cached.all(|state| state.generation == generation);
        (is_alone && generation >= since).then_some(generation)
    }

    /// The oldest generation that whoever opens the file from now on can get.
    fn oldest_from_now(&self, file: FileId, current: Stamp) -> u32 {
        let next = || self.newest_generation(file).map_or(0, |newest| newest.saturating_add(1));
        self.shared(file, current).unwrap_or_else(next)
    }

    /// Of the kernel's handles of a file, those that it has by a number.
    pub(super) fn handles_by(
        &self,
        file: FileId,
        number: u64,
    ) -> impl Iterator<Item = &HandleState> {
        let is_one = move |state: &&HandleState| state.file == file && state.number == number;
        self.handles.values().filter(is_one).filter(|state| !state.fetches)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Where whoever opens a version of a file has come to. An inode by which that cannot be opened is
    /// refused, so that the kernel looks the path up anew; where it cannot, as it has the inode
    /// itself (a bind mount, a file system that lies upon this one, `/proc/PID/fd`) and comes
    /// again, it is the current one if nobody has the other open, or its caches are passed by. So it is
    /// refused, too, where the kernel has another version open by it, or may go by the size of one.
    pub(super) fn come(
        &self,
        files: &mut Files<C::Container>,
        (file, version): (FileId, Stamp),
        flags: OpenFlags,
        (inode, lends): (Inode, Lends),
    ) -> Step<Place> {
        let numbers = self.numbers();
        let now = self.inner.world.clock.moment();
        let mut place = numbers.place(file, inode, now);
        let is_older = files.is_lent_as_another(file, version, place.number);
        let is_in_the_way = is_older || (flags.write && files.is_in_the_way(file, place.number));
        // Where the thread is not known, it could be told twice.
        let is_mixed = |number| files.has_another_open(file, version, number);
        let is_doubted = place.is_current()
            && files.size_is_in_doubt(file, version, now)
            && files.handles_by(file, place.number).all(|state| state.direct);
        let is_known = !lends.shares_locks && inode.thread != 0;
        let is_of_another = is_known && (is_doubted || is_mixed(place.number));
        let joins = files.is_lent_by(file, place.number) && !is_in_the_way;
        let is_astray = !place.is_current() && !joins;
        if is_astray && !is_in_the_way && !is_of_another && !files.is_open_by(file, place.current) {
            numbers.take_over(file, place.number);
            // What the kernel has cached by this number is of an earlier time.
            files.is_found_anew(file, now);
            place.current = place.number;
        } else if (is_in_the_way || is_astray || is_of_another) && !place.is_retry {
            let other = (flags.write && files.is_in_the_way(file, place.current))
                || files.is_lent_as_another(file, version, place.current)
                || is_mixed(place.current);
            let since = files.oldest_from_now(file, version);
            if numbers.refuse(file, (inode, since), other, now) {
                files.is_found_anew(file, now);
            }
            return Err(Error::LentOut.into());
        } else if is_older {
            return Err(Error::OlderLentOut.into());
        } else if let Some(since) = place.since
            && is_mixed(place.number)
        {
            // A newer one came while he looked the path up. What he found there was current when he
            // had begun to open it.
            place.joins = files.cached_since(file, place.number, since);
        }
        Ok(place)
    }
}
