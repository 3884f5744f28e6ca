//! Bringing what is not current up to date: beside what shows, which goes on until all of the
//! current version is here, or until it is not good enough any more.
//! Holds: what comes is checked as what somebody waits for is, and yields to all else; nobody is
//! shown a version before all of it is here that he could do without until then.

use super::{Consistency, Stale};
use crate::client::{Client, error_of};
use crate::failures::of_missing;
use crate::fetch::Target;
use crate::files::Held;
use crate::pins::lacks;
use crate::presence::Presence;
use crate::room::Wanted;
use crate::together::{Gathering, Small};
use crate::types::{Error, Found, Step};
use model::{FileId, Kind, Node};
use protocol::{Class, Range, Upstream};
use std::collections::BTreeMap;
use std::time::Duration;
use store::Containers;
use volume::partial::Tree;
use world::Moment;

/// How often it is looked what is not good enough any more.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What was changed is brought when it has rested so many seconds, or when half of its time is over.
const RESTS_FOR_SECS: i64 = 2;
/// What could not be brought is tried again after so long.
const TRIED_EVERY: Duration = Duration::from_secs(30);

/// What becomes of a file that is not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It goes on as it is.
    Stays,
    /// The current version is brought, and it goes on meanwhile.
    IsBrought,
    /// It shows as it is by now.
    ShowsNow,
}

/// What has to be fetched before a file can show as it is by now.
enum Lack {
    /// The file that has its name by now, as far as it is known.
    Other(FileId, Option<Node>),
    /// Another version of it.
    Beside(Node),
}

/// `good`: what shows is good enough. `rested`: seconds since it was last told of. `asked`: the user
/// wants what is current.
fn next(good: bool, wanted: Consistency, rested: i64, age: Option<u64>, asked: bool) -> Next {
    let late = |secs: u32| age.is_none_or(|age| age >= u64::from(secs) / 2);
    match wanted {
        _ if !good => Next::ShowsNow,
        _ if asked => Next::IsBrought,
        Consistency::Bounded(secs) if rested >= RESTS_FOR_SECS || late(secs) => Next::IsBrought,
        _ => Next::Stays,
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Looks after what is not current, until `shut_down`.
    pub(crate) async fn run_policies(&self) {
        let mut tried: BTreeMap<FileId, Moment> = BTreeMap::new();
        while !self.is_stopping() {
            tokio::select! {
                biased;
                () = self.inner.keeping.choosing.wanted.notified() => {}
                () = self.inner.world.clock.sleep(LOOK_EVERY) => {}
                () = self.until_stopping() => break,
            }
            if let Err(error) = self.tell_patience().await {
                tracing::debug!(%error, "it is not known whether others wait for this client");
            }
            if !self.inner.keeping.choosing.is_stale() {
                tried.clear();
                self.policies().alone.clear();
                continue;
            }
            let brought = match self.look_at_stale() {
                Ok(brought) => brought,
                Err(error) => {
                    tracing::debug!(%error, "what is not current could not be looked at");
                    continue;
                }
            };
            let now = self.inner.world.clock.moment();
            tried.retain(|_, at| now.since(*at) < TRIED_EVERY);
            let due: Vec<FileId> =
                brought.into_iter().filter(|file| !tried.contains_key(file)).collect();
            if due.is_empty() || !self.may_keep_pins() {
                continue;
            }
            // Whatever comes of it, these are looked at again later: what has come is not stale.
            match self.bring_some(&due).await {
                Ok(files) => tried.extend(files.into_iter().map(|file| (file, now))),
                Err(error) => {
                    tracing::debug!(%error, "what is not current did not come");
                    tried.extend(due.into_iter().map(|file| (file, now)));
                }
            }
            self.inner.keeping.choosing.look();
        }
    }

    /// Before a file is looked at or opened: shows it as it is by now, where what shows is not good
    /// enough any more. Says whether it did.
    pub(crate) fn look_before(&self, file: FileId) -> Step<bool> {
        if !self.inner.keeping.choosing.is_stale() {
            return Ok(false);
        }
        let stale = self.policies().stale.get(&file).cloned();
        let found = stale.map(|stale| self.next_of(file, &stale)).transpose()?;
        if found != Some(Next::ShowsNow) {
            return Ok(false);
        }
        self.show_current(&[file])?;
        Ok(true)
    }

    /// Finds the file of a name, anew if what was found first is not good enough any more.
    /// `is_known`: the kernel has what was found.
    pub(crate) fn look_and_find(
        &self,
        is_known: bool,
        find: impl Fn() -> Step<Option<Found>>,
    ) -> Step<Option<Found>> {
        let first = find()?;
        match &first {
            Some(Found { file, .. }) if self.look_before(*file)? => {
                if is_known {
                    self.forgotten(*file, 1);
                }
                find()
            }
            _ => Ok(first),
        }
    }

    /// Lets go what is not good enough any more. Gives what is to be brought, in that order.
    fn look_at_stale(&self) -> Result<Vec<FileId>, Error> {
        let stale: Vec<(FileId, Stale)> = {
            let policies = self.policies();
            policies.stale.iter().map(|(file, stale)| (*file, stale.clone())).collect()
        };
        let (mut shown, mut brought) = (Vec::new(), Vec::new());
        for (file, stale) in stale {
            match self.next_of(file, &stale)? {
                Next::Stays => {}
                Next::IsBrought => {
                    let asked = self.policies().wanted.contains(&file);
                    brought.push((!asked, stale.current, file));
                }
                Next::ShowsNow => shown.push(file),
            }
        }
        self.show_current(&shown)?;
        brought.sort_unstable();
        Ok(brought.into_iter().map(|(_, _, file)| file).collect())
    }

    fn next_of(&self, file: FileId, stale: &Stale) -> Result<Next, Error> {
        let mode = self.connection().mode;
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        let held = tree.held(file).map_err(of_missing)?;
        // What is changed here is judged by the replica above.
        let Some(node) = tree.settled_file(file).map_err(of_missing)? else {
            return Ok(if held.is_some() { Next::Stays } else { Next::ShowsNow });
        };
        match stale.entry() {
            Some((directory, name)) => {
                let still = tree.settled_entry(directory, &name).map_err(of_missing)?;
                if still != Some(file) {
                    return Ok(Next::ShowsNow);
                }
            }
            None if held.is_none() => return Ok(Next::ShowsNow),
            None => {}
        }
        let counts = self.counts_for(&*read, file)?;
        let good = self.suffices_now(&*read, (file, &node), stale, (counts, mode))?;
        let now = self.inner.world.clock.time().secs;
        let asked = self.policies().wanted.contains(&file);
        Ok(next(good, counts.consistency, now.saturating_sub(stale.told), stale.age(now), asked))
    }

    /// What has to be fetched for a file to show as it is by now.
    fn lacks_to_show(&self, file: FileId) -> Result<Option<Lack>, Error> {
        let Some(stale) = self.policies().stale.get(&file).cloned() else { return Ok(None) };
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        if let Some((directory, name)) = stale.entry() {
            let other = tree.held_entry(directory, &name).map_err(of_missing)?;
            let Some(other) = other else { return Ok(None) };
            let node = tree.said(other).map_err(of_missing)?;
            let row = Presence::load(&*read, other).map_err(error_of)?;
            return Ok(match node {
                Some(node) if lacks(&node, row.as_ref()) == 0 => None,
                node => Some(Lack::Other(other, node)),
            });
        }
        let held = tree.held(file).map_err(of_missing)?.and_then(|held| held.node);
        let held = held.filter(|node| node.kind == Kind::File && node.contents.size > 0);
        Ok(held.map(Lack::Beside))
    }

    /// Fetches the first of these, with others if they are small, and shows them as they are by now.
    /// Gives those of which that could not be done.
    async fn bring_some(&self, files: &[FileId]) -> Result<Vec<FileId>, Error> {
        let batch = self.bounds().batch;
        let (mut gathering, mut shown) = (Gathering::default(), Vec::new());
        let (mut beside, mut large) = (BTreeMap::new(), None);
        for file in files {
            let Some(lack) = self.lacks_to_show(*file)? else {
                shown.push(*file);
                continue;
            };
            let Some((wanted, node)) = self.small_of(*file, &lack)? else {
                large.get_or_insert((*file, lack));
                continue;
            };
            // Each of those that come together has a container open.
            let has_place = beside.is_empty() || self.inner.containers.has_place();
            if !has_place || !gathering.has_room(&node, batch) {
                break;
            }
            let held = match lack {
                Lack::Other(..) => None,
                Lack::Beside(_) => match self.begin_beside(*file, &node)? {
                    Some(held) => Some(held),
                    // What is written to it is judged by the replica above.
                    None => {
                        shown.push(*file);
                        continue;
                    }
                },
            };
            let generation = held.as_ref().and_then(Held::generation).unwrap_or(u32::MAX);
            gathering.add(Small { file: wanted, generation, node }, batch);
            beside.insert(*file, (wanted, held));
        }
        let here = match gathering.files.is_empty() {
            true => Vec::new(),
            false => self.bring_together(gathering.files).await?,
        };
        let came = beside.iter().filter(|(_, (wanted, _))| here.contains(wanted));
        shown.extend(came.map(|(file, _)| *file));
        self.show_brought(&shown)?;
        let not_here = beside.values().map(|(wanted, _)| *wanted);
        self.policies().alone.extend(not_here.filter(|wanted| !here.contains(wanted)));
        match large {
            Some((file, lack)) if beside.is_empty() && shown.is_empty() => {
                let is_here = self.bring_alone_current(file, lack).await?;
                Ok((!is_here).then_some(file).into_iter().collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// What is to be fetched, if it is small enough to come with others.
    fn small_of(&self, file: FileId, lack: &Lack) -> Result<Option<(FileId, Node)>, Error> {
        let (wanted, node) = match lack {
            Lack::Other(_, None) => return Ok(None),
            Lack::Other(other, Some(node)) => (*other, node),
            Lack::Beside(node) => (file, node),
        };
        let is_tried = self.policies().alone.contains(&wanted);
        let row = self.row_of(wanted)?;
        let small = !is_tried && self.is_small(node, row.as_ref(), &self.bounds());
        Ok(small.then(|| (wanted, node.clone())))
    }

    /// Fetches what one file lacks, and shows it as it is by now. False: there is no room for it, or
    /// it has changed again.
    async fn bring_alone_current(&self, file: FileId, lack: Lack) -> Result<bool, Error> {
        let held = match lack {
            Lack::Other(other, _) => {
                let is_here = self.bring_pinned(other).await?;
                let full = !is_here && self.pins().is_full();
                self.note_cramped(file, full);
                if !is_here {
                    return Ok(false);
                }
                None
            }
            Lack::Beside(node) => match self.bring_beside(file, &node).await? {
                Some((held, true)) => Some(held),
                Some((_, false)) => return Ok(false),
                None => None,
            },
        };
        self.show_brought(&[file])?;
        drop(held);
        Ok(true)
    }

    fn note_cramped(&self, file: FileId, full: bool) {
        let mut policies = self.policies();
        match full {
            true => policies.cramped.insert(file),
            false => policies.cramped.remove(&file),
        };
    }

    /// Shows files as they are by now. What was fetched for that takes the place of what was here.
    fn show_brought(&self, files: &[FileId]) -> Result<(), Error> {
        self.show_current(files)?;
        for file in files {
            match self.hold(*file, u32::MAX) {
                Ok(_) | Err(Error::Objection(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Fetches a version that does not show yet into a container of its own, and says whether all of
    /// it is here. None: nothing has to be fetched for it.
    async fn bring_beside(
        &self,
        file: FileId,
        node: &Node,
    ) -> Result<Option<(Held<'_, U, C>, bool)>, Error> {
        let Some(held) = self.begin_beside(file, node)? else { return Ok(None) };
        let Some(generation) = held.generation() else { return Ok(Some((held, false))) };
        let mut before = None;
        loop {
            let is_still_wanted = self.policies().stale.contains_key(&file);
            let Some(fetching) =
                self.files().get(file, generation).map(|open| open.fetching.clone())
            else {
                return Ok(Some((held, false)));
            };
            let _alone = fetching.write().await;
            let secret = self.secret().0;
            let (target, size, (from, to)) = {
                let files = self.files();
                let Some(open) = files.get(file, generation) else {
                    return Ok(Some((held, false)));
                };
                let size = open.presence.contents.size;
                let Some(&lacking) = open.presence.absent(0, size).first() else {
                    return Ok(Some((held, true)));
                };
                (Target::of(file, open, secret), size, lacking)
            };
            if before == Some(from) || !is_still_wanted || !self.may_keep_pins() {
                return Ok(Some((held, false)));
            }
            before = Some(from);
            let length = (to - from).min(self.window_most().max(1));
            self.make_room_aside(Wanted::Room(length), Some((file, generation))).await;
            let full = self.room_lacks(length)? > 0;
            self.note_cramped(file, full);
            if full {
                return Ok(Some((held, false)));
            }
            let target = Target { class: Class::Prefetch, ..target };
            self.fetch_range(&target, size, Range { offset: from, length }).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_good_enough_shows_at_once_and_the_rest_is_brought_as_the_policy_says() {
        use Consistency::{Bounded, Manual};
        for (good, wanted, rested, age, asked, then) in [
            (false, Manual, 0, None, true, Next::ShowsNow),
            (false, Bounded(10), 9, Some(10), false, Next::ShowsNow),
            (true, Manual, 99, None, false, Next::Stays),
            (true, Manual, 0, None, true, Next::IsBrought),
            (true, Bounded(60), 0, Some(1), false, Next::Stays),
            (true, Bounded(60), 2, Some(2), false, Next::IsBrought),
            (true, Bounded(60), 0, Some(30), false, Next::IsBrought),
            (true, Bounded(60), 0, Some(1), true, Next::IsBrought),
        ] {
            let found = next(good, wanted, rested, age, asked);
            assert_eq!(found, then, "{good} {wanted:?} {rested} {age:?} {asked}");
        }
    }
}
