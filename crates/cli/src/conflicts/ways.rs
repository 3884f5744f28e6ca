//! How a conflict can be seen to: which ways there are, by what met what and by what bears the names now.
//! Holds: what is offered can be done, and what is not offered is refused in words, before anything is
//! claimed.
//! Never: looks at a disk.

use super::attributes::Side;
use protocol::past::{Clash, ConflictInfo};

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
}

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

/// The ways there are. `theirs`, `mine`: what has the name, and what lies beside it.
pub fn ways(conflict: &ConflictInfo, theirs: There, mine: There) -> Vec<Way> {
    let may = |way: &Way| why_not(*way, conflict, theirs, mine).is_none();
    ALL.into_iter().filter(may).collect()
}

/// Why it cannot be seen to in this way. None: it can.
fn why_not(way: Way, conflict: &ConflictInfo, theirs: There, mine: There) -> Option<&'static str> {
    match (kind(conflict), way) {
        (_, Way::KeepBoth) => None,
        (Kind::Attributes, Way::Merge | Way::MergeByProgram) => {
            Some("it is about attributes, of which one value holds")
        }
        (Kind::Attributes, _) => None,
        (Kind::Removal(_), Way::KeepMine | Way::KeepTheirs) => None,
        (Kind::Removal(_), _) => {
            Some("one side has removed the file, so there is one version of it and no other")
        }
        (Kind::One, _) => Some("there is one thing, and no choice between two"),
        (Kind::NotDone, Way::KeepTheirs) => None,
        (Kind::NotDone, _) => Some("the second change is not done, so there is nothing of it"),
        (Kind::NoDirectory, _) => Some("the directory of the name is gone"),
        (Kind::NothingBeside, _) => Some("nothing lies beside the name any more"),
        (Kind::Beside, way) => why_not_of_two(way, conflict.base_since.is_some(), theirs, mine),
    }
}

/// The same where one has the name and the other lies beside.
fn why_not_of_two(way: Way, has_base: bool, theirs: There, mine: There) -> Option<&'static str> {
    if mine == There::Nothing {
        return Some("nothing lies beside the name any more");
    }
    if way == Way::KeepMine {
        let exchanged = theirs == There::Directory || mine == There::Directory;
        return (exchanged && theirs != There::Nothing)
            .then_some("one of the two is a directory: move one of them by hand");
    }
    if theirs == There::Nothing {
        return Some("nothing has the name any more");
    }
    let files = theirs == There::File && mine == There::File;
    match way {
        Way::Diff | Way::Merge | Way::MergeByProgram if !files => {
            Some("the two are not both files with contents")
        }
        Way::Merge if !has_base => {
            Some("what both began from is not known or not kept, so that only a program can merge")
        }
        Way::MergeByProgram if has_base => Some("it is merged like any other"),
        _ => None,
    }
}

/// What to do, as commands.
pub fn offer(conflict: &ConflictInfo, ways: &[Way]) -> String {
    let ways: Vec<String> = ways.iter().map(|way| way.shown(conflict.number)).collect();
    format!("farfs conflicts {}", ways.join(", "))
}

/// An error for people if it cannot be seen to in this way. None: it can.
pub fn refusal(way: Way, conflict: &ConflictInfo, theirs: There, mine: There) -> Option<String> {
    let why = why_not(way, conflict, theirs, mine)?;
    let ways = offer(conflict, &ways(conflict, theirs, mine));
    Some(format!("conflict {}: no {}: {why}; to see to it: {ways}", conflict.number, way.command()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflicts::listed::tests::conflict;
    use There::{Directory, File, Nothing, Other};
    use protocol::past::{Attribute, Setting, Value};

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
            assert_eq!(refused.is_none(), ways.contains(&way), "{case}, {way:?}");
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
        ] {
            check(&told, theirs, mine, expected);
        }
        let gone = ConflictInfo { path: None, ..of(Clash::Directory, true, false) };
        check(&gone, Nothing, File, "keep-both 4");
    }
}
