//! What was done to names and attributes, and what must be listed of it.
//! Holds: what a removal took along is what its writer saw; where two who cannot have known of each
//! other did what cannot both be, and nothing lies beside for it, a conflict tells of it.

use super::{Board, State};
use crate::perform::{Deed, Known, Place};
use crate::tree::Tree;
use model::{FileId, Kind};
use std::collections::BTreeSet;

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is in the log.
    Logged,
    /// The origin has taken it as it was there.
    Connected,
    /// Whether it is done, nobody was told: it may be later, and by whatever is there then.
    Unknown,
    /// The same, but if it is done, it is by what its writer saw.
    MaybeLogged,
}

/// Somebody's deed.
pub struct Done {
    pub who: String,
    pub deed: Deed,
    pub how: How,
}

#[derive(Default)]
pub(super) struct Deeds {
    all: Vec<Done>,
    removals: Vec<Removal>,
}

/// A name of a file went, perhaps the last.
struct Removal {
    what: Known,
    /// By what was there: it may have been any of so many saves.
    saves: usize,
}

impl Board {
    pub fn does(&self, done: Done) {
        let mut state = self.state();
        let what = match &done.deed {
            Deed::Remove(what) => Some(*what),
            Deed::Move { over, exchange: false, .. } => *over,
            _ => None,
        };
        let saves = match done.how {
            How::Logged | How::MaybeLogged => 0,
            How::Connected => state.saves.len(),
            How::Unknown => usize::MAX,
        };
        state.deeds.removals.extend(what.map(|what| Removal { what, saves }));
        state.deeds.all.push(done);
    }

    /// What cannot both be, and leaves nothing beside, is among the files of which conflicts tell.
    pub fn is_listed(&self, truth: &Tree, listed: &BTreeSet<FileId>) -> Result<(), String> {
        let state = self.state();
        if state.ever_torn {
            return Ok(());
        }
        let there: BTreeSet<FileId> =
            truth.0.values().map(|leaf| FileId(leaf.shown.file)).collect();
        let unlisted = |why: &str, file: FileId| {
            let deeds = state.deeds.of(file).map(|done| {
                let Done { who, deed, how } = done;
                format!("\n  {who}: {deed:?} ({how:?})")
            });
            let deeds: String = deeds.collect();
            Err(format!("{why}, and no conflict tells of file {file}:{deeds}"))
        };
        for file in there.iter().filter(|file| !listed.contains(file)) {
            if state.deeds.is_back(*file) {
                return unlisted("what was removed is there", *file);
            }
            if state.deeds.went_apart(*file) {
                return unlisted("two moved it to different places", *file);
            }
            if state.deeds.set_apart(*file) {
                return unlisted("two set it to different values", *file);
            }
        }
        Ok(())
    }
}

impl State {
    /// Somebody removed the file with what a save had stored.
    pub(super) fn is_removed(&self, number: usize) -> bool {
        let save = &self.saves[number];
        self.deeds.removals.iter().filter(|removal| removal.what.file == save.file).any(|removal| {
            let seen = self.stamps.get(&removal.what.contents);
            number < removal.saves || seen.is_none_or(|seen| *seen == save.saved)
        })
    }
}

impl Deeds {
    fn of(&self, file: FileId) -> impl Iterator<Item = &Done> {
        self.all.iter().filter(move |done| match &done.deed {
            Deed::Remove(what) => what.file == file,
            Deed::Move { file: moved, over, .. } => {
                *moved == file || over.is_some_and(|over| over.file == file)
            }
            Deed::Link { file: linked } => *linked == file,
            Deed::Set { before, .. } => before.file == file,
        })
    }

    /// Somebody removed its only name, and was told that it is done; nobody gave it another one
    /// without hearing of that.
    fn is_back(&self, file: FileId) -> bool {
        if self.of(file).any(|done| matches!(done.deed, Deed::Link { .. })) {
            return false;
        }
        self.of(file).any(|done| {
            let is_done = matches!(done.how, How::Logged | How::Connected);
            matches!(&done.deed, Deed::Remove(what)
                if is_done && what.links == 1 && what.kind != Kind::Directory)
        })
    }

    /// Two moved it from one place to different ones, and nobody else did anything to its names.
    fn went_apart(&self, file: FileId) -> bool {
        let deeds = self.of(file).filter(|done| !matches!(done.deed, Deed::Set { .. }));
        let deeds: Vec<&Done> = deeds.collect();
        let [one, other] = deeds[..] else { return false };
        let (Some(first), Some(second)) = (one.moves(file), other.moves(file)) else {
            return false;
        };
        one.who != other.who && first.0 == second.0 && first.1 != second.1
    }

    /// Two set its mode, or its owner, from one value to different ones, and nobody else did.
    fn set_apart(&self, file: FileId) -> bool {
        let is_removed = self.of(file).any(|done| match &done.deed {
            Deed::Remove(_) => true,
            Deed::Move { over, .. } => over.is_some_and(|over| over.file == file),
            _ => false,
        });
        let values: [Values; 2] = [modes, owners];
        !is_removed
            && values.iter().any(|values| {
                let set = self.of(file).filter_map(|done| Some((done, values(&done.deed)?)));
                let set: Vec<_> = set.collect();
                let [(one, (was, first)), (other, (too, second))] = set[..] else { return false };
                let is_done = one.how == How::Logged && other.how == How::Logged;
                let differ = was == too && was != first && was != second && first != second;
                // Those of a mode that writing to the file takes away tell nothing.
                let stays = (was | first | second) & FLEETING_BITS == 0;
                is_done && differ && stays && one.who != other.who
            })
    }
}

impl Done {
    /// From where to where it moved a file, if that was done.
    fn moves(&self, file: FileId) -> Option<(&Place, &Place)> {
        match &self.deed {
            Deed::Move { file: moved, from, to, exchange: false, .. }
                if *moved == file && self.how == How::Logged && from != to =>
            {
                Some((from, to))
            }
            _ => None,
        }
    }
}

/// Of an attribute, what it was and what it was set to.
type Values = fn(&Deed) -> Option<(u32, u32)>;

/// Bits that writing to a file takes away.
const FLEETING_BITS: u32 = 0o6000;

/// The mode as it was and as it was set.
fn modes(deed: &Deed) -> Option<(u32, u32)> {
    match deed {
        Deed::Set { before, mode: Some(mode), .. } => Some((before.mode.into(), (*mode).into())),
        _ => None,
    }
}

fn owners(deed: &Deed) -> Option<(u32, u32)> {
    match deed {
        Deed::Set { before, uid: Some(uid), .. } => Some((before.uid, *uid)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Path, Shown};
    use crate::tree::Leaf;
    use model::{Name, Stamp};
    use std::collections::BTreeMap;

    const FILE: FileId = FileId(7);

    fn known(mode: u16) -> Known {
        let contents = Stamp::default();
        Known { file: FILE, kind: Kind::File, contents, links: 1, mode, uid: 0, gid: 0 }
    }

    fn moved(to: &str) -> Deed {
        let place = |name: &str| (FileId(2), Name::new(name).unwrap());
        Deed::Move { file: FILE, from: place("a"), to: place(to), over: None, exchange: false }
    }

    fn set(mode: u16) -> Deed {
        Deed::Set { before: known(0o644), mode: Some(mode), uid: None, gid: None }
    }

    /// The file is there at the end.
    fn truth() -> Tree {
        let kind = Kind::File;
        let shown =
            Shown { file: FILE.0, kind, mode: 0, uid: 0, gid: 0, links: 1, size: 0, mtime: None };
        let leaf =
            Leaf { shown, target: None, xattrs: BTreeMap::new(), contents: None, node: None };
        Tree(BTreeMap::from([(Path::new("x"), leaf)]))
    }

    /// Whether a conflict must tell of the file, after what each of some did.
    fn check(deeds: &[(&str, Deed, How)]) -> bool {
        let board = Board::default();
        for (who, deed, how) in deeds.iter().cloned() {
            board.does(Done { who: who.into(), deed, how });
        }
        board.is_listed(&truth(), &BTreeSet::from([FILE])).unwrap();
        board.is_listed(&truth(), &BTreeSet::new()).is_err()
    }

    #[test]
    fn what_was_removed_and_is_there_is_told_of_unless_it_was_given_another_name() {
        let removed = ("ada", Deed::Remove(known(0o644)), How::Logged);
        assert!(check(std::slice::from_ref(&removed)));
        assert!(check(&[removed.clone(), ("bob", moved("b"), How::Logged)]));
        assert!(!check(&[removed, ("bob", Deed::Link { file: FILE }, How::Logged)]));
        assert!(!check(&[("ada", Deed::Remove(known(0o644)), How::Unknown)]));
        let one_of_two = Known { links: 2, ..known(0o644) };
        assert!(!check(&[("ada", Deed::Remove(one_of_two), How::Logged)]));
    }

    #[test]
    fn what_two_moved_to_different_places_is_told_of() {
        let [b, c] = ["b", "c"].map(moved);
        assert!(check(&[("ada", b.clone(), How::Logged), ("bob", c.clone(), How::Logged)]));
        assert!(!check(&[("ada", b.clone(), How::Logged), ("bob", b.clone(), How::Logged)]));
        assert!(!check(&[("ada", b.clone(), How::Logged), ("ada", c.clone(), How::Logged)]));
        assert!(!check(&[("ada", b, How::Logged), ("bob", c, How::MaybeLogged)]));
    }

    #[test]
    fn what_two_set_to_different_values_is_told_of() {
        let [x, y] = [0o600, 0o700].map(set);
        assert!(check(&[("ada", x.clone(), How::Logged), ("bob", y.clone(), How::Logged)]));
        assert!(!check(&[("ada", x.clone(), How::Logged), ("bob", x.clone(), How::Logged)]));
        assert!(!check(&[("ada", x.clone(), How::Logged), ("bob", set(0o644), How::Logged)]));
        assert!(!check(&[("ada", x.clone(), How::Logged), ("bob", set(0o4755), How::Logged)]));
        let removed = ("ada", Deed::Remove(Known { links: 2, ..known(0o600) }), How::Logged);
        assert!(!check(&[("ada", x, How::Logged), ("bob", y, How::Logged), removed]));
    }
}
