//! What is pending, by file, for people and programs.
//! From: partially connected operation, section 6.3 (the replay log).

use crate::asking::unexpected;
use crate::client::{Client, error_of};
use crate::connection::Connection;
use crate::delay::DELAY_ON_BUDGET;
use crate::mode;
use crate::status::describe;
use crate::types::Error;
use model::{Change, FileId, Name, Update};
use protocol::{Class, Mode, Request, Response, Upstream};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
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
    /// Of contents, before anything is spared.
    pub bytes: u64,
    /// Of those, what the server has already.
    #[serde(default)]
    pub sent: u64,
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
    /// Of the contents that are stored.
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
}

/// Why nothing that is pending leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBack {
    NoLink,
    /// By the mode that was set.
    Mode(Mode),
    Paused,
    /// The month's budget is spent.
    Budget,
    /// It stays for a while, that it may be cancelled.
    Delay,
    /// The same because the link has a budget.
    BudgetDelay,
    /// It was sent and not taken, for this reason.
    Trouble(String),
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldBack::NoLink => write!(f, "there is no link to the server"),
            HeldBack::Mode(Mode::FetchOnly) => write!(f, "the mode fetch-only was set"),
            HeldBack::Mode(_) => write!(f, "the mode disconnected was set"),
            HeldBack::Paused => write!(f, "sending is paused: `farfs resume` goes on"),
            HeldBack::Budget => write!(
                f,
                "the month's budget of the link is spent: `farfs resume` goes on all the same"
            ),
            HeldBack::Delay => write!(f, "it is younger than --replay-delay"),
            HeldBack::BudgetDelay => write!(
                f,
                "it is younger than {} min, and the link has a budget: what is removed or written \
                 over by then costs nothing (`farfs limit --replay-delay`)",
                DELAY_ON_BUDGET.as_secs() / 60
            ),
            HeldBack::Trouble(why) => write!(f, "{why}"),
        }
    }
}

fn held_back(connection: &Connection, trouble: Option<String>) -> Option<HeldBack> {
    if connection.paused {
        return Some(HeldBack::Paused);
    }
    if connection.holds_back() {
        return Some(HeldBack::Budget);
    }
    if !connection.attached && !connection.left {
        return Some(HeldBack::NoLink);
    }
    if !mode::replays(connection.mode) {
        return Some(HeldBack::Mode(connection.mode));
    }
    trouble.map(HeldBack::Trouble)
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

    /// `sent`: None: nothing of it has left.
    fn add(&mut self, update: &Update, sent: Option<u64>) {
        let file = subject(update);
        let at = match self.by_file.get(&file) {
            Some(at) => *at,
            None if self.files.len() >= self.files_max => {
                self.more.insert(file);
                return;
            }
            None => {
                let oldest_secs = u64::try_from(self.now_secs - update.at.secs).unwrap_or(0);
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
        if let Change::Store { contents, .. } = &update.change {
            told.bytes = told.bytes.saturating_add(contents.size);
        }
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
        let (mut gathering, mut from) = (Gathering::new(files_max, now), 0);
        let (mut updates, mut bytes, mut sent) = (0, 0, 0);
        loop {
            let core = self.core();
            let page = core.log.pending_from(from, PAGE_UPDATES)?;
            let Some(last) = page.last() else { break };
            from = last.stamp.number + 1;
            for update in &page {
                if of.is_some_and(|file| !update.touches().contains(&file)) {
                    continue;
                }
                updates += 1;
                if let Change::Store { contents, .. } = &update.change {
                    bytes += contents.size;
                }
                let number = update.stamp.number;
                let here = core.plans.ways.sent(number);
                sent += here;
                let has_left = here > 0 || core.log.is_submitted(number);
                gathering.add(update, has_left.then_some(here));
            }
        }
        let Gathering { files, more, names, .. } = gathering;
        let wanted: Vec<FileId> = files.iter().map(|(file, _)| *file).collect();
        let paths = paths(&wanted, names, |files| {
            let read = self.inner.tables.read().map_err(error_of)?;
            let found = Tree::new(&*read, 0).names_of(files);
            found.map_err(|error| Error::Failed(error.to_string()))
        })?;
        let tell = |(file, told)| PendingFile { path: paths.get(&file).cloned(), ..told };
        Ok(PendingLog {
            files: files.into_iter().map(tell).collect(),
            files_more: more.len() as u64,
            updates,
            bytes,
            sent,
            held_back: self.held_back().filter(|_| updates > 0),
            rate_up: self.inner.upstream.quality().likely_up(),
        })
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
        let for_budget = self.connection().stays_for_budget();
        let delayed = if for_budget { HeldBack::BudgetDelay } else { HeldBack::Delay };
        why.or_else(|| self.delays().map(|_| delayed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Contents, ReplicaId, Stamp, Time};
    use world::World;

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
        gathering.add(&store(1, 50, 7, 10), Some(4));
        gathering.add(&store(2, 40, 8, 1), None);
        gathering.add(&store(3, 30, 7, 20), None);
        gathering.add(&store(4, 20, 9, 5), None);
        gathering.add(&store(5, 10, 9, 5), None);
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

    #[test]
    fn what_holds_back_is_what_the_user_can_change_first() {
        let now = World::simulated(0, 1).clock.moment();
        let mut connection =
            Connection::new((crate::WantedMode::Auto, None), now, &crate::meta::Meta::default());
        assert_eq!(held_back(&connection, None), Some(HeldBack::NoLink));
        connection.attached = true;
        assert_eq!(held_back(&connection, None), None);
        let full = Some("the server's disk is full".to_owned());
        assert_eq!(held_back(&connection, full.clone()), full.clone().map(HeldBack::Trouble));
        connection.mode = Mode::FetchOnly;
        assert_eq!(held_back(&connection, full.clone()), Some(HeldBack::Mode(Mode::FetchOnly)));
        connection.paused = true;
        assert_eq!(held_back(&connection, full), Some(HeldBack::Paused));
    }
}
