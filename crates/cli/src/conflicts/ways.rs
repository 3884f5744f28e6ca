//! How a conflict can be seen to: which ways there are, by what met what and by what bears the names now.
//! Holds: what is offered can be done; what is not is refused in words before anything is claimed, or
//! nothing is left of it to do; what has the name is nowhere taken for what lies beside.
//! Never: looks at a disk.

use super::attributes::Side;
use protocol::past::{Clash, ConflictInfo, Found, History, NotFound};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Diff,
    /// By lines, or by a program.
    Merge,
    /// By a program, which gets an empty file for what both began from.
    MergeByProgram,
    KeepMine,
    KeepTheirs,
    KeepBoth,
}

/// What bears a name now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    Nothing,
    File,
    Directory,
    /// A link, a device: nothing with contents of its own.
    Other,
    /// Of what lies beside: the very thing that has the name.
    TheSame,
    /// Of what lies beside: nothing that this mount shows, and the server has it, or may have it.
    Unseen,
}

/// Whether it can be seen to in a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    May,
    /// Nothing is left to do, and why.
    IsDone(&'static str),
    Not(&'static str),
}

const NOTHING_BESIDE: &str = "nothing lies beside the name any more";
const HAS_THE_NAME: &str = "what lay beside has the name by now";
const UNSEEN: &str = "what lies beside is at the server, and this mount does not show it yet (try again in a moment)";
const ONE_FILE: &str = "both names lead to one file";

/// What a conflict is between, as far as it matters for seeing to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What two have set of one file.
    Attributes,
    /// Contents that have the name, and a removal by the other: whose the contents are.
    Removal(Side),
    /// It is not done: there is nothing of it.
    NotDone,
    /// One thing that is both's, or that has no rival.
    One,
    /// The directory of the name is gone.
    NoDirectory,
    /// Nothing lies beside the name any more.
    NothingBeside,
    /// What lay beside has the name by now, and nothing else lies there.
    HasTheName,
    /// One has the name, and the other lies beside.
    Beside,
}

const ALL: [Way; 6] =
    [Way::Diff, Way::Merge, Way::MergeByProgram, Way::KeepMine, Way::KeepTheirs, Way::KeepBoth];

impl Way {
    fn command(self) -> &'static str {
        match self {
            Way::Diff => "diff",
            Way::Merge | Way::MergeByProgram => "merge",
            Way::KeepMine => "keep-mine",
            Way::KeepTheirs => "keep-theirs",
            Way::KeepBoth => "keep-both",
        }
    }

    fn shown(self, number: u64) -> String {
        let more = if self == Way::MergeByProgram { " --tool COMMAND" } else { "" };
        format!("{} {number}{more}", self.command())
    }
}

pub fn kind(conflict: &ConflictInfo) -> Kind {
    match (conflict.clash, &conflict.path, &conflict.aside) {
        // What one of the two has, both see.
        (Clash::Merged | Clash::Overrun, _, _) => Kind::One,
        (Clash::Cycle | Clash::NotDone, _, _) => Kind::NotDone,
        (_, None, _) => Kind::NoDirectory,
        (Clash::Attributes, _, _) => Kind::Attributes,
        (Clash::Replaced, _, None) => Kind::Removal(Side::Theirs),
        (Clash::Removed, _, None) => Kind::Removal(Side::Mine),
        (Clash::Directory, _, None) => Kind::NoDirectory,
        (Clash::Contents | Clash::Name, _, None) => Kind::NothingBeside,
        (_, path, aside) if path == aside => Kind::HasTheName,
        (Clash::Contents | Clash::Name, _, Some(_)) => Kind::Beside,
        (Clash::Directory | Clash::Replaced | Clash::Removed, _, Some(_)) => Kind::Beside,
    }
}

/// Of a conflict between contents and a removal: whose the contents are, which have the name.
pub fn one_side(conflict: &ConflictInfo) -> Option<Side> {
    match kind(conflict) {
        Kind::Removal(side) => Some(side),
        _ => None,
    }
}

/// What lies under a name that this mount shows nothing by, as the server's history of it says.
pub fn by_history(told: Option<&Found>) -> There {
    match told {
        Some(Found::Not(NotFound::NoPath(_))) => There::Nothing,
        Some(Found::History(History { versions, .. }))
            if versions.first().is_some_and(|newest| newest.looks.is_none()) =>
        {
            There::Nothing
        }
        // In doubt it may be there.
        _ => There::Unseen,
    }
}

/// The ways there are. `theirs`, `mine`: what has the name, and what lies beside it.
pub fn ways(conflict: &ConflictInfo, theirs: There, mine: There) -> Vec<Way> {
    let may = |way: &Way| answer(*way, conflict, theirs, mine) == Answer::May;
    ALL.into_iter().filter(may).collect()
}

fn answer(way: Way, conflict: &ConflictInfo, theirs: There, mine: There) -> Answer {
    let why = match (kind(conflict), way) {
        (_, Way::KeepBoth) => return Answer::May,
        (Kind::Attributes, Way::Merge | Way::MergeByProgram) => {
            "it is about attributes, of which one value holds"
        }
        (Kind::Attributes, _) => return Answer::May,
        (Kind::Removal(_), Way::KeepMine | Way::KeepTheirs) => return Answer::May,
        (Kind::Removal(_), _) => {
            "one side has removed the file, so there is one version of it and no other"
        }
        (Kind::One, _) => "there is one thing, and no choice between two",
        (Kind::NotDone, Way::KeepTheirs) => return Answer::May,
        (Kind::NotDone, _) => "the second change is not done, so there is nothing of it",
        (Kind::NoDirectory, _) => "the directory of the name is gone",
        (Kind::HasTheName, way) => return answer_of_one(way, HAS_THE_NAME, theirs),
        (Kind::NothingBeside, way) => return answer_of_rest(way, theirs),
        (Kind::Beside, way) => {
            return answer_of_two(way, conflict.base_since.is_some(), theirs, mine);
        }
    };
    Answer::Not(why)
}

/// What lay beside is what has the name.
fn answer_of_one(way: Way, why: &'static str, theirs: There) -> Answer {
    match way {
        _ if theirs == There::Nothing => Answer::Not("nothing has the name any more"),
        Way::KeepMine => Answer::IsDone(why),
        Way::Merge | Way::MergeByProgram if why == HAS_THE_NAME => Answer::IsDone(why),
        Way::KeepTheirs if why == HAS_THE_NAME => Answer::Not(
            "what lay beside has the name by now, and what had it is among the versions (`farfs \
             history` lists them, and `farfs restore` brings one back)",
        ),
        _ => Answer::Not(why),
    }
}

/// What lay beside is gone.
fn answer_of_rest(way: Way, theirs: There) -> Answer {
    match way {
        Way::KeepTheirs | Way::Merge | Way::MergeByProgram if theirs != There::Nothing => {
            Answer::IsDone(NOTHING_BESIDE)
        }
        _ => Answer::Not(NOTHING_BESIDE),
    }
}

/// The same where one has the name and the other lies beside.
fn answer_of_two(way: Way, has_base: bool, theirs: There, mine: There) -> Answer {
    match mine {
        There::Nothing => return answer_of_rest(way, theirs),
        There::Unseen => return Answer::Not(UNSEEN),
        There::TheSame => return answer_of_one(way, ONE_FILE, theirs),
        There::File | There::Directory | There::Other => {}
    }
    if way == Way::KeepMine {
        let exchanged = theirs == There::Directory || mine == There::Directory;
        return match exchanged && theirs != There::Nothing {
            true => Answer::Not("one of the two is a directory: move one of them by hand"),
            false => Answer::May,
        };
    }
    if theirs == There::Nothing {
        return Answer::Not("nothing has the name any more");
    }
    let files = theirs == There::File && mine == There::File;
    match way {
        Way::Diff | Way::Merge | Way::MergeByProgram if !files => {
            Answer::Not("the two are not both files with contents")
        }
        Way::Merge if !has_base => Answer::Not(
            "what both began from is not known or not kept, so that only a program can merge",
        ),
        Way::MergeByProgram if has_base => Answer::Not("it is merged like any other"),
        _ => Answer::May,
    }
}

/// What to do, as commands.
pub fn offer(conflict: &ConflictInfo, ways: &[Way]) -> String {
    let ways: Vec<String> = ways.iter().map(|way| way.shown(conflict.number)).collect();
    format!("farfs conflicts {}", ways.join(", "))
}

/// An error for people if it cannot be seen to in this way. None: it can, or nothing is left to do.
pub fn refusal(way: Way, conflict: &ConflictInfo, theirs: There, mine: There) -> Option<String> {
    let Answer::Not(why) = answer(way, conflict, theirs, mine) else { return None };
    let ways = offer(conflict, &ways(conflict, theirs, mine));
    Some(format!("conflict {}: no {}: {why}; to see to it: {ways}", conflict.number, way.command()))
}

/// Why nothing is left to do in this way but to take it off the list, for people.
pub fn is_done(way: Way, conflict: &ConflictInfo, theirs: There, mine: There) -> Option<String> {
    let Answer::IsDone(why) = answer(way, conflict, theirs, mine) else { return None };
    let number = conflict.number;
    Some(format!("conflict {number}: {why}, so nothing was left to do: it is listed no more"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflicts::listed::tests::conflict;
    use There::{Directory, File, Nothing, Other, TheSame, Unseen};
    use model::{ReplicaId, Seq, Time};
    use protocol::past::{Attribute, Changed, Looks, Setting, Value, Version};

    /// A clash, whether something lies beside, and whether the base is kept.
    fn of(clash: Clash, is_beside: bool, has_base: bool) -> ConflictInfo {
        let told = conflict();
        let (theirs, mine) = (Value::Number(0o600), Value::Number(0o640));
        let setting = Setting { what: Attribute::Mode, was: None, theirs, mine };
        ConflictInfo {
            clash,
            aside: told.aside.filter(|_| is_beside),
            base_since: has_base.then_some(model::Seq(7)),
            settings: (clash == Clash::Attributes).then(|| vec![setting]),
            ..conflict()
        }
    }

    fn check(told: &ConflictInfo, theirs: There, mine: There, expected: &str) {
        let case = format!("{:?}, {theirs:?}, {mine:?}", told.clash);
        let ways = ways(told, theirs, mine);
        let shown: Vec<String> = ways.iter().map(|way| way.shown(4)).collect();
        assert_eq!(shown.join(", "), expected, "{case}");
        for way in ALL {
            let refused = refusal(way, told, theirs, mine);
            let is_done = is_done(way, told, theirs, mine).is_some();
            assert_eq!(refused.is_none(), ways.contains(&way) || is_done, "{case}, {way:?}");
            assert!(!is_done || !ways.contains(&way), "{case}, {way:?}");
            if let Some(text) = refused {
                assert!(text.ends_with(&offer(told, &ways)), "{case}: {text}");
            }
        }
    }

    #[test]
    fn what_is_offered_goes_by_what_met_what() {
        let all = "diff 4, merge 4, keep-mine 4, keep-theirs 4, keep-both 4";
        let baseless = "diff 4, merge 4 --tool COMMAND, keep-mine 4, keep-theirs 4, keep-both 4";
        let none = "keep-both 4";
        let one_of_two = "keep-mine 4, keep-theirs 4, keep-both 4";
        let settings = "diff 4, keep-mine 4, keep-theirs 4, keep-both 4";
        for (clash, beside, base, expected) in [
            (Clash::Contents, true, true, all),
            (Clash::Contents, true, false, baseless),
            (Clash::Contents, false, true, none),
            (Clash::Removed, false, true, one_of_two),
            (Clash::Removed, false, false, one_of_two),
            (Clash::Removed, true, true, all),
            (Clash::Removed, true, false, baseless),
            (Clash::Name, true, true, all),
            (Clash::Name, true, false, baseless),
            (Clash::Name, false, false, none),
            (Clash::Directory, true, false, baseless),
            (Clash::Directory, false, false, none),
            (Clash::Merged, true, false, none),
            (Clash::Merged, true, true, none),
            (Clash::Merged, false, false, none),
            (Clash::Replaced, false, false, one_of_two),
            (Clash::Replaced, true, true, all),
            (Clash::Replaced, true, false, baseless),
            (Clash::Overrun, false, false, none),
            (Clash::Cycle, false, false, "keep-theirs 4, keep-both 4"),
            (Clash::NotDone, false, false, "keep-theirs 4, keep-both 4"),
            (Clash::Attributes, false, false, settings),
        ] {
            check(&of(clash, beside, base), File, File, expected);
        }
    }

    #[test]
    fn what_is_offered_goes_by_what_bears_the_names() {
        let told = of(Clash::Name, true, true);
        let not_files = "keep-mine 4, keep-theirs 4, keep-both 4";
        for (theirs, mine, expected) in [
            (File, Directory, "keep-theirs 4, keep-both 4"),
            (Directory, File, "keep-theirs 4, keep-both 4"),
            (Directory, Directory, "keep-theirs 4, keep-both 4"),
            (File, Other, not_files),
            (Other, Other, not_files),
            (Nothing, File, "keep-mine 4, keep-both 4"),
            (Nothing, Directory, "keep-mine 4, keep-both 4"),
            (File, Nothing, "keep-both 4"),
            (Nothing, Nothing, "keep-both 4"),
            (File, Unseen, "keep-both 4"),
            (Nothing, Unseen, "keep-both 4"),
        ] {
            check(&told, theirs, mine, expected);
        }
        let gone = ConflictInfo { path: None, ..of(Clash::Directory, true, false) };
        check(&gone, Nothing, File, "keep-both 4");
    }

    /// The ways in which nothing is left to do.
    fn done(told: &ConflictInfo, theirs: There, mine: There) -> Vec<Way> {
        ALL.into_iter().filter(|way| is_done(*way, told, theirs, mine).is_some()).collect()
    }

    #[test]
    fn what_lay_beside_and_has_the_name_by_now_is_seen_to_and_no_other_side_is_kept() {
        for clash in [Clash::Contents, Clash::Name, Clash::Removed, Clash::Replaced] {
            for has_base in [true, false] {
                let beside = of(clash, true, has_base);
                let told = ConflictInfo { aside: beside.path.clone(), ..beside.clone() };
                check(&told, File, TheSame, "keep-both 4");
                let all = [Way::Merge, Way::MergeByProgram, Way::KeepMine];
                assert_eq!(done(&told, File, TheSame), all);
                let refused = refusal(Way::KeepTheirs, &told, File, TheSame).unwrap();
                assert!(refused.contains("`farfs restore`"), "{refused}");
                assert!(done(&told, Nothing, Nothing).is_empty(), "somebody has moved it just now");
                // Another name of the same file, which somebody has made.
                check(&beside, File, TheSame, "keep-both 4");
                assert_eq!(done(&beside, File, TheSame), [Way::KeepMine]);
            }
        }
    }

    #[test]
    fn where_what_lay_beside_is_gone_the_other_is_kept() {
        let ways = [Way::Merge, Way::MergeByProgram, Way::KeepTheirs];
        assert_eq!(done(&of(Clash::Contents, false, true), File, Nothing), ways);
        for clash in [Clash::Contents, Clash::Removed, Clash::Replaced] {
            let told = of(clash, true, true);
            assert_eq!(done(&told, File, Nothing), ways);
            assert!(done(&told, Nothing, Nothing).is_empty());
            assert!(done(&told, File, File).is_empty());
        }
    }

    /// By its history, and by nothing that was told of the conflict before.
    #[test]
    fn what_this_mount_does_not_show_yet_is_not_taken_for_gone() {
        let newest = |looks: Option<Looks>| {
            let (at, by) = (Time::default(), ReplicaId(2));
            let changes = vec![if looks.is_some() { Changed::Made } else { Changed::Removed }];
            let newest = Version { since: Seq(7), at, by, device: None, changes, looks };
            Found::History(History { versions: vec![newest], more: false })
        };
        let (kind, mtime) = (model::Kind::File, Time::default());
        let looks = Looks { kind, size: 4, mode: 0o644, uid: 0, gid: 0, mtime, pruned: false };
        let none = Found::Not(NotFound::NoPath("a".into()));
        for (told, expected) in [
            (Some(newest(Some(looks))), Unseen),
            (Some(newest(None)), Nothing),
            (Some(none), Nothing),
            (Some(Found::Not(NotFound::Hidden("a".into()))), Unseen),
            (None, Unseen),
        ] {
            assert_eq!(by_history(told.as_ref()), expected, "{told:?}");
        }
        for clash in [Clash::Contents, Clash::Name, Clash::Removed, Clash::Replaced] {
            let told = of(clash, true, true);
            assert!(done(&told, File, Unseen).is_empty());
            let refused = refusal(Way::KeepTheirs, &told, File, Unseen).unwrap();
            assert!(refused.contains("try again"), "{refused}");
        }
    }
}
