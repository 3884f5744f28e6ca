//! What a client's own part of the tree may be, given all that it was told.
//! A crash, or an answer that never came, leaves more than one possibility; what is seen later
//! rules some of them out. None left is a failure.

use crate::check::Pairs;
use crate::operation::{Fault, Operation, Outcome};
use crate::reference::Reference;
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// More possibilities than this and the simulation does not look often enough.
const CANDIDATES_MAX: usize = 256;
/// The only side of a client's own part.
const SIDE: usize = 0;

pub struct Candidates {
    now: Vec<Reference>,
    /// What it was before, from the last moment on that a power cut cannot undo.
    past: Vec<Vec<Reference>>,
    /// Files whose contents changed since they were last known to be on the disk.
    unsynced: BTreeSet<u64>,
    /// The origin's disk is full at times.
    may_be_refused: bool,
}

impl Candidates {
    pub fn new(may_be_refused: bool) -> Candidates {
        let now = vec![Reference::new(1, 0o755)];
        Candidates { now, past: Vec::new(), unsynced: BTreeSet::new(), may_be_refused }
    }

    /// Whole contents that others may read once this operation is under way.
    pub fn would_store(&self, operation: &Operation) -> Vec<Arc<Vec<u8>>> {
        let stored = self.now.iter().map(|candidate| candidate.would_store(SIDE, operation));
        stored.flat_map(BTreeMap::into_values).collect()
    }

    /// Whole contents that a crash makes of what is being written.
    pub fn unsaved(&self, in_flight: Option<&Operation>) -> Vec<Arc<Vec<u8>>> {
        let mut found = Vec::new();
        for candidate in &self.now {
            found.extend(candidate.unsaved(SIDE));
            if let Some(operation) = in_flight {
                let mut after = candidate.clone();
                after.perform(SIDE, operation);
                found.extend(after.unsaved(SIDE));
                found.extend(candidate.would_store(SIDE, operation).into_values());
            }
        }
        found
    }

    /// The operation gave `found`: what does not fit is ruled out.
    pub fn perform(&mut self, operation: &Operation, found: &Outcome) -> Result<(), String> {
        let mut next: Vec<Reference> = Vec::new();
        let mut expected = None;
        for candidate in &self.now {
            let mut after = candidate.clone();
            let outcome = after.perform(SIDE, operation);
            self.unsynced.extend(candidate.would_store(SIDE, operation).into_keys());
            match found {
                Outcome::Failed(Fault::NoVerdict) => {
                    without_slot(&mut after, operation);
                    next.push(after);
                }
                Outcome::Failed(fault) if fault.is_of_room() => {
                    next.extend(without_room(candidate, after, operation));
                }
                Outcome::Failed(fault) if fault.is_of_link() => match operation {
                    // The file is closed whatever came of it.
                    Operation::Close { .. } => next.push(after),
                    Operation::Cut { .. } | Operation::Open { .. } => {
                        without_slot(&mut after, operation);
                        next.extend([candidate.clone(), after]);
                    }
                    _ => next.push(candidate.clone()),
                },
                found if Pairs::default().agree_on_outcome(&outcome, found) => next.push(after),
                _ => expected = Some(outcome),
            }
        }
        if let (true, Some(expected)) = (next.is_empty(), expected) {
            return Err(format!("{operation}\n  gave     {found}\n  and not  {expected}"));
        }
        self.step(next)
    }

    fn step(&mut self, next: Vec<Reference>) -> Result<(), String> {
        let mut distinct: Vec<Reference> = Vec::new();
        for candidate in next {
            if !distinct.contains(&candidate) {
                distinct.push(candidate);
            }
        }
        if distinct.len() > CANDIDATES_MAX {
            return Err(format!("{} possibilities are too many", distinct.len()));
        }
        for candidate in &distinct {
            self.unsynced.extend(candidate.being_written(SIDE));
        }
        self.past.push(std::mem::replace(&mut self.now, distinct));
        Ok(())
    }

    /// All that was done is safe from a power cut, but for what is being written.
    pub fn all_is_home(&mut self) {
        self.past.clear();
        self.unsynced.clear();
        for candidate in &self.now {
            self.unsynced.extend(candidate.being_written(SIDE));
        }
    }

    /// fsync(2) of a slot has returned: the file, and every name given before.
    pub fn synced(&mut self, slot: usize) {
        self.past.clear();
        for candidate in &self.now {
            if let Some(file) = candidate.open_file_of(SIDE, slot) {
                self.unsynced.remove(&file);
            }
        }
    }

    /// The process was killed, perhaps in the middle of an operation.
    pub fn killed(&mut self, in_flight: Option<&Operation>) -> Result<(), String> {
        let refused = in_flight.filter(|_| self.may_be_refused);
        let refused = self.now.iter().filter_map(|candidate| turned_down(candidate, refused?));
        let next = with_in_flight(&self.now, in_flight).chain(refused).map(|mut candidate| {
            candidate.crash(SIDE);
            candidate
        });
        let next = next.collect();
        self.step(next)
    }

    /// The machine has lost its power: anything may be gone back to the last sync, in order, and
    /// what was not synced of contents may be anything.
    pub fn power_cut(&mut self, in_flight: Option<&Operation>) {
        let last: Vec<Reference> = with_in_flight(&self.now, in_flight).collect();
        let mut torn = std::mem::take(&mut self.unsynced);
        for candidate in &last {
            torn.extend(candidate.being_written(SIDE));
            torn.extend(
                in_flight.iter().flat_map(|op| candidate.would_store(SIDE, op)).map(|f| f.0),
            );
        }
        let mut next: Vec<Reference> = Vec::new();
        for mut candidate in std::mem::take(&mut self.past).into_iter().flatten().chain(last) {
            candidate.crash(SIDE);
            candidate.tear(&torn);
            if !next.contains(&candidate) {
                next.push(candidate);
            }
        }
        self.now = next;
    }

    /// The whole part was read: what is otherwise is ruled out.
    pub fn found(&mut self, found: &Tree) -> Result<(), String> {
        let mut nearest: Option<String> = None;
        let mut next = Vec::new();
        for mut candidate in std::mem::take(&mut self.now) {
            let differences = candidate.tree().differences("the reference", found, "the client");
            if differences.is_empty() {
                candidate.adopt(found);
                next.push(candidate);
            } else {
                let told = differences.join("\n");
                if nearest.as_ref().is_none_or(|nearest| told.len() < nearest.len()) {
                    nearest = Some(told);
                }
            }
        }
        if next.is_empty() {
            return Err(nearest.unwrap_or_default());
        }
        self.step(next)
    }

    /// The slots that may have open what is not current any more.
    pub fn past_slots(&self) -> BTreeSet<usize> {
        self.now.iter().flat_map(|candidate| candidate.past_slots(SIDE)).collect()
    }

    /// What may be there, as trees.
    pub fn trees(&self) -> Vec<Tree> {
        self.now.iter().map(Reference::tree).collect()
    }
}

/// A program that was not told that its file is open does not have it open.
fn without_slot(candidate: &mut Reference, operation: &Operation) {
    if let Operation::Create { slot, .. }
    | Operation::CreateUnborn { slot, .. }
    | Operation::Open { slot, .. } = operation
    {
        candidate.perform(SIDE, &Operation::Close { slot: *slot });
    }
}

/// What an operation for which there was no room may have left: nothing of names and attributes,
/// and of an open file what was written to it before.
fn without_room(before: &Reference, after: Reference, operation: &Operation) -> Vec<Reference> {
    match operation {
        Operation::Close { slot } => {
            let mut left_over = before.clone();
            left_over.leave_over(SIDE, *slot);
            vec![after, abandoned(before, *slot), left_over]
        }
        // Stored later, as by a close, or not.
        Operation::Cut { path, size } => {
            let mut unstored = before.clone();
            unstored.cut_unstored(SIDE, path, *size);
            vec![before.clone(), after, unstored]
        }
        _ => vec![before.clone()],
    }
}

fn abandoned(before: &Reference, slot: usize) -> Reference {
    let mut abandoned = before.clone();
    abandoned.abandon(SIDE, slot);
    abandoned
}

/// Who closes may die when what was written has been refused, and is undone.
fn turned_down(before: &Reference, operation: &Operation) -> Option<Reference> {
    let Operation::Close { slot } = operation else { return None };
    Some(abandoned(before, *slot))
}

/// What was to be written over what there was and behind it is written in two steps, at times.
fn half_written(before: &Reference, after: &Reference, operation: &Operation) -> Option<Reference> {
    let Operation::Write { slot, offset, .. } = operation else { return None };
    let size = before.size_of(SIDE, *slot)?;
    if *offset >= size || after.size_of(SIDE, *slot)? <= size {
        return None;
    }
    let mut half = after.clone();
    half.perform(SIDE, &Operation::Truncate { slot: *slot, size });
    Some(half)
}

fn with_in_flight<'a>(
    now: &'a [Reference],
    in_flight: Option<&'a Operation>,
) -> impl Iterator<Item = Reference> + 'a {
    now.iter().flat_map(move |candidate| {
        let after = in_flight.filter(|operation| operation.changes()).map(|operation| {
            let mut after = candidate.clone();
            after.perform(SIDE, operation);
            let half = half_written(candidate, &after, operation);
            [Some(after), half].into_iter().flatten()
        });
        [candidate.clone()].into_iter().chain(after.into_iter().flatten())
    })
}
