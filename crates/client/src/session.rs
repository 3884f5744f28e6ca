//! The session with the replica above: attaching, notices, the lease of callbacks, the mode.
//! Holds: a notice is acknowledged only after what it says is in the cache and the kernel has
//! been told; the lease is counted from before the request for it was sent.
//! From: AFS callbacks; DESIGN, "The client".

mod attaching;

use crate::asking::unexpected;
use crate::client::Client;
use crate::epoch::Told;
use crate::meta::Taken;
use crate::mode;
use crate::set_back::{FOREIGN_AGAIN_AFTER, last_ones};
use crate::types::{Error, Need, Stop};
use attaching::Beginning;
use model::FileId;
use protocol::{
    Class, Event, Notice, Objection, Refusal, Request, Response, States, Tail, Unreachable,
    Upstream,
};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Containers;
use volume::partial;

/// A lease with less than this left is renewed, if the mount is in use.
const RENEW_BELOW: Duration = Duration::from_secs(12);
/// How often the mode and the lease are looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Of what the kernel has, so much is taken from it when all that is cached is in doubt; the rest it
/// asks about when its time is out.
const FORGOTTEN_MAX: usize = 20_000;
/// The kernel's time-outs where callbacks do not hold.
const UNCHECKED_FOR: Duration = Duration::from_secs(2);

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Drives everything that goes on by itself, until `shut_down`.
    pub async fn run(&self) {
        tokio::join!(
            self.run_events(),
            self.run_replay(),
            self.run_syncs(),
            self.run_upkeep(),
            self.run_left_over(),
            self.run_sweeps(),
            self.run_room(),
            self.run_watch(),
            self.run_suspends(),
            self.run_ahead(),
            self.run_onward(),
            self.run_pins(),
            self.run_following(),
            self.run_policies(),
            self.run_early(),
            self.run_closing(),
            self.run_giving(),
            self.run_locks(),
            self.run_told(),
            self.run_reached(),
            self.run_passes(),
        );
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Acquire)
    }

    async fn run_events(&self) {
        while !self.is_stopping() {
            let stopped = self.until_stopping();
            let event = tokio::select! {
                biased;
                event = self.inner.upstream.event() => event,
                () = stopped => return,
            };
            match event {
                None => return,
                Some(Event::Up) => {
                    self.connection().choice.begin_session();
                    self.up().await;
                }
                Some(Event::Down(why)) => self.down(why),
                Some(Event::Notice(notice, done)) => {
                    if self.connection().foreign {
                        tracing::debug!("nothing is taken in of what is not this volume");
                    } else if let Err(error) = self.take_notice(&notice) {
                        tracing::error!(%error, "a notice could not be taken in");
                        self.distrust_cache();
                    }
                    self.hear_of_locks(&notice);
                    self.acknowledge(&notice, done);
                }
            }
        }
    }

    pub(crate) async fn until_stopping(&self) {
        while !self.is_stopping() {
            self.inner.world.clock.sleep(Duration::from_millis(200)).await;
        }
    }

    pub(crate) async fn up(&self) {
        let away = self.wants_to_be_away();
        {
            let mut connection = self.connection();
            (connection.up, connection.left) = (true, away);
        }
        if away {
            return;
        }
        {
            let mut connection = self.connection();
            // Who goes on without it does so until it is attached.
            connection.attaching = connection.refusal().is_none();
        }
        let outcome = self.attach().await;
        {
            let now = self.inner.world.clock.moment();
            let mut connection = self.connection();
            connection.attaching = false;
            match &outcome {
                Ok(()) => (connection.obstacle, connection.obstacles) = (None, 0),
                Err(Error::Unreachable(why)) => connection.met(why.clone(), now),
                Err(error) => {
                    if matches!(error, Error::Failed(_) | Error::Unreadable(_)) {
                        // The tables here are damaged, for one: to wait for the server is of no use.
                        connection.went_refused(error.to_string(), now);
                    }
                    connection.met(error.to_string(), now);
                    if connection.foreign {
                        connection.attach_at = now + FOREIGN_AGAIN_AFTER;
                    }
                }
            }
        }
        match outcome {
            Ok(()) => {
                self.choose_mode();
                tracing::info!(mode = ?self.connection().mode, "attached");
            }
            Err(error) => {
                tracing::warn!(%error, "the volume could not be attached; it is tried again");
                self.choose_mode();
            }
        }
        self.inner.session_changed.notify_waiters();
        self.inner.replay_wanted.notify_one();
        self.inner.full.ask();
        self.inner.locks_wanted.notify_one();
    }

    /// What kept this client from attaching may be gone: a full disk, a volume that was busy.
    async fn attach_again(&self) {
        let now = self.inner.world.clock.moment();
        if self.connection().attaches_again(now) {
            self.up().await;
        }
    }

    /// The user has a reason to think that it is gone.
    pub(crate) fn attach_soon(&self) {
        let now = self.inner.world.clock.moment();
        self.connection().attach_at = now;
        self.inner.session_changed.notify_waiters();
    }

    /// The replica above is there, and cannot do what the session takes. What is cached shows as if
    /// it were not there, and it is asked again later.
    pub(crate) fn refused_session(&self, refusal: &Refusal) -> Error {
        let why = refusal.to_string();
        let now = self.inner.world.clock.moment();
        self.connection().went_refused(why.clone(), now);
        self.inner.company.forget();
        self.choose_mode();
        Error::Unreachable(why)
    }

    fn down(&self, why: Unreachable) {
        let now = self.inner.world.clock.moment();
        {
            let mut connection = self.connection();
            (connection.attached, connection.alone) = (false, false);
            connection.attaching = false;
            (connection.up, connection.left) = (false, false);
            // What was refused was asked over another session, which nobody had attached.
            (connection.overtaken, connection.foreign) = (false, false);
            // What kept it from attaching over this session says nothing of the next.
            connection.obstacle = None;
            connection.went_down(why.clone(), now);
        }
        tracing::info!(%why, "the session is down");
        self.inner.checkpoint_wanted.notify_one();
        self.inner.company.forget();
        self.choose_mode();
        self.inner.session_changed.notify_waiters();
    }

    /// `attached`: with an attach. Then these updates are part of what is said, if what is said of the pending
    /// ones among them is taken in with the tail; and of the runs the last one covers it.
    fn take_tail(&self, tail: Tail, attached: Option<Beginning>) -> Result<(), Error> {
        let (taken, said, runs) = match attached {
            Some(Beginning { taken, said, runs }) => (Some(taken), said, Some(runs)),
            None => (None, States::default(), None),
        };
        match tail {
            Tail::Changes(mut notice) => {
                if let Some(runs) = runs {
                    self.note_runs(&mut self.core(), runs)?;
                }
                notice.states.nodes.extend(said.nodes);
                notice.states.entries.extend(said.entries);
                self.take_states((&notice, Told::Asked), true, taken)
            }
            Tail::TooFar(seq) => {
                {
                    let mut core = self.core();
                    (core.meta.seen, core.epoch_since) = (seq, seq);
                    if let Some(runs) = runs {
                        core.meta.runs = runs.map(last_ones);
                    }
                    self.begin_epoch(&mut core)?;
                }
                let notice = Notice { upto: seq, states: said, ..Notice::default() };
                self.take_states((&notice, Told::Asked), true, taken)?;
                self.forget_all();
                Ok(())
            }
        }
    }

    /// Something said by the replica above was lost: nothing cached counts before it is asked
    /// for again.
    fn distrust_cache(&self) {
        if let Err(error) = self.begin_epoch(&mut self.core()) {
            tracing::warn!(%error, "that nothing cached counts is not noted, and may be asked for anew");
        }
        self.forget_all();
    }

    /// The kernel keeps the listings of directories for as long as nobody tells it of a change.
    pub(crate) fn forget_all(&self) {
        self.pins_begin_anew();
        let told: Vec<FileId> = self.known().told().take(FORGOTTEN_MAX).collect();
        let everything = std::iter::once(FileId::ROOT).chain(told);
        let changed: Vec<_> =
            everything.map(|file| partial::Changed::Node { file, contents: true }).collect();
        self.forget(&changed);
    }

    fn take_notice(&self, notice: &Notice) -> Result<(), Error> {
        // A notice may overtake the tail of a renewal, which has what came before it.
        let advance = {
            let connection = self.connection();
            connection.attached && !connection.tail_due
        };
        self.take_states((notice, Told::Unasked), advance, None)
    }

    fn take_states(
        &self,
        (notice, told): (&Notice, Told),
        advance: bool,
        taken: Option<Taken>,
    ) -> Result<(), Error> {
        let changed = {
            // Who does not take this in shows what is not so any more.
            let _pressed = self.pressed();
            let mut core = self.core();
            let changed = if notice.states.is_empty() {
                Vec::new()
            } else {
                self.note_hands(&notice.states.entries)?;
                let epoch = told.epoch(&core, &notice.states);
                self.take_in(&mut core, (&notice.states, epoch), taken.clone(), true)?
            };
            if let Some(taken) = taken {
                core.meta.set_taken(taken);
            }
            if advance {
                core.meta.seen = core.meta.seen.max(notice.upto);
            }
            core.unsaved = true;
            changed
        };
        self.forget(&changed);
        Ok(())
    }

    /// Renews the lease of all callbacks.
    pub(crate) async fn renew(&self) -> Result<(), Error> {
        if !self.connection().attached {
            // With what it is waited for there comes a lease.
            return self.attached().await;
        }
        self.tell_patience().await?;
        let sent = self.inner.world.clock.outer_moment();
        let (seen, lease_before) = {
            let seen = self.core().meta.seen;
            let mut connection = self.connection();
            // Until the tail is here: also if the answer is lost and the session goes on.
            connection.tail_due = true;
            connection.calls_at_renewal = self.inner.counters.calls.load(Ordering::Relaxed);
            (seen, connection.lease_until)
        };
        match self.ask_for_lease(seen).await? {
            Response::Renewed { tail, wanted, allowance, conflicts } => {
                self.take_tail(tail, None)?;
                self.take_allowance(&mut self.core(), allowance);
                self.asked_for(wanted, false);
                // What was leased before is leased no more when the lease counts again, and not a
                // moment later: others may have had it.
                let mut locks = self.locks();
                let mut connection = self.connection();
                connection.tail_due = false;
                connection.conflicts_listed = conflicts;
                let now = self.inner.world.clock.outer_moment();
                let lapsed = lease_before.is_none_or(|until| until <= now);
                if lapsed {
                    locks.lapsed();
                }
                // A session that was lost meanwhile has taken its lease with it.
                if connection.attached && connection.lease_until == lease_before {
                    connection.lease_until = Some(sent + connection.lease);
                }
                drop((connection, locks));
                self.note_current();
                if lapsed {
                    self.inner.locks_wanted.notify_one();
                }
                Ok(())
            }
            other => Err(unexpected("renew", &other)),
        }
    }

    /// Where the replica above cannot renew it, the session is of no use.
    async fn ask_for_lease(&self, seen: model::Seq) -> Result<Response, Error> {
        let answer = self.ask(Class::Interactive, Request::Renew { seen }).await;
        let refusal = match answer {
            Err(Error::Refused(refusal)) => refusal,
            Err(Error::Objection(Objection::NoSpace)) => Refusal::NoSpace,
            answer => return answer,
        };
        let error = self.refused_session(&refusal);
        tracing::warn!(%refusal, "the lease could not be renewed; it is tried again");
        let now = self.inner.world.clock.moment();
        self.connection().met(refusal.to_string(), now);
        self.inner.session_changed.notify_waiters();
        Err(error)
    }

    async fn run_watch(&self) {
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = self.inner.session_changed.notified() => {}
                () = self.inner.world.clock.sleep(WATCH_EVERY) => {}
            }
            self.note_spent();
            self.note_carried();
            self.choose_mode();
            self.look_at_link();
            self.acknowledge_company();
            self.follow_wish().await;
            self.attach_again().await;
            let now = self.inner.world.clock.outer_moment();
            let (attached, left, before) = {
                let connection = self.connection();
                let left = connection.lease_left(now);
                (connection.attached, left, connection.calls_at_renewal)
            };
            let in_use = self.inner.counters.calls.load(Ordering::Relaxed) != before;
            let due = !left.is_zero() && left < RENEW_BELOW;
            if attached
                && due
                && (in_use || self.locks().any_held())
                && let Err(error) = self.satisfy(Need::Lease).await
            {
                tracing::debug!(%error, "the lease could not be renewed");
            }
        }
    }

    fn look_at_link(&self) {
        let clock = &self.inner.world.clock;
        if self.connection().wants_a_look(clock.moment(), clock.outer_moment()) {
            self.inner.upstream.look();
        }
    }

    /// How long the kernel may keep names and attributes from now.
    pub fn cache_for(&self) -> Duration {
        let now = self.inner.world.clock.outer_moment();
        let connection = self.connection();
        match mode::validates(connection.mode) {
            true if connection.owes_patience => Duration::ZERO,
            true => connection.lease_left(now),
            false => UNCHECKED_FOR,
        }
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Error {
        match stop {
            Stop::Error(error) => error,
            Stop::Need(need) => Error::Failed(need.to_string()),
        }
    }
}
