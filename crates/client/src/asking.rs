//! Asking the replica above, and waiting until there is somebody to ask.

use crate::client::{Client, error_of};
use crate::mode;
use crate::portions::patience;
use crate::types::Error;
use model::FileId;
use protocol::{Class, Refusal, Request, Response, Unreachable, Upstream};
use std::time::Duration;
use store::Containers;
use world::Moment;

/// How often it is looked whether the link was found to be gone.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Asks the replica above, once attached, within the bound of the settings.
    pub(crate) async fn ask(&self, class: Class, request: Request) -> Result<Response, Error> {
        self.ask_within(class, request, self.inner.settings.answer_within).await
    }

    /// Asks for contents, and waits for them for as long as the link takes to bring them.
    pub(crate) async fn ask_for(
        &self,
        class: Class,
        bytes: u64,
        request: Request,
    ) -> Result<Response, Error> {
        let usual = self.inner.settings.answer_within;
        let within = patience(&self.inner.upstream.quality(), bytes, usual);
        self.ask_within(class, request, within).await
    }

    pub(crate) async fn ask_within(
        &self,
        class: Class,
        request: Request,
        within: Duration,
    ) -> Result<Response, Error> {
        self.attached().await?;
        let session = self.connection().sessions;
        let asked = self.inner.upstream.ask(class, request);
        match self.inner.world.clock.within(within, asked).await {
            None => Err(Error::TimedOut(within)),
            Some(answer) => self.answered(session, answer),
        }
    }

    /// Asks in this session alone, and waits for the answer as long as it lasts.
    pub(crate) async fn ask_in_session(
        &self,
        session: u64,
        class: Class,
        request: Request,
    ) -> Result<Response, Error> {
        let goes_on = {
            let connection = self.connection();
            connection.attached && connection.sessions == session
        };
        if !goes_on {
            return Err(Error::Retry);
        }
        let answer = self.inner.upstream.ask(class, request).await;
        self.answered(session, answer)
    }

    fn answered(
        &self,
        session: u64,
        answer: Result<Response, Unreachable>,
    ) -> Result<Response, Error> {
        match answer {
            Err(Unreachable::Lost | Unreachable::NoLink) => {
                // Its event is still to come: who asks again now would be told the same at once.
                let mut connection = self.connection();
                connection.attached &= connection.sessions != session;
                Err(Error::Retry)
            }
            Err(error) => Err(Error::Unreachable(error.to_string())),
            Ok(response) => {
                self.connection().answered_at = self.inner.world.clock.moment();
                match response {
                    Response::Refused(Refusal::NotAttached) => {
                        self.is_attached_no_more(session);
                        Err(Error::Retry)
                    }
                    Response::Refused(refusal) => Err(refused(refusal)),
                    response => Ok(response),
                }
            }
        }
    }

    /// Another process has attached with a copy of the state here, and taken the place of this one
    /// though the session is there. That goes on numbering its updates as these were; the next attach
    /// asks for another id here, and what is pending is numbered anew.
    pub(crate) fn is_attached_no_more(&self, session: u64) {
        let now = self.inner.world.clock.moment();
        {
            let mut connection = self.connection();
            if !connection.attached || connection.sessions != session {
                return;
            }
            let why = "a copy of this state directory is in use elsewhere";
            tracing::warn!("{why}: from now on they are two devices");
            (connection.attached, connection.alone) = (false, false);
            connection.overtaken = true;
            connection.lease_until = None;
            connection.met(why.into(), now);
        }
        self.inner.company.forget();
        self.inner.session_changed.notify_waiters();
    }

    /// Does what needs the replica above for a call that waits since `begun`: no longer than the
    /// bound of the settings without an answer, however many questions it asks one after another.
    pub(crate) async fn bounded<T>(
        &self,
        begun: Moment,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (clock, bound) = (&self.inner.world.clock, self.inner.settings.answer_within);
        tokio::pin!(work);
        loop {
            let left = self.left_of_the_bound(begun);
            match clock.within(left, &mut work).await {
                Some(outcome) => return outcome,
                None if self.left_of_the_bound(begun).is_zero() => {
                    return Err(Error::TimedOut(bound));
                }
                None => {}
            }
        }
    }

    /// What is left of the bound for a call that waits since `begun`.
    fn left_of_the_bound(&self, begun: Moment) -> Duration {
        let since = self.connection().answered_at.max(begun);
        let waited = self.inner.world.clock.moment().since(since);
        self.inner.settings.answer_within.saturating_sub(waited)
    }

    /// Waits for a session, unless the mode forbids to, or the bound is reached.
    pub(crate) async fn attached(&self) -> Result<(), Error> {
        self.attached_within(self.inner.settings.answer_within).await
    }

    /// The same for a call that waits since `begun`.
    pub(crate) async fn attached_again(&self, begun: Moment) -> Result<(), Error> {
        self.attached_within(self.left_of_the_bound(begun)).await
    }

    async fn attached_within(&self, within: Duration) -> Result<(), Error> {
        let wait = async {
            loop {
                let changed = self.inner.session_changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                // Who has nothing at all waits on: there is nothing to fall back to.
                let falls_back = self.knows_the_root();
                let away = !mode::fetches(self.connection().mode) && falls_back;
                {
                    let connection = self.connection();
                    if connection.attached && !away {
                        return Ok(());
                    }
                    let why = connection.why_not();
                    let final_word = match why {
                        Unreachable::TurnedAway(_) => true,
                        // Else the mode is another one in a moment.
                        Unreachable::Refused(_) => !falls_back || !connection.falls_back(),
                        _ => false,
                    };
                    if away || final_word {
                        return Err(Error::Unreachable(why.to_string()));
                    }
                }
                changed.await;
            }
        };
        match self.inner.world.clock.within(within, wait).await {
            Some(outcome) => outcome,
            None => Err(Error::Unreachable(self.connection().why_not().to_string())),
        }
    }

    /// Whether the link may be found to be gone in a moment, and what is cached be shown then.
    fn may_fall_back_yet(&self) -> bool {
        let knows = self.knows_the_root();
        let connection = self.connection();
        let refused = matches!(connection.why_not(), Unreachable::TurnedAway(_));
        knows && connection.falls_back() && mode::fetches(connection.mode) && !refused
    }

    /// Until the root can be shown. What is cached of it is waited for even where no call may wait for as long
    /// as it takes to find the link gone.
    async fn root_shows(&self) -> Result<(), Error> {
        loop {
            let shown = crate::complete(self, |client| client.attributes(FileId::ROOT)).await;
            match shown {
                Err(Error::TimedOut(_) | Error::Unreachable(_)) if self.may_fall_back_yet() => {
                    self.inner.world.clock.sleep(LOOK_EVERY).await;
                }
                shown => return shown.map(drop),
            }
        }
    }

    /// Ready when the root can be shown.
    pub async fn ready(&self, within: Duration) -> Result<(), Error> {
        let attempt = self.root_shows();
        match self.inner.world.clock.within(within, attempt).await {
            Some(outcome) => {
                outcome?;
                // Whatever becomes of this process, the next one can begin without a link.
                let client = self.clone();
                let saved = self.off_the_runtime(move || {
                    crate::marred::look_through(&*client.inner.tables);
                    Ok(client.checkpoint_with_room())
                });
                let saved = saved.await;
                if let Err(error) = saved.map_err(error_of).flatten() {
                    tracing::warn!(%error, "what was learnt of the volume is not on the disk yet");
                }
                Ok(())
            }
            None => {
                let why = self.connection().trouble.clone();
                Err(why.map_or(Error::TimedOut(within), |why| Error::Unreachable(why.to_string())))
            }
        }
    }
}

pub(crate) fn unexpected(to: &str, answer: &Response) -> Error {
    let mut answer = format!("{answer:?}");
    // Its kind is enough, and what it brings may be long.
    answer.truncate(answer.find(|c: char| !c.is_alphanumeric()).unwrap_or(answer.len()));
    tracing::error!(to, answer, "the server's answer does not fit the request");
    Error::Failed(format!("the server's answer to {to} makes no sense"))
}

fn refused(refusal: Refusal) -> Error {
    use protocol::Objection;
    match refusal {
        Refusal::NoFile(_) => Error::Objection(Objection::NoEntry),
        Refusal::NotADirectory(_) => Error::Objection(Objection::NotADirectory),
        Refusal::NoVersion(..) => Error::Stale,
        Refusal::ReadOnly => Error::Objection(Objection::ReadOnly),
        Refusal::NoSpace => Error::Objection(Objection::NoSpace),
        Refusal::OverQuota => Error::Objection(Objection::OverQuota),
        other => {
            tracing::warn!(%other, "the server refused a request");
            Error::Refused(other)
        }
    }
}
