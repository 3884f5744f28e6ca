//! What is only believed: which chunks the origin has, and where some of them are on this disk.
//! Holds: it has a bound that goes by what is here, and is swept as fast as it grows; whoever misses
//! a row asks, or sends or fetches a chunk. So it does not matter where a sweep begins.
//! Never: holds the tables for longer than some rows take.
//! From: LBFS, "Implementation details"; that there is a bound is beyond it.

use crate::client::{Client, error_of};
use crate::home;
use crate::inside::INDEX;
use crate::presence::Presence;
use crate::types::Error;
use chunks::sketch::FEATURES;
use chunks::{Look, Swept, index};
use model::{CHUNK_NAME_BYTES, ChunkName, FileId};
use protocol::Upstream;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{Containers, Durability, Read, StoreError, Write};

/// Rows of each kind that there may be, however little is here.
const ROWS_MIN: u64 = 1 << 14;
/// Bytes of the cache for which there may be a row. Chunks have about as many, and twice as many
/// rows as there are chunks leave room for what was here and comes again.
const BYTES_A_ROW: u64 = 4 << 10;
/// Rows that are looked at in one transaction.
const STEP_ROWS: usize = 256;
/// Transactions of one turn, of each kind.
const STEPS_MAX: usize = 512;
/// A turn goes on while of what it looks at at least one in so many goes.
const GOES_ONE_IN: usize = 16;
/// Between two transactions others come to the tables.
const STEPS_APART: Duration = Duration::from_millis(2);
const TURNS_APART: Duration = Duration::from_secs(5);
/// While nobody does anything and nothing goes, one turn in so many is made.
const IDLE_ONE_IN: u32 = 12;
/// Rows that are removed in one transaction when all of them go.
const CLEARED_ROWS: usize = 2048;

/// On a full disk they go again when so much time is over.
const FORGOTTEN_APART: Duration = Duration::from_secs(1);
/// Less than this that is free in the tables stays there.
const GIVEN_BACK_BYTES_MIN: u64 = 1 << 20;

/// One kind of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The origin has the chunk.
    Home,
    /// It is in a container here.
    Here,
    /// It is within something that is packed.
    Inside,
}

const KINDS: [Kind; 3] = [Kind::Home, Kind::Here, Kind::Inside];

/// Rows of each kind that there may be, by files and bytes of the cache.
fn rows_max(files: u64, bytes: u64) -> u64 {
    let features = files.saturating_mul(1 + FEATURES as u64);
    (bytes / BYTES_A_ROW).saturating_add(features).saturating_add(ROWS_MIN)
}

/// Whether a turn goes on that has made so many steps, the last of which was this.
fn goes_on(steps: usize, last: &Swept) -> bool {
    let gone = last.seen - last.left;
    steps < STEPS_MAX && last.next.is_some() && gone.saturating_mul(GOES_ONE_IN) >= last.seen
}

/// Somewhere among the names, by a number of nanoseconds.
fn beginning(nanos: u32) -> ChunkName {
    let mut name = [0; CHUNK_NAME_BYTES];
    let place = u64::from(nanos) * u64::from(u32::MAX) / 1_000_000_000;
    name[..4].copy_from_slice(&(place.min(u32::MAX.into()) as u32).to_be_bytes());
    ChunkName(name)
}

/// What was said last of each kind that could not be swept.
#[derive(Default)]
struct Said(BTreeMap<Kind, String>);

impl Said {
    fn is_news(&mut self, kind: Kind, error: &StoreError) -> bool {
        let now = error.to_string();
        let before = self.0.insert(kind, now.clone());
        before != Some(now)
    }

    fn is_well(&mut self, kind: Kind) {
        self.0.remove(&kind);
    }
}

/// What is here of files, each looked up once.
struct Here<'a> {
    read: &'a dyn Read,
    found: BTreeMap<FileId, Option<Presence>>,
    failed: Option<StoreError>,
}

impl Here<'_> {
    fn of(read: &dyn Read) -> Here<'_> {
        Here { read, found: BTreeMap::new(), failed: None }
    }

    /// Whether this is so of what is here. Where that cannot be read nothing is forgotten.
    fn is(&mut self, file: FileId, so: impl Fn(Option<&Presence>) -> bool) -> bool {
        if let Some(found) = self.found.get(&file) {
            return so(found.as_ref());
        }
        match Presence::load(self.read, file) {
            Ok(found) => {
                let is_so = so(found.as_ref());
                self.found.insert(file, found);
                is_so
            }
            Err(error) => {
                self.failed = Some(error);
                true
            }
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Forgets what leads nowhere, and what is too much.
    pub(crate) async fn run_sweeps(&self) {
        let begin = beginning(self.inner.world.clock.time().nanos);
        let mut places = BTreeMap::from(KINDS.map(|kind| (kind, Some(begin))));
        let (mut round, mut calls, mut busy) = (0u32, 0, true);
        let mut said = Said::default();
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = self.until_stopping() => break,
                () = self.inner.world.clock.sleep(TURNS_APART) => {}
            }
            round = round.wrapping_add(1);
            let before =
                std::mem::replace(&mut calls, self.inner.counters.calls.load(Ordering::Relaxed));
            if !busy && calls == before && !round.is_multiple_of(IDLE_ONE_IN) {
                continue;
            }
            busy = false;
            for (kind, from) in &mut places {
                match self.sweep_turn(*kind, from).await {
                    Ok(gone) => {
                        busy |= gone;
                        said.is_well(*kind);
                    }
                    Err(StoreError::Full(_)) => tracing::debug!(?kind, "no room to forget hints"),
                    Err(error) if said.is_news(*kind, &error) => {
                        tracing::warn!(%error, ?kind, "hints could not be swept");
                    }
                    // It was said, and is tried again.
                    Err(_) => {}
                }
            }
        }
    }

    /// Some steps, as many as find something. True: something went.
    async fn sweep_turn(
        &self,
        kind: Kind,
        from: &mut Option<ChunkName>,
    ) -> Result<bool, StoreError> {
        let (mut steps, mut any) = (0, false);
        loop {
            let (client, at) = (self.clone(), *from);
            let swept = self.off_the_runtime(move || client.sweep_step(kind, at)).await?;
            *from = swept.next;
            any |= swept.left < swept.seen;
            steps += 1;
            if !goes_on(steps, &swept) || self.is_stopping() {
                return Ok(any);
            }
            self.inner.world.clock.sleep(STEPS_APART).await;
        }
    }

    fn sweep_step(&self, kind: Kind, from: Option<ChunkName>) -> Result<Swept, StoreError> {
        let most = self.held_if_known().map(|(files, bytes)| rows_max(files, bytes));
        let look = Look { from, rows_max: STEP_ROWS, most };
        let mut write = self.inner.tables.write()?;
        // Nothing is committed while the transaction lasts, so this is what it began with.
        let read = self.inner.tables.read()?;
        let mut here = Here::of(&*read);
        let swept = match kind {
            Kind::Home => home::sweep(&mut *write, look),
            Kind::Here => index::sweep(&mut *write, look, |file, generation| {
                here.is(file, |here| here.is_some_and(|here| here.generation == generation))
            }),
            Kind::Inside => INDEX.sweep(&mut *write, look, |file, version| {
                here.is(file, |here| here.is_some_and(|here| here.version == version))
                    || self.trash().find(file, Some(version)).is_some()
            }),
        }?;
        if let Some(error) = here.failed {
            return Err(error);
        }
        drop(read);
        if swept.changed {
            write.commit(Durability::Later)?;
        }
        Ok(swept)
    }

    /// The disk is full, and nothing else can leave: all of them go, and the room that was theirs.
    /// True: there was some.
    pub(crate) fn forget_hints(&self) -> Result<bool, Error> {
        let now = self.inner.world.clock.moment();
        {
            let mut last = self.inner.room.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|at| now.since(at) < FORGOTTEN_APART) {
                return Ok(false);
            }
            *last = Some(now);
        }
        let mut any = false;
        for kind in KINDS {
            while self.clear_some(kind).map_err(error_of)? > 0 {
                any = true;
            }
        }
        let given = self.inner.tables.give_back(GIVEN_BACK_BYTES_MIN).unwrap_or_else(|error| {
            tracing::warn!(%error, "what is free in the tables stays there");
            0
        });
        if any || given > 0 {
            tracing::info!(
                given,
                "the disk is full: what was only believed of chunks is forgotten"
            );
        }
        Ok(any || given > 0)
    }

    fn clear_some(&self, kind: Kind) -> Result<usize, StoreError> {
        let mut write = self.inner.tables.write()?;
        let gone = clear(kind, &mut *write)?;
        if gone > 0 {
            write.commit(Durability::Later)?;
        }
        Ok(gone)
    }
}

fn clear(kind: Kind, write: &mut dyn Write) -> Result<usize, StoreError> {
    match kind {
        Kind::Home => home::clear(write, CLEARED_ROWS),
        Kind::Here => index::clear(write, CLEARED_ROWS),
        Kind::Inside => INDEX.clear(write, CLEARED_ROWS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_may_be_rows_for_what_is_here_and_some_more() {
        assert_eq!(rows_max(0, 0), ROWS_MIN);
        let many = rows_max(1_000_000, 1 << 30);
        assert!(many > 2_000_000, "small files have a chunk each, and what they look like: {many}");
        let large = rows_max(1, 1 << 30);
        assert!((2 * (1 << 17)..3 * (1 << 17)).contains(&large), "{large}");
        assert_eq!(rows_max(u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn what_keeps_coming_in_the_way_is_said_once_and_again_when_it_changes() {
        let damaged = |what: &str| StoreError::Damaged { place: "it".into(), what: what.into() };
        let (mut said, [one, other]) = (Said::default(), [KINDS[0], KINDS[1]]);
        assert!(said.is_news(one, &damaged("a")) && said.is_news(other, &damaged("a")));
        assert!(!said.is_news(one, &damaged("a")) && !said.is_news(other, &damaged("a")));
        assert!(said.is_news(one, &damaged("b")) && !said.is_news(one, &damaged("b")));
        said.is_well(one);
        assert!(said.is_news(one, &damaged("b")) && !said.is_news(other, &damaged("a")));
    }

    #[test]
    fn a_turn_goes_on_while_there_is_something_to_forget() {
        let next = Some(beginning(0));
        let swept = |left| Swept { next, seen: 256, left, changed: left < 256 };
        assert!(goes_on(1, &swept(0)) && goes_on(1, &swept(240)));
        assert!(!goes_on(1, &swept(250)), "it is hardly worth it");
        assert!(!goes_on(STEPS_MAX, &swept(0)), "others come first");
        assert!(!goes_on(1, &Swept { next: None, ..swept(0) }), "once around");
    }

    #[test]
    fn a_sweep_begins_anywhere() {
        let first = |nanos| beginning(nanos).0[0];
        assert_eq!([0, 500_000_000, 999_999_999].map(first), [0, 0x7f, 0xff]);
        assert_eq!(first(u32::MAX), 0xff);
    }
}
