//! The house rules, each a plain function from text to findings.
//! Never: writes to the tree.

mod decisions;
mod evidence;
mod layers;
mod length;
mod links;
mod openings;
mod papers;
mod words;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::finding::{Finding, report};
use crate::scan::Source;
use crate::tree::{self, Tree};

const RATCHET: &str = "xtask/ratchet.toml";
const LAYERS: &str = "layers.toml";
/// Its rules name the tests that show them.
const SEMANTICS: &str = "docs/SEMANTICS.md";
const PAPERS: &str = "docs/papers.md";

pub fn run(root: &Path) -> Result<()> {
    report("tidy", check(&tree::read(root)?))
}

/// Every finding of every rule.
fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in [RATCHET, LAYERS, PAPERS] {
        if !tree.has(name) {
            findings.push(Finding::new(name, 0, "is missing", "restore it: a rule reads it"));
        }
    }
    findings.extend(layers::check(tree, LAYERS));
    let mut sizes = Vec::new();
    for file in tree.ending(".rs") {
        let source = Source::of(&file.path, &file.text);
        findings.extend(openings::check(&file.path, &file.text));
        findings.extend(words::check_code(&file.path, &source));
        sizes.extend(length::measure(&file.path, &source));
    }
    findings.extend(length::check(&sizes, RATCHET, tree.text(RATCHET).unwrap_or_default()));
    for file in &tree.files {
        findings.extend(words::check_text(&file.path, &file.text));
    }
    for path in &tree.paths {
        findings.extend(words::check_name(path));
        findings.extend(decisions::check_name(path));
    }
    for file in tree.ending(".md") {
        findings.extend(links::check(&file.path, &file.text, |path| tree.has(path)));
    }
    if let Some(text) = tree.text(SEMANTICS) {
        let known: BTreeSet<&str> =
            tree.ending(".rs").flat_map(|file| evidence::names(&file.text)).collect();
        findings.extend(evidence::check(SEMANTICS, text, &known));
    }
    if let Some(text) = tree.text(PAPERS) {
        findings.extend(papers::check(PAPERS, text, |path| tree.has(path)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::File;

    #[test]
    fn an_empty_tree_misses_what_the_rules_read() {
        let findings = check(&Tree::default());
        let missing: Vec<_> = findings.iter().filter(|f| f.what == "is missing").collect();
        assert_eq!(missing.len(), 3, "{findings:?}");
    }

    #[test]
    fn every_rule_is_reached() {
        let files = [
            ("layers.toml", "layers = []\n"),
            ("xtask/ratchet.toml", "[functions]\n\"crates/x/src/gone.rs::f\" = 99\n"),
            ("docs/papers.md", "| a | 1 | nowhere |\n"),
            ("docs/decisions/7-why.md", "# Why\n"),
            ("crates/x/src/lib.rs", "use a::*;\nfn f() { b.unwrap(); }\n"),
            ("crates/x/src/utils.rs", "// TODO more\n"),
            ("README.md", "[gone](gone.md)\n"),
            ("docs/SEMANTICS.md", "| A rule. | x: `a::gone` |\n"),
        ];
        let tree = Tree {
            paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
            files: files
                .iter()
                .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
                .collect(),
        };
        let findings = check(&tree);
        for (file, _) in files.iter().filter(|(file, _)| *file != "layers.toml") {
            assert!(findings.iter().any(|f| f.file == *file), "nothing about {file}: {findings:?}");
        }
    }
}
