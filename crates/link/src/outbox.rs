//! Notices on their way to the one below.
//! Holds: they are sent in the order in which they were told, and each is answered once: taken,
//! or never. At most `NOTICES_SENT_MAX` are on their way, and `NOTICES_WAITING_MAX` wait.
//! From: DESIGN, "The client" (callbacks).

use crate::controller::measured;
use crate::limits::{NOTICES_SENT_MAX, NOTICES_WAITING_MAX};
use protocol::{Downstream, Notice};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Something may be sent, or the outbox has been closed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    last: u64,
    waiting: VecDeque<(u64, Notice, oneshot::Sender<()>)>,
    sent: BTreeMap<u64, oneshot::Sender<()>>,
    /// To measure it, until it is closed.
    connection: Option<quinn::Connection>,
}

/// What the one who sends does next.
#[derive(Debug)]
pub(crate) enum Next {
    Send(u64, Notice),
    /// The one below is too far behind, or gone.
    Closed,
}

impl State {
    /// Gives the notice its number. None: it will never be sent.
    fn tell(&mut self, notice: Notice) -> Option<oneshot::Receiver<()>> {
        if self.closed {
            return None;
        }
        if self.waiting.len() >= NOTICES_WAITING_MAX {
            self.close();
            return None;
        }
        let (taken, receiver) = oneshot::channel();
        self.last += 1;
        self.waiting.push_back((self.last, notice, taken));
        Some(receiver)
    }

    fn next(&mut self) -> Option<Next> {
        if self.closed {
            return Some(Next::Closed);
        }
        if self.sent.len() >= NOTICES_SENT_MAX {
            return None;
        }
        let (number, notice, taken) = self.waiting.pop_front()?;
        self.sent.insert(number, taken);
        Some(Next::Send(number, notice))
    }

    /// False: no such notice is on its way.
    fn taken(&mut self, number: u64) -> bool {
        match self.sent.remove(&number) {
            Some(taken) => {
                // Whoever told it may have gone meanwhile.
                let _ = taken.send(());
                true
            }
            None => false,
        }
    }

    fn close(&mut self) {
        self.closed = true;
        self.connection = None;
        self.waiting.clear();
        self.sent.clear();
    }
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is told goes over this connection.
    pub(crate) fn over(&self, connection: quinn::Connection) {
        self.state().connection = Some(connection);
    }

    pub(crate) async fn next(&self) -> Next {
        loop {
            if let Some(next) = self.state().next() {
                return next;
            }
            self.changed.notified().await;
        }
    }

    pub(crate) fn taken(&self, number: u64) -> bool {
        let known = self.state().taken(number);
        self.changed.notify_one();
        known
    }

    pub(crate) fn close(&self) {
        self.state().close();
        self.changed.notify_one();
    }
}

/// Tells the one below, as long as its session lives.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) owed: Arc<crate::silence::Owed>,
}

impl Downstream for Teller {
    /// The order is that of the calls, whenever the answers are waited for.
    fn tell(&self, notice: Notice) -> impl Future<Output = bool> + Send {
        let taken = self.outbox.state().tell(notice);
        self.outbox.changed.notify_one();
        let owed = self.owed.clone();
        async move {
            let Some(taken) = taken else { return false };
            let _owing = owed.begin();
            taken.await.is_ok()
        }
    }

    fn rate(&self) -> Option<u64> {
        let state = self.outbox.state();
        let measured = measured(state.connection.as_ref()?);
        protocol::likely_rate(measured.rate, measured.round_trip_least)
    }

    fn is_there(&self) -> bool {
        let state = self.outbox.state();
        let has_ended = state.connection.as_ref().is_some_and(|it| it.close_reason().is_some());
        !state.closed && !has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Seq;
    use proptest::prelude::*;

    fn notice(upto: u64) -> Notice {
        Notice { upto: Seq(upto), ..Notice::default() }
    }

    fn send_all(state: &mut State) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(Next::Send(number, notice)) = state.next() {
            assert_eq!(notice.upto, Seq(number));
            numbers.push(number);
        }
        numbers
    }

    #[test]
    fn notices_go_in_order_and_wait_while_too_many_are_on_their_way() {
        let mut state = State::default();
        let receivers: Vec<_> = (1..=40).map(|upto| state.tell(notice(upto)).unwrap()).collect();
        assert_eq!(send_all(&mut state), (1..=32).collect::<Vec<_>>());
        assert!(state.taken(5) && state.taken(1));
        assert!(!state.taken(5), "once only");
        assert!(!state.taken(35), "not sent yet");
        assert_eq!(send_all(&mut state), [33, 34]);
        for (index, mut receiver) in receivers.into_iter().enumerate() {
            assert_eq!(receiver.try_recv().is_ok(), [0, 4].contains(&index));
        }
    }

    #[tokio::test]
    async fn whoever_waits_learns_that_the_session_has_gone() {
        let teller = Teller { outbox: Arc::default(), owed: Arc::default() };
        let told = teller.tell(notice(1));
        let told_later = teller.tell(notice(2));
        assert!(matches!(teller.outbox.next().await, Next::Send(1, _)));
        assert!(matches!(teller.outbox.next().await, Next::Send(2, _)));
        assert!(teller.outbox.taken(1));
        teller.outbox.close();
        assert!(told.await);
        assert!(!told_later.await);
        assert!(!teller.tell(notice(3)).await);
        assert!(matches!(teller.outbox.next().await, Next::Closed));
    }

    #[test]
    fn one_who_is_too_far_behind_is_given_up() {
        let mut state = State::default();
        let told: Vec<_> = (1..=4096).map(|upto| state.tell(notice(upto))).collect();
        assert!(told.iter().all(Option::is_some));
        assert!(state.tell(notice(4097)).is_none());
        assert!(matches!(state.next(), Some(Next::Closed)));
    }

    proptest! {
        #[test]
        fn prop_numbers_rise_by_one_whatever_is_acknowledged(
            steps in prop::collection::vec((0_u8..3, 0_u64..60), 0..300),
        ) {
            let mut state = State::default();
            let (mut told, mut next) = (0, 1);
            for (step, number) in steps {
                match step {
                    0 => {
                        told += 1;
                        prop_assert!(state.tell(notice(told)).is_some());
                    }
                    1 => {
                        if let Some(Next::Send(number, _)) = state.next() {
                            prop_assert_eq!(number, next);
                            next += 1;
                        }
                    }
                    _ => {
                        if state.taken(number) {
                            prop_assert!(number < next);
                        }
                    }
                }
                prop_assert!(state.sent.len() <= NOTICES_SENT_MAX);
            }
        }
    }
}
