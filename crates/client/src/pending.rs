//! What is pending, by file, for people and programs.
//! From: partially connected operation, section 6.3 (the replay log).

mod reasons;

pub use reasons::{HeldBack, WaitsFor};

use crate::asking::unexpected;
use crate::client::{Client, error_of};
use crate::line::{InLine, Line, Passing, Stands};
use crate::pace::eager_bytes;
use crate::passing::SHORTER_BY;
use crate::status::describe;
use crate::types::Error;
use model::{Change, FileId, Name, Update};
use protocol::{Class, Request, Response, Upstream};
use reasons::held_back;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::Containers;
use volume::partial::Tree;

/// Updates that are looked at at once: nobody waits for all of the log to be read.
const PAGE_UPDATES: usize = 1024;
/// How deep a directory is looked for.
const DEPTH_MAX: usize = 64;
/// So long the replica above may take to tell everybody: it waits for the leases of who is silent.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// The pending updates of a mount, by file, the file of the oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PendingLog {
    pub files: Vec<PendingFile>,
    /// Files with pending updates that are not among them.
    pub files_more: u64,
    pub updates: u64,
    /// Of contents without their holes, before anything is spared.
    pub bytes: u64,
    /// Of those, what the server has already.
    #[serde(default)]
    pub sent: u64,
    /// Of contents: what leaves until the last of it has, what goes before it included.
    #[serde(default)]
    pub upto: u64,
    /// Why nothing of it leaves just now.
    pub held_back: Option<HeldBack>,
    /// Bytes a second, as they went up the link lately.
    pub rate_up: Option<u64>,
}

/// What is pending of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingFile {
    pub file: u64,
    /// From the root of the volume. None: it has no name any more, or none that is known here.
    pub path: Option<String>,
    pub updates: u64,
    /// Of the contents that are stored, without their holes.
    pub bytes: u64,
    /// Of those, what the server has already.
    #[serde(default)]
    pub sent: u64,
    /// How long ago the oldest of its updates was made.
    pub oldest_secs: u64,
    /// The newest of them, in words.
    pub newest: String,
    /// Some of it has left, and the server has not answered yet.
    pub on_its_way: bool,
    #[serde(default)]
    pub waits_for: WaitsFor,
    /// As that of the log.
    #[serde(default)]
    pub upto: u64,
}

/// The file that an update is about.
fn subject(update: &Update) -> FileId {
    match &update.change {
        Change::Make { file, .. }
        | Change::Link { file, .. }
        | Change::Unlink { file, .. }
        | Change::Rename { file, .. }
        | Change::Store { file, .. }
        | Change::SetAttributes { file, .. }
        | Change::SetXattr { file, .. }
        | Change::RemoveXattr { file, .. } => *file,
    }
}

/// The name that an update gives its file, or takes from it.
fn name_in(update: &Update) -> Option<(FileId, Name)> {
    match &update.change {
        Change::Make { parent, name, .. }
        | Change::Link { parent, name, .. }
        | Change::Unlink { parent, name, .. } => Some((*parent, name.clone())),
        Change::Rename { to, to_name, .. } => Some((*to, to_name.clone())),
        _ => None,
    }
}

/// What is known of an update in the log.
struct Stood {
    /// None: nothing of it has left.
    sent: Option<u64>,
    waits_for: WaitsFor,
    upto: u64,
}

/// How an update was found, while the log could not change.
struct Looked {
    update: Update,
    sent: Option<u64>,
    left: u64,
    sure_at: Option<u64>,
    /// It stays for its age.
    is_young: bool,
}

impl Looked {
    fn waits_for(
        &self,
        stands: Stands,
        held_back: Option<&HeldBack>,
        delayed: &HeldBack,
    ) -> WaitsFor {
        match (held_back, stands) {
            // Nothing is on its way without a link.
            (Some(why @ (HeldBack::NoLink | HeldBack::Mode(_))), _) => {
                WaitsFor::HeldBack(why.clone())
            }
            _ if self.sent.is_some() => WaitsFor::Answer,
            (Some(why), _) => WaitsFor::HeldBack(why.clone()),
            (None, _) if self.is_young => WaitsFor::HeldBack(delayed.clone()),
            (None, Stands::Next) => WaitsFor::Turn,
            (None, Stands::Behind(first)) => WaitsFor::Behind { file: first.0, path: None },
        }
    }
}

/// Gathers updates by their files.
struct Gathering {
    files_max: usize,
    now_secs: i64,
    by_file: BTreeMap<FileId, usize>,
    files: Vec<(FileId, PendingFile)>,
    more: BTreeSet<FileId>,
    names: BTreeMap<FileId, (FileId, Name)>,
}

impl Gathering {
    fn new(files_max: usize, now_secs: i64) -> Gathering {
        Gathering {
            files_max,
            now_secs,
            by_file: BTreeMap::new(),
            files: Vec::new(),
            more: BTreeSet::new(),
            names: BTreeMap::new(),
        }
    }

    fn add(&mut self, update: &Update, stood: Stood) {
        let Stood { sent, waits_for, upto } = stood;
        let file = subject(update);
        let at = match self.by_file.get(&file) {
            Some(at) => *at,
            None if self.files.len() >= self.files_max => {
                self.more.insert(file);
                return;
            }
            None => {
                let oldest_secs =
                    u64::try_from(self.now_secs.saturating_sub(update.at.secs)).unwrap_or(0);
                self.files.push((
                    file,
                    PendingFile {
                        file: file.0,
                        path: None,
                        updates: 0,
                        bytes: 0,
                        sent: 0,
                        oldest_secs,
                        newest: String::new(),
                        on_its_way: false,
                        waits_for: WaitsFor::Turn,
                        upto: 0,
                    },
                ));
                self.by_file.insert(file, self.files.len() - 1);
                self.files.len() - 1
            }
        };
        if let Some(name) = name_in(update) {
            self.names.insert(file, name);
        }
        let told = &mut self.files[at].1;
        told.updates += 1;
        told.on_its_way |= sent.is_some();
        told.sent = told.sent.saturating_add(sent.unwrap_or(0));
        told.newest = describe(update);
        told.upto = told.upto.max(upto);
        match (&told.waits_for, waits_for) {
            // What is on its way is told of before what is not, and what is in the way before what is not.
            (WaitsFor::Turn, waits_for)
            | (WaitsFor::Behind { .. }, waits_for @ WaitsFor::Answer) => {
                told.waits_for = waits_for;
            }
            _ => {}
        }
        told.bytes = told.bytes.saturating_add(update.change.data());
    }
}

/// Where each file is, from the root of the volume; those of which no name is known are left out.
pub(crate) fn paths_of(
    tree: &Tree<'_>,
    files: &[FileId],
) -> Result<BTreeMap<FileId, String>, Error> {
    paths(files, BTreeMap::new(), |files| {
        tree.names_of(files).map_err(|error| Error::Failed(error.to_string()))
    })
}

/// Where each file is, by what is known of names; of directories on the way `look` is asked.
pub(crate) fn paths(
    files: &[FileId],
    mut names: BTreeMap<FileId, (FileId, Name)>,
    mut look: impl FnMut(&BTreeSet<FileId>) -> Result<BTreeMap<FileId, (FileId, Name)>, Error>,
) -> Result<BTreeMap<FileId, String>, Error> {
    let mut asked = BTreeSet::new();
    for _ in 0..DEPTH_MAX {
        let parents = names.values().map(|(parent, _)| *parent);
        let wanted: BTreeSet<FileId> = files
            .iter()
            .copied()
            .chain(parents)
            .filter(|file| *file != FileId::ROOT && !names.contains_key(file))
            .filter(|file| asked.insert(*file))
            .collect();
        if wanted.is_empty() {
            break;
        }
        names.extend(look(&wanted)?);
    }
    let path = |file: FileId| {
        let (mut at, mut parts) = (file, Vec::new());
        for _ in 0..=DEPTH_MAX {
            if at == FileId::ROOT {
                parts.reverse();
                return Some(parts.join("/"));
            }
            let (parent, name) = names.get(&at)?;
            parts.push(name.to_string());
            at = *parent;
        }
        None
    };
    Ok(files.iter().filter_map(|file| Some((*file, path(*file)?))).collect())
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What is pending, of at most so many files; of one file or directory, if one is given.
    pub fn pending_log(&self, of: Option<FileId>, files_max: usize) -> Result<PendingLog, Error> {
        let now = self.inner.world.clock.time().secs;
        let held_back = self.held_back();
        // Some may be young though the first is not.
        let delayed = self.delayed();
        let (mut gathering, mut from) = (Gathering::new(files_max, now), 0);
        let mut line = Line::new(self.passing_now());
        let (mut updates, mut bytes, mut sent, mut upto) = (0, 0, 0, 0);
        let mut firsts = BTreeSet::new();
        loop {
            let page = self.looked_from(from)?;
            let Some(last) = page.last() else { break };
            from = last.update.stamp.number + 1;
            for looked in &page {
                let Looked { update, left, sure_at, .. } = looked;
                let (left, sure_at) = (*left, *sure_at);
                let (stands, through) = line.stand(InLine { update, left, sure_at });
                if of.is_some_and(|file| !update.touches().contains(&file)) {
                    continue;
                }
                updates += 1;
                bytes += update.change.data();
                sent += looked.sent.unwrap_or(0);
                upto = upto.max(through);
                if let Stands::Behind(first) = stands {
                    firsts.insert(first);
                }
                let waits_for = looked.waits_for(stands, held_back.as_ref(), &delayed);
                gathering.add(update, Stood { sent: looked.sent, waits_for, upto: through });
            }
        }
        let Gathering { files, more, names, .. } = gathering;
        let wanted: Vec<FileId> = files.iter().map(|(file, _)| *file).chain(firsts).collect();
        let paths = paths(&wanted, names, |files| {
            let read = self.inner.tables.read().map_err(error_of)?;
            let found = Tree::new(&*read, 0).names_of(files);
            found.map_err(|error| Error::Failed(error.to_string()))
        })?;
        let tell = |(file, told): (FileId, PendingFile)| {
            let waits_for = match told.waits_for {
                WaitsFor::Behind { file, .. } => {
                    WaitsFor::Behind { file, path: paths.get(&FileId(file)).cloned() }
                }
                other => other,
            };
            PendingFile { path: paths.get(&file).cloned(), waits_for, ..told }
        };
        Ok(PendingLog {
            files: files.into_iter().map(tell).collect(),
            files_more: more.len() as u64,
            updates,
            bytes,
            sent,
            upto,
            held_back: held_back.filter(|_| updates > 0),
            rate_up: self.inner.upstream.quality().likely_up(),
        })
    }

    /// The next pending updates from a number on.
    fn looked_from(&self, from: u64) -> Result<Vec<Looked>, Error> {
        let delay = self.stays();
        let core = self.core();
        let page = core.log.pending_from(from, PAGE_UPDATES)?;
        let is_old = self.may_leave_now(&core, delay);
        let awaited = core.waiters.any_awaited();
        let look = |update: Update| {
            let number = update.stamp.number;
            let here = core.plans.ways.sent(number);
            Looked {
                sent: (core.plans.ways.has_begun(number) || core.log.is_submitted(number))
                    .then_some(here),
                left: update.change.data().saturating_sub(here),
                sure_at: core.log.sure_at(number),
                is_young: !delay.is_zero() && !awaited && !is_old(&update),
                update,
            }
        };
        Ok(page.into_iter().map(look).collect())
    }

    /// What passes the first contents of the log.
    fn passing_now(&self) -> Passing {
        let takes_any = self.connection().takes_any_ahead && self.inner.full.bytes_max().is_none();
        let quality = self.inner.upstream.quality();
        // Of a link of which nothing is known all may take long.
        let rate = quality.rate_up.or(quality.likely_up()).unwrap_or(0);
        let takes_long = self.inner.settings.passes_from.filter(|_| takes_any);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Passing {
            long_bytes: takes_long.map(|time| rate.saturating_mul(millis(time)) / 1000),
            eager_bytes: eager_bytes(&quality),
            shorter_by: SHORTER_BY,
        }
    }

    /// Waits until everybody who asked the replica above to be told has been told of all that it
    /// has taken. Unreachable where there is no link, or where it cannot say so.
    pub async fn visible(&self) -> Result<(), Error> {
        if !self.connection().tells {
            let why = "the server is an older one, or there has been no link to it yet";
            return Err(Error::Unreachable(why.into()));
        }
        let asked = self.ask_within(Class::Interactive, Request::Told, TOLD_WITHIN);
        match asked.await? {
            Response::Told(_) => Ok(()),
            other => Err(unexpected("told", &other)),
        }
    }

    /// Waits until all that was done before is on this machine's disk.
    pub async fn logged(&self) -> Result<(), Error> {
        let client = self.clone();
        self.off_the_runtime(move || client.sync_log()).await.map_err(error_of)
    }

    /// Why nothing that is pending leaves just now, if that is so.
    pub(crate) fn held_back(&self) -> Option<HeldBack> {
        let (trouble, any) = {
            let core = self.core();
            (core.setback.clone(), core.log.pending_len() > 0)
        };
        let why = held_back(&self.connection(), trouble).filter(|_| any);
        why.or_else(|| self.delays().map(|_| self.delayed()))
    }

    /// Why what is young stays.
    fn delayed(&self) -> HeldBack {
        match self.connection().stays_for_budget() {
            true => HeldBack::BudgetDelay,
            false => HeldBack::Delay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, ReplicaId, Stamp, Time};

    const NOW: i64 = 1000;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn update(number: u64, age: i64, change: Change) -> Update {
        let at = Time { secs: NOW - age, nanos: 0 };
        Update { stamp: Stamp::new(ReplicaId(1), number), uid: 0, at, change }
    }

    fn store(number: u64, age: i64, file: u64, size: u64) -> Update {
        let contents = Contents { size, root: None, holes: None };
        let (expects, mtime) = (Stamp::default(), Time { secs: 0, nanos: 0 });
        update(number, age, Change::Store { file: FileId(file), expects, contents, mtime })
    }

    #[test]
    fn updates_are_told_by_file_with_the_age_of_the_oldest() {
        let mut gathering = Gathering::new(2, NOW);
        let behind = || WaitsFor::Behind { file: 7, path: None };
        for (update, sent, waits_for, upto) in [
            (store(1, 50, 7, 10), Some(4), WaitsFor::Answer, 6),
            (store(2, 40, 8, 1), None, behind(), 7),
            (store(3, 30, 7, 20), None, behind(), 27),
            (store(4, 20, 9, 5), None, behind(), 32),
            (store(5, 10, 9, 5), None, behind(), 37),
        ] {
            gathering.add(&update, Stood { sent, waits_for, upto });
        }
        let waits: Vec<_> =
            gathering.files.iter().map(|(_, told)| (&told.waits_for, told.upto)).collect();
        assert_eq!(waits, [(&WaitsFor::Answer, 27), (&behind(), 7)]);
        let told: Vec<_> = gathering
            .files
            .iter()
            .map(|(file, told)| {
                let on_its_way = told.on_its_way.then_some(told.sent);
                (file.0, told.updates, told.bytes, told.oldest_secs, on_its_way)
            })
            .collect();
        assert_eq!(told, [(7, 2, 30, 50, Some(4)), (8, 1, 1, 40, None)]);
        assert_eq!(gathering.more.len(), 1, "one file more, whatever is pending of it");
    }

    #[test]
    fn what_an_update_waits_for_is_what_is_in_its_way_first() {
        let behind = Stands::Behind(FileId(7));
        let is_behind = WaitsFor::Behind { file: 7, path: None };
        let held = |why: &HeldBack| WaitsFor::HeldBack(why.clone());
        let (gone, paused, delay) = (HeldBack::NoLink, HeldBack::Paused, HeldBack::Delay);
        for (sent, is_young, held_back, stands, expected) in [
            (Some(0), false, None, behind, WaitsFor::Answer),
            (Some(9), false, Some(&gone), behind, held(&gone)),
            (Some(9), false, Some(&paused), behind, WaitsFor::Answer),
            (None, true, Some(&paused), behind, held(&paused)),
            (None, true, None, behind, held(&delay)),
            (None, false, None, behind, is_behind),
            (None, false, None, Stands::Next, WaitsFor::Turn),
        ] {
            let (update, left, sure_at) = (store(1, 0, 8, 10), 10, None);
            let looked = Looked { update, sent, left, sure_at, is_young };
            assert_eq!(looked.waits_for(stands, held_back, &delay), expected);
        }
    }

    #[test]
    fn paths_go_up_to_the_root_through_what_is_pending_and_what_is_known() {
        let in_log = BTreeMap::from([(FileId(9), (FileId(8), name("new")))]);
        let known = BTreeMap::from([
            (FileId(8), (FileId(7), name("inner"))),
            (FileId(7), (FileId::ROOT, name("outer"))),
        ]);
        let mut asked = Vec::new();
        let look = |wanted: &BTreeSet<FileId>| {
            asked.push(wanted.len());
            let found = wanted.iter().filter_map(|file| Some((*file, known.get(file)?.clone())));
            Ok(found.collect())
        };
        let files = [FileId(9), FileId(5), FileId::ROOT];
        let paths = paths(&files, in_log, look).unwrap();
        assert_eq!(paths[&FileId(9)], "outer/inner/new");
        assert_eq!(paths.get(&FileId(5)), None, "it has no name");
        assert_eq!(paths[&FileId::ROOT], "");
        assert_eq!(asked, [2, 1], "what was not found is not looked for again");
    }
}
