//! Getting what a call lacks.
//! Holds: what several callers lack at once is asked for once; every wait has a bound.

use crate::asking::unexpected;
use crate::client::{Client, error_of};
use crate::failures::of_missing;
use crate::mode;
use crate::part::Wanting;
use crate::policies::Said;
use crate::quota::Told;
use crate::ranks::{self, Rank, Ranked};
use crate::room::Wanted;
use crate::types::{Error, Need, Step, Stop};
use model::{FileId, Kind, Name, View};
use protocol::{Class, NodeState, Request, Response, States, Upstream};
use std::collections::BTreeSet;
use std::time::Duration;
use store::Containers;
use tokio::sync::oneshot;
use volume::partial::{self, Missing, Tree};

/// How often a call is tried before it is given up: more needs than any call has.
const TRIES_MAX: usize = 4096;
/// So long whoever lacks a descriptor waits before the next try.
const DESCRIPTOR_PAUSE: Duration = Duration::from_secs(1);
/// Entries of the first listing after a pause, and of the largest.
const LIST_ENTRIES_FIRST: u32 = 256;
const LIST_ENTRIES_MAX: u32 = 8192;
/// Listings that follow each other within this are a walk, and ask for more each time.
const WALK_PAUSE_MAX: Duration = Duration::from_secs(3);
/// Directories that a walk asks for beside the one it is at, and entries that are looked at for it.
const ALSO_MAX: usize = 256;
const BESIDE_MAX: usize = 1024;
/// Pages of one directory: a million entries, and then some.
const PAGES_MAX: usize = 1 << 16;

/// Tries, gets what is missing, and tries again.
pub async fn complete<U: Upstream, C: Containers, T>(
    client: &Client<U, C>,
    mut attempt: impl FnMut(&Client<U, C>) -> Step<T>,
) -> Result<T, Error> {
    let begun = client.inner.world.clock.moment();
    for _ in 0..TRIES_MAX {
        match attempt(client) {
            Ok(value) => return Ok(value),
            Err(Stop::Error(error)) => return Err(error),
            // Contents are waited for as long as the link takes to carry them, and what was taken
            // from a program already for as long as it takes.
            Err(Stop::Need(
                need @ (Need::Contents { .. }
                | Need::Ground { .. }
                | Need::Sound { .. }
                | Need::Verdict(_)
                | Need::Descriptor),
            )) => client.satisfy(need).await?,
            Err(Stop::Need(need)) => client.bounded(begun, client.satisfy(need)).await?,
        }
    }
    Err(Error::Failed("the call needs more and more, and was given up".into()))
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// Gets what a call lacks, within the bound of the settings.
    pub async fn satisfy(&self, need: Need) -> Result<(), Error> {
        let Some(_flight) = self.take_off(&need).await else { return Ok(()) };
        let checked = mode::validates(self.connection().mode);
        let begun = self.inner.world.clock.moment();
        // Who fetches contents makes room for them.
        let learns = !matches!(need, Need::Contents { .. } | Need::Ground { .. });
        let version = need.version();
        match self.get(need).await {
            // Who wanted it goes on with another version, and looks again.
            Err(Error::BadHandle) if version.is_some_and(|version| !self.is_open(version)) => {
                Ok(())
            }
            // On a full disk nothing can be learnt before something leaves the cache. Then the next
            // try finds room.
            Err(Error::DiskFull) if learns => {
                match self.make_room_aside(Wanted::Disk(0), None).await {
                    true => Ok(()),
                    false => Err(Error::DiskFull),
                }
            }
            // The next try asks again, over the next session.
            Err(Error::Retry) => self.attached_again(begun).await,
            // The link has gone meanwhile: what is cached may do now.
            Err(Error::Unreachable(_)) if checked && !mode::validates(self.connection().mode) => {
                Ok(())
            }
            outcome => outcome,
        }
    }

    pub(crate) fn is_open(&self, (file, generation): (FileId, u32)) -> bool {
        self.files().get(file, generation).is_some()
    }

    pub(crate) async fn get(&self, need: Need) -> Result<(), Error> {
        match need {
            Need::Volume => self.attached().await,
            Need::Lease => self.renew().await,
            Need::Totals => self.get_totals().await,
            Need::Pending => self.show_hidden().await,
            Need::Node(file) => self.inspect(vec![file], Vec::new()).await,
            Need::Listed(file) => self.get_for_listing(file).await,
            Need::Directory(directory) => {
                self.get_directory(directory, None, Class::Interactive).await
            }
            Need::Entry(directory, name) => {
                self.get_directory(directory, Some(name), Class::Interactive).await
            }
            Need::Contents { file, generation, offset, length } => {
                let fetched = self.fetch(file, generation, offset, length).await;
                if matches!(fetched, Err(Error::Unreachable(_))) {
                    self.note_out_of_reach(file);
                }
                fetched
            }
            Need::Readable { file, generation, offset, length } => {
                self.let_unreadable_go((file, generation), (offset, length)).await
            }
            // It is rare, and what it keeps on the way is much.
            Need::Sound { file, generation } => Box::pin(self.make_sound(file, generation)).await,
            Need::Ground { file, generation, recipe, bytes } => {
                self.fetch_ground(file, generation, Wanting { recipe, bytes }).await
            }
            Need::Holes { file, generation, offset } => {
                self.learn_holes(file, generation, offset).await
            }
            Need::Root { file, generation } => self.learn_root(file, generation).await,
            Need::Verdict(number) => {
                self.unwaited(number).await;
                Ok(())
            }
            Need::Descriptor => {
                self.inner.world.clock.sleep(DESCRIPTOR_PAUSE).await;
                Ok(())
            }
        }
    }

    /// The first to lack something gets it; the others wait until it has it, and look again.
    async fn take_off(&self, need: &Need) -> Option<Flight<'_, U, C>> {
        let others = {
            let mut flights = self.flights();
            match flights.get_mut(need) {
                None => {
                    flights.insert(need.clone(), Vec::new());
                    None
                }
                Some(waiting) => {
                    let (sender, receiver) = oneshot::channel();
                    waiting.push(sender);
                    Some(receiver)
                }
            }
        };
        match others {
            None => Some(Flight { client: self, need: need.clone() }),
            Some(landed) => {
                // However the flight ended, the call has to look for itself.
                let _ = landed.await;
                None
            }
        }
    }

    pub(crate) fn flights(
        &self,
    ) -> Ranked<'_, std::collections::BTreeMap<Need, Vec<oneshot::Sender<()>>>> {
        ranks::lock(Rank::Flights, &self.inner.flights)
    }

    async fn get_totals(&self) -> Result<(), Error> {
        let answer = self.ask(Class::Interactive, Request::Measure).await;
        if let (Err(Error::Unreachable(_) | Error::TimedOut(_)), Some(told)) =
            (&answer, &mut self.core().totals)
        {
            // As without a link, the last known will do.
            told.at = self.inner.world.clock.moment();
            return Ok(());
        }
        match answer? {
            Response::Measured(totals) => {
                let at = self.inner.world.clock.moment();
                let mut core = self.core();
                let used = core.meta.allowance.as_ref().map(|said| said.used);
                core.totals = Some(Told { totals, at, used });
                Ok(())
            }
            other => Err(unexpected("measure", &other)),
        }
    }

    pub(crate) async fn inspect(
        &self,
        nodes: Vec<FileId>,
        entries: Vec<(FileId, Name)>,
    ) -> Result<(), Error> {
        self.inspect_as(Class::Interactive, nodes, entries).await
    }

    pub(crate) async fn inspect_as(
        &self,
        class: Class,
        nodes: Vec<FileId>,
        entries: Vec<(FileId, Name)>,
    ) -> Result<(), Error> {
        let request = Request::Inspect { nodes, entries };
        let asked = self.asking();
        match self.ask(class, request).await? {
            Response::Inspected(states) => {
                let changed = {
                    let mut core = self.core();
                    self.take_in(&mut core, (&states, asked), None, true)?
                };
                self.forget(&changed);
                Ok(())
            }
            other => Err(unexpected("inspect", &other)),
        }
    }

    /// Lists a directory, all of it, or until `name` is known.
    pub(crate) async fn get_directory(
        &self,
        directory: FileId,
        name: Option<Name>,
        class: Class,
    ) -> Result<(), Error> {
        let mut after: Option<Name> = None;
        // All pages are of one epoch, or it counts as one that is not all known.
        let asked = self.asking();
        for _ in 0..PAGES_MAX {
            let entries_max = self.entries_to_list();
            let request = Request::List {
                directory,
                after: after.clone(),
                entries_max,
                deep: after.is_none(),
                also: (after.is_none() && entries_max > LIST_ENTRIES_FIRST)
                    .then(|| self.next_on_a_walk(directory)),
            };
            let listing = match self.ask(class, request).await {
                Ok(Response::Listing(listing)) => listing,
                // It is gone: say so by its node, which the call will look at next.
                Err(Error::Objection(_)) => return self.inspect_gone(directory, name).await,
                Ok(other) => return Err(unexpected("list", &other)),
                Err(error) => return Err(error),
            };
            let first = listing.directories.first().filter(|first| first.directory == directory);
            let Some(first) = first else {
                return Err(Error::Failed("the server listed another directory".into()));
            };
            let (complete, last) = (first.complete, first.entries.last().cloned());
            self.take_listing((&listing, asked), after.as_ref())?;
            if complete {
                return Ok(());
            }
            let Some((last, _)) = last else {
                return Err(Error::Failed("the server listed nothing of a directory".into()));
            };
            if after.as_ref().is_some_and(|after| last <= *after) {
                return Err(Error::Failed("the server lists a directory in circles".into()));
            }
            // One name of a large directory is asked for by itself.
            if let Some(name) = name {
                return self.inspect(vec![], vec![(directory, name)]).await;
            }
            after = Some(last);
        }
        Err(Error::Failed(format!("directory {directory} has too many entries")))
    }

    /// The directories beside this one that are not known yet, in the order in which a walk
    /// comes to them.
    fn next_on_a_walk(&self, directory: FileId) -> Vec<FileId> {
        let siblings = self.view(|tree| {
            let node = tree.node(directory)?;
            let Some(parent) = node.and_then(|node| node.parent) else { return Ok(Vec::new()) };
            let name = self.ahead().name_in(parent, directory).cloned();
            unknown_beside(tree, parent, directory, name.as_ref())
        });
        // What is not known of the parent costs the walk a round trip, and nothing else.
        siblings.unwrap_or_default()
    }

    async fn inspect_gone(&self, directory: FileId, name: Option<Name>) -> Result<(), Error> {
        let entries = name.into_iter().map(|name| (directory, name)).collect();
        self.inspect(vec![directory], entries).await?;
        // A directory that is gone has no entries.
        Err(Error::Objection(protocol::Objection::NoEntry))
    }

    fn take_listing(
        &self,
        (listing, epoch): (&protocol::Listing, u32),
        after: Option<&Name>,
    ) -> Result<(), Error> {
        let changed = {
            let mut core = self.core();
            let taking = {
                let read = self.inner.tables.read().map_err(error_of)?;
                self.taking(&*read, &Said::listing(listing), true)?
            };
            let shows = |state: &&NodeState| !taking.hold.nodes.contains(&state.file);
            self.expect(listing.nodes.iter().filter(shows))?;
            let mut write = self.inner.tables.write().map_err(error_of)?;
            let mut changed =
                partial::take_listing_but(&mut *write, listing, after, epoch, &taking.hold)
                    .map_err(of_missing)?;
            self.note_taking(&mut *write, &taking)?;
            changed.extend(taking.changed());
            self.inner.untold.note_listing(listing);
            let nodes = listing.nodes.iter().map(|state| state.file);
            let listed = listing.directories.iter().map(|listed| listed.directory);
            // What is listed is there.
            let going = self.going_fresh(&*write, &taking)?;
            let learnt = nodes.chain(listed);
            changed.extend(self.commit_learnt(&mut core, write, learnt, (None, None), going)?);
            self.taking_noted(taking);
            changed
        };
        // Directories that the kernel asks for now cannot be in its cache.
        let listed: BTreeSet<FileId> =
            listing.directories.iter().map(|listed| listed.directory).collect();
        let stale: Vec<_> = changed
            .into_iter()
            .filter(|change| match change {
                partial::Changed::Node { file, .. } => !listed.contains(file),
                partial::Changed::Entry(..) => true,
            })
            .collect();
        self.forget(&stale);
        Ok(())
    }

    /// A walk asks for more at each step; after a pause, for little again.
    fn entries_to_list(&self) -> u32 {
        let now = self.inner.world.clock.moment();
        let mut connection = self.connection();
        let walking = connection.listed_at.is_some_and(|at| now.since(at) < WALK_PAUSE_MAX);
        connection.list_entries_max = if walking {
            (connection.list_entries_max * 2).clamp(LIST_ENTRIES_FIRST, LIST_ENTRIES_MAX)
        } else {
            LIST_ENTRIES_FIRST
        };
        connection.listed_at = Some(now);
        connection.list_entries_max
    }
}

/// The directories beside one that are not known, from that one on. `name`: by which it was seen;
/// where there is more beside it than is looked at, what comes after that.
fn unknown_beside(
    tree: &Tree<'_>,
    parent: FileId,
    directory: FileId,
    name: Option<&Name>,
) -> Result<Vec<FileId>, Missing> {
    if !tree.is_complete(parent)? {
        return Ok(Vec::new());
    }
    let mut beside = tree.stretch(parent, None, BESIDE_MAX)?;
    if beside.more && name.is_some() {
        beside = tree.stretch(parent, name, BESIDE_MAX)?;
    }
    let entries = beside.entries;
    let here = entries.iter().position(|(_, file)| *file == directory).unwrap_or(0);
    let (before, after) = entries.split_at(here);
    let mut unknown = Vec::new();
    for (_, file) in after.iter().chain(before) {
        let is_directory = |node: model::Node| node.kind == Kind::Directory;
        if *file != directory
            && tree.node(*file)?.is_some_and(is_directory)
            && !tree.is_complete(*file)?
        {
            unknown.push(*file);
            if unknown.len() == ALSO_MAX {
                break;
            }
        }
    }
    Ok(unknown)
}

/// The files that states speak of.
pub(crate) fn files_of(states: &States) -> impl Iterator<Item = FileId> {
    let nodes = states.nodes.iter().map(|state| state.file);
    nodes.chain(states.entries.iter().map(|state| state.directory))
}

/// Something is being got. Whoever waits for it is woken when this is dropped.
struct Flight<'a, U: Upstream, C: Containers> {
    client: &'a Client<U, C>,
    need: Need,
}

impl<U: Upstream, C: Containers> Drop for Flight<'_, U, C> {
    fn drop(&mut self) {
        let waiting = self.client.flights().remove(&self.need).unwrap_or_default();
        for waiter in waiting {
            // Who does not wait any more need not be told.
            let _ = waiter.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Node, Seq, Time};
    use protocol::{Listed, Listing};
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    /// The directories of one, by their numbers, as they are known from its listing.
    fn listed(names: &[Name]) -> MemoryTables {
        let tables = MemoryTables::default();
        let node = |file| {
            let node =
                Node { parent: Some(FileId::ROOT), ..Node::root_directory(0, 0, Time::default()) };
            NodeState { file, seq: Seq(1), node: Some(node) }
        };
        let entries: Vec<_> = names.iter().cloned().zip((100..).map(FileId)).collect();
        let nodes = entries.iter().map(|(_, file)| node(*file)).collect();
        let directories = vec![Listed { directory: FileId::ROOT, entries, complete: true }];
        let listing = Listing { as_of: Seq(1), directories, nodes };
        let mut write = tables.write().unwrap();
        partial::take_listing(&mut *write, &listing, None, 1).unwrap();
        write.commit(Durability::Later).unwrap();
        tables
    }

    #[test]
    fn a_walk_asks_for_what_comes_next_beside_and_looks_at_no_more() {
        let names = |count: u64| -> Vec<Name> {
            (0..count).map(|number| Name::new(format!("{number:05}")).unwrap()).collect()
        };
        let beside = |count: u64, at: usize, is_named: bool| {
            let names = names(count);
            let tables = listed(&names);
            let read = tables.read().unwrap();
            let (tree, directory) = (Tree::new(&*read, 1), FileId(100 + at as u64));
            let name = is_named.then_some(&names[at]);
            let found = unknown_beside(&tree, FileId::ROOT, directory, name).unwrap();
            found.iter().map(|file| file.0 - 100).collect::<Vec<_>>()
        };
        assert_eq!(beside(4, 2, false), [3, 0, 1]);
        let many = 4 * BESIDE_MAX;
        let next = many - 10;
        assert_eq!(beside(many as u64, next, true).len(), 9, "and none of what comes before");
        assert_eq!(
            beside(many as u64, 1500, true),
            (1501..1501 + ALSO_MAX as u64).collect::<Vec<_>>()
        );
        assert_eq!(beside(many as u64, 1500, false)[0], 0, "what is known of it");
    }
}
