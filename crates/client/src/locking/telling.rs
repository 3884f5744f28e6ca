//! Telling the replica above by itself what was given up, and claiming what is held and not leased.
//! Holds: of a file nobody is told twice at once; one that takes long holds up no other.

use super::patience::ASK_AGAIN_AFTER;
use crate::client::Client;
use model::FileId;
use protocol::Upstream;
use std::collections::{BTreeSet, VecDeque};
use store::Containers;
use tokio::task::JoinSet;

/// Files of which is told at once.
const TELLING_MAX: usize = 64;

#[derive(Default)]
struct Telling {
    tasks: JoinSet<FileId>,
    under_way: BTreeSet<FileId>,
    /// In the order in which they were found; each of them once.
    queue: VecDeque<FileId>,
    queued: BTreeSet<FileId>,
}

impl Telling {
    fn add(&mut self, owed: Vec<FileId>) {
        let new = owed.into_iter().filter(|file| self.queued.insert(*file));
        self.queue.extend(new);
    }

    /// The next one, if there is room for it. Who is under way comes again later.
    fn next(&mut self) -> Option<FileId> {
        if self.under_way.len() >= TELLING_MAX {
            return None;
        }
        let place = self.queue.iter().position(|file| !self.under_way.contains(file))?;
        let file = self.queue.remove(place)?;
        self.queued.remove(&file);
        self.under_way.insert(file);
        Some(file)
    }

    async fn one_is_told(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(file)) => drop(self.under_way.take(&file)),
            Some(Err(error)) if error.is_panic() => {
                std::panic::resume_unwind(error.into_panic());
            }
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    pub(crate) async fn run_locks(&self) {
        let _questions = self.questions_end();
        let mut telling = Telling::default();
        while !self.is_stopping() {
            let is_due = tokio::select! {
                biased;
                () = self.inner.locks_wanted.notified() => true,
                () = telling.one_is_told() => false,
                () = self.inner.world.clock.sleep(ASK_AGAIN_AFTER) => true,
                () = self.until_stopping() => return,
            };
            if is_due {
                telling.add(self.owed_locks());
            }
            while let Some(file) = telling.next() {
                let client = self.clone();
                telling.tasks.spawn(async move {
                    client.tell_in_turn(file).await;
                    file
                });
            }
            self.acknowledge_company();
        }
    }

    /// Files of which the replica above has to be told. Of what was lost the kernel forgets what it has.
    fn owed_locks(&self) -> Vec<FileId> {
        let lost = self.locks_as_they_count().take_lost_files();
        lost.into_iter().for_each(|file| self.forget_what_is_cached(file, true));
        let mut locks = self.locks();
        let leases = self.leases_locks();
        locks.owed(leases)
    }

    /// What takes longer than this has its turn again, after others.
    async fn tell_in_turn(&self, file: FileId) {
        let within = self.inner.settings.answer_within;
        if self.inner.world.clock.within(within, self.tell_of_lock(file)).await.is_none() {
            tracing::debug!(%file, "of its locks nothing could be told yet");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_one_tells_at_a_time_and_of_as_many_as_there_is_room_for() {
        let mut telling = Telling::default();
        telling.add(vec![FileId(1), FileId(2)]);
        assert_eq!((telling.next(), telling.next()), (Some(FileId(1)), Some(FileId(2))));
        telling.add(vec![FileId(1), FileId(3)]);
        assert_eq!((telling.next(), telling.next()), (Some(FileId(3)), None));
        telling.under_way.remove(&FileId(1));
        assert_eq!((telling.next(), telling.next()), (Some(FileId(1)), None));
        telling.add((10..10 + TELLING_MAX as u64).map(FileId).collect());
        assert_eq!(std::iter::from_fn(|| telling.next()).count(), TELLING_MAX - 3);
    }
}
