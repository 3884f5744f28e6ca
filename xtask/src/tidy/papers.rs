//! The table of the papers' mechanisms names files that exist.
//!
//! A row has three cells: the mechanism, the section of the paper, and where it is. The last names
//! at least one file or folder in backquotes, or says that it is to come.

use crate::finding::Finding;

const PENDING: &str = "to come";

pub fn check(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else { continue };
        let is_frame = cells.iter().all(|cell| cell.chars().all(|c| "-: ".contains(c)))
            || cells.first().is_some_and(|cell| *cell == "mechanism");
        if is_frame {
            continue;
        }
        let mut found = |what: String, instead: &str| {
            findings.push(Finding::new(file, index + 1, what, instead));
        };
        let [_, section, place] = cells[..] else {
            found(
                format!("a row of {} cells", cells.len()),
                "three: mechanism, section of the paper, file or `to come`",
            );
            continue;
        };
        if section.is_empty() {
            found("a mechanism without its section".into(), "name the section of the paper");
        }
        let named = quoted(place);
        if named.is_empty() && !place.contains(PENDING) {
            found("a mechanism without a place".into(), "name a file in backquotes, or: to come");
        }
        for path in named.into_iter().filter(|path| !exists(path)) {
            found(format!("`{path}` does not exist"), "name where the mechanism is now");
        }
    }
    findings
}

/// The cells of a table's row, outer bars left off.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// What stands between pairs of backquotes and looks like a path.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).filter(|part| part.contains('/')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Vec<usize> {
        check("docs/papers.md", text, |path| path == "crates/x/src/a.rs")
            .into_iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn real_files_and_what_is_to_come_pass() {
        let text = "# Papers\n\n| mechanism | section | where |\n| --- | --- | --- |\n\
                    | escrow | 3.4 | `crates/x/src/a.rs` |\n| receipts | 6 | to come |\n\
                    | pruning | 3.4 | `crates/x/src/a.rs`; the sorted list to come |\n";
        assert_eq!(at(text), [0_usize; 0]);
    }

    #[test]
    fn files_that_are_gone_empty_places_and_short_rows_are_found() {
        let text = "| a | 1 | `crates/x/src/gone.rs` |\n| b | 2 | somewhere |\n| c | 3 |\n\
                    | d |  | to come |\n";
        assert_eq!(at(text), [1, 2, 3, 4]);
    }
}
