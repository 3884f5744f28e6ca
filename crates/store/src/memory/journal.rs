//! A journal in memory, in segments as on the disk: what is retired may be met again until its
//! whole segment is.
//! Holds: what a crash leaves behind the last sync is read from the bytes that a file would have,
//! by what reads the file.

use super::Keep;
use crate::error::Result;
use crate::files::locked;
use crate::journal::{Journal, Position, records_in, sealed};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Small, so that simulations meet both what went and what stayed.
const SEGMENT_RECORDS: u64 = 16;

#[derive(Clone)]
pub struct MemoryJournal(Arc<Mutex<State>>);

#[derive(Clone)]
struct State {
    records: VecDeque<(Position, Arc<[u8]>)>,
    next: Position,
    synced: Position,
    /// What a crash left of the record that follows, in its envelope.
    torn: Vec<u8>,
}

impl Default for MemoryJournal {
    fn default() -> MemoryJournal {
        MemoryJournal::of(State { records: VecDeque::new(), next: 1, synced: 0, torn: Vec::new() })
    }
}

impl MemoryJournal {
    pub fn new() -> MemoryJournal {
        MemoryJournal::default()
    }

    fn of(state: State) -> MemoryJournal {
        MemoryJournal(Arc::new(Mutex::new(state)))
    }

    /// The process dies while it appends a record. `cut` says after which of the bytes; all of them
    /// may be there.
    pub fn tear(&self, record: &[u8], cut: u64) {
        let mut state = locked(&self.0);
        state.torn = torn(state.next, state.synced, record, cut);
    }

    /// All that was appended, and what was torn if it is whole.
    pub fn after_kill(&self) -> MemoryJournal {
        let mut state = locked(&self.0).clone();
        let torn = std::mem::take(&mut state.torn);
        state.read_again(state.next - 1, &torn);
        MemoryJournal::of(state)
    }

    /// What was synced, as many of the records behind it as `keep` agrees to one by one, and of the
    /// next one what comes before `cut`.
    pub fn after_power_cut(&self, keep: &mut Keep<'_>, cut: u64) -> MemoryJournal {
        let mut state = locked(&self.0).clone();
        let mut last = state.synced;
        while last + 1 < state.next && keep() {
            last += 1;
        }
        let whole = state.records.iter().find(|(position, _)| *position == last + 1);
        let torn = match whole {
            Some((position, record)) => torn(*position, state.synced, record, cut),
            None => std::mem::take(&mut state.torn),
        };
        state.torn = Vec::new();
        state.read_again(last, &torn);
        state.synced = state.next - 1;
        MemoryJournal::of(state)
    }
}

/// The first bytes of a record in its envelope.
fn torn(position: Position, synced: Position, record: &[u8], cut: u64) -> Vec<u8> {
    let mut bytes = sealed(position, synced, record);
    let left = cut % (bytes.len() as u64 + 1);
    bytes.truncate(usize::try_from(left).expect("it is no more than there were"));
    bytes
}

impl State {
    /// Reads the records behind the last sync, up to `last`, and what follows them, as a start does.
    fn read_again(&mut self, last: Position, torn: &[u8]) {
        let unsynced = self.records.partition_point(|(position, _)| *position <= self.synced);
        let mut bytes = Vec::new();
        for (position, record) in self.records.drain(unsynced..) {
            if position <= last {
                bytes.extend(sealed(position, self.synced, &record));
            }
        }
        bytes.extend(torn);
        self.next = self.synced + 1;
        for (position, record) in records_in(&bytes, self.synced + 1) {
            self.records.push_back((position, record.into()));
            self.next = position + 1;
        }
    }
}

impl Journal for MemoryJournal {
    fn append(&self, record: &[u8]) -> Result<Position> {
        let mut state = locked(&self.0);
        let position = state.next;
        state.records.push_back((position, record.into()));
        state.next += 1;
        Ok(position)
    }

    fn next(&self) -> Position {
        locked(&self.0).next
    }

    fn sync(&self) -> Result<()> {
        let mut state = locked(&self.0);
        state.synced = state.next - 1;
        Ok(())
    }

    fn read(&self, from: Position, bytes_max: usize) -> Result<Vec<(Position, Vec<u8>)>> {
        let state = locked(&self.0);
        let begun = state.records.partition_point(|(position, _)| *position < from);
        let (mut read, mut bytes) = (Vec::new(), 0);
        for (position, record) in state.records.iter().skip(begun) {
            bytes += record.len();
            if bytes > bytes_max && !read.is_empty() {
                break;
            }
            read.push((*position, record.to_vec()));
        }
        Ok(read)
    }

    fn retire(&self, upto: Position) -> Result<()> {
        let mut state = locked(&self.0);
        let upto = upto.min(state.next - 1);
        let kept_from = upto / SEGMENT_RECORDS * SEGMENT_RECORDS;
        let gone = state.records.partition_point(|(position, _)| *position <= kept_from);
        if gone > 0 {
            // Segments go only after those that follow are safe, as on the disk.
            state.synced = state.synced.max(kept_from);
            state.records.drain(..gone);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(journal: &MemoryJournal) -> Vec<Position> {
        journal.records().unwrap().iter().map(|(position, _)| *position).collect()
    }

    #[test]
    fn a_record_is_torn_at_every_byte_and_there_only_when_all_of_it_is() {
        let whole = sealed(3, 1, b"third").len() as u64;
        for cut in 0..=whole {
            let journal = MemoryJournal::new();
            journal.append(b"first").unwrap();
            journal.sync().unwrap();
            journal.append(b"second").unwrap();
            journal.tear(b"third", cut);
            let left = if cut == whole { vec![1, 2, 3] } else { vec![1, 2] };
            let after = journal.after_kill();
            assert_eq!(positions(&after), left, "cut after {cut} bytes");
            assert_eq!(after.append(b"next").unwrap(), left.len() as u64 + 1);
            let mut keep = [true, false].into_iter();
            let mut keep = || keep.next().unwrap_or(false);
            assert_eq!(positions(&journal.after_power_cut(&mut keep, cut)), left);
        }
    }

    #[test]
    fn a_power_cut_tears_the_first_record_that_it_does_not_keep() {
        let whole = sealed(2, 1, b"second").len() as u64;
        for cut in 0..=whole {
            let journal = MemoryJournal::new();
            journal.append(b"first").unwrap();
            journal.sync().unwrap();
            journal.append(b"second").unwrap();
            journal.append(b"third").unwrap();
            let after = journal.after_power_cut(&mut || false, cut);
            assert_eq!(positions(&after), if cut == whole { vec![1, 2] } else { vec![1] });
        }
    }
}
