//! What is written down of a tree. Laid out in docs/FORMATS.md, "The origin's tables".
//! Holds: a file that is known has its names, its number and its row, or none of them.

use crate::error::Result;
use crate::row::get;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{Contents, FileId, Kind, Name, ReplicaId, Stamp, Time};
use std::collections::BTreeMap;
use store::tree::{Sort, Stat};
use store::{Read, Write};
use volume::whole::{VolumeId, decode, encode};

const TREES: &str = "tree-volumes";
pub(super) const KNOWN: &str = "tree-known";
const NAMES: &str = "tree-names";
const NUMBERS: &str = "tree-numbers";
const STAGED: &str = "tree-staged";
const UNDONE: &str = "tree-undone";
/// Volumes whose files are being put out.
pub(super) const UNDERWAY: &str = "tree-underway";

/// The deepest that a directory may lie.
const DEPTH_MAX: usize = 4096;

/// The directory, in a tree and known under no id of the volume's, where files are made ready.
pub(super) const STAGE: FileId = FileId(0);
/// What it is called, in the root of the tree.
pub(super) const STAGE_NAME: &[u8] = b".farfs-tree";

/// A volume that is kept in step with a tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct TreeRow {
    /// Where the tree was last.
    #[n(0)]
    pub path: ByteVec,
    /// Says, in a file in the tree, that it is this one.
    #[n(1)]
    pub mark: ByteVec,
    /// Makes the updates for what is changed in the tree.
    #[n(2)]
    pub replica: ReplicaId,
    /// The number of the last of them.
    #[n(3)]
    pub made: u64,
    /// The counter of the last file that was made so.
    #[n(4)]
    pub files: u64,
}

/// How a file of the tree looked when both sides last agreed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct Known {
    #[n(0)]
    pub ino: u64,
    #[n(1)]
    pub born: Option<Time>,
    #[n(2)]
    pub kind: Kind,
    #[n(3)]
    pub mode: u16,
    #[n(4)]
    pub uid: u32,
    #[n(5)]
    pub gid: u32,
    #[n(6)]
    pub size: u64,
    #[n(7)]
    pub mtime: Time,
    /// None: it was being written to, and has to be looked at again.
    #[n(8)]
    pub ctime: Option<Time>,
    #[n(9)]
    pub contents: Contents,
    /// The version that the tree has.
    #[n(10)]
    pub contents_stamp: Stamp,
    /// The attributes that the tree has; the default: compare them.
    #[n(11)]
    pub attributes_stamp: Stamp,
    #[n(12)]
    pub xattrs: Option<BTreeMap<ByteVec, ByteVec>>,
    #[n(13)]
    pub names: Vec<(FileId, Name)>,
}

/// A file that is ready to be put where it belongs: found in the tree after a crash, it is known.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct Staged {
    #[n(0)]
    pub file: FileId,
    #[n(1)]
    pub known: Known,
}

/// A file as it was put into the tree in a transaction that failed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub(super) struct UndoneRow {
    /// None: it was taken out of it.
    #[n(0)]
    pub known: Option<Known>,
}

impl Known {
    /// What is seen, without names and as of no version.
    pub fn seen(stat: &Stat) -> Known {
        Known {
            ino: stat.ino,
            born: stat.born.map(time),
            kind: kind(stat.sort),
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            mtime: time(stat.mtime),
            ctime: Some(time(stat.ctime)),
            contents: Contents::EMPTY,
            contents_stamp: Stamp::default(),
            attributes_stamp: Stamp::default(),
            xattrs: None,
            names: Vec::new(),
        }
    }

    /// The same, as it looks now.
    pub fn looks(&self, stat: &Stat) -> Known {
        Known {
            contents: self.contents,
            contents_stamp: self.contents_stamp,
            attributes_stamp: self.attributes_stamp,
            xattrs: self.xattrs.clone(),
            names: self.names.clone(),
            ..Known::seen(stat)
        }
    }

    /// After it got or lost a name, which changes nothing but a time. `plain`: nor are its extended
    /// attributes others. Whatever else was done to it is left to be seen.
    pub fn moved(&self, stat: &Stat, plain: bool) -> Known {
        let same = plain && self.has_attributes_of(stat) && self.holds_the_same(stat);
        let ctime = self.ctime.filter(|_| same).map(|_| time(stat.ctime));
        Known { ctime, ..self.clone() }
    }

    fn has_attributes_of(&self, stat: &Stat) -> bool {
        self.mode == stat.mode && self.uid == stat.uid && self.gid == stat.gid
    }

    /// Whether it is the same file, whatever it holds by now.
    pub fn is(&self, stat: &Stat) -> bool {
        self.ino == stat.ino && self.born == stat.born.map(time) && self.kind == kind(stat.sort)
    }

    /// Whether nothing was done to it. A directory's times tell of its entries.
    pub fn is_as_was(&self, stat: &Stat) -> bool {
        if !self.is(stat) || !self.has_attributes_of(stat) {
            return false;
        }
        self.kind == Kind::Directory
            || (self.ctime == Some(time(stat.ctime)) && self.holds_the_same(stat))
    }

    /// Whether it is as the server left it, for all that was seen of it then.
    pub fn is_as_left(&self, stat: &Stat) -> bool {
        let was_seen_whole = self.ctime.is_some();
        self.is_as_was(stat)
            || (!was_seen_whole && self.has_attributes_of(stat) && self.holds_the_same(stat))
    }

    /// As far as size and time tell; renames and links change neither.
    pub fn holds_the_same(&self, stat: &Stat) -> bool {
        self.is(stat) && self.size == stat.size && self.mtime == time(stat.mtime)
    }
}

pub(super) fn time((secs, nanos): (i64, u32)) -> Time {
    Time { secs, nanos }
}

pub(super) fn kind(sort: Sort) -> Kind {
    match sort {
        Sort::File => Kind::File,
        Sort::Directory => Kind::Directory,
        Sort::Symlink => Kind::Symlink,
        Sort::Fifo => Kind::Fifo,
        Sort::Socket => Kind::Socket,
        Sort::CharDevice => Kind::CharDevice,
        Sort::BlockDevice => Kind::BlockDevice,
    }
}

pub(super) fn sort(kind: Kind) -> Sort {
    match kind {
        Kind::File => Sort::File,
        Kind::Directory => Sort::Directory,
        Kind::Symlink => Sort::Symlink,
        Kind::Fifo => Sort::Fifo,
        Kind::Socket => Sort::Socket,
        Kind::CharDevice => Sort::CharDevice,
        Kind::BlockDevice => Sort::BlockDevice,
    }
}

pub(super) fn tree(read: &dyn Read, volume: VolumeId) -> Result<Option<TreeRow>> {
    get(read, TREES, &volume.0.to_be_bytes())
}

pub(super) fn put_tree(write: &mut dyn Write, volume: VolumeId, row: &TreeRow) -> Result<()> {
    Ok(write.put(TREES, &volume.0.to_be_bytes(), &encode(row))?)
}

pub(super) fn known(read: &dyn Read, volume: VolumeId, file: FileId) -> Result<Option<Known>> {
    get(read, KNOWN, &key(volume, file.0))
}

/// The file that the tree has under a name.
pub(super) fn named(
    read: &dyn Read,
    volume: VolumeId,
    directory: FileId,
    name: &Name,
) -> Result<Option<FileId>> {
    get(read, NAMES, &name_key(volume, directory, name))
}

/// The file that has this number in the tree, if it is still the same one.
pub(super) fn numbered(
    read: &dyn Read,
    volume: VolumeId,
    stat: &Stat,
) -> Result<Option<(FileId, Known)>> {
    let Some(file) = get::<FileId>(read, NUMBERS, &key(volume, stat.ino))? else {
        return Ok(None);
    };
    let row = known(read, volume, file)?;
    Ok(row.filter(|row| row.is(stat)).map(|row| (file, row)))
}

/// Names of a directory after `after`, at most `names_max`, and the file of each.
pub(super) fn names(
    read: &dyn Read,
    volume: VolumeId,
    directory: FileId,
    after: Option<&Name>,
    names_max: usize,
) -> Result<Vec<(Name, FileId)>> {
    let mut from = match after {
        Some(name) => name_key(volume, directory, name),
        None => key(volume, directory.0),
    };
    if after.is_some() {
        from.push(0);
    }
    let to = key(volume, directory.0.saturating_add(1));
    let rows = read.scan(NAMES, &from, &to, names_max)?;
    rows.iter()
        .map(|(key, value)| {
            let place = || format!("a row of {NAMES}");
            let name = key.get(12..).and_then(|name| Name::new(name).ok());
            let name = name.ok_or_else(|| volume::whole::Error::Damaged {
                place: place(),
                what: "its key is not one that is written".into(),
            })?;
            Ok((name, decode(place, value)?))
        })
        .collect()
}

/// Names after a key, of all directories, and the key to go on from.
pub(super) fn all_names(
    read: &dyn Read,
    volume: VolumeId,
    after: Option<(FileId, Name)>,
    names_max: usize,
) -> Result<Vec<((FileId, Name), FileId)>> {
    let mut from = volume.0.to_be_bytes().to_vec();
    if let Some((directory, name)) = after {
        from = name_key(volume, directory, &name);
        from.push(0);
    }
    let rows = read.scan(NAMES, &from, &volume.range().1, names_max)?;
    let mut found = Vec::with_capacity(rows.len());
    for (key, value) in &rows {
        let directory = key.get(4..12).and_then(|bytes| bytes.try_into().ok());
        let name = key.get(12..).and_then(|name| Name::new(name).ok());
        let (Some(directory), Some(name)) = (directory.map(u64::from_be_bytes), name) else {
            continue;
        };
        found.push(((FileId(directory), name), decode(|| format!("a row of {NAMES}"), value)?));
    }
    Ok(found)
}

/// Where a directory is in the tree. None: it is not.
pub(super) fn path(
    read: &dyn Read,
    volume: VolumeId,
    directory: FileId,
) -> Result<Option<Vec<u8>>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut at = directory;
    for _ in 0..DEPTH_MAX {
        if at == FileId::ROOT {
            parts.reverse();
            return Ok(Some(parts.join(&b'/')));
        }
        if at == STAGE {
            parts.push(STAGE_NAME.to_vec());
            parts.reverse();
            return Ok(Some(parts.join(&b'/')));
        }
        let Some(row) = known(read, volume, at)?.filter(|row| row.kind == Kind::Directory) else {
            return Ok(None);
        };
        let Some((above, name)) = row.names.into_iter().next() else { return Ok(None) };
        parts.push(name.as_bytes().to_vec());
        at = above;
    }
    Ok(None)
}

/// The file looks like this, and has the names that the row says.
pub(super) fn put_known(
    write: &mut dyn Write,
    volume: VolumeId,
    file: FileId,
    row: &Known,
) -> Result<()> {
    let before = known(write, volume, file);
    // First, whatever fails: who notes it has it, though the transaction fails.
    write.put(KNOWN, &key(volume, file.0), &encode(row))?;
    if let Some(before) = before? {
        if before.ino != row.ino {
            forget_number(write, volume, before.ino, file)?;
        }
        for at in before.names.iter().filter(|at| !row.names.contains(at)) {
            if named(write, volume, at.0, &at.1)? == Some(file) {
                write.delete(NAMES, &name_key(volume, at.0, &at.1))?;
            }
        }
    }
    for (directory, name) in &row.names {
        let now = named(write, volume, *directory, name)?;
        if let Some(other) = now.filter(|now| *now != file) {
            drop_name(write, volume, other, &(*directory, name.clone()))?;
        }
        write.put(NAMES, &name_key(volume, *directory, name), &encode(&file))?;
    }
    Ok(write.put(NUMBERS, &key(volume, row.ino), &encode(&file))?)
}

/// A name goes, and with the last one all that is known of the file.
pub(super) fn drop_name(
    write: &mut dyn Write,
    volume: VolumeId,
    file: FileId,
    at: &(FileId, Name),
) -> Result<()> {
    if named(write, volume, at.0, &at.1)? == Some(file) {
        write.delete(NAMES, &name_key(volume, at.0, &at.1))?;
    }
    let Some(mut row) = known(write, volume, file)? else { return Ok(()) };
    row.names.retain(|name| name != at);
    if row.names.is_empty() && file != FileId::ROOT {
        forget_number(write, volume, row.ino, file)?;
        return Ok(write.delete(KNOWN, &key(volume, file.0))?);
    }
    Ok(write.put(KNOWN, &key(volume, file.0), &encode(&row))?)
}

fn forget_number(write: &mut dyn Write, volume: VolumeId, ino: u64, file: FileId) -> Result<()> {
    let key = key(volume, ino);
    if get::<FileId>(write, NUMBERS, &key)? == Some(file) {
        write.delete(NUMBERS, &key)?;
    }
    Ok(())
}

pub(super) fn put_staged(write: &mut dyn Write, volume: VolumeId, staged: &Staged) -> Result<()> {
    Ok(write.put(STAGED, &key(volume, staged.known.ino), &encode(staged))?)
}

/// What was made ready and is seen again.
pub(super) fn staged(read: &dyn Read, volume: VolumeId, stat: &Stat) -> Result<Option<Staged>> {
    let found: Option<Staged> = get(read, STAGED, &key(volume, stat.ino))?;
    Ok(found.filter(|staged| staged.known.is(stat)))
}

pub(super) fn drop_staged(write: &mut dyn Write, volume: VolumeId, ino: u64) -> Result<()> {
    Ok(write.delete(STAGED, &key(volume, ino))?)
}

/// Files, and how they are known. None: they are not in the tree any more.
pub(super) type UndoneFiles = Vec<(FileId, Option<Known>)>;

/// Of rows of `KNOWN` that a transaction has put, or deleted.
pub(super) fn known_of(
    volume: VolumeId,
    rows: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
) -> Result<UndoneFiles> {
    let mut found = Vec::with_capacity(rows.len());
    for (key, value) in rows.range(volume.range().0..volume.range().1) {
        let place = || format!("a row of {KNOWN}");
        let known = value.as_ref().map(|value| decode(place, value)).transpose()?;
        found.extend(file_of(key).map(|file| (file, known)));
    }
    Ok(found)
}

fn file_of(key: &[u8]) -> Option<FileId> {
    let bytes = key.get(4..12)?.try_into().ok()?;
    Some(FileId(u64::from_be_bytes(bytes)))
}

pub(super) fn put_undone(
    write: &mut dyn Write,
    volume: VolumeId,
    file: FileId,
    row: &UndoneRow,
) -> Result<()> {
    Ok(write.put(UNDONE, &key(volume, file.0), &encode(row))?)
}

/// None: there are no rows. Those that cannot be read are left out.
pub(super) fn undone(read: &dyn Read, volume: VolumeId) -> Result<Option<UndoneFiles>> {
    let (from, to) = volume.range();
    let rows = read.scan(UNDONE, &from, &to, usize::MAX)?;
    let mut found = Vec::new();
    for (key, value) in &rows {
        match decode::<UndoneRow>(|| format!("a row of {UNDONE}"), value) {
            Ok(row) => found.extend(file_of(key).map(|file| (file, row.known))),
            Err(error) => tracing::warn!(%error, "it is done without"),
        }
    }
    Ok((!rows.is_empty()).then_some(found))
}

pub(super) fn drop_all_undone(write: &mut dyn Write, volume: VolumeId) -> Result<()> {
    let (from, to) = volume.range();
    for (key, _) in write.scan(UNDONE, &from, &to, usize::MAX)? {
        write.delete(UNDONE, &key)?;
    }
    Ok(())
}

/// Removes rows of a volume that is to go, at most `rows_max` of each table. False: none was left.
pub(crate) fn purge_tree(write: &mut dyn Write, volume: VolumeId, rows_max: usize) -> Result<bool> {
    let (from, to) = volume.range();
    let mut found = false;
    for table in [TREES, KNOWN, NAMES, NUMBERS, STAGED, UNDONE, UNDERWAY] {
        for (key, _) in write.scan(table, &from, &to, rows_max)? {
            write.delete(table, &key)?;
            found = true;
        }
    }
    Ok(found)
}

fn key(volume: VolumeId, number: u64) -> Vec<u8> {
    [&volume.0.to_be_bytes()[..], &number.to_be_bytes()].concat()
}

fn name_key(volume: VolumeId, directory: FileId, name: &Name) -> Vec<u8> {
    let mut bytes = key(volume, directory.0);
    bytes.extend(name.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use store::memory::MemoryTables;
    use store::{Durability, Tables};

    fn known(names: &[(u64, &str)]) -> Known {
        let name = |(directory, name): &(u64, &str)| {
            (FileId(*directory), Name::new(name.as_bytes()).unwrap())
        };
        let at = Time { secs: 1, nanos: 2 };
        Known {
            ino: 7,
            born: Some(at),
            kind: Kind::File,
            mode: 0o644,
            uid: 3,
            gid: 4,
            size: 5,
            mtime: at,
            ctime: None,
            contents: Contents::EMPTY,
            contents_stamp: Stamp::new(ReplicaId(1), 6),
            attributes_stamp: Stamp::default(),
            xattrs: None,
            names: names.iter().map(name).collect(),
        }
    }

    #[test]
    fn the_layout_of_rows_is_pinned() {
        let hex = crate::catalog::hex;
        let tree = TreeRow {
            path: b"/d".to_vec().into(),
            mark: vec![0xab; 2].into(),
            replica: ReplicaId(2),
            made: 3,
            files: 4,
        };
        let staged = Staged { file: FileId(9), known: known(&[]) };
        let undone = UndoneRow { known: Some(known(&[(1, "a")])) };
        let golden = [
            hex(&encode(&tree)),
            hex(&encode(&known(&[(1, "a")]))),
            hex(&encode(&staged)),
            hex(&encode(&undone)),
        ];
        expect![[r#"
            0124989e4485422f6442abab020304
            01b5f424b38e07820102001901a4030405820102f68100820106820000f68182014161
            0118aa970b82098e07820102001901a4030405820102f68100820106820000f680
            0163f5eb92818e07820102001901a4030405820102f68100820106820000f68182014161"#]]
        .assert_eq(&golden.join("\n"));
    }

    #[test]
    fn a_file_that_loses_its_last_name_is_not_known_any_more() {
        let tables = MemoryTables::new();
        let volume = VolumeId(1);
        let mut write = tables.write().unwrap();
        let row = known(&[(1, "a"), (1, "b")]);
        put_known(&mut *write, volume, FileId(9), &row).unwrap();
        drop_name(&mut *write, volume, FileId(9), &row.names[0]).unwrap();
        let (a, b) = (&row.names[0].1, &row.names[1].1);
        assert_eq!(named(&*write, volume, FileId(1), a).unwrap(), None);
        assert_eq!(named(&*write, volume, FileId(1), b).unwrap(), Some(FileId(9)));
        // Another file comes to the name.
        let other = Known { ino: 8, ..known(&[(1, "b")]) };
        put_known(&mut *write, volume, FileId(10), &other).unwrap();
        assert_eq!(super::known(&*write, volume, FileId(9)).unwrap(), None);
        assert_eq!(named(&*write, volume, FileId(1), b).unwrap(), Some(FileId(10)));
        assert_eq!(names(&*write, volume, FileId(1), None, 9).unwrap().len(), 1);
        assert!(purge_tree(&mut *write, volume, 9).unwrap());
        assert!(!purge_tree(&mut *write, volume, 9).unwrap());
        write.commit(Durability::Now).unwrap();
    }

    #[test]
    fn a_path_is_found_upwards() {
        let tables = MemoryTables::new();
        let volume = VolumeId(1);
        let mut write = tables.write().unwrap();
        let directory =
            |ino, names: &[(u64, &str)]| Known { ino, kind: Kind::Directory, ..known(names) };
        put_known(&mut *write, volume, FileId(5), &directory(1, &[(1, "a")])).unwrap();
        put_known(&mut *write, volume, FileId(6), &directory(2, &[(5, "b")])).unwrap();
        let path = |file| path(&*write, volume, FileId(file)).unwrap();
        assert_eq!(path(6).as_deref(), Some(&b"a/b"[..]));
        assert_eq!(path(1).as_deref(), Some(&b""[..]));
        assert_eq!(path(7), None);
    }
}
