//! Every pair of concurrent changes, as docs/SEMANTICS.md tells of it: the test does what the rows of
//! its table say, in both orders.
#![allow(clippy::unwrap_used, reason = "a situation that cannot be set up is a failed test")]

mod shown;
mod table;

use client::{OpenFlags, RenameFlag, WantedMode, XattrFlag};
use model::{ACL_ACCESS, Kind};
use protocol::Mode;
use protocol::past::{CONFLICTS_TOLD_MAX, ConflictInfo, Found, Past};
use shown::{TAG, all_shown, list_of};
use sim::check;
use sim::machine::{ClientMachine, OriginMachine, Room, SimClient};
use sim::network::Conditions;
use sim::operation::{Operation, Outcome, Path};
use sim::perform::Programs;
use std::collections::BTreeMap;
use std::time::Duration;
use table::{KINDS, Row, Step, pairs, rows};

const PARTIAL: WantedMode = WantedMode::Fixed(Mode::Partial);
const DISCONNECTED: WantedMode = WantedMode::Fixed(Mode::Disconnected);
const MOMENT: Duration = Duration::from_secs(5);
/// As an outcome: the same as of both on one machine, one after the other in some order, and nothing is
/// listed.
const BOTH: &str = "both";

/// One way of a row, in a directory of its own.
struct Case<'a> {
    row: &'a Row,
    ways: [&'a [Step]; 2],
    directory: String,
}

fn cases(rows: &[Row]) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for row in rows {
        for one in &row.ways[0] {
            for other in &row.ways[1] {
                let directory = format!("case{}", cases.len());
                cases.push(Case { row, ways: [one, other], directory });
            }
        }
    }
    cases
}

impl Case<'_> {
    /// Where both are done one after the other by one machine, one of them first.
    fn reference(&self, first: usize) -> String {
        format!("{}.{first}", self.directory)
    }

    fn told(&self) -> String {
        let steps = |way: usize| {
            let steps = self.ways[way].iter().map(|step| step.join(" "));
            steps.collect::<Vec<_>>().join("; ")
        };
        format!("{} ({} | {})", self.row.name, steps(0), steps(1))
    }
}

struct Scene {
    room: Room,
    origin: OriginMachine,
    machines: Vec<ClientMachine>,
    programs: [Programs; 2],
    /// Of one machine, by the directories in which it could not do both.
    impossible: BTreeMap<String, String>,
}

impl Scene {
    async fn new() -> Scene {
        let room = Room::new(1, false);
        let origin = OriginMachine::start(&room, replica::Limits::simulated()).unwrap();
        let mut machines = Vec::new();
        for number in 0..2 {
            let near = Conditions::NEAR;
            let mut machine = ClientMachine::invited(&room, &origin, number, near, PARTIAL);
            machine.start().await.unwrap();
            machines.push(machine);
        }
        let (programs, impossible) = Default::default();
        Scene { room, origin, machines, programs, impossible }
    }

    fn client(&self, who: usize) -> SimClient {
        self.machines[who].client().unwrap().clone()
    }

    async fn settled(&self, who: usize) {
        check::settled(&self.room, &self.machines[who..=who], true).await.unwrap();
    }

    /// On machine `on`, as `who` would: 0 for what was there before, 1 and 2 for the two.
    async fn does(&mut self, on: usize, who: u64, directory: &str, step: &Step) {
        let done = self.tries(on, who, directory, step).await;
        assert_eq!(done, Ok(()), "{}", step.join(" "));
    }

    async fn tries(
        &mut self,
        on: usize,
        who: u64,
        directory: &str,
        step: &Step,
    ) -> Result<(), String> {
        let client = self.client(on);
        for operation in operations(who, directory, step) {
            let done = self.programs[on].perform(&client, &operation).await;
            if matches!(done, Outcome::Failed(_)) {
                return Err(format!("{operation}: {done}"));
            }
        }
        Ok(())
    }

    async fn prepare(&mut self, case: &Case<'_>) {
        for directory in [case.directory.clone(), case.reference(0), case.reference(1)] {
            let step = vec!["mkdir".into(), String::new()];
            self.does(0, 0, &directory, &step).await;
            for step in &case.row.before {
                self.does(0, 0, &directory, step).await;
            }
        }
        for first in 0..2 {
            for who in [first, 1 - first] {
                for step in case.ways[who] {
                    let reference = case.reference(first);
                    if let Err(why) = self.tries(0, who as u64 + 1, &reference, step).await {
                        self.impossible.insert(reference, why);
                    }
                }
            }
        }
    }

    async fn conflicts(&self) -> Vec<ConflictInfo> {
        let ask = Past::Conflicts { after: 0, conflicts_max: CONFLICTS_TOLD_MAX, by: None };
        match self.client(0).look_back(ask).await.unwrap() {
            Found::Conflicts(told) => {
                assert!(!told.more);
                told.conflicts
            }
            found => panic!("{found:?}"),
        }
    }

    /// What came of each case, by its directory, where `first` comes first.
    async fn outcomes(&mut self, cases: &[Case<'_>], first: usize) -> BTreeMap<String, String> {
        for case in cases {
            self.prepare(case).await;
        }
        self.settled(0).await;
        let alone = self.conflicts().await;
        assert!(alone.is_empty(), "of what one machine did: {alone:?}");
        // All of it is cached by both.
        check::all_agree(&self.room, &self.origin, &self.machines).await.unwrap();
        for who in 0..2 {
            self.client(who).set_mode(DISCONNECTED);
        }
        self.room.clock.sleep(MOMENT).await;
        for case in cases {
            for who in 0..2 {
                for step in case.ways[who] {
                    self.does(who, who as u64 + 1, &case.directory, step).await;
                }
            }
        }
        for who in [first, 1 - first] {
            self.client(who).set_mode(PARTIAL);
            self.settled(who).await;
        }
        self.room.clock.sleep(MOMENT).await;
        let tree = check::all_agree(&self.room, &self.origin, &self.machines).await.unwrap();
        check::nothing_broke(&self.room, &self.machines).unwrap();
        let mut found = all_shown(&tree, &self.conflicts().await);
        found.append(&mut self.impossible);
        found
    }
}

/// The calls that make up a step.
fn operations(who: u64, directory: &str, step: &Step) -> Vec<Operation> {
    let word = |at: usize| step[at].as_str();
    let path = |at: usize| Path::new(&format!("{directory}/{}", word(at)));
    let number = |at: usize, radix: u32| u32::from_str_radix(word(at), radix).unwrap();
    let flags = OpenFlags { read: true, write: true, truncate: true, ..OpenFlags::default() };
    let text = |open: Operation| {
        let write = Operation::Write { slot: 0, offset: 0, length: shown::LENGTH, version: who };
        vec![open, write, Operation::Close { slot: 0 }]
    };
    let make = |kind, target| Operation::Make { path: path(1), kind, mode: 0o755, target };
    let rename = |flag| Operation::Rename { from: path(1), to: path(2), flag };
    let xattr = |name: &[u8], value| {
        let (name, flag) = (name.to_vec(), XattrFlag::Either);
        Operation::SetXattr { path: path(2), name, value, flag }
    };
    vec![match word(0) {
        "make" => return text(Operation::Create { path: path(1), mode: 0o644, slot: 0 }),
        "write" => return text(Operation::Open { path: path(1), slot: 0, flags }),
        "mkdir" => make(Kind::Directory, None),
        "symlink" => make(Kind::Symlink, Some(who.to_string().into_bytes())),
        "ln" => Operation::Link { from: path(1), to: path(2) },
        "rm" => Operation::Unlink { path: path(1) },
        "rmdir" => Operation::RemoveDirectory { path: path(1) },
        "mv" => rename(RenameFlag::NoReplace),
        "mv-over" => rename(RenameFlag::Replace),
        "swap" => rename(RenameFlag::Exchange),
        "cut" => Operation::Cut { path: path(1), size: 0 },
        "chmod" => Operation::SetMode { path: path(2), mode: number(1, 8) as u16 },
        "chown" => Operation::SetOwner { path: path(2), uid: number(1, 10), gid: shown::GID },
        "touch" => Operation::SetTime { path: path(2), secs: number(1, 10).into() },
        "tag" => xattr(TAG, word(1).as_bytes().to_vec()),
        "untag" => Operation::RemoveXattr { path: path(1), name: TAG.to_vec() },
        "acl" => xattr(ACL_ACCESS, list_of(number(1, 10))),
        other => panic!("{other} is no change"),
    }]
}

fn check_order(first: usize) {
    let rows = rows();
    let cases = cases(&rows);
    sim::run::paused(async {
        let mut scene = Scene::new().await;
        let found = scene.outcomes(&cases, first).await;
        let nothing = "nothing".to_owned();
        let of = |directory: &str| found.get(directory).unwrap_or(&nothing);
        let mut wrong = Vec::new();
        for case in &cases {
            let expected = &case.row.outcomes[first];
            let came = of(&case.directory);
            let is_so = match expected == BOTH {
                true => (0..2).any(|first| of(&case.reference(first)) == came),
                false => expected == came,
            };
            if !is_so {
                wrong.push(format!("{}: told {expected}, and comes to {came}", case.told()));
            }
        }
        scene.room.network.close();
        assert!(wrong.is_empty(), "in order {first}:\n{}", wrong.join("\n"));
    });
}

#[test]
fn what_is_told_of_each_pair_comes_of_it_where_the_one_is_first() {
    check_order(0);
}

#[test]
fn what_is_told_of_each_pair_comes_of_it_where_the_other_is_first() {
    check_order(1);
}

#[test]
fn every_pair_of_kinds_is_told_of() {
    let pairs = pairs(&rows());
    let mut missing = Vec::new();
    for (at, one) in KINDS.iter().enumerate() {
        for other in &KINDS[at..] {
            if !pairs.contains(&((*one).to_owned(), (*other).to_owned())) {
                missing.push(format!("{one} and {other}"));
            }
        }
    }
    assert!(missing.is_empty(), "no row has {}", missing.join(", "));
}
