//! What `farfs gc` and `farfs check` say.

use crate::exit::{Exit, fail};
use crate::units::show_size;
use anyhow::Result;
use replica::{Amount, Checked, Freed, Wish};

pub fn freed(freed: &Freed, wish: Wish) -> Vec<String> {
    let of = |amount: Amount| format!("{} chunks, {}", amount.chunks, show_size(amount.bytes));
    let would = if wish.dry_run { "would be " } else { "" };
    let mut lines = vec![
        format!("old versions {would}pruned: {} rows", freed.versions),
        format!("{would}put into the trash: {}", of(freed.trashed)),
        format!(
            "{would}taken out of the trash, because they are needed again: {}",
            of(freed.taken_back)
        ),
        format!("{would}deleted: {}", of(freed.deleted)),
        format!("in the trash {}: {}", if wish.dry_run { "then" } else { "now" }, of(freed.trash)),
    ];
    if !wish.dry_run {
        lines.push(format!("given back to the disk: {}", show_size(freed.bytes_on_disk)));
    }
    if freed.unsure > 0 {
        lines.push(format!(
            "volumes with a damaged recipe, of which nothing was put away: {}; `farfs check` says where",
            freed.unsure
        ));
    }
    lines
}

/// An error if anything is wrong that was not mended.
pub fn checked(checked: &Checked) -> Result<Vec<String>> {
    let mut lines: Vec<String> = checked
        .problems
        .iter()
        .map(|problem| {
            let mended = if problem.mended { "; mended" } else { "" };
            format!("{}: {}{mended}", problem.place, problem.what)
        })
        .collect();
    if checked.more > 0 {
        lines.push(format!("and {} more", checked.more));
    }
    lines.push(format!(
        "looked at {} volumes, {} versions of files, {} chunks",
        checked.volumes, checked.versions, checked.chunks
    ));
    if checked.left == 0 {
        return Ok(lines);
    }
    if checked.wanted > 0 {
        lines.push(format!(
            "{} chunks are missing: devices that have them in their caches are asked for them when \
             they attach or renew their leases, which those in use do every 12 s or so while the \
             server runs; check again then",
            checked.wanted
        ));
    }
    lines.push(format!("{} problems are left", checked.left));
    Err(fail(Exit::Damaged, lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use replica::Problem;

    #[test]
    fn what_is_wrong_and_was_not_mended_is_an_error_that_says_where() {
        let problem = |mended| Problem { place: "/a".into(), what: "it is gone".into(), mended };
        let mut found = Checked { problems: vec![problem(true)], ..Checked::default() };
        assert_eq!(checked(&found).unwrap()[0], "/a: it is gone; mended");
        found.problems.push(problem(false));
        found.left = 1;
        let error = checked(&found).unwrap_err();
        assert_eq!(crate::exit::code(&error), Exit::Damaged);
        assert!(error.to_string().contains("/a: it is gone\n"), "{error}");
        assert!(!error.to_string().contains("are missing"), "{error}");
        found.wanted = 3;
        let error = checked(&found).unwrap_err();
        assert!(error.to_string().contains("\n3 chunks are missing: devices"), "{error}");
    }
}
