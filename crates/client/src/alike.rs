//! Which compressed file a new one is another version of. What they hold in common cannot be seen
//! in their bytes, so it is guessed by where they are, what they are called and when they were used:
//! an office program saves under a name of its own beside the old file, and renames afterwards.
//! Holds: a guess, from a bounded number of neighbours. A wrong one costs a delta that is not made.
//! From: beyond LBFS, which finds what is alike by its chunks alone.

use crate::client::Client;
use crate::presence::Presence;
use chunks::Described;
use chunks::delta::is_packed;
use model::{FileId, Name};
use protocol::Upstream;
use store::{Container, Containers, Read};
use volume::partial::Tree;

/// Entries of the directory that are looked at.
const NEIGHBOURS_MAX: usize = 1024;
/// Of the best, so many are opened to see what they are.
const OPENED_MAX: usize = 4;
/// By so many bytes a compressed container is known, and by so many its kind.
const HEAD_BYTES: usize = 16;
const KIND_BYTES: usize = 4;
/// Another version is not larger or smaller than so many times.
const TIMES: u64 = 4;
/// Names are compared in so many steps; with fewer than half of them in common they are not alike.
const STEPS: usize = 8;
/// Uses that lie nearer together than this are one: which came last is not known better.
const USED_GRAIN_SECS: i64 = 60;

/// A file that is here whole, in the same directory.
#[derive(Clone, Debug)]
struct Neighbour {
    file: FileId,
    name: Name,
    size: u64,
    /// Seconds since 1970.
    used: i64,
}

/// Those that a new file of this name and size may be another version of, the best first.
fn ranked(name: &Name, size: u64, mut neighbours: Vec<Neighbour>) -> Vec<Neighbour> {
    neighbours.retain(|other| {
        let (less, more) = (size.min(other.size), size.max(other.size));
        less > 0 && more <= less.saturating_mul(TIMES)
    });
    neighbours.sort_by_key(|other| {
        let used = other.used.div_euclid(USED_GRAIN_SECS);
        let alike = likeness(name.as_bytes(), other.name.as_bytes());
        std::cmp::Reverse((alike, used, std::cmp::Reverse(size.abs_diff(other.size))))
    });
    neighbours
}

/// How much of the longer name both have at their ends, without what editors put around it.
fn likeness(one: &[u8], other: &[u8]) -> usize {
    let (one, other) = (bare(one), bare(other));
    let longest = one.len().max(other.len());
    if longest == 0 {
        return 0;
    }
    let same = |(a, b): &(&u8, &u8)| a.eq_ignore_ascii_case(b);
    let before = one.iter().zip(other).take_while(same).count();
    let (one, other) = (&one[before..], &other[before..]);
    let behind = one.iter().rev().zip(other.iter().rev()).take_while(same).count();
    let steps = (before + behind) * STEPS / longest;
    if steps * 2 < STEPS { 0 } else { steps }
}

/// Without the marks of backups, autosaves and temporary files.
fn bare(name: &[u8]) -> &[u8] {
    let is_mark = |byte: &u8| matches!(byte, b'.' | b'#' | b'~' | b'$' | b'_' | b'-');
    let from = name.iter().position(|byte| !is_mark(byte)).unwrap_or(name.len());
    let to = name.iter().rposition(|byte| !is_mark(byte)).map_or(from, |last| last + 1);
    &name[from..to]
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The files that new contents are likely to be like, the likeliest first, for a file of which
    /// there was no version. Which of them the replica above has too is seen when they are sent.
    pub(crate) fn guess_for(
        &self,
        described: &Described,
        file: FileId,
        container: &C::Container,
    ) -> Vec<FileId> {
        let alike = self.votes_on(described, file).best();
        if !alike.is_empty() {
            return alike;
        }
        self.guess_by_name(described, file, container).into_iter().collect()
    }

    /// Of contents that are packed, of which the index cannot tell.
    pub(crate) fn guess_by_name(
        &self,
        described: &Described,
        file: FileId,
        container: &C::Container,
    ) -> Option<FileId> {
        let head = container.read(0, HEAD_BYTES).ok().filter(|head| is_packed(head))?;
        let (place, before) = {
            let kin = self.kin();
            (kin.home(file), kin.before(file))
        };
        let known = [Some(file), before].into_iter().flatten();
        if known.into_iter().any(|file| self.has_base(file)) {
            return None;
        }
        let (directory, name) = place?;
        let read = self.inner.tables.read().ok()?;
        let neighbours = neighbours(&*read, directory, file);
        let ranked = ranked(&name, described.tree.contents.size, neighbours);
        let like = |other: &Neighbour| {
            let found = self.head_of(other.file);
            found.is_some_and(|found| found.get(..KIND_BYTES) == head.get(..KIND_BYTES))
        };
        ranked.iter().take(OPENED_MAX).find(|other| like(other)).map(|other| other.file)
    }
}

/// What is here whole of a directory.
fn neighbours(read: &dyn Read, directory: FileId, but: FileId) -> Vec<Neighbour> {
    let entries = Tree::new(read, 0).some_entries(directory, NEIGHBOURS_MAX).unwrap_or_default();
    let others = entries.into_iter().filter(|(_, file)| *file != but);
    let whole = |(name, file): (Name, FileId)| {
        let row = Presence::load(read, file).ok().flatten()?;
        let (size, used) = (row.contents.size, row.used);
        (row.dirty.is_none() && row.is_whole()).then_some(Neighbour { file, name, size, used })
    };
    others.filter_map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(number: u64, name: &str, size: u64, used: i64) -> Neighbour {
        let name = Name::new(name.as_bytes()).unwrap();
        Neighbour { file: FileId(number), name, size, used }
    }

    fn best(name: &str, size: u64, neighbours: &[Neighbour]) -> Vec<u64> {
        let name = Name::new(name.as_bytes()).unwrap();
        ranked(&name, size, neighbours.to_vec()).iter().map(|other| other.file.0).collect()
    }

    #[test]
    fn what_is_called_alike_comes_first_and_then_what_was_used_last() {
        let there = [
            neighbour(1, "budget.xlsx", 100, 9_000),
            neighbour(2, "report.docx", 100, 100),
            neighbour(3, "notes.docx", 100, 5_000),
        ];
        for name in ["#report.docx#", "report.docx~", "Report-2.docx", ".~report.docx"] {
            assert_eq!(best(name, 90, &there)[0], 2, "{name}");
        }
        assert_eq!(best("lu3xq1.tmp", 110, &there), [1, 3, 2]);
    }

    #[test]
    fn another_version_has_about_the_same_size() {
        let there = [neighbour(1, "a.zip", 1_000, 50), neighbour(2, "b.zip", 100, 10)];
        assert_eq!(best("a.zip~", 150, &there), [2]);
        assert_eq!(best("new", 0, &there), [0u64; 0]);
        let together = [neighbour(1, "x", 100, 61), neighbour(2, "y", 200, 119)];
        assert_eq!(best("quite another", 190, &together), [2, 1], "used together");
    }

    #[test]
    fn names_are_alike_by_their_ends_and_not_by_their_ending_alone() {
        assert_eq!(likeness(b"v.tgz", b"#v.tgz#"), STEPS);
        assert!(likeness(b"v-2.tgz", b"v.tgz") > likeness(b"w.tgz", b"some.tgz"));
        assert_eq!(likeness(b"a-long-name.docx", b"quite-another.docx"), 0);
        assert_eq!(likeness(b"...", b"v.tgz"), 0);
        assert_eq!(likeness(b"", b""), 0);
    }
}
