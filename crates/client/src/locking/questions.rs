//! Questions about locks that have left.
//! Holds: nobody asks about a file before what was asked about it is answered or its session has
//! ended, whatever becomes of who asked: what is asked later could arrive before.

use super::Wish;
use crate::client::Client;
use crate::types::Error;
use model::Lock;
use protocol::{Class, LockAim, Locking, Request, Response, Upstream};
use store::Containers;
use tokio::sync::{OwnedMutexGuard, oneshot};

/// What came of a question, and that nobody else asks about the file yet.
type Answered = (Result<Response, Error>, OwnedMutexGuard<()>);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What is asked for, to give what is wished for.
    pub(super) fn wished(&self, wish: Option<Wish<'_>>) -> Vec<Lock> {
        let locks = self.locks();
        let asked = wish.iter().map(|wish| match wish.aim {
            LockAim::Look => wish.call.lock,
            LockAim::Try | LockAim::Wait => locks.to_ask_for(wish.call),
        });
        asked.collect()
    }

    /// Asks in a session; who waits no more leaves the question to itself.
    pub(super) async fn ask_to_the_end(
        &self,
        (locking, lapses): (Locking, u64),
        session: u64,
        one_at_a_time: OwnedMutexGuard<()>,
    ) -> Result<Answered, Error> {
        let (sender, answered) = oneshot::channel();
        let (client, file) = (self.clone(), locking.held.file);
        let asking = async move {
            let request = Request::Lock(locking);
            let answer = client.ask_in_session(session, Class::Interactive, request).await;
            {
                // It may have arrived in a later session than it was made for, whoever still waits.
                let mut locks = client.locks();
                if locks.lapses() != lapses {
                    locks.doubt(file);
                }
            }
            if let Err(unheard) = sender.send((answer, one_at_a_time)) {
                drop(unheard);
                // What it was answered is not known here, and so it is told anew what is held.
                client.inner.locks_wanted.notify_one();
            }
        };
        self.locks().question(asking);
        let within = self.inner.settings.answer_within;
        match self.inner.world.clock.within(within, answered).await {
            Some(Ok(answered)) => Ok(answered),
            _ => Err(Error::TimedOut(within)),
        }
    }

    /// When this is dropped nobody is asked any more.
    pub(super) fn questions_end(&self) -> QuestionsEnd<'_, U, C> {
        QuestionsEnd(self)
    }
}

pub(super) struct QuestionsEnd<'a, U: Upstream, C: Containers>(&'a Client<U, C>);

impl<U: Upstream, C: Containers> Drop for QuestionsEnd<'_, U, C> {
    fn drop(&mut self) {
        self.0.locks().end_questions();
    }
}
