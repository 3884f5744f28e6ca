//! Where the pieces of all messages of a session wait for their turn.
//! Holds: one piece at a time passes; whose it is decides the lottery among the classes that
//! wait, and within a class, by turns, who came first and who has least left. A turn that is given up
//! is passed on.

use crate::classes::{ClassSet, Lottery, place};
use crate::regulate::Rule;
use protocol::Class;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use world::Entropy;

/// The number of those who wait is bounded by the requests and notices of a session.
#[derive(Debug)]
pub(crate) struct Turnstile {
    entropy: Entropy,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: bool,
    rule: Rule,
    waiting: [VecDeque<Waiting>; 4],
    /// The next turn is for who has least left. Were all served alike, messages that began together
    /// would end together, and the link be idle while the next ones are asked for. As every other
    /// turn goes by who came first, nobody is passed over for ever.
    for_least: bool,
}

#[derive(Debug)]
struct Waiting {
    /// Bytes of the message that have not passed.
    left: usize,
    turn: oneshot::Sender<Turn>,
}

impl State {
    fn pop(&mut self, class: Class) -> Option<oneshot::Sender<Turn>> {
        let waiting = &mut self.waiting[place(class)];
        let least = || waiting.iter().enumerate().min_by_key(|(_, one)| one.left);
        let at = if self.for_least { least().map(|(at, _)| at)? } else { 0 };
        self.for_least = !self.for_least;
        waiting.remove(at).map(|one| one.turn)
    }
}

/// The right to pass one piece on. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    /// None: the turn has been passed on already.
    turnstile: Option<Arc<Turnstile>>,
}

impl Turnstile {
    pub(crate) fn new(entropy: Entropy) -> Arc<Turnstile> {
        Arc::new(Turnstile { entropy, state: Mutex::default() })
    }

    /// A turn for a message that has so many bytes left.
    pub(crate) async fn turn(self: &Arc<Turnstile>, class: Class, left: usize) -> Turn {
        let turn = {
            let mut state = self.state();
            if state.taken {
                let (sender, receiver) = oneshot::channel();
                state.waiting[place(class)].push_back(Waiting { left, turn: sender });
                receiver
            } else {
                state.taken = true;
                return Turn { turnstile: Some(self.clone()) };
            }
        };
        turn.await.expect("a waiting sender leaves the queue only with a turn")
    }

    /// What is kept to from the next draw on.
    pub(crate) fn regulate(&self, rule: Rule) {
        self.state().rule = rule;
    }

    pub(crate) fn rule(&self) -> Rule {
        self.state().rule
    }

    /// Whether a message of this class waits for its turn.
    pub(crate) fn waits(&self, class: Class) -> bool {
        !self.state().waiting[place(class)].is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who is next. None: nobody waits, and the turnstile is free.
    fn next(&self) -> Option<oneshot::Sender<Turn>> {
        let mut state = self.state();
        let ready: ClassSet = Class::ALL
            .into_iter()
            .filter(|class| !state.waiting[place(*class)].is_empty())
            .collect();
        let lottery = Lottery::with(state.rule.tickets());
        // Chance is drawn only where there is a choice.
        let drawn =
            if ready.is_empty() { None } else { lottery.draw(ready, self.entropy.number()) };
        let next = drawn.and_then(|class| state.pop(class));
        state.taken = next.is_some();
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turnstile) = self.turnstile.take() else { return };
        while let Some(next) = turnstile.next() {
            match next.send(Turn { turnstile: Some(turnstile.clone()) }) {
                Ok(()) => return,
                // Whoever waited has gone: this loop passes the turn on, not the turn's own drop.
                Err(mut turn) => turn.turnstile = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn one_passes_at_a_time_and_who_gives_up_is_passed_over() {
        let turnstile = Turnstile::new(Entropy::seeded(1));
        let first = turnstile.turn(Class::Replay, 1).await;
        let gives_up =
            tokio::time::timeout(Duration::from_secs(1), turnstile.turn(Class::Interactive, 1));
        assert!(gives_up.await.is_err(), "there is one turn only");
        let waiting = tokio::spawn({
            let turnstile = turnstile.clone();
            async move { drop(turnstile.turn(Class::Prefetch, 1).await) }
        });
        tokio::task::yield_now().await;
        assert!(turnstile.waits(Class::Prefetch) && !turnstile.waits(Class::Demand));
        drop(first);
        waiting.await.unwrap();
        assert!(!turnstile.waits(Class::Prefetch));
        drop(turnstile.turn(Class::Demand, 1).await);
        assert!(!turnstile.state().taken);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_that_begin_together_end_one_after_another_and_none_is_passed_over() {
        const PIECES: usize = 64;
        const MESSAGES: usize = 6;
        let turnstile = Turnstile::new(Entropy::seeded(3));
        let order = Arc::new(Mutex::new(Vec::new()));
        let first = turnstile.turn(Class::Demand, 1).await;
        let mut tasks = Vec::new();
        for message in 0..MESSAGES {
            let (turnstile, order) = (turnstile.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                for left in (1..=PIECES).rev() {
                    let _turn = turnstile.turn(Class::Demand, left).await;
                    order.lock().unwrap().push(message);
                }
            }));
        }
        tokio::task::yield_now().await;
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock().unwrap();
        let last = |message: usize| order.iter().rposition(|other| *other == message).unwrap();
        let mut ends: Vec<usize> = (0..MESSAGES).map(last).collect();
        ends.sort_unstable();
        let apart = ends.windows(2).filter(|pair| pair[1] - pair[0] >= PIECES / 2);
        assert!(apart.count() >= MESSAGES / 2, "{ends:?}");
        let all = 0..MESSAGES;
        let early = &order[..4 * MESSAGES];
        assert!(all.into_iter().all(|message| early.contains(&message)), "{early:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn many_get_their_turns_whatever_their_class() {
        let turnstile = Turnstile::new(Entropy::seeded(2));
        let mut tasks = Vec::new();
        for index in 0..400 {
            let turnstile = turnstile.clone();
            tasks.push(tokio::spawn(async move {
                let class = Class::ALL[index % 4];
                let wait = turnstile.turn(class, index);
                if index % 5 == 0 {
                    // Some lose patience.
                    let _ = tokio::time::timeout(Duration::from_millis(3), wait).await;
                } else {
                    let turn = wait.await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    drop(turn);
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(!turnstile.state().taken);
    }
}
