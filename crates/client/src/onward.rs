//! Who reads a file on and on gets the next stretch of it while he reads the one before.
//! Holds: what was asked for and not read is bounded, and comes within a moment; who reads here and
//! there, or over a link that is slow, is given nothing unasked.
//! From: beyond LBFS, which fetches when it is asked.

use crate::client::Client;
use crate::fetch::Target;
use crate::files::OpenFile;
use crate::mode;
use crate::portions::Portions;
use crate::presence::Presence;
use crate::ranks::{self, Rank, Ranked};
use crate::types::Error;
use model::FileId;
use protocol::{Range, Upstream};
use std::collections::VecDeque;
use std::ops::Range as Between;
use std::sync::Arc;
use store::Containers;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Stretches of one file, and of all, that are under way unasked. Each waits for an answer or two
/// before its bytes come: the others are many enough to keep the link busy meanwhile.
const COMING_MAX: usize = 6;
const UNDER_WAY_MAX: usize = 8;
/// What may lie before a reader is asked for in so many stretches.
const STRETCHES: u64 = 8;
/// The kernel's reads may pass each other by so much.
const READS_APART: u64 = 2 << 20;

type Stretch = Between<u64>;

/// Files that somebody reads on and on.
#[derive(Default)]
pub(crate) struct Onward {
    queue: VecDeque<(FileId, u32)>,
}

/// What of a version is under way unasked.
#[derive(Default)]
pub(crate) struct Coming {
    ranges: Vec<Stretch>,
    /// Some of it has come, or will not.
    came: Arc<Notify>,
    queued: bool,
}

impl Coming {
    pub fn some_came(&self) {
        self.came.notify_waiters();
    }

    /// Whoever lacks this stretch may wait for what is under way.
    pub fn brings(&self, offset: u64, length: u64) -> Option<Arc<Notify>> {
        let end = offset.saturating_add(length);
        let overlaps = |range: &Stretch| range.start < end && offset < range.end;
        self.ranges.iter().any(overlaps).then(|| self.came.clone())
    }
}

/// What is to be asked for next for a reader who has come to `read_to` and gets `before` bytes before
/// he asks; `coming` is under way.
fn next(here: &Presence, coming: &[Stretch], (read_to, before): (u64, u64)) -> Option<Stretch> {
    let size = here.contents.size;
    let (step, end) = ((before / STRETCHES).max(1), read_to.saturating_add(before).min(size));
    if before == 0 || coming.len() >= COMING_MAX {
        return None;
    }
    // Where what is coming ends nothing is lacking.
    let behind = coming.iter().map(|range| range.end).max().unwrap_or(0).max(read_to);
    let (from, to) = here.absent(behind, end).first().copied()?;
    let next = from..to.min(from.saturating_add(step));
    let is_whole = next.end - next.start == step || next.end < end || end == size;
    is_whole.then_some(next)
}

impl<K> OpenFile<K> {
    /// How much is fetched at once for who reads at `offset`: twice as much each time for who
    /// goes on.
    pub fn widen(&mut self, portions: &Portions, offset: u64) -> u64 {
        self.goes_on = self.read_to == offset && self.window > 0;
        let window = if self.read_to == offset { self.window * 2 } else { portions.window_least };
        self.window = window.clamp(portions.window_least, portions.window_most);
        self.window
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    fn onward(&self) -> Ranked<'_, Onward> {
        ranks::lock(Rank::Onward, &self.inner.onward)
    }

    /// Somebody reads at `offset`: more comes unasked if that is where he came to before, or near it.
    pub(crate) fn note_reader(
        &self,
        open: &mut OpenFile<C::Container>,
        offset: u64,
        key: (FileId, u32),
    ) {
        open.goes_on &= offset.abs_diff(open.read_to) <= READS_APART;
        if !open.goes_on || open.coming.queued || open.presence.is_whole() {
            return;
        }
        open.coming.queued = true;
        self.onward().queue.push_back(key);
        self.inner.onward_wanted.notify_one();
    }

    pub(crate) async fn run_onward(&self) {
        let mut under_way = JoinSet::new();
        while !self.is_stopping() {
            while under_way.try_join_next().is_some() {}
            // Who is taken out of the queue is looked after: nobody puts him in again before that.
            let has_room = under_way.len() < UNDER_WAY_MAX;
            let next = if has_room { self.onward().queue.pop_front() } else { None };
            let Some(key) = next else {
                tokio::select! {
                    biased;
                    () = self.inner.onward_wanted.notified(), if has_room => {}
                    Some(_) = under_way.join_next() => {}
                    () = self.until_stopping() => {}
                }
                continue;
            };
            while under_way.len() < UNDER_WAY_MAX
                && let Some(range) = self.next_onward(key)
            {
                under_way.spawn(self.clone().bring(key, range));
            }
        }
    }

    /// The next stretch for whoever reads a file on and on; it counts as coming.
    fn next_onward(&self, key: (FileId, u32)) -> Option<Stretch> {
        let (attached, mode) = {
            let connection = self.connection();
            (connection.attached, connection.mode)
        };
        let portions = Portions::of(&self.inner.upstream.quality()).within(self.window_most());
        let has_room = self.room_lacks(portions.onward).is_ok_and(|lacks| lacks == 0);
        let mut files = self.files();
        let open = files.get_mut(key.0, key.1)?;
        open.coming.queued = false;
        if !attached || !mode::fetches(mode) || !has_room || !open.is_clean() {
            return None;
        }
        let reader = (open.read_to, portions.onward);
        let next = next(&open.presence, &open.coming.ranges, reader)?;
        open.coming.ranges.push(next.clone());
        Some(next)
    }

    async fn bring(self, (file, generation): (FileId, u32), range: Stretch) {
        let outcome = self.bring_now(file, generation, &range).await;
        {
            let mut files = self.files();
            if let Some(open) = files.get_mut(file, generation) {
                open.coming.ranges.retain(|other| *other != range);
                open.coming.some_came();
                if outcome.is_ok() && !open.coming.queued {
                    open.coming.queued = true;
                    self.onward().queue.push_back((file, generation));
                    self.inner.onward_wanted.notify_one();
                }
            }
        }
        if let Err(error) = outcome {
            tracing::debug!(%error, %file, "what comes next was not fetched before it is read");
        }
    }

    async fn bring_now(&self, file: FileId, generation: u32, range: &Stretch) -> Result<(), Error> {
        let secret = self.secret().0;
        let held = self.hold(file, generation)?;
        if held.generation() != Some(generation) {
            return Ok(());
        }
        let fetching = match self.files().get(file, generation) {
            Some(open) => open.fetching.clone(),
            None => return Ok(()),
        };
        let _among_others = fetching.read().await;
        let (target, size) = {
            let files = self.files();
            let Some(open) = files.get(file, generation).filter(|open| open.is_clean()) else {
                return Ok(());
            };
            if open.presence.has(range.start, range.end - range.start) {
                return Ok(());
            }
            (Target::of(file, open, secret), open.presence.contents.size)
        };
        let range = Range { offset: range.start, length: range.end - range.start };
        self.fetch_range(&target, size, range).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, Stamp};
    use proptest::prelude::*;

    fn here(size: u64, ranges: &[(u64, u64)]) -> Presence {
        let contents = Contents { size, root: None, holes: None };
        let mut here = Presence::new(0, Stamp::default(), contents, 0);
        ranges.iter().for_each(|(from, to)| here.add(*from, to - from));
        here
    }

    fn one(stretch: Stretch) -> Vec<Stretch> {
        std::iter::once(stretch).collect()
    }

    #[test]
    fn what_comes_next_is_asked_for_stretch_by_stretch_and_some_at_a_time() {
        let here = here(1000, &[(0, 100)]);
        assert_eq!(next(&here, &[], (40, 400)), Some(100..150));
        assert_eq!(next(&here, &one(100..150), (40, 400)), Some(150..200));
        let coming: Vec<Stretch> = (0..COMING_MAX as u64).map(|at| at..at + 1).collect();
        assert_eq!(next(&here, &coming, (40, 400)), None);
        assert_eq!(next(&here, &one(390..440), (40, 400)), None, "that would be too far");
        assert_eq!(next(&here, &[], (40, 0)), None, "the link is slow");
    }

    #[test]
    fn what_is_left_at_the_end_is_asked_for_however_little_it_is() {
        assert_eq!(next(&here(110, &[(0, 100)]), &[], (50, 200)), Some(100..110));
        assert_eq!(next(&here(110, &[(0, 100)]), &one(100..110), (50, 200)), None);
        assert_eq!(next(&here(300, &[(0, 240)]), &[], (50, 200)), None, "it waits for more");
    }

    #[test]
    fn who_lacks_what_is_coming_may_wait_for_it() {
        let coming = Coming { ranges: one(100..200), ..Coming::default() };
        let brings = |offset, length| coming.brings(offset, length).is_some();
        assert!(brings(199, 10) && brings(90, 11) && !brings(200, 10) && !brings(90, 10));
    }

    proptest! {
        #[test]
        fn prop_what_is_asked_for_is_lacking_and_near_and_not_under_way(
            size in 1..2_000u64,
            ranges in prop::collection::vec((0..2_000u64, 1..300u64), 0..6),
            coming in prop::collection::vec((0..2_000u64, 1..300u64), 0..3),
            read_to in 0..2_000u64,
            before in 0..600u64,
        ) {
            let ranges: Vec<_> = ranges.iter().map(|(at, long)| (*at, at + long)).collect();
            let here = here(size, &ranges);
            let coming: Vec<Stretch> = coming.iter().map(|(at, long)| *at..at + long).collect();
            let Some(next) = next(&here, &coming, (read_to, before)) else { return Ok(()) };
            prop_assert!(next.start < next.end && next.end <= size);
            prop_assert!(next.start >= read_to && next.end <= read_to + before);
            prop_assert!(next.end - next.start <= (before / STRETCHES).max(1));
            prop_assert!(coming.iter().all(|c| c.end <= next.start || next.end <= c.start));
            prop_assert_eq!(here.absent(next.start, next.end), vec![(next.start, next.end)]);
        }
    }
}
