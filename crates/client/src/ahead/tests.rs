use super::bounds::{Bounds, patience};
use super::walk::{Order, Plan, Trail, Walk, after, order_of};
use super::*;
use crate::types::{Durability, Settings, WantedMode};
use model::{Contents, Kind, Name, Node, ReplicaId, Seq, Time};
use protocol::{LinkQuality, Listed, Listing, NodeState};
use store::Tables;
use store::memory::MemoryTables;
use volume::partial::{self, Tree};
use world::World;

const TOP: FileId = FileId::ROOT;

fn stamp() -> Stamp {
    Stamp::new(ReplicaId(1), 1)
}

fn now() -> Moment {
    World::real().clock.moment()
}

fn adsl() -> LinkQuality {
    LinkQuality {
        rate_up: Some(43_500),
        rate_down: Some(187_500),
        round_trip: Some(Duration::from_millis(60)),
        ..LinkQuality::default()
    }
}

fn settings(cache_bytes_max: u64) -> Settings {
    Settings {
        mode: WantedMode::Auto,
        durability: Durability::Prompt,
        whole_bytes_max: None,
        early_bytes_min: None,
        cache_bytes_max,
        pending_near_max: crate::PENDING_NEAR_MAX,
        plan_chunks_max: crate::PLAN_CHUNKS_MAX,
        again_bytes_min: crate::AGAIN_BYTES_MIN,
        accepts_set_back: false,
        replay_delay: None,
        passes_from: None,
        budget: None,
        answer_within: Duration::from_secs(30),
        volume: String::new(),
        server: String::new(),
        mountpoint: "/".into(),
        state_directory: "/".into(),
    }
}

fn bounds() -> Bounds {
    Bounds::of(&adsl(), &settings(1 << 30))
}

/// A guess that is here.
fn fetched(ahead: &mut Ahead, file: u64, bytes: u64, at: Moment) {
    ahead.ask_for(FileId(file), stamp(), bytes);
    ahead.land(FileId(file), true, at);
}

#[tokio::test]
async fn the_window_grows_by_what_is_read_and_is_halved_by_what_is_not() {
    let (mut ahead, at) = (Ahead::default(), now());
    let first = bounds().window_first;
    assert_eq!(ahead.room(&bounds()), Some(bounds().batch));
    fetched(&mut ahead, 7, 10_000, at);
    assert!(ahead.read(FileId(7), at), "the first time");
    assert!(!ahead.read(FileId(7), at), "and never again");
    assert_eq!(ahead.status().window_bytes, first + 10_000);
    fetched(&mut ahead, 8, 30_000, at);
    ahead.expire(at + GUESS_HOLDS / 2);
    assert_eq!(ahead.status().unused_bytes, 30_000, "not yet");
    ahead.expire(at + GUESS_HOLDS);
    let status = ahead.status();
    assert_eq!(status.window_bytes, (first + 10_000) / 2);
    assert_eq!((status.files, status.bytes), (2, 40_000));
    assert_eq!((status.used_bytes, status.unused_bytes), (10_000, 30_000));
    assert_eq!(ahead.out, 0, "what was wrong takes no room");
}

#[tokio::test]
async fn no_more_is_out_than_the_window_holds() {
    let mut ahead = Ahead::default();
    let (mut file, bounds) = (10, bounds());
    while let Some(room) = ahead.room(&bounds) {
        ahead.ask_for(FileId(file), stamp(), room);
        file += 1;
        assert!(ahead.out <= bounds.window_first);
    }
    assert!(file > 11, "one answer comes while the next is asked for");
    ahead.land(FileId(10), false, now());
    assert!(ahead.room(&bounds).is_some(), "what did not come takes no room");
    assert_eq!(ahead.status().bytes, 0);
}

#[tokio::test]
async fn who_lacks_what_is_under_way_waits_for_it_until_it_lands_or_takes_too_long() {
    let (mut ahead, at) = (Ahead::default(), now());
    assert!(ahead.join(FileId(7)).is_none(), "not under way");
    ahead.ask_for(FileId(7), stamp(), 5_000);
    let (mut landed, bytes) = ahead.join(FileId(7)).unwrap();
    assert_eq!(bytes, 5_000);
    assert!(landed.try_recv().is_err());
    ahead.land(FileId(7), true, at);
    assert!(landed.try_recv().is_ok());
    assert!(ahead.join(FileId(7)).is_none(), "it is here");
    ahead.ask_for(FileId(8), stamp(), 5_000);
    ahead.overtake(FileId(8));
    assert!(ahead.join(FileId(8)).is_none(), "nobody waits for it again");
}

#[tokio::test]
async fn a_program_that_goes_on_as_planned_needs_no_new_plan() {
    let (mut ahead, at) = (Ahead::default(), now());
    ahead.coming = [1, 2, 3, 4].map(FileId).into();
    let seen = |file, look| Seen { file: FileId(file), look, at };
    assert!(ahead.goes_on(&seen(2, Look::Missed)), "it is quicker than the plan");
    assert_eq!(ahead.coming, [3, 4].map(FileId));
    assert!(ahead.goes_on(&seen(9, Look::Foreseen)));
    assert!(!ahead.goes_on(&seen(9, Look::Missed)), "it went elsewhere");
}

#[test]
fn what_is_out_at_once_follows_the_link_and_the_cache() {
    let (slow, fast) = (
        LinkQuality { rate_down: Some(1_200), rate_up: Some(1_200), ..adsl() },
        LinkQuality { rate_down: Some(100 << 20), ..adsl() },
    );
    let of = |link: &LinkQuality| Bounds::of(link, &settings(1 << 30));
    assert!(of(&slow).batch < bounds().batch && bounds().batch < of(&fast).batch);
    assert!(of(&slow).held_max < bounds().held_max, "names take the link too");
    assert_eq!(of(&fast).held_max, 0, "coding would be slower than the link");
    let unknown = LinkQuality { rate_up: None, rate_down: None, ..adsl() };
    let near = LinkQuality { round_trip_min: Some(Duration::from_millis(1)), ..unknown };
    assert!(of(&near).held_max == 0 && of(&near).batch > of(&unknown).batch, "within a house");
    assert!(of(&unknown).held_max > 0, "bytes count");
    let secs = bounds().batch as f64 / 187_500.0;
    assert!(secs <= 0.5, "{secs} s until the first file of an answer can be read");
    let tight = Bounds::of(&adsl(), &settings(160_000));
    assert_eq!(tight.window_most, 10_000, "of a small cache guesses take little");
}

#[test]
fn nobody_waits_long_for_a_guess() {
    let takes = patience(&adsl(), 187_500);
    assert_eq!(takes, Duration::from_millis(2_120));
    assert!(patience(&adsl(), 0) < Duration::from_millis(200));
    let slow = LinkQuality { rate_down: Some(1_000), ..adsl() };
    assert_eq!(patience(&slow, 1 << 30), Duration::from_secs(5));
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn node(kind: Kind, parent: Option<FileId>) -> Node {
    let contents = Contents { size: 100, root: None, holes: None };
    Node { kind, parent, contents, ..Node::root_directory(0, 0, Time::default()) }
}

/// A directory, the one that it is in, and its files.
type Branch<'a> = (u64, u64, &'a [(&'a str, u64)]);

fn volume(directories: &[Branch<'_>]) -> MemoryTables {
    let tables = MemoryTables::default();
    let mut listing = Listing { as_of: Seq(1), directories: Vec::new(), nodes: Vec::new() };
    let state = |file, node| NodeState { file: FileId(file), seq: Seq(1), node: Some(node) };
    for (directory, parent, files) in directories {
        listing.nodes.push(state(*directory, node(Kind::Directory, Some(FileId(*parent)))));
        let is_directory = |file: u64| directories.iter().any(|(other, ..)| *other == file);
        for (_, file) in files.iter().filter(|(_, file)| !is_directory(*file)) {
            listing.nodes.push(state(*file, node(Kind::File, None)));
        }
        let mut entries: Vec<_> =
            files.iter().map(|(text, file)| (name(text), FileId(*file))).collect();
        entries.sort();
        let directory = FileId(*directory);
        listing.directories.push(Listed { directory, entries, complete: true });
    }
    let mut write = tables.write().unwrap();
    partial::take_listing(&mut *write, &listing, None, 1).unwrap();
    write.commit(store::Durability::Later).unwrap();
    tables
}

/// A top directory with the files 10 and 13, and between them two directories with files.
fn two_directories() -> MemoryTables {
    let top = TOP.0;
    volume(&[
        (top, top, &[("a", 10), ("b", 20), ("c", 30), ("d", 13)]),
        (20, top, &[("x", 21), ("y", 22)]),
        (30, top, &[("x", 31), ("y", 32)]),
    ])
}

fn plan(tables: &MemoryTables, from: (u64, u64), walk: &Walk) -> Plan {
    let read = tables.read().unwrap();
    let tree = Tree::new(&*read, 1);
    let from = (FileId(from.0), FileId(from.1));
    after(&tree, from, walk, Order::Names, &|_, _| true).unwrap()
}

#[test]
fn a_walk_goes_on_in_the_directory_and_a_deep_one_through_the_tree() {
    let tables = two_directories();
    let check = |from: (u64, u64), deep: bool, files: &[u64]| {
        let walk = Walk { before: None, top: if deep { TOP } else { FileId(from.0) }, deep };
        let expected: VecDeque<FileId> = files.iter().copied().map(FileId).collect();
        assert_eq!(plan(&tables, from, &walk), Plan { files: expected, all: true }, "{from:?}");
    };
    check((20, 21), false, &[22]);
    check((20, 21), true, &[22, 31, 32, 13]);
    check((TOP.0, 10), true, &[21, 22, 31, 32, 13]);
    check((TOP.0, 10), false, &[13]);
    check((TOP.0, 13), true, &[]);
}

#[test]
fn a_plan_is_bounded_and_says_that_there_is_more() {
    let names: Vec<String> = (0..2_000).map(|number| format!("{number:05}")).collect();
    let files: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(100..).collect();
    let tables = volume(&[(TOP.0, TOP.0, &files)]);
    let walk = Walk { before: None, top: TOP, deep: false };
    let plan = plan(&tables, (TOP.0, 100), &walk);
    assert!(!plan.all && plan.files.len() < files.len());
    assert_eq!(plan.files.front(), Some(&FileId(101)));
}

#[tokio::test]
async fn two_files_of_a_directory_or_of_two_near_each_other_are_a_walk() {
    let tables = two_directories();
    let read = tables.read().unwrap();
    let tree = Tree::new(&*read, 1);
    let mut trail = Trail::default();
    let mut at = now();
    let mut step = |file: u64, directory: u64, pause: u64| {
        at = at + Duration::from_millis(pause);
        trail.step(FileId(file), FileId(directory), at, &tree)
    };
    assert_eq!(step(21, 20, 0), None, "one file is no walk");
    let (before, top) = (Some(FileId(21)), FileId(20));
    assert_eq!(step(22, 20, 100), Some(Walk { before, top, deep: false }));
    assert_eq!(step(31, 30, 100), Some(Walk { before: None, top: TOP, deep: true }));
    let before = Some(FileId(31));
    assert_eq!(step(32, 30, 100), Some(Walk { before, top: TOP, deep: true }), "it has crossed");
    assert_eq!(step(10, TOP.0, 10_000), None, "long after");
}

#[test]
fn the_order_of_a_walk_is_the_one_in_which_its_steps_are_short() {
    // By name one two three four, by id three one four two.
    let entries: Vec<(Name, FileId)> = [("1", 11), ("2", 13), ("3", 10), ("4", 12)]
        .map(|(text, file)| (name(text), FileId(file)))
        .into();
    let order = |before, file| order_of(&entries, FileId(before), FileId(file), Order::Listed);
    let mut listed = entries.clone();
    listed.sort_by_key(|(name, _)| crate::names::cookie(name));
    assert_eq!(order(listed[0].1.0, listed[1].1.0), Order::Listed, "nothing else is as short");
    let steps = |from: u64, to: u64| {
        let place = |file| listed.iter().position(|(_, other)| *other == FileId(file)).unwrap();
        place(to).checked_sub(place(from))
    };
    for (before, file, expected) in [(11, 13, Order::Names), (10, 11, Order::Ids)] {
        let ambiguous = steps(before, file) == Some(1);
        assert_eq!(order(before, file), if ambiguous { Order::Listed } else { expected });
    }
}
