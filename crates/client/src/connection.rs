//! What is known of the session with the replica above, the lease, and the mode.

use crate::budget::Purse;
use crate::carried::Memory;
use crate::meta::Meta;
use crate::mode::Choice;
use crate::types::{Settings, WantedMode};
use protocol::{Mode, Patience, Unreachable};
use replay::LINK_GRACE;
use std::time::Duration;
use world::{Moment, OuterMoment, World};

/// What is known of the session.
pub(crate) struct Connection {
    pub wanted: WantedMode,
    pub mode: Mode,
    /// Why it is that one.
    pub choice: Choice,
    /// This client has been given the volume's secret and a replica id, now or earlier.
    pub volume_known: bool,
    /// Requests may be sent.
    pub attached: bool,
    /// A session is up, and the replica above has been asked to attach this client: it may wait for
    /// others first.
    pub attaching: bool,
    /// The replica above answers `Gather`.
    pub gathers: bool,
    /// The replica above understands deltas that are assembled of many parts.
    pub assembles: bool,
    /// The replica above answers `Past`.
    pub looks_back: bool,
    /// Of the volume, as last said by the replica above.
    pub conflicts_listed: Option<u64>,
    /// The replica above takes removals ahead of their turn.
    pub takes_ahead: bool,
    /// It takes anything ahead of its turn.
    pub takes_any_ahead: bool,
    /// The replica above says when everybody has been told.
    pub tells: bool,
    /// The replica above heeds `Patience`, and this is what it was told.
    pub heeds: bool,
    pub patience: Patience,
    /// It has to be told that it is to wait for this client, before what is cached counts again.
    pub owes_patience: bool,
    /// The replica above leases locks. None: it has not been asked yet.
    pub leases_locks: Option<bool>,
    /// Counts the sessions that were attached.
    pub sessions: u64,
    /// There is a session to attach over.
    pub up: bool,
    /// It is not attached over it because the user wants nothing to go over the link.
    pub left: bool,
    /// What keeps this client from attaching over it, in words for the user.
    pub obstacle: Option<String>,
    /// How often in a row it could not attach, and when it tries again.
    pub obstacles: u32,
    pub attach_at: Moment,
    pub down_since: Option<Moment>,
    /// How long nothing had been heard when it went down.
    pub silent_before: Duration,
    pub trouble: Option<Unreachable>,
    pub lease_until: Option<OuterMoment>,
    pub lease: Duration,
    /// When what is cached was last known to be current, as far as that was noted: by an earlier process,
    /// or before the lease was given up. Seconds since 1970.
    pub current: Option<i64>,
    /// The replica above has said that nobody else uses the volume.
    pub alone: bool,
    /// It has no room for what is pending.
    pub full: bool,
    /// Nothing that nobody waits for goes over the link.
    pub paused: bool,
    pub purse: Purse,
    /// How long what nobody waits for is to stay. None: as is right for the budget.
    pub replay_delay: Option<Duration>,
    /// What the link carried when that was last measured.
    pub memory: Memory,
    /// What was attached is not what is cached here, and nothing is taken in of it.
    pub foreign: bool,
    /// Another process goes on under the id by which the updates here are numbered.
    pub overtaken: bool,
    /// What this client attaches by is on the disk.
    pub life_kept: bool,
    /// A tail is on its way: what notices say beyond it must not be taken for all there is.
    pub tail_due: bool,
    pub calls_at_renewal: u64,
    /// Entries that the next listing asks for.
    pub list_entries_max: u32,
    pub listed_at: Option<Moment>,
    /// When the replica above answered something last.
    pub answered_at: Moment,
    /// The link was as quick as one within a house when there was one last.
    pub near: bool,
}

/// How long after an attach that failed the next one is tried over the same session. It doubles
/// with each that fails, up to a longest.
const ATTACH_AGAIN_AFTER: Duration = Duration::from_secs(2);
const ATTACH_AGAIN_WITHIN: Duration = Duration::from_secs(30);
const DOUBLED_MAX: u32 = 8;
/// The lease is given up so long before the replica above does: clocks drift.
const LEASE_MARGIN: Duration = Duration::from_secs(2);
/// So long after a lease others may be kept waiting because it is not known to be over.
const LEASE_COUNTS_AFTER: Duration = Duration::from_secs(10);
/// A near link that has been gone for so long is not expected back at any moment.
const HURRY_FOR: Duration = Duration::from_secs(60);
/// A session over which something came so lately bears.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

impl Connection {
    pub fn of(settings: &Settings, world: &World, meta: &Meta) -> Connection {
        let wishes = (settings.mode, settings.budget);
        let connection = Connection::new(wishes, world.clock.moment(), meta);
        // A clock that was set back has noted what is not so.
        let time = world.clock.time().secs;
        let current = meta.current.filter(|current| *current <= time);
        Connection { replay_delay: settings.replay_delay, current, ..connection }
    }

    /// `wishes`: the mode, and the month's budget in bytes.
    pub fn new(wishes: (WantedMode, Option<u64>), now: Moment, meta: &Meta) -> Connection {
        let (wanted, budget) = wishes;
        let mode = match wanted {
            WantedMode::Fixed(mode) => mode,
            WantedMode::Auto => Mode::Partial,
        };
        Connection {
            wanted,
            mode,
            choice: Choice::new(now, wanted),
            volume_known: meta.replica.is_some(),
            attached: false,
            attaching: false,
            gathers: false,
            takes_ahead: false,
            takes_any_ahead: false,
            tells: false,
            heeds: false,
            patience: Patience::default(),
            owes_patience: false,
            assembles: false,
            looks_back: false,
            conflicts_listed: None,
            leases_locks: None,
            sessions: 0,
            up: false,
            left: false,
            obstacle: None,
            obstacles: 0,
            attach_at: now,
            down_since: Some(now),
            silent_before: Duration::ZERO,
            trouble: None,
            lease_until: None,
            lease: Duration::ZERO,
            current: meta.current,
            alone: false,
            full: false,
            paused: meta.paused == Some(true),
            purse: Purse::new(budget, meta.spent),
            replay_delay: None,
            memory: Memory::of_earlier(meta.carried),
            foreign: false,
            overtaken: false,
            life_kept: false,
            tail_due: false,
            calls_at_renewal: 0,
            list_entries_max: 0,
            listed_at: None,
            answered_at: now,
            near: false,
        }
    }

    /// There is no session, from `now` on or still.
    pub fn went_down(&mut self, why: Unreachable, now: Moment) {
        if self.down_since.is_none() {
            self.down_since = Some(now);
            self.silent_before = why.silent_for();
        } else if why == Unreachable::NoWay && self.sessions == 0 && self.volume_known {
            // Who begins where nothing leads to the server goes on without it at once.
            self.silent_before = LINK_GRACE;
        }
        self.trouble = Some(why);
    }

    /// The replica above is there, and cannot be used. There is nothing to wait for before this
    /// client goes on without it.
    pub fn went_refused(&mut self, why: String, now: Moment) {
        (self.attached, self.alone, self.attaching) = (false, false, false);
        self.down_since.get_or_insert(now);
        self.silent_before = LINK_GRACE;
        self.obstacle = Some(why.clone());
        self.trouble = Some(Unreachable::Refused(why));
    }

    /// What the replica above refuses to be used for, while there is a session.
    pub fn refusal(&self) -> Option<&str> {
        match &self.trouble {
            Some(Unreachable::Refused(why)) => Some(why),
            _ => None,
        }
    }

    /// Why it is not attached, in words for the user.
    pub fn told_trouble(&self) -> Option<String> {
        // Who has found that nothing leads there says it better.
        let trouble = self.trouble.as_ref().filter(|why| **why != Unreachable::NoWay);
        let left = self.left.then(|| Unreachable::Unwanted.to_string());
        left.or(self.obstacle.clone()).or(trouble.map(ToString::to_string))
    }

    /// This client could not attach, and tries again later: the longer it fails, the later.
    pub fn met(&mut self, obstacle: String, now: Moment) {
        self.obstacle = Some(obstacle);
        let pause = ATTACH_AGAIN_AFTER.saturating_mul(1 << self.obstacles.min(DOUBLED_MAX));
        self.obstacles += 1;
        self.attach_at = now + pause.min(ATTACH_AGAIN_WITHIN);
    }

    /// It is time to try over the same session what could not be done before.
    pub fn attaches_again(&self, now: Moment) -> bool {
        self.up && !self.attached && self.obstacle.is_some() && self.attach_at <= now
    }

    /// Where the replica above cannot be used, what is cached is all there is, and is shown.
    pub fn falls_back(&self) -> bool {
        self.volume_known && self.wanted != WantedMode::Fixed(Mode::Connected)
    }

    pub fn lease_holds(&self, now: OuterMoment) -> bool {
        self.lease_until.is_some_and(|until| now < until)
    }

    /// Whether it should be found out soon if there still is a session, or when there is one again.
    /// After a restart the replica above does not know who believes what it cached: others wait until
    /// this client attaches again, which it does once it knows. A link that is slow or dear is left
    /// alone.
    pub fn wants_a_look(&self, now: Moment, outside: OuterMoment) -> bool {
        if !self.near {
            return false;
        }
        match self.down_for(now) {
            Some(down_for) => down_for < HURRY_FOR,
            None => {
                let counts =
                    self.lease_until.is_some_and(|until| outside < until + LEASE_COUNTS_AFTER);
                counts && now.since(self.answered_at) >= HEARD_WITHIN
            }
        }
    }

    /// How long there has been nothing at the other end.
    pub fn down_for(&self, now: Moment) -> Option<Duration> {
        self.down_since.map(|since| now.since(since) + self.silent_before)
    }

    pub fn why_not(&self) -> Unreachable {
        match &self.trouble {
            Some(away @ (Unreachable::TurnedAway(_) | Unreachable::Refused(_))) => away.clone(),
            _ if self.wanted == WantedMode::Fixed(Mode::Disconnected) => Unreachable::Unwanted,
            Some(trouble) => trouble.clone(),
            None => Unreachable::NoLink,
        }
    }

    /// `sent`: before the request for it was.
    pub fn begin_lease(&mut self, secs: u32, sent: OuterMoment) {
        self.lease = Duration::from_secs(u64::from(secs)).saturating_sub(LEASE_MARGIN);
        self.lease_until = Some(sent + self.lease);
    }

    /// Nothing that is cached is vouched for any more.
    pub fn end_lease(&mut self) {
        self.lease_until = None;
    }

    pub fn lease_left(&self, now: OuterMoment) -> Duration {
        self.lease_until.map_or(Duration::ZERO, |until| until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ReplicaId;

    #[test]
    fn who_is_refused_tries_again_the_later_the_longer_it_fails() {
        let world = World::simulated(0, 1);
        let begun = world.clock.moment();
        let meta = Meta { replica: Some(ReplicaId(3)), ..Meta::default() };
        let mut connection = Connection::new((WantedMode::Auto, None), begun, &meta);
        connection.up = true;
        let mut pauses = Vec::new();
        for _ in 0..40 {
            connection.went_refused("its store failed".into(), begun);
            connection.met("its store failed".into(), begun);
            assert!(!connection.attaches_again(begun));
            assert!(connection.attaches_again(connection.attach_at));
            pauses.push(connection.attach_at.since(begun).as_secs());
        }
        assert_eq!(pauses[..6], [2, 4, 8, 16, 30, 30]);
        assert_eq!(pauses.last(), Some(&30));
        assert_eq!(connection.down_for(begun), Some(LINK_GRACE), "nothing is waited for");
    }

    #[test]
    fn who_begins_where_nothing_leads_to_the_server_takes_the_link_for_gone() {
        let world = World::simulated(0, 1);
        let now = world.clock.moment();
        let begin = |replica: Option<u32>, why: Unreachable| {
            let meta = Meta { replica: replica.map(ReplicaId), ..Meta::default() };
            let mut connection = Connection::new((WantedMode::Auto, None), now, &meta);
            connection.went_down(why, now);
            connection
        };
        assert_eq!(begin(Some(3), Unreachable::NoWay).down_for(now), Some(LINK_GRACE));
        // There is nothing to go on with, or an answer may be on its way.
        assert_eq!(begin(None, Unreachable::NoWay).down_for(now), Some(Duration::ZERO));
        assert_eq!(begin(Some(3), Unreachable::Lost).down_for(now), Some(Duration::ZERO));
        // A link that was there is expected back.
        let mut connection = begin(Some(3), Unreachable::NoWay);
        (connection.sessions, connection.down_since) = (1, None);
        connection.went_down(Unreachable::NoWay, now);
        assert_eq!(connection.down_for(now), Some(Duration::ZERO));
    }
}
