use super::bounds::{Bounds, patience};
use super::walk::{Known, Order, Plan, Trail, Walk, after, order_of};
use super::*;
use crate::types::{Durability, Settings, WantedMode};
use model::{Contents, Kind, Name, Node, ReplicaId, Seq, Time};
use protocol::{LinkQuality, Listed, Listing, NodeState};
use std::cell::Cell;
use std::sync::Arc;
use store::memory::MemoryTables;
use store::{Read, Row, Tables};
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
        headway: Default::default(),
        budget: None,
        answer_within: Duration::from_secs(30),
        on_behalf_of: None,
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
    let known = Known { tree: &tree, name: &|_, _| None, order: &|_| None };
    after(&known, from, walk, Order::Names, &|_, _| true).unwrap().unwrap()
}

#[test]
fn a_walk_goes_on_in_the_directory_and_a_deep_one_through_the_tree() {
    let tables = two_directories();
    let check = |from: (u64, u64), deep: bool, files: &[u64]| {
        let walk = Walk { before: None, top: if deep { TOP } else { FileId(from.0) }, deep };
        let expected: VecDeque<FileId> = files.iter().copied().map(FileId).collect();
        let expected = Plan { files: expected, all: true, order: Order::Names };
        assert_eq!(plan(&tables, from, &walk), expected, "{from:?}");
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

/// Counts the rows that are read.
struct Counting<'a>(&'a dyn Read, Cell<usize>);

impl Read for Counting<'_> {
    fn get(&self, table: &'static str, key: &[u8]) -> store::Result<Option<Vec<u8>>> {
        self.1.update(|rows| rows + 1);
        self.0.get(table, key)
    }

    fn scan(
        &self,
        table: &'static str,
        from: &[u8],
        to: &[u8],
        rows_max: usize,
    ) -> store::Result<Vec<Row>> {
        let rows = self.0.scan(table, from, to, rows_max)?;
        self.1.update(|before| before + rows.len());
        Ok(rows)
    }

    fn last(&self, table: &'static str, from: &[u8], to: &[u8]) -> store::Result<Option<Row>> {
        self.0.last(table, from, to)
    }
}

/// Files of a directory that has more than a plan looks at, by name: their ids go down.
const LARGE: u64 = 50_000;

fn large() -> MemoryTables {
    let names: Vec<String> = (0..LARGE).map(|number| format!("{number:05}")).collect();
    let ids = (0..LARGE).map(|number| 100 + LARGE - number);
    let files: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(ids).collect();
    volume(&[(TOP.0, TOP.0, &files)])
}

fn of_large(number: u64) -> FileId {
    FileId(100 + LARGE - number)
}

#[test]
fn of_a_large_directory_what_comes_next_is_planned_and_no_more_is_looked_at() {
    let tables = large();
    let read = tables.read().unwrap();
    let counting = Counting(&*read, Cell::new(0));
    let tree = Tree::new(&counting, 1);
    let named = |_, file: FileId| Some(name(&format!("{:05}", 100 + LARGE - file.0)));
    let known = Known { tree: &tree, name: &named, order: &|_| None };
    let check = |before: u64, number: u64| {
        let walk = Walk { before: Some(of_large(before)), top: TOP, deep: false };
        counting.1.set(0);
        let at = (TOP, of_large(number));
        let plan = after(&known, at, &walk, Order::Listed, &|_, _| true).unwrap();
        assert!(counting.1.get() < 20_000, "{} rows were read", counting.1.get());
        plan
    };
    let plan = check(30_000, 30_002).expect("a walk by name");
    assert_eq!((plan.order, plan.all), (Order::Names, false));
    let next: Vec<FileId> = (30_003..30_010).map(of_large).collect();
    assert_eq!(plan.files.iter().take(7).copied().collect::<Vec<_>>(), next);
    assert_eq!(check(30_000, 47_000), None, "no walk");
    assert_eq!(check(47_000, 30_000), None, "nor is this, by what is known");
    let end = check(LARGE - 3, LARGE - 2).expect("a walk by name");
    assert_eq!((end.files, end.all), ([of_large(LARGE - 1)].into(), true));
}

#[test]
fn a_large_directory_that_was_listed_is_followed_in_the_order_of_that_and_by_id() {
    let tables = large();
    let read = tables.read().unwrap();
    let tree = Tree::new(&*read, 1);
    let order = Arc::new(crate::names::Order::of(&tree.entries(TOP).unwrap()));
    let listed: Vec<FileId> = order.files_after(0).collect();
    let named = |_, file: FileId| Some(name(&format!("{:05}", 100 + LARGE - file.0)));
    let kept = |_| Some(order.clone());
    let known = Known { tree: &tree, name: &named, order: &kept };
    let check = |before: FileId, file: FileId, expected: Order, next: FileId| {
        let walk = Walk { before: Some(before), top: TOP, deep: false };
        let plan = after(&known, (TOP, file), &walk, Order::Names, &|_, _| true).unwrap().unwrap();
        assert_eq!((plan.order, plan.files.front()), (expected, Some(&next)));
    };
    check(listed[7], listed[8], Order::Listed, listed[9]);
    check(FileId(700), FileId(701), Order::Ids, FileId(702));
    check(of_large(7), of_large(8), Order::Names, of_large(9));
}

#[test]
fn of_many_large_directories_no_more_is_read_than_of_one() {
    let names: Vec<String> = (0..6_000).map(|number| format!("{number:05}")).collect();
    let mut branches: Vec<Branch<'_>> = Vec::new();
    // Each is the first of what is in the one above, and the walk comes to all of them.
    let files: Vec<Vec<(&str, u64)>> = (0..20)
        .map(|depth| {
            let ids = (0..6_000).map(move |number| (depth + 1) * 10_000 + number);
            names.iter().map(String::as_str).zip(ids).collect()
        })
        .collect();
    branches.push((TOP.0, TOP.0, &files[0]));
    for depth in 1..20 {
        let parent = if depth == 1 { TOP.0 } else { (depth - 1) * 10_000 };
        branches.push((depth * 10_000, parent, &files[depth as usize]));
    }
    let tables = volume(&branches);
    let read = tables.read().unwrap();
    let counting = Counting(&*read, Cell::new(0));
    let tree = Tree::new(&counting, 1);
    let known = Known { tree: &tree, name: &|_, _| None, order: &|_| None };
    let walk = Walk { before: None, top: TOP, deep: true };
    let plan = after(&known, (TOP, FileId(1)), &walk, Order::Names, &|_, _| true);
    assert!(!plan.unwrap().unwrap().all);
    assert!(counting.1.get() < 60_000, "{} rows were read", counting.1.get());
}

#[tokio::test]
async fn where_nobody_follows_plans_no_more_are_made_for_a_while() {
    let (mut ahead, at) = (Ahead::default(), now());
    let (random, walked) = (FileId(1), FileId(2));
    let seen = |file, look| Seen { file: FileId(file), look, at };
    for file in 10..10 + u64::from(VAIN_MAX) {
        ahead.note_followed(random, &seen(file, Look::Missed));
        assert!(ahead.may_plan(random, at));
        assert!(ahead.may_plan(walked, at));
        ahead.coming = [FileId(100 + file)].into();
        ahead.note_followed(walked, &seen(100 + file, Look::Missed));
    }
    assert!(!ahead.may_plan(random, at) && ahead.may_plan(walked, at));
    let later = at + VAIN_FOR;
    assert!(ahead.may_plan(random, later), "once in a while");
    assert!(!ahead.may_plan(random, later));
    ahead.note_followed(random, &seen(7, Look::Foreseen));
    assert!(ahead.may_plan(random, later), "somebody goes as was planned");
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
