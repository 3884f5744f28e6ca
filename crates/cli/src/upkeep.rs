//! What `farfs gc` and `farfs check` say.

use crate::data::Unwritable;
use crate::tree_status::TreeStatus;
use crate::units::{count, show_size};
use replica::{Amount, Checked, Freed, ReplicaError, State, Wish};
use serde::{Deserialize, Serialize};

pub fn freed(freed: &Freed, wish: Wish) -> Vec<String> {
    let of =
        |amount: Amount| format!("{}, {}", count(amount.chunks, "chunk"), show_size(amount.bytes));
    let would = if wish.dry_run { "would be " } else { "" };
    let mut lines = vec![
        format!("old versions {would}pruned: {}", count(freed.versions, "row")),
        format!("{would}put into the trash: {}", of(freed.trashed)),
        format!(
            "{would}taken out of the trash, because they are needed again: {}",
            of(freed.taken_back)
        ),
        format!("{would}deleted: {}", of(freed.deleted)),
        format!("in the trash {}: {}", if wish.dry_run { "then" } else { "now" }, of(freed.trash)),
    ];
    if freed.young > 0 {
        lines.push(format!(
            "changes that are too young for what they replaced to be pruned: {}; `farfs volume list` \
             says how long volumes keep it, and how long ago something was is known to the hour, \
             or from a `farfs gc` that came after it",
            freed.young
        ));
    }
    lines.extend(clock_was_set(freed, wish));
    if freed.promised.chunks > 0 {
        lines.push(format!(
            "{} in the trash, because devices sent them lately, or were told that they are here, \
             and may be about to use them: {}; a `farfs gc` in {} min \
             deletes those that are not used, `farfs gc --empty-trash --forget-sent` does so now, and \
             a server does by itself when its disk is full, but for what a device is still sending",
            if wish.dry_run { "would stay" } else { "stay" },
            of(freed.promised),
            freed.promised_for.as_secs().div_ceil(60)
        ));
    }
    if !wish.dry_run {
        lines.push(given_back(freed));
    }
    if freed.unsure > 0 {
        lines.push(format!(
            "volumes with a damaged recipe, of which nothing was put away: {}; `farfs check` says where",
            freed.unsure
        ));
    }
    lines
}

/// Why nothing is known to be old.
fn clock_was_set(freed: &Freed, wish: Wish) -> Vec<String> {
    let mut lines = Vec::new();
    if !freed.clock_leapt.is_zero() {
        lines.push(format!(
            "the server's clock was set ahead, by {} min, so nothing counts as old; if it is right, \
             {} prunes by it",
            freed.clock_leapt.as_secs() / 60,
            if wish.dry_run { "the second `farfs gc` from now" } else { "the next `farfs gc`" }
        ));
    }
    if freed.clock_behind > 0 {
        lines.push(format!(
            "volumes of which a time was noted that is still to come by the server's clock: {}; \
             nothing in them grows older until then. Set the clock if it is wrong",
            freed.clock_behind
        ));
    }
    lines
}

/// Why a cycle stopped. The error stays the cause.
pub fn not_tidied(error: ReplicaError) -> anyhow::Error {
    if !error.is_full() {
        return error.into();
    }
    anyhow::Error::new(error).context(
        "there is no room left even to tidy up, which writes a little before it deletes; nothing is \
         lost, and what the server keeps aside for it is used up. Make 16 MiB of room on the disk of \
         the data directory (move something else away from it for a while, or enlarge it), and run \
         `farfs gc --empty-trash --forget-sent`, which needs the least",
    )
}

fn given_back(freed: &Freed) -> String {
    let did_nothing = freed.versions == 0 && freed.trashed.chunks == 0 && freed.deleted.chunks == 0;
    match freed.bytes_on_disk {
        0 if did_nothing => "there was nothing to give back to the disk".to_owned(),
        0 => {
            "given back to the disk: nothing yet, since what went lies among what is in use".into()
        }
        bytes => format!("given back to the disk: {}", show_size(bytes)),
    }
}

/// What a check has found.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// One finding each, and a summary at the end.
    pub lines: Vec<String>,
    /// What is wrong and was not mended, in words. None: nothing.
    pub left: Option<String>,
}

/// What the matter is with a directory that a volume is kept in step with is told, and is no damage.
/// `unwritable`: nothing could be written.
pub fn checked(
    checked: &Checked,
    trees: &[TreeStatus],
    unwritable: Option<&Unwritable>,
) -> Findings {
    let mut lines: Vec<String> = checked
        .problems
        .iter()
        .map(|problem| {
            let mended = if problem.state == State::Mended { "; mended" } else { "" };
            format!("{}: {}{mended}", problem.place, problem.what)
        })
        .collect();
    if checked.more > 0 {
        lines.push(format!("and {} more", checked.more));
    }
    for tree in trees {
        let TreeStatus { volume, path, .. } = tree;
        let told = |what| format!("{path} (kept in step with volume {volume}): {what}");
        lines.extend(tree.troubles().into_iter().map(told));
    }
    let unmended = unwritable.map_or(&[][..], |unwritable| &unwritable.unmended);
    lines.extend(unmended.iter().map(|what| format!("{what}; not mended")));
    lines.extend(unwritable.map(|Unwritable { why, .. }| {
        format!(
            "the data directory cannot be written to ({why}): it was only looked at, and nothing was \
             mended or noted"
        )
    }));
    lines.push(format!(
        "looked at {}, {} of files, {}",
        count(checked.volumes, "volume"),
        count(checked.versions, "version"),
        count(checked.chunks, "chunk")
    ));
    if checked.left == 0 {
        return Findings { lines, left: None };
    }
    if checked.wanted > 0 && unwritable.is_some() {
        lines.push(format!(
            "{} missing: devices are not asked for them before a check has noted them, where it can \
             write",
            are(checked.wanted, "chunk")
        ));
    } else if checked.wanted > 0 {
        lines.push(format!(
            "{} missing: devices that have them in their caches are asked for them when they attach \
             or renew their leases, which those in use do every 12 s or so while the server runs; \
             check again then",
            are(checked.wanted, "chunk")
        ));
    }
    lines.extend(checked.unnoted.iter().map(|why| {
        format!("what is missing could not be noted, and is known until the server ends: {why}")
    }));
    let left = format!("{} left", are(checked.left, "problem"));
    lines.push(left.clone());
    Findings { lines, left: Some(left) }
}

fn are(number: u64, thing: &str) -> String {
    let verb = if number == 1 { "is" } else { "are" };
    format!("{} {verb}", count(number, thing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use replica::Problem;

    #[test]
    fn what_stays_because_it_was_promised_is_told_with_how_long() {
        let promised = Amount { chunks: 713, bytes: 6_000_000 };
        let found = Freed {
            promised,
            promised_for: std::time::Duration::from_secs(3590),
            ..Freed::default()
        };
        let lines = freed(&found, Wish::default());
        let line = lines.iter().find(|line| line.starts_with("stay in the trash")).unwrap();
        assert!(line.contains("713 chunks") && line.contains("in 60 min"), "{line}");
        let lines = freed(&Freed::default(), Wish::default());
        assert_eq!(lines.last().unwrap(), "there was nothing to give back to the disk");
        assert!(!lines.iter().any(|line| line.contains("stay")), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("too young")), "{lines:?}");
        let lines = freed(&Freed { young: 12, ..Freed::default() }, Wish::default());
        assert!(lines.iter().any(|line| line.contains("pruned: 12; ")), "{lines:?}");
    }

    #[test]
    fn a_clock_that_was_set_is_told_with_what_comes_of_it() {
        let none = clock_was_set(&Freed::default(), Wish::default());
        assert!(none.is_empty(), "{none:?}");
        let clock_leapt = std::time::Duration::from_secs(86_400);
        let found = Freed { clock_leapt, clock_behind: 2, ..Freed::default() };
        let lines = freed(&found, Wish::default());
        let told = |what: &str| lines.iter().any(|line| line.contains(what));
        assert!(told("by 1440 min") && told("the next `farfs gc` prunes"), "{lines:?}");
        assert!(told("by the server's clock: 2; nothing in them"), "{lines:?}");
        let dry = clock_was_set(&found, Wish { dry_run: true, ..Wish::default() });
        assert!(dry[0].contains("the second `farfs gc` from now"), "{dry:?}");
    }

    #[test]
    fn a_full_disk_is_told_with_what_to_do_and_stays_the_cause() {
        let full = || ReplicaError::from(store::StoreError::Full("tables".into()));
        let error = not_tidied(full());
        assert!(error.to_string().contains("Make 16 MiB of room"), "{error}");
        assert!(error.downcast_ref::<ReplicaError>().is_some_and(ReplicaError::is_full));
        let other = not_tidied(ReplicaError::NoVolume("a".into()));
        assert!(!other.to_string().contains("room"), "{other}");
    }

    #[test]
    fn what_is_wrong_is_a_line_each_and_what_was_not_mended_is_told_apart() {
        let problem = |state| Problem { place: "/a".into(), what: "it is gone".into(), state };
        let problems = vec![problem(State::Mended), problem(State::Harmless)];
        let mut found = Checked { problems, ..Checked::default() };
        let said = checked(&found, &[], None).lines;
        assert_eq!(said[..2], ["/a: it is gone; mended", "/a: it is gone"]);
        assert_eq!(said[2], "looked at 0 volumes, 0 versions of files, 0 chunks");
        let left_out = vec!["/t/d".into()];
        let (volume, path) = ("main".into(), "/t".into());
        let tree = TreeStatus { volume, path, kept: true, left_out, ..TreeStatus::default() };
        let found_too = checked(&found, &[tree], None);
        assert!(
            found_too.lines[2].starts_with("/t (kept in step with volume main): /t/d is left out")
        );
        assert_eq!(found_too.left, None);
        found.problems.push(problem(State::Left));
        found.left = 1;
        let said = checked(&found, &[], None);
        assert_eq!(said.left.as_deref(), Some("1 problem is left"));
        assert_eq!(said.lines[2], "/a: it is gone");
        assert!(!said.lines.iter().any(|line| line.contains("are missing")), "{said:?}");
        found.wanted = 3;
        let said = checked(&found, &[], None).lines;
        assert!(said.iter().any(|line| line.starts_with("3 chunks are missing: devices")));
        assert_eq!(said.last().unwrap(), "1 problem is left");
    }

    #[test]
    fn where_nothing_can_be_written_it_is_said_that_nothing_is_mended_or_noted() {
        let found = Checked { wanted: 2, left: 1, ..Checked::default() };
        let (why, unmended) = ("it is read-only".to_owned(), vec!["/a: it is torn".to_owned()]);
        let said = checked(&found, &[], Some(&Unwritable { why, unmended })).lines;
        assert_eq!(said[0], "/a: it is torn; not mended");
        assert!(
            said[1].contains("cannot be written to (it is read-only): it was only"),
            "{said:?}"
        );
        assert!(said[3].starts_with("2 chunks are missing: devices are not asked"), "{said:?}");
    }
}
