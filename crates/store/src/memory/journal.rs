//! A journal in memory, in segments as on the disk: what is retired may be met again until its
//! whole segment is.

use super::Keep;
use crate::error::Result;
use crate::files::locked;
use crate::journal::{Journal, Position};
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
}

impl Default for MemoryJournal {
    fn default() -> MemoryJournal {
        MemoryJournal::of(State { records: VecDeque::new(), next: 1, synced: 0 })
    }
}

impl MemoryJournal {
    pub fn new() -> MemoryJournal {
        MemoryJournal::default()
    }

    fn of(state: State) -> MemoryJournal {
        MemoryJournal(Arc::new(Mutex::new(state)))
    }

    /// All that was appended.
    pub fn after_kill(&self) -> MemoryJournal {
        MemoryJournal::of(locked(&self.0).clone())
    }

    /// What was synced, and as many of the records behind it as `keep` agrees to one by one.
    pub fn after_power_cut(&self, keep: &mut Keep<'_>) -> MemoryJournal {
        let mut state = locked(&self.0).clone();
        let mut last = state.synced;
        while last + 1 < state.next && keep() {
            last += 1;
        }
        state.records.retain(|(position, _)| *position <= last);
        state.next = last + 1;
        state.synced = last;
        MemoryJournal::of(state)
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
