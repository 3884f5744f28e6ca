//! What clients read, and what they may read after it.
//! Holds, and is checked:
//! - who opens a file after a connected writer's close has returned does not read what that replaced;
//! - what a client saw replaced never comes back, nor what it has itself replaced.

use super::{Board, Closed, State};
use crate::contents::{self, describe};
use model::FileId;
use std::collections::{BTreeMap, BTreeSet};

/// Who read, and how.
pub struct Reader<'a> {
    pub who: &'a str,
    pub file: FileId,
    /// What was cached counted under a callback alone, before the open and after the reading.
    pub validated: bool,
    /// Nothing of the file's was pending at the reader when it opened it, and the reader does not
    /// make do with less than what is current.
    pub strict: bool,
    /// The saves that connected writers had closed before the open.
    pub closed: &'a [usize],
}

/// By client and file.
#[derive(Default)]
pub(super) struct Reads(BTreeMap<(String, FileId), Seen>);

/// What a client has seen of a file: contents by name, each where it was seen first.
#[derive(Default)]
struct Seen {
    /// Since its process started.
    now: Vec<u64>,
    /// By processes before: what they learnt from others, a crash may have undone.
    before: BTreeSet<u64>,
}

impl Board {
    /// The saves that connected writers have closed by now.
    pub fn closed_by_now(&self) -> Vec<usize> {
        let state = self.state();
        let is_closed = |number: &usize| state.saves[*number].closed == Some(Closed::Connected);
        (0..state.saves.len()).filter(is_closed).collect()
    }

    /// The client's process has ended.
    pub fn starts_anew(&self, who: &str) {
        let mut state = self.state();
        let of_client = state.reads.0.iter_mut().filter(|((client, _), _)| client == who);
        for (_, seen) in of_client {
            let now = std::mem::take(&mut seen.now);
            seen.before.extend(now);
        }
    }

    /// Somebody has read a file. Tells whether there was something that had to show.
    pub fn reads(&self, reader: &Reader<'_>, bytes: &[u8]) -> Result<bool, String> {
        let mut state = self.state();
        let read = contents::name(bytes);
        if state.tells_nothing(read) {
            return Ok(false);
        }
        let told = |why: String| {
            let Reader { who, file, .. } = reader;
            format!("{who} opened {file}, and read {}, {why}", describe(bytes))
        };
        if reader.validated && reader.strict {
            state.is_current(read, reader.closed).map_err(told)?;
        }
        state.goes_on(reader, read).map_err(told)?;
        let key = (reader.who.to_owned(), reader.file);
        let seen = state.reads.0.entry(key).or_default();
        if !seen.now.contains(&read) {
            seen.now.push(read);
        }
        let had_to = state.saves.iter().enumerate();
        let mut had_to = had_to.filter(|(number, _)| reader.closed.contains(number));
        let had_to = had_to.any(|(_, save)| save.file == reader.file);
        Ok(reader.validated && reader.strict && had_to)
    }
}

impl State {
    /// Whoever opened a file when these saves had been closed does not read what they replaced.
    fn is_current(&self, read: u64, closed: &[usize]) -> Result<(), String> {
        let rivals = self.saves.iter().enumerate().filter(|(_, save)| save.base == read);
        // Of several that replaced the same, one came first, and its writer may not have waited.
        let (mut first, mut all_are_closed) = (None, true);
        for (number, save) in rivals {
            all_are_closed &= closed.contains(&number);
            first = first.or(Some(save));
        }
        match first.filter(|_| all_are_closed) {
            None => Ok(()),
            Some(save) => Err(format!("though {} had closed {} over it", save.who, save.what)),
        }
    }

    /// What a client reads is not what it saw replaced, or has itself replaced.
    fn goes_on(&self, reader: &Reader<'_>, read: u64) -> Result<(), String> {
        let Reader { who, file, .. } = *reader;
        let seen = self.reads.0.get(&(who.to_owned(), file));
        let of_reader = |save: &&super::Save| save.file == file && save.who == who;
        // Own changes that are refused are undone.
        let is_undone = |contents: &u64| {
            let own = self.saves.iter().filter(of_reader).find(|save| save.saved == *contents);
            own.is_some_and(|own| own.closed.is_none())
        };
        let now = seen.map_or(&[][..], |seen| &seen.now);
        if let Some(at) = now.iter().position(|contents| *contents == read)
            && let Some(later) = now[at + 1..].iter().find(|later| !is_undone(later))
        {
            return Err(format!("after {} had taken its place", self.words(*later)));
        }
        // Who makes do with less may have learnt of it again after the crash, and have it held back.
        let counts = reader.validated && reader.strict;
        let before = seen.map(|seen| &seen.before).filter(|_| counts);
        let own = self.saves.iter().filter(of_reader).filter(|save| save.closed.is_some());
        let known = now.iter().copied().filter(|contents| !is_undone(contents));
        let known = known.chain(before.into_iter().flatten().copied().filter(|c| !is_undone(c)));
        let mut known = known.chain(own.map(|save| save.saved));
        match known.find(|contents| self.ancestors(file, *contents).contains(&read)) {
            None => Ok(()),
            Some(later) => Err(format!("from which {} came, which it knew", self.words(later))),
        }
    }

    fn words(&self, contents: u64) -> String {
        let save = self.saves.iter().find(|save| save.saved == contents);
        save.map_or_else(
            || "something else".into(),
            |save| format!("{} of {}", save.what, save.who),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ticket;
    use super::*;
    use crate::operation::Path;

    const FILE: FileId = FileId(7);
    const ONE: &[u8] = b"what is there first";
    const TWO: &[u8] = b"what is there second";

    fn saves(board: &Board, who: &str, base: &[u8], saved: &[u8]) -> Ticket {
        board.saves(who, (&Path::new("a"), FILE), base, saved)
    }

    fn check(board: &Board, who: &str, strict: bool, bytes: &[u8]) -> bool {
        let closed = board.closed_by_now();
        let reader = Reader { who, file: FILE, validated: strict, strict, closed: &closed };
        board.reads(&reader, bytes).is_ok()
    }

    #[test]
    fn what_a_connected_writer_closed_over_is_not_read_but_by_who_need_not_have_what_is_current() {
        let board = Board::default();
        let ticket = saves(&board, "ada", b"", ONE);
        board.acknowledge(ticket, Closed::Connected, None);
        let ticket = saves(&board, "ada", ONE, TWO);
        assert!(check(&board, "bob", true, ONE), "it is not closed");
        board.acknowledge(ticket, Closed::Logged, None);
        assert!(check(&board, "bob", true, ONE), "nobody waited");
        board.acknowledge(ticket, Closed::Connected, None);
        assert!(!check(&board, "bob", true, ONE));
        assert!(check(&board, "bob", false, ONE));
        assert!(check(&board, "bob", true, TWO));
    }

    #[test]
    fn what_a_client_saw_replaced_or_has_replaced_itself_does_not_come_back() {
        let board = Board::default();
        let ticket = saves(&board, "ada", b"", ONE);
        board.acknowledge(ticket, Closed::Logged, None);
        let ticket = saves(&board, "ada", ONE, TWO);
        assert!(check(&board, "ada", false, ONE), "it may be undone");
        board.acknowledge(ticket, Closed::Logged, None);
        assert!(!check(&board, "ada", false, ONE));
        assert!(check(&board, "bob", false, ONE) && check(&board, "bob", false, TWO));
        assert!(!check(&board, "bob", false, ONE));
        board.starts_anew("bob");
        assert!(check(&board, "bob", false, ONE), "it has forgotten, and nobody vouches for it");
        assert!(!check(&board, "bob", true, ONE));
    }
}
