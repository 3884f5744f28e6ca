//! Setting policies, and telling which there are and what is not current under them.

use super::{Consistency, Counts, POLICIES, POLICIES_MAX, Policy, encode};
use crate::client::{Client, error_of, failed};
use crate::failures::of_missing;
use crate::following::{Followed, Of, Place, Whereabouts, whereabouts};
use crate::pending::paths_of;
use crate::types::{Error, Step};
use model::FileId;
use protocol::Upstream;
use serde::{Deserialize, Serialize};
use store::{Containers, Durability, StoreError, Write};
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
    /// The file is gone: the policy waits for one of the same name.
    #[serde(default)]
    pub removed: bool,
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
    ///
    /// `place`: the name that the user calls it by; None: any that it has.
    pub fn set_consistency(
        &self,
        file: FileId,
        place: Option<Place>,
        consistency: Option<Consistency>,
    ) -> Result<(), Error> {
        self.set_policy(file, place, |policy| policy.consistency = consistency)
    }

    /// Contents that take more seconds to come are not fetched unasked. None: as above; 0: they
    /// are.
    pub fn set_ask_above(
        &self,
        file: FileId,
        place: Option<Place>,
        secs: Option<u32>,
    ) -> Result<(), Error> {
        self.set_policy(file, place, |policy| policy.ask_above = secs)
    }

    fn set_policy(
        &self,
        file: FileId,
        place: Option<Place>,
        set: impl FnOnce(&mut Policy),
    ) -> Result<(), Error> {
        self.follow_names()?;
        let mut policy = {
            let policies = self.policies();
            let before = policies.policies.get(&file).cloned();
            if before.is_none() && policies.policies.len() >= POLICIES_MAX {
                return Err(Error::Failed(format!("there are {POLICIES_MAX} policies already")));
            }
            before.unwrap_or_default()
        };
        set(&mut policy);
        policy.place = place.or(policy.place);
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
        {
            let mut policies = self.policies();
            match says_something {
                true => drop(policies.policies.insert(file, policy)),
                false => drop(policies.policies.remove(&file)),
            }
        }
        self.follow_anew();
        self.policies_moved();
        Ok(())
    }

    /// Others files than before have policies.
    pub(crate) fn policies_moved(&self) {
        let is_any = !self.policies().policies.is_empty();
        self.inner.keeping.choosing.is_any.store(is_any, std::sync::atomic::Ordering::Release);
        self.patience_changed();
        self.inner.keeping.choosing.look();
    }

    /// Another file has the name that a policy goes by. None: nothing will have it again.
    pub(crate) fn move_policy(
        &self,
        write: &mut dyn Write,
        row: &Followed,
        to: Option<FileId>,
    ) -> Result<(), StoreError> {
        let mut policies = self.policies();
        let as_it_was = |policy: &&Policy| policy.place == row.place;
        let Some(policy) = policies.policies.get(&row.file).filter(as_it_was).cloned() else {
            return Ok(());
        };
        write.delete(POLICIES, &row.file.0.to_be_bytes())?;
        policies.policies.remove(&row.file);
        let Some(to) = to else { return Ok(()) };
        // What was said by this name counts, and else what was said of the file that has taken it.
        let other = policies.policies.get(&to).cloned().unwrap_or_default();
        let policy = Policy {
            consistency: policy.consistency.or(other.consistency),
            ask_above: policy.ask_above.or(other.ask_above),
            ..policy
        };
        write.put(POLICIES, &to.0.to_be_bytes(), &encode(&policy))?;
        policies.policies.insert(to, policy);
        Ok(())
    }

    /// Notes the name that a policy goes by from now on.
    pub(crate) fn name_policy(
        &self,
        write: &mut dyn Write,
        row: &Followed,
        place: Place,
    ) -> Result<(), StoreError> {
        let mut policies = self.policies();
        match policies.policies.get_mut(&row.file) {
            Some(policy) if policy.place == row.place => {
                policy.place = Some(place);
                write.put(POLICIES, &row.file.0.to_be_bytes(), &encode(policy))
            }
            _ => Ok(()),
        }
    }

    /// What counts for a file or directory.
    pub fn policy_of(&self, file: FileId) -> Result<PolicyShown, Error> {
        let read = self.inner.tables.read().map_err(error_of)?;
        let Counts { consistency, ask_above } = self.counts_for(&*read, file)?;
        let ask_above = Some(ask_above.unwrap_or(0));
        let consistency = Some(consistency);
        Ok(PolicyShown { file: file.0, consistency, ask_above, ..PolicyShown::default() })
    }

    /// All policies, and what is not current under them.
    pub fn policy_report(&self) -> Result<PolicyReport, Error> {
        self.follow_names()?;
        let (all, stale, wanted, cramped) = {
            let now = self.policies();
            (now.policies.clone(), now.stale.clone(), now.wanted.clone(), now.cramped.clone())
        };
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        let files: Vec<FileId> = stale.keys().copied().collect();
        let paths = paths_of(&tree, &files)?;
        let counts = self.what_counts(&*read, &stale.keys().copied().collect())?;
        let now = self.inner.world.clock.time().secs;
        let mut report = PolicyReport::default();
        let row = |(file, policy): (&FileId, &Policy)| Followed {
            of: Of::Policies,
            file: *file,
            place: policy.place.clone(),
        };
        let found = whereabouts(&tree, &all.iter().map(row).collect::<Vec<_>>())?;
        for ((file, policy), Whereabouts { path, removed }) in all.into_iter().zip(found) {
            let Policy { consistency, ask_above, .. } = policy;
            report.policies.push(PolicyShown {
                file: file.0,
                path,
                consistency,
                ask_above,
                removed,
            });
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
        for (old, mut policy) in std::mem::take(&mut policies.policies) {
            let new = anew.id(old).unwrap_or(old);
            let named_anew = policy.place.as_mut().is_some_and(|place| place.renumber(anew));
            if new != old || named_anew {
                write.delete(POLICIES, &old.0.to_be_bytes()).map_err(error_of)?;
                write.put(POLICIES, &new.0.to_be_bytes(), &encode(&policy)).map_err(error_of)?;
            }
            policies.policies.insert(new, policy);
        }
        drop(policies);
        write.commit(Durability::Now).map_err(error_of)
    }
}
