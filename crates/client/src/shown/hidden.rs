//! What pending updates rest on that is not known here, and what of it has been asked for.
//! Holds: while it is asked for, all is shown once, when the last of it was learnt; once nothing is
//! left to ask for, each thing that is learnt shows what rests on it, whatever of the others cannot
//! be learnt. Of a file whose pending updates do not show since it was not there, or where it was to be made
//! was not, nothing that is learnt shows without those.
//!
//! ```text
//!   awaited --everything was asked for--> the rest is left to the verdicts
//!      ^                                                |
//!      +------ a new session; something turned down ----+
//! ```

use crate::types::Need;
use model::{FileId, Update};
use std::collections::BTreeSet;
use update_log::subjects;

/// More than what is pending after a crash can lack: each is asked for once in a session.
const ASKED_MAX: usize = 4096;

/// What does not show of what is pending.
#[derive(Debug, Default)]
pub(crate) struct Unshown {
    /// What is not known here, and some rest on it.
    pub needs: BTreeSet<Need>,
    /// Files whose updates cannot be done as things stand.
    pub files: BTreeSet<FileId>,
}

impl Unshown {
    /// This one cannot be done as things stand.
    pub fn rests(&mut self, update: &Update) {
        self.files.extend(subjects(update).map(|(file, _)| file));
    }
}

#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// What is not known and is to be asked for.
    waiting: BTreeSet<Need>,
    /// What was asked for, and is not known though.
    left: BTreeSet<Need>,
    asked: BTreeSet<Need>,
    /// Something was learnt since all was last shown that may be enough for some.
    learnt: bool,
    /// Files whose updates could not be done as things stood when they were last shown.
    resting: BTreeSet<FileId>,
}

impl Hidden {
    /// Everything that is pending shows.
    pub fn is_none(&self) -> bool {
        self.is_all_known() && self.resting.is_empty()
    }

    /// Everything that is pending shows, but for what cannot be done as things stand.
    pub fn is_all_known(&self) -> bool {
        self.waiting.is_empty() && self.left.is_empty() && !self.learnt
    }

    /// What is to be asked for next.
    pub fn next(&self) -> Option<Need> {
        self.waiting.first().filter(|_| self.asked.len() < ASKED_MAX).cloned()
    }

    /// Something is left to ask for.
    pub fn is_awaited(&self) -> bool {
        self.next().is_some()
    }

    /// Something was learnt, and what rests on it does not show yet.
    pub fn is_unshown(&self) -> bool {
        self.learnt
    }

    /// It was asked for, whether or not it was learnt.
    pub fn note_asked(&mut self, need: Need) {
        if self.waiting.remove(&need) {
            self.left.insert(need.clone());
        }
        self.asked.insert(need);
    }

    /// What could not be learnt may be now.
    pub fn ask_again(&mut self) {
        self.asked.clear();
        self.waiting.append(&mut self.left);
    }

    /// Whether all that is pending is to be shown anew when these files are learnt.
    pub fn would_show(&self, learnt: &BTreeSet<FileId>) -> bool {
        let is_new = |need: &Need| is_learnt(need, learnt);
        let some = self.waiting.iter().chain(&self.left).any(is_new) || self.rest_on(learnt);
        some && (self.asked.len() >= ASKED_MAX || self.waiting.iter().all(is_new))
    }

    /// These files are known from now on, and what rests on them does not show yet.
    pub fn learn(&mut self, learnt: &BTreeSet<FileId>) {
        for needs in [&mut self.waiting, &mut self.left] {
            let before = needs.len();
            needs.retain(|need| !is_learnt(need, learnt));
            self.learnt |= needs.len() < before;
        }
        self.learnt |= self.rest_on(learnt);
    }

    /// Whether updates of one of these files do not show since they cannot be done.
    pub fn rest_on(&self, learnt: &BTreeSet<FileId>) -> bool {
        let (few, many) = match self.resting.len() < learnt.len() {
            true => (&self.resting, learnt),
            false => (learnt, &self.resting),
        };
        few.iter().any(|file| many.contains(file))
    }

    /// Some were shown anew, but for these.
    pub fn rest(&mut self, unshown: Unshown) {
        self.resting.extend(unshown.files);
    }

    /// All that is pending was shown anew, but for these.
    pub fn show(&mut self, Unshown { needs, files }: Unshown) {
        if needs.is_empty() {
            self.asked.clear();
        }
        (self.left, self.waiting) = needs.into_iter().partition(|need| self.asked.contains(need));
        self.learnt = false;
        self.resting = files;
    }
}

fn is_learnt(need: &Need, learnt: &BTreeSet<FileId>) -> bool {
    file_of(need).is_none_or(|file| learnt.contains(&file))
}

fn file_of(need: &Need) -> Option<FileId> {
    match need {
        Need::Node(file) | Need::Listed(file) | Need::Entry(file, _) | Need::Directory(file) => {
            Some(*file)
        }
        Need::Lease
        | Need::Contents { .. }
        | Need::Readable { .. }
        | Need::Sound { .. }
        | Need::Ground { .. }
        | Need::Holes { .. }
        | Need::Root { .. }
        | Need::Volume
        | Need::Totals
        | Need::Pending
        | Need::Verdict(_)
        | Need::Descriptor => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[u64]) -> BTreeSet<FileId> {
        files.iter().copied().map(FileId).collect()
    }

    fn unshown(needs: &[u64]) -> Unshown {
        let needs = needs.iter().map(|file| Need::Node(FileId(*file))).collect();
        Unshown { needs, ..Unshown::default() }
    }

    fn hidden(needs: &[u64]) -> Hidden {
        let mut hidden = Hidden::default();
        hidden.show(unshown(needs));
        hidden
    }

    #[test]
    fn what_is_pending_is_shown_when_the_last_that_it_rests_on_was_learnt() {
        let would_show = |needs: &[u64], learnt: &[u64]| hidden(needs).would_show(&files(learnt));
        assert!(!would_show(&[], &[7]));
        assert!(!would_show(&[7, 8], &[9]));
        assert!(!would_show(&[7, 8], &[7]));
        assert!(would_show(&[8], &[7, 8]));
    }

    #[test]
    fn what_cannot_be_learnt_hides_nothing_else() {
        let mut hidden = hidden(&[7, 8, 9]);
        hidden.note_asked(Need::Node(FileId(7)));
        assert_eq!(hidden.next(), Some(Need::Node(FileId(8))));
        assert!(!hidden.would_show(&files(&[8])), "9 is asked for yet");
        hidden.learn(&files(&[8]));
        assert!(hidden.is_unshown() && hidden.is_awaited());
        assert!(hidden.would_show(&files(&[9])));
        hidden.note_asked(Need::Node(FileId(9)));
        assert!(!hidden.is_awaited());
        hidden.show(unshown(&[7, 9]));
        assert!(!hidden.is_awaited() && !hidden.is_unshown(), "each is asked for once");
        assert!(hidden.would_show(&files(&[9])), "somebody else tells of it later");
        hidden.ask_again();
        assert!(hidden.is_awaited());
    }

    #[test]
    fn of_a_file_whose_updates_do_not_show_nothing_is_learnt_without_them() {
        let resting = |file: u64| Unshown { files: files(&[file]), ..Unshown::default() };
        let mut hidden = Hidden::default();
        hidden.show(resting(7));
        assert!(!hidden.is_none() && !hidden.is_awaited());
        assert!(hidden.would_show(&files(&[7])) && !hidden.would_show(&files(&[8])));
        hidden.rest(resting(8));
        assert!(hidden.would_show(&files(&[8])));
        hidden.show(unshown(&[9]));
        assert!(!hidden.would_show(&files(&[8])), "it shows by now");
        hidden.rest(resting(8));
        assert!(!hidden.would_show(&files(&[8])), "calls wait for 9");
        hidden.learn(&files(&[8]));
        assert!(hidden.is_unshown());
    }

    #[test]
    fn however_much_cannot_be_learnt_the_asking_ends() {
        let all: Vec<u64> = (1..=2 * ASKED_MAX as u64).collect();
        let mut hidden = hidden(&all);
        let mut asked = 0;
        while let Some(need) = hidden.next() {
            hidden.note_asked(need);
            asked += 1;
        }
        assert_eq!(asked, ASKED_MAX);
        assert!(!hidden.is_awaited());
        assert!(hidden.would_show(&files(&[2 * ASKED_MAX as u64])));
    }
}
