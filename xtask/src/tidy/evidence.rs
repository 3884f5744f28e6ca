//! A document that names tests names tests that are there.

use crate::finding::Finding;
use std::collections::BTreeSet;

/// Names of functions and modules of a source.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut before = "";
    words.filter(|word| !word.is_empty()).filter(move |word| {
        let is_named = matches!(before, "fn" | "mod");
        before = word;
        is_named
    })
}

pub fn check(file: &str, text: &str, known: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for named in line.split('`').skip(1).step_by(2).filter(|word| is_path(word)) {
            let test = named.rsplit("::").next().unwrap_or_default();
            if !known.contains(test) {
                findings.push(Finding::new(
                    file,
                    index + 1,
                    format!("there is no `{named}`"),
                    "name a test that would fail if the rule did not hold",
                ));
            }
        }
    }
    findings
}

/// As `file::test`, and nothing of a program's own words.
fn is_path(word: &str) -> bool {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/:".contains(c);
    word.contains("::") && word.chars().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_gone_is_found_by_its_name() {
        let source = "mod tests {\n    #[test]\n    fn it_holds() {}\n}\npub async fn other() {}";
        let known: BTreeSet<&str> = names(source).collect();
        assert_eq!(known, BTreeSet::from(["tests", "it_holds", "other"]));
        let text = "| A | x: `a::it_holds`, `b/c::tests`; `Type::it`, `e2e::gone` |";
        let found = check("docs/x.md", text, &known);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("e2e::gone"));
    }
}
