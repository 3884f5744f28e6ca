//! A device saves files as programs do, the server's process dies at any write of what it does in
//! the tree meanwhile, and no program of the server does anything: nothing is taken for its work.
#![allow(clippy::disallowed_methods, reason = "the test sees what programs would see")]

use crate::ground::{Ground, Place, cases, last, paused, settles};
use crate::party::{Device, Party, make_of, name, rename_over, unlink_of};
use crate::tree::{find, tree_of};
use model::{Change, FileId, Kind};
use proptest::prelude::*;
use protocol::Verdict;
use replica::Limits;
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

/// How many updates were taken.
fn position(party: &Party) -> u64 {
    let read = party.tables.read().unwrap();
    let id = party.origin.volumes().unwrap()[0].id;
    Whole::now(&*read, id).position().unwrap().0
}

/// All names were saved, and the tree has the first `lead` updates of the next save. `sent` more
/// are in the volume and not in the tree when the process dies after `writes`, and `more` come
/// before the next one looks at the tree. False: it did not die.
async fn dies((lead, sent, more): (usize, usize, usize), writes: u64) -> bool {
    let told = format!("{lead}, {sent} and {more} updates, {writes} writes");
    let mut ground = Ground::new(Limits::simulated(), Place::Beside).await;
    let begun = NAMES.len() * PARTS + lead;
    send_all(&mut ground, 0..begun).await;
    assert!(settles(&mut ground).await);
    let position = position(&ground.party) - begun as u64;
    send_all(&mut ground, begun..begun + sent).await;
    ground.disk.crash_after(writes);
    let died = !settles(&mut ground).await;
    ground.disk.kill();
    let mut ground = ground.restarted().await;
    let end = (begun + sent + more).next_multiple_of(PARTS) + 2 * PARTS;
    send_all(&mut ground, begun + sent..begun + sent + more).await;
    assert!(settles(&mut ground).await, "{told}");
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
    died
}

#[test]
fn what_a_server_that_dies_had_half_done_is_not_taken_for_a_program_s_work() {
    for lead in 0..PARTS {
        for sent in 1..=2 * PARTS - 1 {
            let more = (lead + sent) % 2 * 2;
            paused(async {
                for writes in 0..WRITES_MAX {
                    if !dies((lead, sent, more), writes).await {
                        assert!(writes > 5, "{sent}: {writes}");
                        return;
                    }
                }
                panic!("{sent} updates make more than {WRITES_MAX} writes");
            });
        }
    }
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
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let at = 0..PATHS.len();
    let two = (at.clone(), at.clone());
    let act = prop_oneof![
        4 => at.clone().prop_map(Act::Store),
        5 => two.clone().prop_map(|(from, to)| Act::Rename(from, to)),
        2 => two.clone().prop_map(|(one, other)| Act::Exchange(one, other)),
        2 => two.prop_map(|(from, to)| Act::Link(from, to)),
        2 => at.clone().prop_map(Act::Remove),
        3 => at.prop_map(Act::MakeDirectory),
    ];
    prop::collection::vec(act, 0..8)
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
    };
    let Some(change) = change else { return taken };
    taken + u64::from(matches!(ada.strict(change).await, Verdict::Taken(_)))
}

/// What a device does before the tree is looked at, what it does then, after how many writes the
/// process dies over that, and what the device does before the next one looks.
type Life = (Vec<Act>, Vec<Act>, u64, Vec<Act>);

async fn live(lives: Vec<Life>) {
    let mut ground = Ground::new(Limits::simulated(), Place::Beside).await;
    assert!(settles(&mut ground).await);
    let (before, mut taken, mut number) = (position(&ground.party), 0, 0);
    for (settled, sent, writes, more) in lives {
        let numbered = |acts: Vec<Act>| acts.into_iter().zip(1..);
        for (one, at) in numbered(settled) {
            taken += act(&mut ground, &one, number + at).await;
        }
        assert!(settles(&mut ground).await);
        for (one, at) in numbered(sent) {
            taken += act(&mut ground, &one, number + 100 + at).await;
        }
        ground.disk.crash_after(writes);
        settles(&mut ground).await;
        ground.disk.kill();
        ground = ground.restarted().await;
        for (one, at) in numbered(more) {
            taken += act(&mut ground, &one, number + 200 + at).await;
        }
        assert!(settles(&mut ground).await);
        number += 1000;
    }
    assert_eq!(tree_of(ground.folder.path()), ground.party.tree(), "tree, and volume");
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
        paused(live(vec![(made.clone(), moved.clone(), writes, Vec::new())]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases() * 4, ..ProptestConfig::default() })]

    /// Whatever a device does, and however often the process dies.
    #[test]
    fn what_devices_do_is_never_taken_for_a_program_s_work(
        lives in prop::collection::vec((acts(), acts(), 0..80u64, acts()), 1..4),
    ) {
        paused(live(lives));
    }
}
