//! Blobs in memory.

use super::Keep;
use crate::blob::{Blobs, Damage, Listed};
use crate::error::{Result, StoreError};
use crate::files::locked;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

const NAME_BYTES_MAX: usize = 64;

#[derive(Clone, Default)]
pub struct MemoryBlobs(Arc<Mutex<State>>);

type Contents = BTreeMap<Vec<u8>, Arc<[u8]>>;

#[derive(Default)]
struct State {
    now: Contents,
    /// As of the last sync.
    durable: Contents,
    /// Names that differ, or may.
    unsynced: BTreeSet<Vec<u8>>,
    bytes: u64,
}

impl State {
    fn of(contents: Contents) -> State {
        let bytes = contents.values().map(|blob| blob.len() as u64).sum();
        State { now: contents.clone(), durable: contents, unsynced: BTreeSet::new(), bytes }
    }
}

impl MemoryBlobs {
    pub fn new() -> MemoryBlobs {
        MemoryBlobs::default()
    }

    /// All that was put, and nothing that was deleted.
    pub fn after_kill(&self) -> MemoryBlobs {
        let state = locked(&self.0);
        let mut survived = State::of(state.now.clone());
        survived.durable = state.durable.clone();
        survived.unsynced = state.unsynced.clone();
        MemoryBlobs(Arc::new(Mutex::new(survived)))
    }

    /// What was synced, and of each change since then whatever `keep` says.
    pub fn after_power_cut(&self, keep: &mut Keep<'_>) -> MemoryBlobs {
        let state = locked(&self.0);
        let mut contents = state.durable.clone();
        for name in &state.unsynced {
            if !keep() {
                continue;
            }
            match state.now.get(name) {
                Some(blob) => contents.insert(name.clone(), blob.clone()),
                None => contents.remove(name),
            };
        }
        MemoryBlobs(Arc::new(Mutex::new(State::of(contents))))
    }
}

impl Blobs for MemoryBlobs {
    fn put(&self, name: &[u8], bytes: &[u8]) -> Result<()> {
        check_name(name)?;
        let mut state = locked(&self.0);
        if !state.now.contains_key(name) {
            state.bytes += bytes.len() as u64;
            state.now.insert(name.to_vec(), bytes.into());
            state.unsynced.insert(name.to_vec());
        }
        Ok(())
    }

    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        check_name(name)?;
        Ok(locked(&self.0).now.get(name).map(|blob| blob.to_vec()))
    }

    fn has(&self, name: &[u8]) -> Result<bool> {
        check_name(name)?;
        Ok(locked(&self.0).now.contains_key(name))
    }

    fn delete(&self, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let mut state = locked(&self.0);
        if let Some(blob) = state.now.remove(name) {
            state.bytes -= blob.len() as u64;
            state.unsynced.insert(name.to_vec());
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut state = locked(&self.0);
        for name in std::mem::take(&mut state.unsynced) {
            match state.now.get(&name).cloned() {
                Some(blob) => state.durable.insert(name, blob),
                None => state.durable.remove(&name),
            };
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        locked(&self.0).bytes
    }

    fn room(&self) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn list(&self, after: &[u8], names_max: usize) -> Result<Vec<Listed>> {
        let state = locked(&self.0);
        let rows = state.now.range::<[u8], _>((Bound::Excluded(after), Bound::Unbounded));
        Ok(rows.take(names_max).map(|(name, blob)| (name.clone(), blob.len() as u64)).collect())
    }

    fn reclaim(&self, _: u8) -> Result<Option<u64>> {
        Ok(None)
    }

    fn damage(&self) -> Result<Vec<Damage>> {
        Ok(Vec::new())
    }

    fn renew_damaged(&self) -> Result<()> {
        Ok(())
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    Err(StoreError::Io {
        place: "memory".to_string(),
        source: std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            format!("a blob's name of {} bytes is not 1 to 64", name.len()),
        ),
    })
}
