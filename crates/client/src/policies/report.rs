//! Setting policies, and telling which there are and what is not current under them.

use super::{Consistency, Counts, POLICIES, POLICIES_MAX, Policy, encode};
use crate::client::{Client, error_of, failed};
use crate::failures::of_missing;
use crate::pending::paths_of;
use crate::types::{Error, Step};
use model::FileId;
use protocol::Upstream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::{Containers, Durability};
use volume::partial::Tree;

/// What counts for one file, or what is said of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyShown {
    pub file: u64,
    /// From the root of the volume. None: it has no name, or none that is known here.
    pub path: Option<String>,
    /// None: as above it.
    pub consistency: Option<Consistency>,
    /// Seconds. None: as above it. 0: whatever it takes is fetched.
    pub ask_above: Option<u32>,
}

/// A file that shows as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StaleShown {
    pub file: u64,
    /// From the root of the volume. None: it has no name, or none that is known here.
    pub path: Option<String>,
    /// Of the current version. None: it is gone.
    pub size: Option<u64>,
    /// Since it was last known to be current. None: nobody knows.
    pub age_secs: Option<u64>,
    pub consistency: Consistency,
    /// Another file has its name by now.
    pub replaced: bool,
    /// The user has asked for the current version, which is on its way.
    pub coming: bool,
    /// There was no room for it in the cache when it was last fetched.
    #[serde(default)]
    pub no_room: bool,
}

/// All policies of one mount, and what is not current under them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyReport {
    pub policies: Vec<PolicyShown>,
    pub stale: Vec<StaleShown>,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Which version of a file, or of all below a directory, is good enough on this machine. None:
    /// as above it. That it is so is on the disk when this returns.
    pub fn set_consistency(
        &self,
        file: FileId,
        consistency: Option<Consistency>,
    ) -> Result<(), Error> {
        self.set_policy(file, |policy| policy.consistency = consistency)
    }

    /// Contents that take more seconds to come are not fetched unasked. None: as above; 0: they
    /// are.
    pub fn set_ask_above(&self, file: FileId, secs: Option<u32>) -> Result<(), Error> {
        self.set_policy(file, |policy| policy.ask_above = secs)
    }

    fn set_policy(&self, file: FileId, set: impl FnOnce(&mut Policy)) -> Result<(), Error> {
        let mut policy = {
            let policies = self.policies();
            let before = policies.policies.get(&file).copied();
            if before.is_none() && policies.policies.len() >= POLICIES_MAX {
                return Err(Error::Failed(format!("there are {POLICIES_MAX} policies already")));
            }
            before.unwrap_or_default()
        };
        set(&mut policy);
        policy.since = self.inner.world.clock.time().secs;
        let says_something = policy.consistency.is_some() || policy.ask_above.is_some();
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let key = file.0.to_be_bytes();
        match says_something {
            true => write.put(POLICIES, &key, &encode(&policy)),
            false => write.delete(POLICIES, &key),
        }
        .map_err(error_of)?;
        write.commit(Durability::Now).map_err(error_of)?;
        let mut policies = self.policies();
        match says_something {
            true => drop(policies.policies.insert(file, policy)),
            false => drop(policies.policies.remove(&file)),
        }
        let is_any = !policies.policies.is_empty();
        self.inner.keeping.choosing.is_any.store(is_any, std::sync::atomic::Ordering::Release);
        drop(policies);
        self.patience_changed();
        self.inner.keeping.choosing.look();
        Ok(())
    }

    /// What counts for a file or directory.
    pub fn policy_of(&self, file: FileId) -> Result<PolicyShown, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let Counts { consistency, ask_above } = self.counts_for(&*read, file)?;
        let ask_above = Some(ask_above.unwrap_or(0));
        Ok(PolicyShown { file: file.0, path: None, consistency: Some(consistency), ask_above })
    }

    /// All policies, and what is not current under them.
    pub fn policy_report(&self) -> Result<PolicyReport, Error> {
        let (all, stale, wanted, cramped) = {
            let now = self.policies();
            (now.policies.clone(), now.stale.clone(), now.wanted.clone(), now.cramped.clone())
        };
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        let files: Vec<FileId> = all.keys().chain(stale.keys()).copied().collect();
        let paths = paths_of(&tree, &files)?;
        let counts = self.what_counts(&*read, &stale.keys().copied().collect())?;
        let now = self.inner.world.clock.time().secs;
        let mut report = PolicyReport::default();
        for (file, Policy { consistency, ask_above, .. }) in all {
            let path = paths.get(&file).cloned();
            report.policies.push(PolicyShown { file: file.0, path, consistency, ask_above });
        }
        for (file, stale) in stale {
            let newer = match stale.entry() {
                Some((directory, name)) => tree
                    .held_entry(directory, &name)
                    .and_then(|file| file.map_or(Ok(None), |file| tree.said(file))),
                None => tree.held(file).map(|held| held.and_then(|held| held.node)),
            };
            report.stale.push(StaleShown {
                file: file.0,
                path: paths.get(&file).cloned(),
                size: newer.map_err(of_missing)?.map(|node| node.contents.size),
                age_secs: stale.age(now),
                consistency: counts.get(&file).copied().unwrap_or_default().consistency,
                replaced: stale.name.is_some(),
                coming: wanted.contains(&file),
                no_room: cramped.contains(&file),
            });
        }
        report.policies.sort_by(|one, other| one.path.cmp(&other.path));
        report.stale.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(report)
    }

    /// Files that show as they were.
    pub(crate) fn stale_files(&self) -> u64 {
        self.policies().stale.len() as u64
    }

    /// Whether a file shows as it was, and how long ago it was known to be so.
    pub(crate) fn stale_for(&self, file: FileId) -> Option<Option<u64>> {
        if !self.inner.keeping.choosing.is_stale() {
            return None;
        }
        let now = self.inner.world.clock.time().secs;
        self.policies().stale.get(&file).map(|stale| stale.age(now))
    }

    /// The policy that counts for a file, in words, and what comes of it.
    pub(crate) fn explain_policy(&self, file: FileId, why: &mut Vec<String>) -> Step<String> {
        let read = self.inner.tables.read().map_err(failed)?;
        let consistency = self.counts_for(&*read, file)?.consistency;
        match self.stale_for(file) {
            Some(Some(secs)) => why.push(format!(
                "It changed elsewhere: what shows was current {secs} s ago, which is good enough by \
                 its policy (farfs refresh)."
            )),
            Some(None) => why.push(
                "It changed elsewhere, and nobody knows when; what shows is good enough by its \
                 policy (farfs refresh)."
                    .into(),
            ),
            None => {}
        }
        Ok(consistency.to_string())
    }

    /// Asks for the current versions of what is not current: of a file, of the files in a directory,
    /// or with `recursive` of all below it. They come in the background. Gives how many those are.
    pub fn refresh(&self, file: FileId, recursive: bool) -> Result<u64, Error> {
        let stale: Vec<FileId> = self.policies().stale.keys().copied().collect();
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        let places = self.places_of(&tree, &stale.iter().copied().collect())?;
        let below = |stale: &FileId| {
            let place = places.get(stale).copied();
            *stale == file
                || place == Some(file)
                || (recursive && self.is_below(&tree, place, file))
        };
        let wanted: Vec<FileId> = stale.into_iter().filter(below).collect();
        let count = wanted.len() as u64;
        {
            let mut policies = self.policies();
            // Whether there is room is found out anew.
            policies.cramped.retain(|file| !wanted.contains(file));
            policies.wanted.extend(wanted);
        }
        self.inner.keeping.choosing.look();
        Ok(count)
    }

    /// Policies of files that were made before they had their ids from the replica above.
    pub(crate) fn renumber_policies(&self, anew: &crate::renumber::Anew) -> Result<(), Error> {
        let mut write = self.inner.tables.write().map_err(error_of)?;
        let mut policies = self.policies();
        let moved: BTreeMap<FileId, FileId> =
            policies.policies.keys().filter_map(|file| Some((*file, anew.id(*file)?))).collect();
        for (old, new) in moved {
            let Some(policy) = policies.policies.remove(&old) else { continue };
            write.delete(POLICIES, &old.0.to_be_bytes()).map_err(error_of)?;
            write.put(POLICIES, &new.0.to_be_bytes(), &encode(&policy)).map_err(error_of)?;
            policies.policies.insert(new, policy);
        }
        write.commit(Durability::Now).map_err(error_of)
    }
}
