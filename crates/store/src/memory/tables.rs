//! Tables in memory. Readers share the committed state; a commit copies a table only if a reader
//! still looks at it.

use crate::error::Result;
use crate::files::locked;
use crate::table::{Before, Durability, Read, Row, Tables, Write};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

type Table = BTreeMap<Vec<u8>, Vec<u8>>;
type State = BTreeMap<&'static str, Arc<Table>>;

#[derive(Clone, Default)]
pub struct MemoryTables(Arc<Shared>);

#[derive(Default)]
struct Shared {
    committed: Mutex<Committed>,
    /// Held by the one writer.
    writer: Mutex<()>,
    before: Before,
}

/// Table, key and the value before.
type Undo = (&'static str, Vec<u8>, Option<Vec<u8>>);

#[derive(Default)]
struct Committed {
    state: Arc<State>,
    /// What undoes the commits since the last that is durable, in order.
    undo: Vec<Undo>,
}

impl MemoryTables {
    pub fn new() -> MemoryTables {
        MemoryTables::default()
    }

    /// Tables that hold what a disk would after the process died: commits are in its memory until
    /// one of them is durable.
    pub fn after_kill(&self) -> MemoryTables {
        let committed = locked(&self.0.committed);
        let mut state = committed.state.clone();
        for (table, key, before) in committed.undo.iter().rev() {
            set(&mut state, table, key.clone(), before.clone());
        }
        let survived = Committed { state, undo: Vec::new() };
        MemoryTables(Arc::new(Shared { committed: Mutex::new(survived), ..Shared::default() }))
    }

    pub fn after_power_cut(&self) -> MemoryTables {
        self.after_kill()
    }
}

impl Tables for MemoryTables {
    fn read(&self) -> Result<Box<dyn Read + '_>> {
        Ok(Box::new(Snapshot(locked(&self.0.committed).state.clone())))
    }

    fn write(&self) -> Result<Box<dyn Write + '_>> {
        let writer = locked(&self.0.writer);
        let base = locked(&self.0.committed).state.clone();
        Ok(Box::new(Writing {
            shared: &self.0,
            base: Snapshot(base),
            changes: HashMap::new(),
            _writer: writer,
        }))
    }

    fn room(&self) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn before(&self) -> Before {
        self.0.before.clone()
    }
}

/// Returns the value before.
fn set(
    state: &mut Arc<State>,
    table: &'static str,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let rows = Arc::make_mut(Arc::make_mut(state).entry(table).or_default());
    match value {
        Some(value) => rows.insert(key, value),
        None => rows.remove(&key),
    }
}

struct Snapshot(Arc<State>);

impl Snapshot {
    fn range<'a>(
        &'a self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
    ) -> Option<std::collections::btree_map::Range<'a, Vec<u8>, Vec<u8>>> {
        if from >= to {
            return None;
        }
        Some(self.0.get(table)?.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))))
    }
}

impl Read for Snapshot {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(table).and_then(|rows| rows.get(key)).cloned())
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        let rows = self.range(table, from, to).into_iter().flatten().take(rows_max);
        Ok(rows.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        let row = self.range(table, from, to).and_then(|mut rows| rows.next_back());
        Ok(row.map(|(key, value)| (key.clone(), value.clone())))
    }
}

type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

struct Writing<'a> {
    shared: &'a Shared,
    base: Snapshot,
    /// None: deleted.
    changes: HashMap<&'static str, Changes>,
    _writer: MutexGuard<'a, ()>,
}

impl Writing<'_> {
    fn change(&mut self, table: &'static str, key: &[u8], value: Option<Vec<u8>>) {
        self.changes.entry(table).or_default().insert(key.to_vec(), value);
    }
}

impl Read for Writing<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.changes.get(table).and_then(|changes| changes.get(key)) {
            Some(changed) => Ok(changed.clone()),
            None => self.base.get(table, key),
        }
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> Result<Vec<Row>> {
        let Some(changes) = self.changes.get(table).filter(|_| from < to) else {
            return self.base.scan(table, from, to, rows_max);
        };
        let mut changed =
            changes.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))).peekable();
        let mut based = self.base.range(table, from, to).into_iter().flatten().peekable();
        let mut rows = Vec::new();
        while rows.len() < rows_max {
            let take_changed = match (changed.peek(), based.peek()) {
                (None, None) => break,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some((changed, _)), Some((based, _))) => changed <= based,
            };
            if !take_changed {
                rows.extend(based.next().map(|(key, value)| (key.clone(), value.clone())));
            } else if let Some((key, value)) = changed.next() {
                based.next_if(|(based, _)| *based == key);
                rows.extend(value.as_ref().map(|value| (key.clone(), value.clone())));
            }
        }
        Ok(rows)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> Result<Option<Row>> {
        let Some(changes) = self.changes.get(table).filter(|_| from < to) else {
            return self.base.last(table, from, to);
        };
        let changed = changes
            .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
            .rev()
            .find_map(|(key, value)| Some((key, value.as_ref()?)));
        let based = self
            .base
            .range(table, from, to)
            .and_then(|rows| rows.rev().find(|(key, _)| !changes.contains_key(key.as_slice())));
        let last = changed.into_iter().chain(based).max_by_key(|(key, _)| *key);
        Ok(last.map(|(key, value)| (key.clone(), value.clone())))
    }
}

impl Write for Writing<'_> {
    fn put(&mut self, table: &'static str, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(table, key, Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, table: &'static str, key: &[u8]) -> Result<()> {
        self.change(table, key, None);
        Ok(())
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()> {
        let Writing { shared, base, changes, _writer } = *self;
        if durability == Durability::Now {
            shared.before.does()?;
        }
        // Else every commit would copy the tables that it touches.
        drop(base);
        let mut committed = locked(&shared.committed);
        for (table, changes) in changes {
            for (key, value) in changes {
                let before = set(&mut committed.state, table, key.clone(), value);
                if durability == Durability::Later {
                    committed.undo.push((table, key, before));
                }
            }
        }
        if durability == Durability::Now {
            committed.undo.clear();
        }
        Ok(())
    }
}
