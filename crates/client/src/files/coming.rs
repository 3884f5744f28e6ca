//! By which of the kernel's inodes whoever opens a file has come, and whether he can open it so.
//! Holds: nobody is told twice in a row to look a path up anew: the kernel does that once.
//! From: Linux, `fs/namei.c`, `do_filp_open`.

use super::Files;
use crate::client::Client;
use crate::numbers::{Inode, Place};
use crate::types::{Error, OpenFlags, Step};
use model::{FileId, Stamp};
use protocol::Upstream;
use store::Containers;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Where whoever opens a version of a file has come to. An inode by which that cannot be opened is
    /// refused, so that the kernel looks the path up anew; where it cannot, as it has the inode
    /// itself (a bind mount, a file system that lies upon this one, `/proc/PID/fd`) and comes
    /// again, it is the current one if nobody has the other open, or its caches are passed by.
    pub(super) fn come(
        &self,
        files: &mut Files<C::Container>,
        (file, version): (FileId, Stamp),
        flags: OpenFlags,
        inode: Inode,
    ) -> Step<Place> {
        let numbers = self.numbers();
        let now = self.inner.world.clock.moment();
        let mut place = numbers.place(file, inode, now);
        let is_older = files.is_lent_as_another(file, version, place.number);
        let is_in_the_way = is_older || (flags.write && files.is_in_the_way(file, place.number));
        let joins = files.is_lent_by(file, place.number) && !is_in_the_way;
        let is_astray = !place.is_current() && !joins;
        if is_astray && !is_in_the_way && !files.is_open_by(file, place.current) {
            numbers.take_over(file, place.number);
            // What the kernel has cached by this number is of an earlier time.
            files.shown.remove(&file);
            place.current = place.number;
        } else if (is_in_the_way || is_astray) && !place.is_retry {
            let other = (flags.write && files.is_in_the_way(file, place.current))
                || files.is_lent_as_another(file, version, place.current);
            if numbers.refuse(file, inode, other, now) {
                files.shown.remove(&file);
            }
            return Err(Error::LentOut.into());
        } else if is_older {
            return Err(Error::OlderLentOut.into());
        }
        Ok(place)
    }
}
