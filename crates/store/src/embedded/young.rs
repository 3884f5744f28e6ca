//! Rows that were committed lately, above those that redb has.
//! Holds: a reader at a number sees the commits up to it and none after it.

use super::key::Key;
use crate::error::Result;
use crate::table::Row;
use smallvec::SmallVec;
use std::cmp::Ordering as Compared;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// A row as it was put; None: it was deleted.
pub type Put = Option<Vec<u8>>;

/// What one transaction has put, by table and key.
pub type Puts = BTreeMap<&'static str, BTreeMap<Vec<u8>, Put>>;

/// The number of a commit among those of one `Young`.
pub type Commit = u64;

/// What each row was made by each commit, in their order.
type Versions = BTreeMap<Key, SmallVec<[(Commit, Put); 1]>>;

#[derive(Default)]
pub struct Young {
    tables: RwLock<BTreeMap<Box<str>, Versions>>,
    last: AtomicU64,
    /// Versions of rows, and the bytes of their keys and values.
    versions: AtomicUsize,
    bytes: AtomicU64,
}

impl Young {
    pub fn last(&self) -> Commit {
        self.last.load(Ordering::Acquire)
    }

    pub fn versions(&self) -> usize {
        self.versions.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// One more commit. Callers take turns.
    pub fn commit<'a>(&self, puts: impl IntoIterator<Item = (&'a str, Vec<u8>, Put)>) {
        let number = self.last() + 1;
        let (mut versions, mut bytes) = (0, 0);
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        for (table, key, put) in puts {
            versions += 1;
            bytes += (key.len() + put.as_ref().map_or(0, Vec::len)) as u64;
            if !tables.contains_key(table) {
                tables.insert(table.into(), Versions::new());
            }
            let rows = tables.get_mut(table).expect("it is there by now");
            rows.entry(Key::from(key)).or_default().push((number, put));
        }
        drop(tables);
        self.versions.fetch_add(versions, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last.store(number, Ordering::Release);
    }

    pub fn at(&self, at: Commit) -> View<'_> {
        View { tables: self.tables.read().unwrap_or_else(PoisonError::into_inner), at }
    }
}

/// The rows as a commit left them. No other commit gets in while it is held.
pub struct View<'a> {
    tables: RwLockReadGuard<'a, BTreeMap<Box<str>, Versions>>,
    at: Commit,
}

impl View<'_> {
    /// None: this knows nothing of the row.
    pub fn get(&self, table: &str, key: &[u8]) -> Option<Option<&[u8]>> {
        shown(self.tables.get(table)?.get(&Key::of(key))?, self.at)
    }

    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(|name| &**name)
    }

    /// `from <= key < to`.
    pub fn range<'a>(
        &'a self,
        table: &str,
        from: &[u8],
        to: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let at = self.at;
        let rows = self.tables.get(table).filter(|_| from < to);
        let rows = rows.map(|rows| rows.range(Key::of(from)..Key::of(to)));
        rows.into_iter()
            .flatten()
            .filter_map(move |(key, versions)| Some((key.as_slice(), shown(versions, at)?)))
    }

    pub fn all<'a>(
        &'a self,
        table: &str,
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let at = self.at;
        let rows = self.tables.get(table).into_iter().flatten();
        rows.filter_map(move |(key, versions)| Some((key.as_slice(), shown(versions, at)?)))
    }
}

pub fn stretch<'a>(from: &'a [u8], to: &'a [u8]) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (Bound::Included(from), Bound::Excluded(to))
}

fn shown(versions: &[(Commit, Put)], at: Commit) -> Option<Option<&[u8]>> {
    let (_, put) = versions.iter().rev().find(|(number, _)| *number <= at)?;
    Some(put.as_deref())
}

/// The way in which rows are gone through.
#[derive(Clone, Copy)]
pub enum Way {
    Up,
    Down,
}

/// Rows of two layers that both go the same way; of a key that both have, the upper one counts.
pub struct Merged<Over: Iterator, Under: Iterator> {
    over: Peekable<Over>,
    under: Peekable<Under>,
    way: Way,
}

impl<Over: Iterator, Under: Iterator> Merged<Over, Under> {
    pub fn new(over: Over, under: Under, way: Way) -> Self {
        Merged { over: over.peekable(), under: under.peekable(), way }
    }
}

impl<'a, Over, Under> Iterator for Merged<Over, Under>
where
    Over: Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    Under: Iterator<Item = Result<Row>>,
{
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        loop {
            let Some((key, _)) = self.over.peek() else { return self.under.next() };
            let compared = match self.under.peek() {
                None => Compared::Less,
                Some(Err(_)) => return self.under.next(),
                Some(Ok((under, _))) => match self.way {
                    Way::Up => (*key).cmp(under.as_slice()),
                    Way::Down => under.as_slice().cmp(key),
                },
            };
            match compared {
                Compared::Greater => return self.under.next(),
                Compared::Equal => drop(self.under.next()),
                Compared::Less => {}
            }
            let (key, put) = self.over.next()?;
            if let Some(value) = put {
                return Some(Ok((key.to_vec(), value.to_vec())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(young: &Young, key: u8, value: Option<&[u8]>) {
        young.commit([("rows", vec![key], value.map(<[u8]>::to_vec))]);
    }

    #[test]
    fn a_reader_sees_the_commits_up_to_its_own() {
        let young = Young::default();
        put(&young, 1, Some(b"a"));
        let then = young.last();
        put(&young, 1, None);
        put(&young, 2, Some(b"b"));
        assert_eq!(young.at(then).get("rows", &[1]), Some(Some(&b"a"[..])));
        assert_eq!(young.at(then).get("rows", &[2]), None);
        assert_eq!(young.at(young.last()).get("rows", &[1]), Some(None));
        let now = young.at(young.last());
        let rows: Vec<_> = now.range("rows", &[0], &[9]).collect();
        assert_eq!(rows, [(&[1_u8][..], None), (&[2], Some(&b"b"[..]))]);
        assert_eq!(now.range("rows", &[9], &[0]).count(), 0);
        drop(now);
        assert_eq!((young.versions(), young.bytes()), (3, 5));
    }

    #[test]
    fn the_upper_row_counts_whichever_way_one_goes() {
        let under = || [1_u8, 3, 5].map(|key| Ok((vec![key], vec![0])));
        let over =
            [(&[0_u8][..], Some(&b"new"[..])), (&[3], None), (&[5], Some(b"other")), (&[7], None)];
        let up: Vec<Row> = Merged::new(over.into_iter(), under().into_iter(), Way::Up)
            .map(Result::unwrap)
            .collect();
        let wanted = [(vec![0], b"new".to_vec()), (vec![1], vec![0]), (vec![5], b"other".to_vec())];
        assert_eq!(up, wanted);
        let over = over.into_iter().rev();
        let down = Merged::new(over, under().into_iter().rev(), Way::Down).map(Result::unwrap);
        assert!(down.eq(wanted.into_iter().rev()));
    }
}
