//! The front of a file that is written from its beginning: what lies behind it is final unless it is
//! written again, and may be cut, named and sent while the file is open.
//! Holds: nothing is read to be cut before it was claimed, and what is written to what was claimed is
//! kept in mind, so that it is cut again.
//! From: LBFS, "Update protocol": TMPWRITE goes before COMMITTMP.

use super::{Before, Files, OpenFile, Since};
use crate::early::Work;
use std::ops::Range;
use std::sync::Arc;
use store::Container;

/// Stretches that were written before those that lie before them: writes may pass each other.
const BEYOND_MAX: usize = 64;
/// With more stretches that are written again all of the file is cut again.
const AGAIN_MAX: usize = 4096;

/// What was changed of a container.
#[derive(Clone, Debug)]
pub(crate) enum Altered {
    /// Nothing that one could read.
    Nothing,
    Stretch(Range<u64>),
    /// Of this stretch room was set aside, or it reads as zeros now.
    Room(Range<u64>),
    /// It has so many bytes now.
    Length(u64),
}

#[derive(Clone)]
pub(crate) struct Front {
    pub work: Arc<Work>,
    /// So many bytes were written, from the beginning without a gap.
    end: u64,
    /// Stretches behind that which were written too.
    beyond: Vec<Range<u64>>,
    /// So many bytes may have been read to be cut.
    claimed: u64,
    /// What was written of them since.
    pub again: Vec<Range<u64>>,
    /// It waits for its turn to be cut.
    queued: bool,
}

impl Front {
    pub fn new(work: Arc<Work>) -> Front {
        let (beyond, again) = (Vec::new(), Vec::new());
        Front { work, end: 0, beyond, claimed: 0, again, queued: false }
    }

    /// Bytes that were written and not cut.
    pub fn ready(&self) -> u64 {
        self.end - self.claimed
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Something was changed. False: it is not known any more what is as it was cut.
    #[must_use]
    fn note(&mut self, altered: &Altered) -> bool {
        match altered {
            Altered::Nothing => true,
            Altered::Stretch(stretch) => self.note_written(stretch) && self.note_again(stretch),
            Altered::Room(stretch) => self.note_again(stretch),
            Altered::Length(size) => self.note_length(*size),
        }
    }

    fn note_written(&mut self, stretch: &Range<u64>) -> bool {
        if stretch.start > self.end {
            self.beyond.push(stretch.clone());
            return self.beyond.len() <= BEYOND_MAX;
        }
        self.end = self.end.max(stretch.end);
        while let Some(at) = self.beyond.iter().position(|beyond| beyond.start <= self.end) {
            self.end = self.end.max(self.beyond.swap_remove(at).end);
        }
        true
    }

    fn note_again(&mut self, stretch: &Range<u64>) -> bool {
        let stretch = stretch.start..stretch.end.min(self.claimed);
        if stretch.is_empty() {
            return true;
        }
        let joins = |last: &&mut Range<u64>| stretch.start <= last.end && stretch.end >= last.start;
        match self.again.last_mut().filter(joins) {
            Some(last) => *last = last.start.min(stretch.start)..last.end.max(stretch.end),
            None => self.again.push(stretch),
        }
        self.again.len() <= AGAIN_MAX
    }

    fn note_length(&mut self, size: u64) -> bool {
        self.end = self.end.min(size);
        self.beyond.retain(|beyond| beyond.start < size);
        self.beyond.iter_mut().for_each(|beyond| beyond.end = beyond.end.min(size));
        self.claimed <= size
    }

    /// Up to so many bytes to be cut next.
    pub fn claim(&mut self, bytes_max: u64) -> Range<u64> {
        let from = self.claimed;
        self.claimed = self.end.min(from.saturating_add(bytes_max)).max(from);
        from..self.claimed
    }
}

impl<K: Container> OpenFile<K> {
    /// Keeps in mind what was changed, for when it is stored; `work` if it may be the first of a
    /// file that is written from its beginning. True: more of it may be sent now.
    pub fn note_change(&mut self, altered: &Altered, work: Option<Arc<Work>>, step: u64) -> bool {
        self.since = self.since.take().and_then(|mut since| {
            let known = match altered {
                Altered::Nothing => true,
                Altered::Stretch(stretch) | Altered::Room(stretch) => since.note(stretch.clone()),
                Altered::Length(size) => since.note_length(*size),
            };
            known.then_some(since)
        });
        let written = self.presence.dirty.is_some() && self.presence.ground.is_none();
        // Of one that is opened again it shows later whether little of it is written or all.
        let cut = matches!(&self.since, Some(Since { before: Before::Pieces(_), .. }));
        let may = written && !cut && self.unlinked.is_none();
        if let Altered::Length(0) = altered {
            self.front = None;
        }
        if self.front.is_none() && may {
            self.front = work.map(Front::new);
        }
        if !may || !self.front.as_mut().is_some_and(|front| front.note(altered)) {
            self.front = None;
        }
        let Some(front) = &mut self.front else { return false };
        let due = !front.queued && front.ready() >= step;
        front.queued |= due;
        due
    }
}

impl<K: Container> Files<K> {
    /// The front of a file whose turn it is, if it is to be cut on.
    pub fn front(&mut self, key: (model::FileId, u32)) -> Option<(&mut Front, &K)> {
        let open = self.open.get_mut(&key)?;
        if open.unlinked.is_some() || open.presence.dirty.is_none() {
            open.front = None;
        }
        Some((open.front.as_mut()?, &open.container))
    }

    /// It is not its turn any more: it is queued again with what is written next.
    pub fn leave_front(&mut self, key: (model::FileId, u32)) {
        if let Some(OpenFile { front: Some(front), .. }) = self.open.get_mut(&key) {
            front.queued = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn front() -> Front {
        Front::new(Arc::new(Work::idle()))
    }

    #[test]
    fn what_follows_moves_the_front_and_what_is_cut_is_claimed_once() {
        let mut front = front();
        assert!(front.note(&Altered::Stretch(0..100)) && front.note(&Altered::Stretch(100..250)));
        assert_eq!(
            (front.claim(200), front.claim(200), front.claim(200)),
            (0..200, 200..250, 250..250)
        );
        assert!(front.again.is_empty() && front.ready() == 0);
    }

    #[test]
    fn writes_may_pass_each_other_and_a_gap_is_not_passed() {
        let mut front = front();
        for stretch in [0..10, 30..40, 20..30, 50..60] {
            assert!(front.note(&Altered::Stretch(stretch)));
        }
        assert_eq!(front.ready(), 10);
        assert!(front.note(&Altered::Stretch(10..20)));
        assert_eq!(front.ready(), 40);
    }

    #[test]
    fn what_is_written_behind_the_front_is_cut_again() {
        let mut front = front();
        assert!(front.note(&Altered::Stretch(0..100)));
        assert_eq!(front.claim(60), 0..60);
        assert!(front.note(&Altered::Stretch(70..80)), "it has not been cut");
        assert!(front.again.is_empty());
        assert!(front.note(&Altered::Stretch(50..70)) && front.note(&Altered::Room(0..4)));
        assert_eq!(front.again, [50..60, 0..4]);
        assert!(front.note(&Altered::Length(60)) && !front.note(&Altered::Length(59)));
    }

    #[test]
    fn room_that_is_set_aside_does_not_move_the_front() {
        let mut front = front();
        assert!(front.note(&Altered::Room(0..1000)) && front.note(&Altered::Length(1000)));
        assert_eq!(front.ready(), 0);
        assert!(front.note(&Altered::Stretch(0..10)));
        assert_eq!(front.ready(), 10);
    }

    #[test]
    fn a_file_that_is_written_everywhere_has_no_front() {
        let mut front = front();
        let far = |n: u64| Altered::Stretch(2 * n + 1..2 * n + 2);
        assert!((0..BEYOND_MAX as u64).all(|n| front.note(&far(n))));
        assert!(!front.note(&far(1000)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, u64),
        Cut(u64),
        Claim(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..60u64, 1..20u64).prop_map(|(at, length)| Step::Write(at, length)),
            1 => (0..60u64).prop_map(Step::Cut),
            2 => (0..30u64).prop_map(Step::Claim),
        ]
    }

    proptest! {
        /// Whatever is written in whatever order: of what was claimed, all is as it was when it
        /// was, but for what is said to be written again, and nothing was claimed that was not
        /// written.
        #[test]
        fn prop_what_was_claimed_is_as_it_was_or_known_to_be_written_again(
            steps in prop::collection::vec(step(), 0..40),
        ) {
            let mut front = front();
            // Of each byte, when it was written; and when it was as it was claimed.
            let (mut file, mut cut): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            for (number, step) in steps.into_iter().enumerate() {
                let now = number as u64 + 1;
                let known = match step {
                    Step::Write(at, length) => {
                        let end = (at + length) as usize;
                        file.resize(file.len().max(end), 0);
                        file[at as usize..end].fill(now);
                        front.note(&Altered::Stretch(at..at + length))
                    }
                    Step::Cut(size) => {
                        file.resize(size as usize, 0);
                        front.note(&Altered::Length(size))
                    }
                    Step::Claim(most) => {
                        let range = front.claim(most);
                        let range = range.start as usize..range.end as usize;
                        prop_assert_eq!(range.start, cut.len());
                        prop_assert!(file[range.clone()].iter().all(|written| *written > 0));
                        cut.extend_from_slice(&file[range]);
                        true
                    }
                };
                if !known {
                    return Ok(());
                }
                for (at, was) in cut.iter().enumerate() {
                    let again = front.again.iter().any(|again| again.contains(&(at as u64)));
                    prop_assert!(again || file.get(at) == Some(was), "at {at}");
                }
            }
        }
    }
}
