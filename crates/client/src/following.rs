//! Names that pins and policies go by: what was said of a file holds for what bears its name when
//! somebody saves by rename, and goes along when the file gets another name.
//! Holds: a row moves with what shows here; nobody loses a pin or a policy because another file has
//! taken the name, or because the name leads nowhere for a while.
//! Never: decides by what is in doubt while it can be asked for.

mod apply;

use crate::client::{Client, error_of};
use crate::pending::paths_of;
use crate::ranks::{self, Rank, Ranked};
use crate::renumber::Anew;
use crate::types::{Error, Step, Stop};
use minicbor::{Decode, Encode};
use model::{FileId, Name, View};
use protocol::{Class, Upstream};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::Containers;
use volume::partial::{Changed, Tree};
use world::Moment;

/// How often it is looked whether a name leads elsewhere.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A name that leads nowhere for so long is given up, where its file has another one. Whoever makes
/// a backup by rename writes the new file within that time.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
/// A name that was not found is sought again after so long.
const SOUGHT_EVERY: Duration = Duration::from_secs(3600);
/// What could not be asked for is asked for again after so long.
const ASKED_EVERY: Duration = Duration::from_secs(30);
/// Names, or files, that are asked for at once.
const ASKED_AT_ONCE: usize = 64;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(array)]
pub struct Place {
    #[n(0)]
    pub directory: FileId,
    #[n(1)]
    pub name: Name,
}

impl Place {
    /// Whether its directory has another id by now.
    pub(crate) fn renumber(&mut self, anew: &Anew) -> bool {
        let directory = anew.id(self.directory);
        self.directory = directory.unwrap_or(self.directory);
        directory.is_some()
    }
}

/// Of what there are rows that go by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Of {
    Pins,
    Policies,
}

/// A row that goes by a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Followed {
    pub of: Of,
    pub file: FileId,
    /// None: it is not known yet by which one.
    pub place: Option<Place>,
}

/// Where a name leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leads {
    Unknown,
    Nowhere,
    /// There is no such directory any more.
    Never,
    To(FileId),
}

/// What is known of a file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Unknown,
    Gone,
    There,
}

/// What becomes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    /// Another file bears the name.
    Goes(FileId),
    /// The file has another name, which is sought: after so long at the earliest.
    Seeks(Duration),
    /// Neither the file nor the directory of its name will be there again.
    Falls,
}

/// What becomes of a row, by where its name leads and by whether its file is there.
pub(crate) fn fate(row: &Followed, leads: Leads, own: Own) -> Fate {
    if row.file == FileId::ROOT {
        return Fate::Stays;
    }
    match (&row.place, leads, own) {
        (None, _, Own::Unknown) => Fate::Stays,
        (None, _, Own::There) => Fate::Seeks(Duration::ZERO),
        (None, _, Own::Gone) | (Some(_), Leads::Never, Own::Gone) => Fate::Falls,
        (Some(_), Leads::To(file), _) if file != row.file => Fate::Goes(file),
        (Some(_), Leads::Nowhere | Leads::Never, Own::There) => Fate::Seeks(GIVEN_UP_AFTER),
        (Some(_), _, _) => Fate::Stays,
    }
}

/// What there is of it while a client runs.
#[derive(Default)]
pub(crate) struct Following {
    /// The names that rows go by.
    places: BTreeMap<FileId, BTreeSet<Name>>,
    /// One of them may lead elsewhere by now.
    touched: bool,
    /// When the names of these are sought.
    seeks: BTreeMap<(Of, FileId), Moment>,
    /// What was in doubt and could not be asked for is asked for then.
    asks: Option<Moment>,
}

impl Following {
    fn knows(&self, directory: FileId, name: &Name) -> bool {
        self.places.get(&directory).is_some_and(|names| names.contains(name))
    }

    /// The rows have changed.
    fn index(&mut self, rows: &[Followed]) {
        self.places.clear();
        for Place { directory, name } in rows.iter().filter_map(|row| row.place.clone()) {
            self.places.entry(directory).or_default().insert(name);
        }
    }

    /// Whether the names of a row are to be sought now.
    fn seeks(&mut self, row: &Followed, after: Duration, now: Moment) -> bool {
        now >= *self.seeks.entry((row.of, row.file)).or_insert(now + after)
    }

    fn is_due(&self, now: Moment) -> bool {
        let asks = self.asks.is_some_and(|at| now >= at);
        self.touched || asks || self.seeks.values().any(|at| now >= *at)
    }
}

/// What has been found of a row.
struct Looked {
    row: Followed,
    fate: Fate,
}

impl<U: Upstream, C: Containers> Client<U, C> {
    fn following(&self) -> Ranked<'_, Following> {
        ranks::lock(Rank::Following, &self.inner.keeping.following)
    }

    /// Rows were set or taken away.
    pub(crate) fn follow_anew(&self) {
        let rows = self.followed();
        let mut following = self.following();
        following.index(&rows);
        following.touched = true;
    }

    /// These are not as they were.
    pub(crate) fn following_sees(&self, changed: &[Changed]) {
        let mut following = self.following();
        let known = |change: &Changed| match change {
            Changed::Entry(directory, name) => following.knows(*directory, name),
            Changed::Node { .. } => false,
        };
        if changed.iter().any(known) {
            following.touched = true;
        }
    }

    /// Something may have been done to names in these directories.
    pub(crate) fn following_sees_in(&self, directories: &[FileId]) {
        let mut following = self.following();
        if directories.iter().any(|directory| following.places.contains_key(directory)) {
            following.touched = true;
        }
    }

    /// Follows names, until `shut_down`.
    pub(crate) async fn run_following(&self) {
        self.follow_anew();
        while !self.is_stopping() {
            let now = self.inner.world.clock.moment();
            if self.following().is_due(now) {
                self.following().touched = false;
                self.ask_for_names().await;
                let client = self.clone();
                let followed = self.off_the_runtime(move || Ok(client.follow_names())).await;
                if let Err(error) = followed.map_err(error_of).flatten() {
                    tracing::debug!(%error, "names that pins and policies go by were not followed");
                }
            }
            tokio::select! {
                biased;
                () = self.inner.world.clock.sleep(LOOK_EVERY) => {}
                () = self.until_stopping() => break,
            }
        }
    }

    /// Moves every row to what bears its name, by what is known here.
    pub(crate) fn follow_names(&self) -> Result<(), Error> {
        let now = self.inner.world.clock.moment();
        let looked = self.look_along()?;
        let (mut fates, mut sought) = (Vec::new(), Vec::new());
        {
            let mut following = self.following();
            let seeking: BTreeSet<(Of, FileId)> = looked
                .iter()
                .filter(|looked| matches!(looked.fate, Fate::Seeks(_)))
                .map(|looked| (looked.row.of, looked.row.file))
                .collect();
            following.seeks.retain(|row, _| seeking.contains(row));
            for Looked { row, fate } in looked {
                match fate {
                    Fate::Stays => {}
                    Fate::Seeks(after) if following.seeks(&row, after, now) => sought.push(row),
                    Fate::Seeks(_) => {}
                    Fate::Goes(_) | Fate::Falls => fates.push((row, fate)),
                }
            }
        }
        let named = self.seek_names(&sought, now)?;
        if !fates.is_empty() || !named.is_empty() {
            self.move_rows(fates, named)?;
            let rows = self.followed();
            self.following().index(&rows);
        }
        Ok(())
    }

    /// What is to become of each row, by what is known here.
    fn look_along(&self) -> Result<Vec<Looked>, Error> {
        let rows = self.followed();
        let read = self.inner.tables.read().map_err(error_of)?;
        let tree = Tree::new(&*read, 0);
        let looked = |row: Followed| {
            let leads = row.place.as_ref().map_or(Leads::Unknown, |place| leads(&tree, place));
            let fate = fate(&row, leads, own(&tree, row.file));
            Looked { row, fate }
        };
        Ok(rows.into_iter().map(looked).collect())
    }

    /// The names that these have by now, as far as they are known here. The others are sought again
    /// later.
    fn seek_names(
        &self,
        sought: &[Followed],
        now: Moment,
    ) -> Result<Vec<(Followed, Place)>, Error> {
        if sought.is_empty() {
            return Ok(Vec::new());
        }
        let files = sought.iter().map(|row| row.file).collect();
        let names = {
            let read = self.inner.tables.read().map_err(error_of)?;
            Tree::new(&*read, 0).names_of(&files).map_err(crate::failures::of_missing)?
        };
        let mut following = self.following();
        let mut found = Vec::new();
        for row in sought {
            let key = (row.of, row.file);
            match names.get(&row.file).cloned() {
                Some((directory, name)) => {
                    following.seeks.remove(&key);
                    found.push((row.clone(), Place { directory, name }));
                }
                None => drop(following.seeks.insert(key, now + SOUGHT_EVERY)),
            }
        }
        Ok(found)
    }

    /// Asks for what is in doubt, where there is a link to do so.
    async fn ask_for_names(&self) {
        let now = self.inner.world.clock.moment();
        if self.following().asks.is_some_and(|at| now < at) {
            return;
        }
        let again = match self.ask_in_doubt().await {
            Ok(true) => None,
            Ok(false) => Some(now + LOOK_EVERY),
            Err(error) => {
                tracing::debug!(%error, "a name could not be asked for");
                Some(now + ASKED_EVERY)
            }
        };
        self.following().asks = again;
    }

    /// False: it cannot be asked yet.
    async fn ask_in_doubt(&self) -> Result<bool, Error> {
        let (nodes, entries) = match self.in_doubt() {
            Ok(in_doubt) => in_doubt,
            // There will be a lease, or a volume: then it is looked.
            Err(Stop::Need(_)) => return Ok(false),
            Err(Stop::Error(error)) => return Err(error),
        };
        if nodes.is_empty() && entries.is_empty() {
            return Ok(true);
        }
        if !self.may_keep_pins() {
            return Ok(false);
        }
        for some in nodes.chunks(ASKED_AT_ONCE) {
            self.inspect_as(Class::Prefetch, some.to_vec(), Vec::new()).await?;
        }
        for some in entries.chunks(ASKED_AT_ONCE) {
            self.inspect_as(Class::Prefetch, Vec::new(), some.to_vec()).await?;
        }
        Ok(true)
    }

    /// The names that may lead elsewhere by now, and the files of rows whose names lead nowhere.
    #[allow(clippy::type_complexity, reason = "it is what an inspection asks for")]
    fn in_doubt(&self) -> Step<(Vec<FileId>, Vec<(FileId, Name)>)> {
        let rows = self.followed();
        self.view(|tree| {
            let (mut nodes, mut entries) = (BTreeSet::new(), BTreeSet::new());
            for row in &rows {
                let leads = row.place.as_ref().map_or(Leads::Nowhere, |place| leads(tree, place));
                match (leads, &row.place) {
                    (Leads::Unknown, Some(Place { directory, name })) => {
                        entries.insert((*directory, name.clone()));
                    }
                    (Leads::Nowhere | Leads::Never, _) if own(tree, row.file) == Own::Unknown => {
                        nodes.insert(row.file);
                    }
                    _ => {}
                }
            }
            Ok((nodes.into_iter().collect(), entries.into_iter().collect()))
        })
    }
}

/// Where what was said holds, for those who read of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// From the root of the volume. None: it has no name, or none that is known here.
    pub path: Option<String>,
    /// The file is gone: what was said waits for its name.
    pub removed: bool,
}

/// Where rows hold, in their order.
pub(crate) fn whereabouts(tree: &Tree<'_>, rows: &[Followed]) -> Result<Vec<Whereabouts>, Error> {
    let removed = |row: &Followed| own(tree, row.file) == Own::Gone;
    let named = |row: &Followed| {
        let is_so = |place: &&Place| removed(row) || leads(tree, place) == Leads::To(row.file);
        row.place.clone().filter(|place| is_so(&place))
    };
    let places: Vec<Option<Place>> = rows.iter().map(named).collect();
    let of_place = |(row, place): (&Followed, &Option<Place>)| {
        place.as_ref().map_or(row.file, |place| place.directory)
    };
    let files: Vec<FileId> = rows.iter().zip(&places).map(of_place).collect();
    let paths = paths_of(tree, &files)?;
    let whereabouts = |(row, place): (&Followed, &Option<Place>)| {
        let above = paths.get(&of_place((row, place))).cloned();
        let path = match (above, place) {
            (Some(above), Some(place)) if above.is_empty() => Some(place.name.to_string()),
            (Some(above), Some(place)) => Some(format!("{above}/{}", place.name)),
            (path, _) => path,
        };
        Whereabouts { path, removed: removed(row) }
    };
    Ok(rows.iter().zip(&places).map(whereabouts).collect())
}

fn leads(tree: &Tree<'_>, place: &Place) -> Leads {
    if matches!(tree.node(place.directory), Ok(None)) {
        return Leads::Never;
    }
    match tree.entry(place.directory, &place.name) {
        Ok(Some(file)) => Leads::To(file),
        Ok(None) => Leads::Nowhere,
        Err(_) => Leads::Unknown,
    }
}

fn own(tree: &Tree<'_>, file: FileId) -> Own {
    match tree.node(file) {
        Ok(Some(_)) => Own::There,
        Ok(None) => Own::Gone,
        Err(_) => Own::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(file: u64, place: bool) -> Followed {
        let name = Name::new("name").expect("a name");
        let place = place.then_some(Place { directory: FileId(2), name });
        Followed { of: Of::Pins, file: FileId(file), place }
    }

    const LEADS: [Leads; 4] = [Leads::Unknown, Leads::Nowhere, Leads::Never, Leads::To(FileId(7))];
    const OWN: [Own; 3] = [Own::Unknown, Own::Gone, Own::There];

    #[test]
    fn a_row_goes_with_its_name_and_without_it_with_its_file() {
        let of = |leads, own| fate(&row(7, true), leads, own);
        for own in OWN {
            assert_eq!(of(Leads::To(FileId(7)), own), Fate::Stays);
            assert_eq!(of(Leads::To(FileId(8)), own), Fate::Goes(FileId(8)), "saved by rename");
            assert_eq!(of(Leads::Unknown, own), Fate::Stays, "in doubt");
        }
        for leads in [Leads::Nowhere, Leads::Never] {
            assert_eq!(of(leads, Own::There), Fate::Seeks(GIVEN_UP_AFTER), "it was renamed");
            assert_eq!(of(leads, Own::Unknown), Fate::Stays);
        }
        assert_eq!(of(Leads::Nowhere, Own::Gone), Fate::Stays, "the name may come back");
        assert_eq!(of(Leads::Never, Own::Gone), Fate::Falls);
    }

    #[test]
    fn a_row_without_a_name_seeks_one_while_its_file_is_there() {
        for leads in LEADS {
            let of = |own| fate(&row(7, false), leads, own);
            assert_eq!(OWN.map(of), [Fate::Stays, Fate::Falls, Fate::Seeks(Duration::ZERO)]);
        }
    }

    #[test]
    fn what_was_said_of_the_whole_volume_stays() {
        for (leads, own) in LEADS.iter().flat_map(|leads| OWN.map(|own| (*leads, own))) {
            assert_eq!(fate(&row(FileId::ROOT.0, false), leads, own), Fate::Stays);
        }
    }

    #[test]
    fn a_name_is_given_up_when_its_time_is_over_and_sought_again_later() {
        let begun = world::World::simulated(0, 1).clock.moment();
        let (mut following, row) = (Following::default(), row(7, true));
        assert!(!following.seeks(&row, GIVEN_UP_AFTER, begun));
        let over = begun + GIVEN_UP_AFTER;
        assert!(!following.is_due(begun) && following.is_due(over));
        assert!(following.seeks(&row, GIVEN_UP_AFTER, over));
    }

    #[test]
    fn names_that_rows_go_by_are_known() {
        let mut following = Following::default();
        following.index(&[row(7, true), row(8, false)]);
        let knows = |directory, name| following.knows(FileId(directory), &Name::new(name).unwrap());
        assert!(knows(2, "name") && !knows(2, "other") && !knows(3, "name"));
        following.index(&[]);
        assert!(!following.knows(FileId(2), &Name::new("name").unwrap()));
    }
}
