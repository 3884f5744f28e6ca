//! A decision is filed under the day it was taken: numbers collide when two are taken at once.

use crate::finding::Finding;

const FOLDER: &str = "docs/decisions/";
const FREE: [&str; 2] = ["README.md", "template.md"];

pub fn check_name(path: &str) -> Option<Finding> {
    let name = path.strip_prefix(FOLDER)?;
    if FREE.contains(&name) || is_dated(name) {
        return None;
    }
    Some(Finding::new(
        path,
        0,
        "the name of a decision is no date and title",
        "name it YYYY-MM-DD-title-in-small-letters.md",
    ))
}

fn is_dated(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".md") else { return false };
    let mut parts = stem.splitn(4, '-');
    let mut number = |digits: usize, from: u32, to: u32| {
        parts.next().is_some_and(|part| {
            part.len() == digits
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && part.parse::<u32>().is_ok_and(|value| (from..=to).contains(&value))
        })
    };
    if !(number(4, 2000, 2999) && number(2, 1, 12) && number(2, 1, 31)) {
        return false;
    }
    let title = parts.next().unwrap_or_default();
    !title.is_empty()
        && title.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dated_title_passes_and_so_do_the_template_and_the_list() {
        assert_eq!(check_name("docs/decisions/2026-03-09-one-log.md"), None);
        assert_eq!(check_name("docs/decisions/README.md"), None);
        assert_eq!(check_name("docs/decisions/template.md"), None);
        assert_eq!(check_name("docs/GLOSSARY.md"), None);
    }

    #[test]
    fn numbers_impossible_days_and_missing_titles_are_found() {
        for name in [
            "0007-one-log.md",
            "2026-13-09-one-log.md",
            "2026-03-32-one-log.md",
            "2026-03-09.md",
            "2026-03-09-One Log.md",
            "2026-03-09-one-log.txt",
        ] {
            assert!(check_name(&format!("docs/decisions/{name}")).is_some(), "{name}");
        }
    }
}
