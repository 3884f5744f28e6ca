//! Every crate opens by saying what it is.

use crate::finding::Finding;

/// An opening of fewer words only repeats the crate's name.
const WORDS_MIN: usize = 4;

/// Checks the opening of a crate's root file; other files are free to have none.
pub fn check(path: &str, text: &str) -> Option<Finding> {
    let is_root = (path.starts_with("crates/") || path.starts_with("xtask/"))
        && (path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs"));
    if !is_root {
        return None;
    }
    let instead = "open the file with `//!` and a sentence that says what the crate is";
    let Some(first) = text.lines().next().and_then(|line| line.strip_prefix("//!")) else {
        return Some(Finding::new(path, 1, "the crate does not open with `//!`", instead));
    };
    (first.split_whitespace().count() < WORDS_MIN)
        .then(|| Finding::new(path, 1, "the opening says hardly more than a name", instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_says_what_it_is_passes() {
        let text = "//! Old versions kept because another replica may ask.\n";
        assert_eq!(check("crates/x/src/lib.rs", text), None);
    }

    #[test]
    fn a_crate_without_an_opening_or_with_its_name_alone_is_found() {
        assert!(check("crates/x/src/lib.rs", "use a;\n").is_some());
        assert!(check("crates/x/src/main.rs", "").is_some());
        assert!(check("crates/x/src/lib.rs", "//! x\n").is_some());
    }

    #[test]
    fn other_files_are_free() {
        assert_eq!(check("crates/x/src/y.rs", "use a;\n"), None);
    }
}
