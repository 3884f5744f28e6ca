use super::*;

const FIRST: Moment = (1, 0);
const LATER: Moment = (2, 0);
const ROOT: INodeNo = INodeNo::ROOT;
const BYTES_MAX: u64 = 1 << 20;

fn new(kind: FileType) -> New<'static> {
    New { kind, perm: 0o755, uid: 7, gid: 8, rdev: 0, target: OsStr::new("") }
}

fn tree() -> Tree {
    Tree::new(&new(FileType::Directory), BYTES_MAX, FIRST)
}

fn at(parent: INodeNo, name: &str) -> Place<'_> {
    (parent, OsStr::new(name))
}

fn make(tree: &mut Tree, parent: INodeNo, name: &str, kind: FileType) -> INodeNo {
    tree.make(at(parent, name), &new(kind), LATER).unwrap().ino
}

fn file(tree: &mut Tree, parent: INodeNo, name: &str, bytes: &[u8]) -> INodeNo {
    let file = make(tree, parent, name, FileType::RegularFile);
    tree.write(file, (0, bytes), false, LATER).unwrap();
    file
}

fn names(tree: &Tree, directory: INodeNo, after: u64) -> Vec<String> {
    let listed = tree.list(directory, after).unwrap();
    listed.map(|entry| entry.name.to_string_lossy().into_owned()).collect()
}

#[test]
fn what_is_made_is_found_under_its_name() {
    let mut tree = tree();
    let directory = make(&mut tree, ROOT, "d", FileType::Directory);
    let made = file(&mut tree, directory, "f", b"abc");
    let found = tree.find(at(directory, "f")).unwrap();
    assert_eq!((found.ino, found.size, found.blocks, found.nlink), (made, 3, 1, 1));
    assert_eq!((found.perm, found.uid, found.gid, found.mtime), (0o755, 7, 8, LATER));
    assert_eq!(tree.attributes(ROOT).unwrap().nlink, 3);
    assert_eq!(tree.attributes(ROOT).unwrap().mtime, LATER);
    let new = New { target: OsStr::new("d/f"), ..new(FileType::Symlink) };
    let link = tree.make(at(ROOT, "l"), &new, LATER).unwrap();
    assert_eq!((tree.target(link.ino), link.size), (Ok(OsStr::new("d/f")), 3));
}

#[test]
fn what_cannot_be_is_refused_and_leaves_all_as_it_was() {
    let mut tree = tree();
    let directory = make(&mut tree, ROOT, "d", FileType::Directory);
    let made = file(&mut tree, directory, "f", b"abc");
    let regular = new(FileType::RegularFile);
    let mut refused = |place| tree.make(place, &regular, LATER).unwrap_err();
    assert_eq!(refused(at(directory, "f")), Errno::EEXIST);
    assert_eq!(refused(at(made, "g")), Errno::ENOTDIR);
    assert_eq!(refused(at(INodeNo(99), "g")), Errno::ENOENT);
    assert_eq!(refused(at(ROOT, &"n".repeat(NAME_BYTES_MAX + 1))), Errno::ENAMETOOLONG);
    assert_eq!(tree.find(at(ROOT, "f")).unwrap_err(), Errno::ENOENT);
    assert_eq!(tree.unlink(at(ROOT, "d"), LATER), Err(Errno::EISDIR));
    assert_eq!(tree.remove_directory(at(ROOT, "d"), LATER), Err(Errno::ENOTEMPTY));
    assert_eq!(tree.remove_directory(at(directory, "f"), LATER), Err(Errno::ENOTDIR));
    assert_eq!(tree.link(directory, at(ROOT, "e"), LATER).unwrap_err(), Errno::EPERM);
    assert_eq!(tree.read(directory, 0, 1), Err(Errno::EISDIR));
    assert_eq!(tree.target(made), Err(Errno::EINVAL));
    assert!(tree.list(made, 0).is_err());
    assert_eq!((names(&tree, ROOT, DOT_DOT), tree.files()), (vec!["d".to_owned()], 3));
}

#[test]
fn a_file_without_a_name_is_read_until_the_kernel_forgets_it() {
    let mut tree = tree();
    let made = file(&mut tree, ROOT, "f", b"abc");
    tree.meet(made);
    tree.meet(made);
    tree.unlink(at(ROOT, "f"), LATER).unwrap();
    assert_eq!(tree.find(at(ROOT, "f")).unwrap_err(), Errno::ENOENT);
    tree.forget(made, 1);
    assert_eq!(tree.read(made, 1, 9), Ok(&b"bc"[..]));
    assert_eq!(tree.attributes(made).unwrap().nlink, 0);
    assert_eq!(tree.link(made, at(ROOT, "g"), LATER).unwrap_err(), Errno::ENOENT);
    tree.forget(made, 1);
    assert_eq!(tree.read(made, 0, 9), Err(Errno::ENOENT));
    assert_eq!((tree.bytes(), tree.files()), (0, 1));
    // What the kernel says of what is not there does nothing.
    tree.forget(made, 9);
    tree.forget(ROOT, 9);
    assert!(tree.attributes(ROOT).is_ok());
}

#[test]
fn a_file_with_two_names_outlives_one_of_them() {
    let mut tree = tree();
    let made = file(&mut tree, ROOT, "f", b"abc");
    assert_eq!(tree.link(made, at(ROOT, "g"), LATER).unwrap().nlink, 2);
    tree.unlink(at(ROOT, "f"), LATER).unwrap();
    assert_eq!(tree.find(at(ROOT, "g")).unwrap().nlink, 1);
    assert_eq!(tree.read(made, 0, 9), Ok(&b"abc"[..]));
}

#[test]
fn what_is_renamed_over_another_takes_its_place() {
    let mut tree = tree();
    let directory = make(&mut tree, ROOT, "d", FileType::Directory);
    let moved = file(&mut tree, ROOT, "a", b"new");
    let replaced = file(&mut tree, directory, "b", b"older");
    let empty = RenameFlags::empty();
    tree.rename(at(ROOT, "a"), at(directory, "b"), empty, LATER).unwrap();
    assert_eq!(tree.find(at(directory, "b")).unwrap().ino, moved);
    assert_eq!(tree.attributes(replaced), Err(Errno::ENOENT));
    assert_eq!((tree.bytes(), names(&tree, ROOT, DOT_DOT)), (3, vec!["d".to_owned()]));
    let keeps = RenameFlags::RENAME_NOREPLACE;
    file(&mut tree, ROOT, "c", b"");
    let refused = tree.rename(at(ROOT, "c"), at(directory, "b"), keeps, LATER);
    assert_eq!(refused, Err(Errno::EEXIST));
    let refused = tree.rename(at(ROOT, "c"), at(ROOT, "d"), empty, LATER);
    assert_eq!(refused, Err(Errno::EISDIR));
    let refused = tree.rename(at(ROOT, "d"), at(ROOT, "c"), empty, LATER);
    assert_eq!(refused, Err(Errno::ENOTDIR));
    let refused = tree.rename(at(ROOT, "c"), at(ROOT, "e"), RenameFlags::RENAME_WHITEOUT, LATER);
    assert_eq!(refused, Err(Errno::EINVAL));
}

#[test]
fn a_directory_is_moved_with_what_counts_it() {
    let mut tree = tree();
    let (from, to) = (
        make(&mut tree, ROOT, "from", FileType::Directory),
        make(&mut tree, ROOT, "to", FileType::Directory),
    );
    let moved = make(&mut tree, from, "d", FileType::Directory);
    let replaced = make(&mut tree, to, "d", FileType::Directory);
    tree.rename(at(from, "d"), at(to, "d"), RenameFlags::empty(), LATER).unwrap();
    let links = [ROOT, from, to, moved].map(|file| tree.attributes(file).unwrap().nlink);
    assert_eq!(links, [4, 2, 3, 2]);
    assert_eq!(tree.attributes(replaced), Err(Errno::ENOENT));
    let above = tree.list(moved, DOT).unwrap().next().map(|entry| entry.attr.ino);
    assert_eq!(above, Some(to));
    tree.rename(at(to, "d"), at(ROOT, "from"), RenameFlags::RENAME_EXCHANGE, LATER).unwrap();
    assert_eq!(tree.find(at(ROOT, "from")).unwrap().ino, moved);
    assert_eq!(tree.find(at(to, "d")).unwrap().ino, from);
}

#[test]
fn a_directory_that_is_removed_takes_nothing_in() {
    let mut tree = tree();
    let directory = make(&mut tree, ROOT, "d", FileType::Directory);
    tree.meet(directory);
    tree.remove_directory(at(ROOT, "d"), LATER).unwrap();
    assert_eq!(tree.attributes(ROOT).unwrap().nlink, 2);
    let refused = tree.make(at(directory, "f"), &new(FileType::RegularFile), LATER);
    assert_eq!(refused.unwrap_err(), Errno::ENOENT);
    assert_eq!(names(&tree, directory, 0), [".", ".."]);
}

#[test]
fn a_file_is_cut_and_made_longer_by_its_attributes() {
    let mut tree = tree();
    let made = file(&mut tree, ROOT, "f", b"abc");
    let cut = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    assert_eq!(tree.set(made, &cut(1), LATER).unwrap().size, 1);
    assert_eq!(tree.set(made, &cut(3), LATER).unwrap().size, 3);
    assert_eq!(tree.read(made, 0, 9), Ok(&b"a\0\0"[..]));
    let set = SetAttributes { mode: Some(0o100_640), uid: Some(1), ..SetAttributes::default() };
    let attr = tree.set(made, &set, (5, 6)).unwrap();
    assert_eq!((attr.perm, attr.uid, attr.gid, attr.ctime), (0o640, 1, 8, (5, 6)));
}

#[test]
fn what_there_is_no_room_for_is_refused() {
    let mut tree = tree();
    let made = file(&mut tree, ROOT, "f", b"abc");
    let refused = tree.write(made, (BYTES_MAX - 1, b"ab"), false, LATER);
    assert_eq!(refused, Err(Errno::ENOSPC));
    assert_eq!(tree.write(made, (u64::MAX, b"ab"), false, LATER), Err(Errno::EFBIG));
    assert_eq!(tree.truncate(made, u64::MAX, LATER), Err(Errno::ENOSPC));
    assert_eq!((tree.read(made, 0, 9), tree.bytes()), (Ok(&b"abc"[..]), 3));
    assert_eq!(tree.truncate(made, BYTES_MAX, LATER), Ok(()));
}

#[test]
fn set_id_bits_go_when_others_write_and_come_with_the_directory() {
    let mut tree = tree();
    let made = file(&mut tree, ROOT, "f", b"");
    let mode = |mode| SetAttributes { mode: Some(mode), ..SetAttributes::default() };
    tree.set(made, &mode(0o6755), LATER).unwrap();
    tree.write(made, (0, b"a"), false, LATER).unwrap();
    assert_eq!(tree.attributes(made).unwrap().perm, 0o6755);
    tree.write(made, (0, b"a"), true, LATER).unwrap();
    assert_eq!(tree.attributes(made).unwrap().perm, 0o755);
    tree.set(ROOT, &SetAttributes { gid: Some(50), ..mode(0o2755) }, LATER).unwrap();
    let below = make(&mut tree, ROOT, "d", FileType::Directory);
    let below = tree.attributes(below).unwrap();
    assert_eq!((below.gid, below.perm), (50, 0o2755));
}

#[test]
fn a_listing_goes_on_where_it_ended_whatever_is_removed_meanwhile() {
    let mut tree = tree();
    for name in ["a", "b", "c", "d"] {
        file(&mut tree, ROOT, name, b"");
    }
    let listed = tree.list(ROOT, 0).unwrap();
    let piece: Vec<_> = listed.take(4).map(|entry| (entry.position, entry.is_dot)).collect();
    assert_eq!(piece.iter().map(|(_, dot)| *dot).collect::<Vec<_>>(), [true, true, false, false]);
    tree.unlink(at(ROOT, "a"), LATER).unwrap();
    tree.unlink(at(ROOT, "b"), LATER).unwrap();
    file(&mut tree, ROOT, "e", b"");
    assert_eq!(names(&tree, ROOT, piece[3].0), ["c", "d", "e"]);
    assert_eq!(names(&tree, ROOT, piece[0].0), ["..", "c", "d", "e"]);
    assert!(names(&tree, ROOT, u64::MAX).is_empty());
}
