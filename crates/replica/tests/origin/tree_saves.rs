//! A device saves files as programs do, the server's process dies at any write of what it does in
//! the tree meanwhile, or a write fails and it lives on, and no program of the server does anything:
//! nothing is taken for its work.
#![allow(clippy::disallowed_methods, reason = "the test sees what programs would see")]

use crate::ground::{Ground, Place, ROUND, ROUNDS_MAX, cases, last, paused, settles};
use crate::party::{Device, Party, make_of, name, noise, rename_over, unlink_of};
use crate::tree::{find, tree_of};
use model::{AttributeChange, Change, FileId, Kind, Node, View};
use proptest::prelude::*;
use protocol::Verdict;
use replica::Limits;
use std::fs;
use std::os::unix::fs::MetadataExt;
use store::faulty::Failure;
use volume::whole::Whole;

/// Names that are saved in turn.
const NAMES: [&str; 3] = ["a", "b", "c"];
/// Updates of one save: the file is made, filled and renamed over the one before it.
const PARTS: usize = 3;
/// More writes than the tree takes for what is sent at once.
const WRITES_MAX: u64 = 400;

/// The update `number` of one save after another.
async fn send(device: &mut Device, party: &Party, number: usize) {
    let fresh = || find(party, "fresh").expect("it was made");
    let (save, root) = (number / PARTS, FileId::ROOT);
    let change = match number % PARTS {
        0 => make_of(root, "fresh", device.fresh_file(), Kind::File),
        1 => {
            let (_, file, stamp) = fresh();
            device.storing(file, stamp, &format!("version {save}")).await
        }
        _ => {
            let name = NAMES[save % NAMES.len()];
            let over = find(party, name).map(|(_, file, _)| file);
            rename_over((root, "fresh"), (root, name), fresh().1, over)
        }
    };
    let verdict = device.replay(change).await;
    assert!(matches!(verdict, Verdict::Taken(_)), "update {number}: {verdict:?}");
}

async fn send_all(ground: &mut Ground, numbers: std::ops::Range<usize>) {
    for number in numbers {
        send(&mut ground.ada, &ground.party, number).await;
    }
}

fn node(party: &Party, file: FileId) -> Node {
    let read = party.tables.read().unwrap();
    let id = party.origin.volumes().unwrap()[0].id;
    Whole::now(&*read, id).node(file).unwrap().expect("it has a name")
}

/// Modes and owners are the same in the tree and in the volume.
fn is_dressed(ground: &Ground) {
    for path in PATHS {
        let Some((_, file, _)) = find(&ground.party, path) else { continue };
        let (node, there) = (node(&ground.party, file), fs::metadata(ground.path(path)).unwrap());
        let seen = ((there.mode() & 0o7777) as u16, there.uid());
        assert_eq!(seen, (node.mode, node.uid), "{path}");
    }
}

/// How many updates were taken.
fn position(party: &Party) -> u64 {
    let read = party.tables.read().unwrap();
    let id = party.origin.volumes().unwrap()[0].id;
    Whole::now(&*read, id).position().unwrap().0
}

/// What comes over a server while it changes the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Death,
    /// A write fails, and the process lives on.
    Failure(Failure),
    /// It dies when devices have done more.
    FailureAndDeath(Failure),
}

const BLOWS: [Blow; 5] = [
    Blow::Death,
    Blow::Failure(Failure::Nothing),
    Blow::Failure(Failure::All),
    Blow::FailureAndDeath(Failure::Nothing),
    Blow::FailureAndDeath(Failure::All),
];

impl Blow {
    /// It comes at the write that follows `writes` others of those that bring both sides together.
    /// Gives back the server as it is then, and whether it came.
    async fn strike(self, mut ground: Ground, writes: u64) -> (Ground, bool) {
        let (Blow::Failure(failure) | Blow::FailureAndDeath(failure)) = self else {
            ground.disk.crash_after(writes);
            let died = !settles(&mut ground).await;
            ground.disk.kill();
            return (ground.restarted().await, died);
        };
        ground.disk.fail_after(writes, failure);
        for _ in 0..ROUNDS_MAX {
            let done = ground.keeper.round();
            assert!(done.is_ok() || ground.disk.has_failed(), "nothing else went wrong");
            if ground.disk.has_failed() || ground.keeper.is_settled() {
                break;
            }
            tokio::time::advance(ROUND).await;
        }
        let failed = ground.disk.has_failed();
        ground.disk.fail_after(u64::MAX, failure);
        (ground, failed)
    }

    /// Devices have done more, and the server looks at the tree.
    async fn ends(self, mut ground: Ground) -> Ground {
        if let Blow::FailureAndDeath(_) = self {
            ground = ground.restarted().await;
        }
        assert!(settles(&mut ground).await);
        ground
    }
}

/// All names were saved, and the tree has the first `lead` updates of the next save. `sent` more
/// are in the volume and not in the tree when the blow comes after `writes`, and `more` come
/// before the tree is looked at again. False: it did not come.
async fn strikes(blow: Blow, (lead, sent, more): (usize, usize, usize), writes: u64) -> bool {
    let told = format!("{blow:?}: {lead}, {sent} and {more} updates, {writes} writes");
    let mut ground = Ground::new(Limits::simulated(), Place::Beside).await;
    let begun = NAMES.len() * PARTS + lead;
    send_all(&mut ground, 0..begun).await;
    assert!(settles(&mut ground).await);
    let position = position(&ground.party) - begun as u64;
    send_all(&mut ground, begun..begun + sent).await;
    let (mut ground, came) = blow.strike(ground, writes).await;
    let end = (begun + sent + more).next_multiple_of(PARTS) + 2 * PARTS;
    send_all(&mut ground, begun + sent..begun + sent + more).await;
    let mut ground = blow.ends(ground).await;
    send_all(&mut ground, begun + sent + more..end).await;
    assert!(settles(&mut ground).await, "{told}");
    assert_eq!(tree_of(ground.folder.path()), ground.party.tree(), "{told}: tree, and volume");
    let saved = end / PARTS;
    let wanted = (0..NAMES.len()).map(|name| {
        let last = (0..saved).rfind(|save| save % NAMES.len() == name).expect("each was saved");
        format!("{}: version {last}", NAMES[name])
    });
    assert_eq!(ground.party.tree(), wanted.collect::<Vec<_>>().join("\n"), "{told}");
    assert_eq!(ground.party.conflicts(), Vec::<String>::new(), "{told}");
    assert_eq!(self::position(&ground.party), position + end as u64, "{told}: nothing but that");
    came
}

fn is_not_taken_for_a_program_s_work(blow: Blow) {
    for lead in 0..PARTS {
        for sent in 1..=2 * PARTS - 1 {
            let more = (lead + sent) % 2 * 2;
            paused(async {
                for writes in 0..WRITES_MAX {
                    if !strikes(blow, (lead, sent, more), writes).await {
                        assert!(writes > 5, "{sent}: {writes}");
                        return;
                    }
                }
                panic!("{sent} updates make more than {WRITES_MAX} writes");
            });
        }
    }
}

#[test]
fn what_a_server_that_dies_had_half_done_is_not_taken_for_a_program_s_work() {
    is_not_taken_for_a_program_s_work(Blow::Death);
}

#[test]
fn nor_is_what_it_had_half_done_when_a_write_failed() {
    is_not_taken_for_a_program_s_work(Blow::Failure(Failure::Nothing));
}

#[test]
fn nor_is_that_when_it_dies_later() {
    is_not_taken_for_a_program_s_work(Blow::FailureAndDeath(Failure::Nothing));
}

/// A save of a file that is written a piece at a time: the tree has its beginning, a process dies over
/// the rest. False: it did not die.
async fn dies_over_a_large_file(writes: u64) -> bool {
    let limits = Limits { tree_piece_bytes: 1000, ..Limits::simulated() };
    let mut ground = Ground::new(limits, Place::Beside).await;
    let letters = |seed| noise(30_000, seed).into_iter().map(|byte| char::from(b'a' + byte % 26));
    let [old, new] = [1, 2].map(|seed| letters(seed).collect::<String>());
    ground.ada.write_new(FileId::ROOT, "b", &old).await;
    send(&mut ground.ada, &ground.party, 0).await;
    assert!(settles(&mut ground).await);
    let before = position(&ground.party);
    let (_, file, stamp) = find(&ground.party, "fresh").expect("it was made");
    let store = ground.ada.storing(file, stamp, &new).await;
    let over = find(&ground.party, "b").map(|(_, file, _)| file);
    let rename = rename_over((FileId::ROOT, "fresh"), (FileId::ROOT, "b"), file, over);
    for change in [store, rename] {
        assert!(matches!(ground.ada.replay(change).await, Verdict::Taken(_)));
    }
    ground.disk.crash_after(writes);
    let died = !settles(&mut ground).await;
    ground.disk.kill();
    let mut ground = ground.restarted().await;
    assert!(settles(&mut ground).await, "{writes}");
    assert_eq!(fs::read_to_string(ground.path("b")).unwrap(), new, "{writes}");
    assert_eq!(tree_of(ground.folder.path()), ground.party.tree(), "{writes}: tree, and volume");
    assert_eq!(ground.party.conflicts(), Vec::<String>::new(), "{writes}");
    assert_eq!(position(&ground.party), before + 2, "{writes}: nothing but that");
    died
}

#[test]
fn a_large_file_that_was_half_saved_is_not_a_program_s() {
    paused(async {
        for writes in 0..WRITES_MAX {
            if !dies_over_a_large_file(writes).await {
                assert!(writes > 20, "{writes}");
                return;
            }
        }
        panic!("it takes more than {WRITES_MAX} writes");
    });
}

const PATHS: [&str; 8] = ["a", "b", "d", "d/a", "d/b", "e", "e/a", "e/d"];

/// What a device does next, by the places of its paths among `PATHS`.
#[derive(Clone, Debug)]
enum Act {
    Store(usize),
    Rename(usize, usize),
    Exchange(usize, usize),
    Link(usize, usize),
    Remove(usize),
    MakeDirectory(usize),
    /// Its owner, and then its mode, as one update.
    Dress(usize, usize),
}

const MODES: [u16; 3] = [0o640, 0o4711, 0o755];
const OWNERS: [u32; 2] = [1000, 2000];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let at = 0..PATHS.len();
    let two = (at.clone(), at.clone());
    let act = prop_oneof![
        4 => at.clone().prop_map(Act::Store),
        5 => two.clone().prop_map(|(from, to)| Act::Rename(from, to)),
        2 => two.clone().prop_map(|(one, other)| Act::Exchange(one, other)),
        2 => two.prop_map(|(from, to)| Act::Link(from, to)),
        2 => at.clone().prop_map(Act::Remove),
        3 => at.clone().prop_map(Act::MakeDirectory),
        3 => (at, 0..MODES.len() * OWNERS.len()).prop_map(|(at, how)| Act::Dress(at, how)),
    ];
    prop::collection::vec(act, 0..8)
}

fn blow() -> impl Strategy<Value = Blow> {
    prop::sample::select(&BLOWS[..])
}

/// The directory that a path is in.
fn above(party: &Party, path: &str) -> Option<FileId> {
    match path.rsplit_once('/') {
        None => Some(FileId::ROOT),
        Some((above, _)) => find(party, above).map(|(_, file, _)| file),
    }
}

/// What cannot be done is not done. Gives back how many updates were taken.
async fn act(ground: &mut Ground, act: &Act, number: usize) -> u64 {
    let (ada, party) = (&mut ground.ada, &ground.party);
    let place = |at: usize| Some((above(party, PATHS[at])?, last(PATHS[at])));
    let found = |at: usize| find(party, PATHS[at]);
    let mut taken = 0;
    let change = match *act {
        Act::Store(at) => {
            if let (None, Some((above, name))) = (found(at), place(at)) {
                let make = make_of(above, name, ada.fresh_file(), Kind::File);
                taken += u64::from(matches!(ada.strict(make).await, Verdict::Taken(_)));
            }
            let Some((_, file, stamp)) = find(party, PATHS[at]) else { return taken };
            Some(ada.storing(file, stamp, &format!("version {number}")).await)
        }
        Act::Rename(from, to) | Act::Exchange(from, to) => {
            let over = found(to).map(|(_, file, _)| file);
            let exchanges = matches!(act, Act::Exchange(..));
            found(from).zip(place(from)).zip(place(to)).map(|(((_, file, _), from), to)| {
                let mut change = rename_over(from, to, file, over);
                if let Change::Rename { exchange, .. } = &mut change {
                    *exchange = exchanges && over.is_some();
                }
                change
            })
        }
        Act::Link(from, to) => found(from)
            .zip(place(to))
            .map(|((_, file, _), (parent, text))| Change::Link { parent, name: name(text), file }),
        Act::Remove(at) => found(at)
            .zip(place(at))
            .map(|((_, file, _), (above, name))| unlink_of(above, name, file)),
        Act::MakeDirectory(at) => {
            place(at).map(|(above, name)| make_of(above, name, ada.fresh_file(), Kind::Directory))
        }
        Act::Dress(at, how) => found(at).map(|(_, file, _)| {
            let (mode, uid) = (MODES[how % MODES.len()], OWNERS[how / MODES.len()]);
            let expects = node(party, file).attributes_stamp;
            let set = AttributeChange { mode: Some(mode), uid: Some(uid), ..Default::default() };
            Change::SetAttributes { file, expects, set }
        }),
    };
    let Some(change) = change else { return taken };
    taken + u64::from(matches!(ada.strict(change).await, Verdict::Taken(_)))
}

/// What a device does before the tree is looked at, what it does then, after how many writes of that
/// which blow comes, and what the device does before the tree is looked at again.
type Life = (Vec<Act>, Vec<Act>, (u64, Blow), Vec<Act>);

async fn live(lives: Vec<Life>) {
    let mut ground = Ground::new(Limits::simulated(), Place::Beside).await;
    assert!(settles(&mut ground).await);
    let (before, mut taken, mut number) = (position(&ground.party), 0, 0);
    for (settled, sent, (writes, blow), more) in lives {
        let numbered = |acts: Vec<Act>| acts.into_iter().zip(1..);
        for (one, at) in numbered(settled) {
            taken += act(&mut ground, &one, number + at).await;
        }
        assert!(settles(&mut ground).await);
        for (one, at) in numbered(sent) {
            taken += act(&mut ground, &one, number + 100 + at).await;
        }
        ground = blow.strike(ground, writes).await.0;
        for (one, at) in numbered(more) {
            taken += act(&mut ground, &one, number + 200 + at).await;
        }
        ground = blow.ends(ground).await;
        number += 1000;
    }
    assert_eq!(tree_of(ground.folder.path()), ground.party.tree(), "tree, and volume");
    is_dressed(&ground);
    assert_eq!(ground.party.conflicts(), Vec::<String>::new());
    assert_eq!(position(&ground.party), before + taken, "nothing but that");
}

#[test]
fn a_directory_is_put_into_the_one_that_takes_its_name() {
    use Act::{MakeDirectory, Rename, Store};
    let [d, d_a, e, e_d] = ["d", "d/a", "e", "e/d"]
        .map(|path| PATHS.iter().position(|known| *known == path).expect("it is one of them"));
    let made = vec![MakeDirectory(d), Store(d_a)];
    let moved = vec![MakeDirectory(e), Rename(d, e_d), Rename(e, d)];
    for writes in 0..40 {
        for blow in BLOWS {
            paused(live(vec![(made.clone(), moved.clone(), (writes, blow), Vec::new())]));
        }
    }
}

#[test]
fn a_file_of_several_names_gets_what_was_stored_whichever_write_fails() {
    use Act::{Link, Store};
    for writes in 0..40 {
        for blow in BLOWS {
            let [made, stored] = [vec![Store(0), Link(0, 1), Link(0, 5)], vec![Store(0)]];
            paused(live(vec![(made, stored, (writes, blow), Vec::new())]));
        }
    }
}

/// Changing the owner takes the set-user-id bit away, and a crash may come before that is set again.
#[test]
fn attributes_that_were_half_set_are_not_a_program_s() {
    use Act::{Dress, MakeDirectory, Store};
    let [a, d, d_a] = ["a", "d", "d/a"]
        .map(|path| PATHS.iter().position(|known| *known == path).expect("it is one of them"));
    let dressed = |how| vec![Dress(a, how), Dress(d, how + 1)];
    for writes in 0..40 {
        let settled = [vec![Store(a), MakeDirectory(d)], dressed(1)].concat();
        // By then a device has set others.
        for more in [Vec::new(), dressed(3)] {
            let sent = [vec![Store(d_a)], dressed(4)].concat();
            for blow in BLOWS {
                let one = (settled.clone(), sent.clone(), (writes, blow), more.clone());
                paused(live(vec![one]));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() * 4, ..ProptestConfig::default() })]

    /// Whatever a device does, and however often the process dies or a write fails.
    #[test]
    fn what_devices_do_is_never_taken_for_a_program_s_work(
        lives in prop::collection::vec((acts(), acts(), (0..80u64, blow()), acts()), 1..4),
    ) {
        paused(live(lives));
    }
}
