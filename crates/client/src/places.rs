//! Files that may be open at once, each of which takes a descriptor of this process.
//! Holds: where there are too few, opening is refused before anything is made or changed, and what
//! is open goes on; the log says so once, until none was refused for a while.

use crate::client::Client;
use crate::types::{Error, Step};
use model::FileId;
use protocol::Upstream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::Containers;
use world::Moment;

/// When none was refused for so long, it is another time that they are too few.
const QUIET: Duration = Duration::from_secs(60);

/// When opening a file was refused last.
#[derive(Default)]
pub(crate) struct Crowded(Mutex<Option<Moment>>);

impl Crowded {
    /// Whether this is the first of those that are refused now.
    fn is_first(&self, now: Moment) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        last.is_none_or(|last| now.since(last) >= QUIET)
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Whether a file may be opened of which no version is open that would serve.
    pub(crate) fn has_place(&self) -> Result<(), Error> {
        match self.inner.containers.has_place() {
            true => Ok(()),
            false => Err(self.crowded()),
        }
    }

    /// Whether a file may be opened. Who shares a version that is open takes no place.
    pub fn has_place_for(&self, file: FileId) -> Step<()> {
        if self.inner.containers.has_place() {
            return Ok(());
        }
        let files = self.files();
        let shares = match self.node_or_unborn(&files, file)? {
            Some(node) => files.shared(file, node.contents_stamp).is_some(),
            None => files.is_open(file),
        };
        drop(files);
        if shares { Ok(()) } else { Err(self.crowded().into()) }
    }

    fn crowded(&self) -> Error {
        if self.inner.counters.crowded.is_first(self.inner.world.clock.moment()) {
            tracing::warn!(
                "every cached file that a program has open takes a descriptor of this process, and \
                 no more are opened, so that those that are can go on: close some, or let it have \
                 more (ulimit -Hn, LimitNOFILE=)"
            );
        }
        Error::TooManyOpen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_there_are_too_few_is_said_once_until_none_was_refused_for_a_while() {
        let (begun, crowded) = (world::Clock::simulated(0).moment(), Crowded::default());
        let refused = [0, 1, 60, 119, 179, 180].map(|secs| begun + Duration::from_secs(secs));
        let told = refused.map(|at| crowded.is_first(at));
        assert_eq!(told, [true, false, false, false, true, false]);
    }
}
