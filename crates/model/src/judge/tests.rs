use super::*;
use crate::acl::tests::shared;
use crate::{ReplicaId, Time};
use std::convert::Infallible;

/// A view that knows everything.
#[derive(Default)]
struct World {
    nodes: BTreeMap<FileId, Node>,
    entries: BTreeMap<(FileId, Name), FileId>,
    number: u64,
}

impl View for World {
    type Error = Infallible;

    fn node(&self, file: FileId) -> Result<Option<Node>, Infallible> {
        Ok(self.nodes.get(&file).cloned())
    }

    fn entry(&self, directory: FileId, name: &Name) -> Result<Option<FileId>, Infallible> {
        Ok(self.entries.get(&(directory, name.clone())).copied())
    }

    fn is_empty(&self, directory: FileId) -> Result<bool, Infallible> {
        Ok(!self.entries.keys().any(|(parent, _)| *parent == directory))
    }
}

impl World {
    fn new() -> World {
        let mut world = World::default();
        world.nodes.insert(FileId::ROOT, Node::root_directory(0, 0, Time::default()));
        world
    }

    fn judge(&mut self, change: Change) -> Result<Effects, Problem> {
        self.number += 1;
        let stamp = Stamp::new(ReplicaId(1), self.number);
        let at = Time { secs: self.number as i64, nanos: 0 };
        let update = Update { stamp, uid: 0, at, change };
        let Ok(outcome) = judge(&update, self);
        outcome
    }

    fn apply(&mut self, change: Change) -> Result<(), Problem> {
        let effects = self.judge(change)?;
        for (file, node) in effects.nodes {
            match node {
                Some(node) => self.nodes.insert(file, node),
                None => self.nodes.remove(&file),
            };
        }
        for (key, file) in effects.entries {
            match file {
                Some(file) => self.entries.insert(key, file),
                None => self.entries.remove(&key),
            };
        }
        Ok(())
    }

    fn make(&mut self, parent: u64, name: &str, file: u64, kind: Kind) -> Result<(), Problem> {
        self.apply(Change::Make {
            parent: FileId(parent),
            name: named(name),
            file: FileId(file),
            kind,
            mode: 0o644,
            uid: 1,
            gid: 1,
            target: None,
            rdev: None,
            born: None,
        })
    }

    fn rename(
        &mut self,
        (from, from_name): (u64, &str),
        (to, to_name): (u64, &str),
        file: u64,
        over: Option<u64>,
        exchange: bool,
    ) -> Result<(), Problem> {
        self.apply(Change::Rename {
            from: FileId(from),
            from_name: named(from_name),
            to: FileId(to),
            to_name: named(to_name),
            file: FileId(file),
            over: over.map(FileId),
            exchange,
            whiteout: None,
            expects: None,
        })
    }

    fn links(&self, file: u64) -> Option<u32> {
        self.nodes.get(&FileId(file)).map(|node| node.links)
    }
}

fn named(name: &str) -> Name {
    Name::new(name).expect("a good name")
}

#[test]
fn a_directory_counts_itself_its_name_and_the_directories_in_it() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::Directory).expect("free");
    world.make(10, "b", 11, Kind::Directory).expect("free");
    world.make(10, "f", 12, Kind::File).expect("free");
    assert_eq!((world.links(1), world.links(10), world.links(11)), (Some(3), Some(3), Some(2)));
    world.rename((10, "b"), (1, "b"), 11, None, false).expect("free");
    assert_eq!((world.links(1), world.links(10)), (Some(4), Some(2)));
    assert_eq!(world.nodes[&FileId(11)].parent, Some(FileId::ROOT));
}

#[test]
fn a_directory_is_not_set_back_by_an_update_that_comes_late() {
    let mut world = World::new();
    world.number = 10;
    world.make(1, "later", 10, Kind::File).expect("free");
    assert_eq!(world.nodes[&FileId::ROOT].mtime, Time { secs: 11, nanos: 0 });
    world.number = 4;
    world.make(1, "earlier", 11, Kind::File).expect("free");
    let root = &world.nodes[&FileId::ROOT];
    assert_eq!(
        (root.mtime, root.ctime),
        (Time { secs: 11, nanos: 1 }, Time { secs: 11, nanos: 1 })
    );
    let last = Time { secs: 5, nanos: 999_999_999 };
    assert_eq!(last.next(), Time { secs: 6, nanos: 0 });
}

#[test]
fn a_taken_name_and_a_used_id_are_told_apart() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::File).expect("free");
    let taken = Problem::NameTaken { name: named("a"), by: FileId(10) };
    assert_eq!(world.make(1, "a", 11, Kind::File), Err(taken));
    assert_eq!(world.make(1, "b", 10, Kind::File), Err(Problem::IdTaken(FileId(10))));
    assert_eq!(world.make(10, "c", 12, Kind::File), Err(Problem::NotADirectory(FileId(10))));
}

#[test]
fn a_file_goes_with_its_last_name() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::File).expect("free");
    let link = Change::Link { parent: FileId(1), name: named("b"), file: FileId(10) };
    world.apply(link).expect("free");
    assert_eq!(world.links(10), Some(2));
    for (name, left) in [("a", Some(1)), ("b", None)] {
        let unlink = Change::Unlink {
            parent: FileId(1),
            name: named(name),
            file: FileId(10),
            expects: None,
        };
        world.apply(unlink).expect("there");
        assert_eq!(world.links(10), left);
    }
}

#[test]
fn only_an_empty_directory_can_be_removed_or_renamed_over() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::Directory).expect("free");
    world.make(10, "f", 11, Kind::File).expect("free");
    world.make(1, "b", 12, Kind::Directory).expect("free");
    let unlink =
        Change::Unlink { parent: FileId(1), name: named("a"), file: FileId(10), expects: None };
    assert_eq!(world.apply(unlink), Err(Problem::NotEmpty(FileId(10))));
    let over = world.rename((1, "b"), (1, "a"), 12, Some(10), false);
    assert_eq!(over, Err(Problem::NotEmpty(FileId(10))));
    world.rename((1, "a"), (1, "b"), 10, Some(12), false).expect("the target is empty");
    assert_eq!((world.links(1), world.links(12)), (Some(3), None));
}

#[test]
fn a_directory_never_comes_to_lie_in_itself() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::Directory).expect("free");
    world.make(10, "b", 11, Kind::Directory).expect("free");
    let inside = world.rename((1, "a"), (11, "c"), 10, None, false);
    assert_eq!(inside, Err(Problem::Cycle(FileId(10))));
    let swapped = world.rename((1, "a"), (10, "b"), 10, Some(11), true);
    assert_eq!(swapped, Err(Problem::Cycle(FileId(10))));
}

#[test]
fn a_whiteout_takes_the_place_of_what_is_moved_away() {
    let mut world = World::new();
    world.make(1, "d", 10, Kind::Directory).expect("free");
    world.make(10, "a", 11, Kind::File).expect("free");
    world.make(1, "b", 12, Kind::File).expect("free");
    let leaving = |whiteout: u64| Change::Rename {
        from: FileId(10),
        from_name: named("a"),
        to: FileId(1),
        to_name: named("b"),
        file: FileId(11),
        over: Some(FileId(12)),
        exchange: false,
        whiteout: Some(Whiteout { file: FileId(whiteout), uid: 5, gid: 6 }),
        expects: None,
    };
    assert_eq!(world.apply(leaving(10)), Err(Problem::IdTaken(FileId(10))));
    world.apply(leaving(13)).expect("both are there");
    assert_eq!(world.entries[&(FileId(1), named("b"))], FileId(11));
    assert_eq!(world.entries[&(FileId(10), named("a"))], FileId(13));
    assert_eq!((world.links(11), world.links(12), world.links(13)), (Some(1), None, Some(1)));
    let left = &world.nodes[&FileId(13)];
    assert_eq!(left.born, Some(Time { secs: world.number as i64, nanos: 0 }));
    assert_eq!((left.kind, left.mode, left.rdev), (Kind::CharDevice, 0, Some(0)));
    assert_eq!((left.uid, left.gid, left.parent), (5, 6, None));
    assert_eq!(left.xattrs, None);
}

#[test]
fn a_whiteout_gets_what_its_directory_hands_down() {
    let mut world = World::new();
    world.make(1, "d", 10, Kind::Directory).expect("free");
    world.make(10, "a", 11, Kind::File).expect("free");
    world.apply(set_xattr(10, ACL_DEFAULT, shared(7))).expect("a list");
    let change = Change::Rename {
        from: FileId(10),
        from_name: named("a"),
        to: FileId(1),
        to_name: named("b"),
        file: FileId(11),
        over: None,
        exchange: false,
        whiteout: Some(Whiteout { file: FileId(13), uid: 5, gid: 6 }),
        expects: None,
    };
    world.apply(change).expect("it is there");
    let left = &world.nodes[&FileId(13)];
    // Nobody may do anything with it by its mode, as ever.
    assert_eq!((left.kind, left.mode), (Kind::CharDevice, 0));
    let access = left.acl(ACL_ACCESS).expect("it was handed down");
    assert_eq!(access, Acl::read(&shared(7)).expect("a list").handed_down(0).0);
}

#[test]
fn an_exchange_takes_nothing_away() {
    let mut world = World::new();
    world.make(1, "d", 10, Kind::Directory).expect("free");
    world.make(1, "e", 11, Kind::Directory).expect("free");
    world.make(10, "f", 12, Kind::File).expect("free");
    world.rename((1, "e"), (10, "f"), 11, Some(12), true).expect("both are there");
    assert_eq!(world.entries[&(FileId(1), named("e"))], FileId(12));
    assert_eq!(world.entries[&(FileId(10), named("f"))], FileId(11));
    assert_eq!((world.links(1), world.links(10)), (Some(3), Some(3)));
}

#[test]
fn two_names_of_one_file_are_left_alone_by_a_rename() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::File).expect("free");
    let link = Change::Link { parent: FileId(1), name: named("b"), file: FileId(10) };
    world.apply(link).expect("free");
    world.rename((1, "a"), (1, "b"), 10, Some(10), false).expect("nothing to do");
    assert_eq!(world.links(10), Some(2));
    assert_eq!(world.entries.len(), 2);
}

#[test]
fn a_store_expects_the_contents_that_it_saw() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::File).expect("free");
    let seen = world.nodes[&FileId(10)].contents_stamp;
    let store = |expects| Change::Store {
        file: FileId(10),
        expects,
        contents: Contents { size: 5, root: None, holes: None },
        mtime: Time { secs: 99, nanos: 0 },
    };
    world.apply(store(seen)).expect("nobody stored meanwhile");
    assert_eq!(world.nodes[&FileId(10)].contents.size, 5);
    let found = world.nodes[&FileId(10)].contents_stamp;
    let changed = Problem::ContentsChanged { file: FileId(10), found };
    assert_eq!(world.apply(store(seen)), Err(changed));
}

#[test]
fn the_last_xattr_leaves_nothing_behind() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::File).expect("free");
    let name = ByteVec::from(b"user.k".to_vec());
    let set = Change::SetXattr {
        file: FileId(10),
        name: name.clone(),
        value: name.clone(),
        expects: None,
    };
    world.apply(set).expect("there");
    let remove = Change::RemoveXattr { file: FileId(10), name, expects: None };
    world.apply(remove.clone()).expect("there");
    assert_eq!(world.nodes[&FileId(10)].xattrs, None);
    assert_eq!(world.apply(remove), Err(Problem::NoXattr(FileId(10))));
}

#[test]
fn effects_are_values_so_that_applying_them_twice_is_applying_them_once() {
    let mut world = World::new();
    world.make(1, "a", 10, Kind::Directory).expect("free");
    let effects = world.judge(Change::Unlink {
        parent: FileId(1),
        name: named("a"),
        file: FileId(10),
        expects: None,
    });
    let effects = effects.expect("empty");
    assert_eq!(effects.nodes[&FileId(10)], None);
    assert_eq!(effects.nodes[&FileId(1)].as_ref().map(|node| node.links), Some(2));
}

/// A file, a directory and what each update may do to them.
fn whatever(world: &World, which: usize, at: Time) -> Change {
    let file = FileId([10, 11][which % 2]);
    let node = &world.nodes[&FileId(10)];
    let (expects, contents) = (node.contents_stamp, Contents { size: 5, root: None, holes: None });
    let names = |file: FileId| {
        let names = world.entries.iter().filter(|(_, named)| **named == file);
        names.map(|((_, name), _)| name.clone()).next().expect("it has one")
    };
    let rename = |over: Option<FileId>, to_name: Name, exchange| Change::Rename {
        from: FileId::ROOT,
        from_name: names(file),
        to: FileId::ROOT,
        to_name,
        file,
        over,
        exchange,
        whiteout: None,
        expects: None,
    };
    match which / 2 {
        0 => rename(None, named(&at.secs.to_string()), false),
        1 => rename(Some(FileId(21 - file.0)), names(FileId(21 - file.0)), true),
        2 => Change::Store { file: FileId(10), expects, contents, mtime: at },
        3 => {
            let expects = world.nodes[&file].attributes_stamp;
            let set = AttributeChange {
                mode: Some(0o600),
                uid: Some(7),
                gid: Some(7),
                atime: Some(at),
                mtime: Some(at),
            };
            Change::SetAttributes { file, expects, set }
        }
        4 => set_xattr(file.0, b"user.k", vec![1]),
        5 => {
            let name = named(&format!("link {}", at.secs));
            Change::Link { parent: FileId::ROOT, name, file: FileId(10) }
        }
        _ => Change::RemoveXattr { file, name: b"user.k".to_vec().into(), expects: None },
    }
}

proptest::proptest! {
    #[test]
    fn prop_nothing_that_is_done_to_a_file_changes_when_it_was_made(
        steps in proptest::collection::vec(0_usize..14, 1..30), is_known in proptest::bool::ANY,
    ) {
        let mut world = World::new();
        world.number = 40;
        world.make(1, "file", 10, Kind::File).expect("free");
        world.make(1, "folder", 11, Kind::Directory).expect("free");
        let mut births = [10, 11].map(|secs| Some(Time { secs: secs + 31, nanos: 0 }));
        if !is_known {
            // As of before births were kept: none is made up.
            births = [None, None];
            world.nodes.values_mut().for_each(|node| node.born = None);
        }
        let born = |world: &World| [10, 11].map(|file| world.nodes[&FileId(file)].born);
        proptest::prop_assert_eq!(born(&world), births);
        for (step, which) in steps.into_iter().enumerate() {
            let change = whatever(&world, which, Time { secs: step as i64, nanos: 0 });
            let outcome = world.apply(change);
            let fine = outcome.is_ok() || matches!(outcome, Err(Problem::NoXattr(_)));
            proptest::prop_assert!(fine, "{outcome:?}");
            proptest::prop_assert_eq!(born(&world), births);
        }
    }
}

#[test]
fn a_file_is_born_with_the_update_that_makes_it_unless_that_says_otherwise() {
    let mut world = World::new();
    let make = |file: u64, born| Change::Make {
        parent: FileId::ROOT,
        name: named(&file.to_string()),
        file: FileId(file),
        kind: Kind::File,
        mode: 0o644,
        uid: 1,
        gid: 1,
        target: None,
        rdev: None,
        born,
    };
    let earlier = Time { secs: -9, nanos: 5 };
    world.apply(make(10, None)).expect("free");
    world.apply(make(11, Some(earlier))).expect("free");
    let times = |file: u64| (world.nodes[&FileId(file)].born, world.nodes[&FileId(file)].mtime);
    let [first, second] = [1, 2].map(|secs| Time { secs, nanos: 0 });
    assert_eq!((times(10), times(11)), ((Some(first), first), (Some(earlier), second)));
}

fn set_xattr(file: u64, name: &[u8], value: Vec<u8>) -> Change {
    Change::SetXattr {
        file: FileId(file),
        name: name.to_vec().into(),
        value: value.into(),
        expects: None,
    }
}

fn set_mode(world: &World, file: u64, mode: u16) -> Change {
    let expects = world.nodes[&FileId(file)].attributes_stamp;
    let set = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    Change::SetAttributes { file: FileId(file), expects, set }
}

#[test]
fn the_mode_and_the_access_list_follow_each_other() {
    let mut world = World::new();
    world.make(1, "f", 10, Kind::File).expect("free");
    let before = world.nodes[&FileId(10)].attributes_stamp;
    world.apply(set_xattr(10, ACL_ACCESS, shared(6))).expect("a list");
    let node = |world: &World| world.nodes[&FileId(10)].clone();
    assert_ne!(node(&world).attributes_stamp, before, "whoever goes by it learns of the list");
    assert_eq!((node(&world).mode, node(&world).xattr(ACL_ACCESS)), (0o760, Some(&shared(6)[..])));

    let change = set_mode(&world, 10, 0o4740);
    world.apply(change).expect("the same stamp");
    assert_eq!(node(&world).mode, 0o4740);
    assert_eq!(node(&world).xattr(ACL_ACCESS), Some(&shared(4)[..]), "the group's is the mask's");

    // A list that the mode tells as well is no list, and bits beyond permissions stay.
    let plain = Acl::read(&shared(4)).expect("a list").to_bytes();
    let entries = [&plain[..4], &plain[4..12], &plain[20..28], &plain[36..]].concat();
    world.apply(set_xattr(10, ACL_ACCESS, entries)).expect("a list");
    assert_eq!((node(&world).mode, node(&world).xattrs), (0o4740, None));
}

#[test]
fn a_removed_access_list_leaves_the_mode_as_it_was() {
    let mut world = World::new();
    world.make(1, "f", 10, Kind::File).expect("free");
    world.apply(set_xattr(10, ACL_ACCESS, shared(6))).expect("a list");
    let name = ACL_ACCESS.to_vec().into();
    world.apply(Change::RemoveXattr { file: FileId(10), name, expects: None }).expect("it has one");
    let node = &world.nodes[&FileId(10)];
    assert_eq!((node.mode, &node.xattrs), (0o760, &None));
}

#[test]
fn what_is_made_in_a_directory_with_a_default_list_gets_it() {
    let mut world = World::new();
    world.make(1, "d", 10, Kind::Directory).expect("free");
    world.apply(set_xattr(10, ACL_DEFAULT, shared(7))).expect("a list");
    assert_eq!(world.nodes[&FileId(10)].mode, 0o644, "it is for what is made in it");
    world.make(10, "file", 11, Kind::File).expect("free");
    world.make(10, "folder", 12, Kind::Directory).expect("free");
    world.make(10, "link", 13, Kind::Symlink).expect("free");
    let node = |file: u64| world.nodes[&FileId(file)].clone();
    // 0644 of what the list gives: read and write to the owner, and read through the mask.
    let access = Acl::read(&shared(7)).expect("a list").with_mode(0o640).to_bytes();
    assert_eq!((node(11).mode, node(11).xattr(ACL_ACCESS)), (0o640, Some(&access[..])));
    assert_eq!(node(11).xattr(ACL_DEFAULT), None);
    assert_eq!(node(12).xattr(ACL_ACCESS), Some(&access[..]));
    assert_eq!(node(12).xattr(ACL_DEFAULT), Some(&shared(7)[..]), "directories hand it on");
    assert_eq!((node(13).mode, node(13).xattrs), (0o644, None));
}
