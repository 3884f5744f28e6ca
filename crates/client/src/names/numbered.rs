//! What the kernel is told of a file by each of the numbers by which it may have it.
//! Holds: by a number that has been opened it is told the length of what is open by it; by one that
//! has not, that of one version alone.

use crate::client::Client;
use crate::types::{Found, Step};
use model::FileId;
use protocol::Upstream;
use store::Containers;

impl<U: Upstream, C: Containers> Client<U, C> {
    /// As `attributes`, for a kernel that goes by them from then on, where it has the file by this number.
    pub fn attributes_known(&self, file: FileId, number: u64) -> Step<Found> {
        self.look_before(file)?;
        let mut files = self.files();
        let node = self.node_or_unborn(&files, file)?;
        let found = self.found(&mut files, file, node)?;
        let (numbers, version) = (self.numbers(), found.node.contents_stamp);
        if number == numbers.current(file)
            && (numbers.may_be_told_as(file, version) || files.is_open_by(file, number))
        {
            files.tell_size(file, version);
        }
        Ok(found)
    }

    /// Before the kernel is told of a file by what bears its name: the number to find it by, and the
    /// size to go by, if that is not as it was found.
    pub fn number_to_tell(&self, file: FileId) -> (u64, Option<u64>) {
        let numbers = self.numbers();
        let comes_back = self.known().comes_back(file);
        if comes_back {
            numbers.is_anothers(file);
        }
        if !numbers.has_several(file) {
            let number = numbers.tell(file);
            return (number, self.size_by(file, number));
        }
        let mut files = self.files();
        // What was found before may have been replaced meanwhile, and have another number.
        let Ok(found) =
            self.node_or_unborn(&files, file).and_then(|node| self.found(&mut files, file, node))
        else {
            let number = numbers.tell(file);
            return (number, files.size_cached_by(file, number, None).ok().flatten());
        };
        let version = found.node.contents_stamp;
        let current = numbers.current(file);
        let has_open = files.is_open_by(file, current);
        let (number, is_new) = numbers.tell_as(file, version, has_open);
        if is_new {
            files.is_found_anew(file, self.inner.world.clock.moment());
        }
        files.tell_size(file, version);
        let told = files.size_cached_by(file, number, Some(version));
        (number, told.ok().flatten().or(Some(found.node.contents.size)))
    }

    /// The size that the kernel must be told of a file by one of several numbers, if it is not that
    /// which shows: it may cache another version by it.
    pub fn size_by(&self, file: FileId, number: u64) -> Option<u64> {
        let numbers = self.numbers();
        // It had, maybe, when what is told now was found.
        if !numbers.has_had_several(file) {
            return None;
        }
        let mut files = self.files();
        let current = numbers.current(file);
        let version = match self.node_or_unborn(&files, file) {
            Ok(Some(node)) if number == current => Some(node.contents_stamp),
            _ => None,
        };
        let told = files.size_cached_by(file, number, version);
        told.unwrap_or_else(|error| {
            tracing::warn!(%error, %file, "how long a version is that is open could not be read");
            None
        })
    }
}
