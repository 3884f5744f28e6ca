//! Words that the project does not use, each with what to write in its place.
//! Never: is checked against its own table; this file and the style page name the words to ban them.

use crate::finding::Finding;
use crate::scan::{Source, words};

/// In any text file, as whole words.
const IN_TEXT: [(&str, &str); 8] = [
    ("CML", "UpdateLog"),
    ("fso", "FileId, or the file"),
    ("OpQueue", "UpdateLog"),
    ("TODO", "do it, or file it as an issue"),
    ("FIXME", "fix it, or file it as an issue"),
    ("todo!", "write it, or leave the function out until it is there"),
    ("unimplemented!", "write it, or return an error that says what is not possible"),
    ("#[ignore", "make the test fit every run, or take it out"),
];

/// Names of files that gather what has no idea in common.
const FILE_NAMES: [&str; 8] =
    ["utils.rs", "util.rs", "common.rs", "misc.rs", "helpers.rs", "helper.rs", "log2.rs", "mod.rs"];

/// Ends of type names that say nothing.
const HOLLOW_ENDS: [&str; 5] = ["Manager", "Helper", "Helpers", "Util", "Utils"];

/// Files that name the words in order to ban them.
const NAME_THEM: [&str; 2] = ["xtask/src/tidy/words.rs", "STYLE.md"];

/// What is wrong with the name of a file.
pub fn check_name(path: &str) -> Option<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    if !FILE_NAMES.contains(&name) {
        return None;
    }
    let instead = match name {
        "mod.rs" => "write `foo.rs` beside `foo/`",
        _ => "name the file for the idea in it; two ideas are two files",
    };
    Some(Finding::new(path, 0, format!("a file named {name}"), instead))
}

/// Banned words anywhere in a text, comments and literals included.
pub fn check_text(path: &str, text: &str) -> Vec<Finding> {
    if NAME_THEM.contains(&path) || path == "Cargo.lock" || is_tests_of_this(path) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (word, instead) in IN_TEXT {
            if words(line, word).next().is_some() {
                findings.push(Finding::new(path, index + 1, format!("`{word}`"), instead));
            }
        }
    }
    findings
}

/// The rules' own tests feed them banned words.
fn is_tests_of_this(path: &str) -> bool {
    path == "xtask/src/tidy.rs"
}

/// What code outside tests does not do.
pub fn check_code(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, code) in source.product_lines() {
        let mut found = |what: &str, instead: &str| {
            findings.push(Finding::new(path, line, what, instead));
        };
        if code.contains(".unwrap()") {
            found("`unwrap` outside tests", "return the error, or expect(\"why it holds\")");
        }
        let trimmed = code.trim_start();
        let is_use = trimmed.starts_with("use ") || trimmed.starts_with("pub use ");
        let is_glob = code.contains("::*") && (is_use || code.trim_end().ends_with("::*,"));
        if is_glob {
            found("a glob import outside tests", "name what is used");
        }
        if let Some(name) = hollow_name(trimmed) {
            let what = format!("the name {name} says nothing");
            found(&what, "name the idea: what does it hold, or decide?");
        }
    }
    findings
}

/// The name that a line gives to a type, if it has a hollow end.
fn hollow_name(code: &str) -> Option<&str> {
    let mut parts = code.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    while let Some(part) = parts.next() {
        if ["struct", "enum", "trait", "type"].contains(&part) {
            let name = parts.next()?;
            return HOLLOW_ENDS.iter().any(|end| name.ends_with(end)).then_some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<usize> {
        let path = "crates/x/src/y.rs";
        check_code(path, &Source::of(path, text)).into_iter().map(|f| f.line).collect()
    }

    #[test]
    fn banned_words_are_found_whole_and_with_their_replacement() {
        let found = check_text("crates/x/src/y.rs", "// the CML\n// CMLs\n// TODO: later\n");
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(found[0].instead, "UpdateLog");
        assert!(check_text("a.rs", "#[ignore = \"slow\"]").len() == 1);
        assert!(check_text("a.rs", "    todo!()").len() == 1);
        assert!(check_text("STYLE.md", "don't CML").is_empty());
    }

    #[test]
    fn drawers_are_found_by_their_name() {
        assert!(check_name("crates/x/src/utils.rs").is_some());
        assert!(check_name("crates/x/src/a/mod.rs").is_some());
        assert!(check_name("crates/x/src/escrow.rs").is_none());
    }

    #[test]
    fn unwrap_and_globs_are_for_tests() {
        assert_eq!(code("let a = b.unwrap();\n// b.unwrap()\nlet c = \".unwrap()\";\n"), [1]);
        assert_eq!(code("use a::*;\nuse a::{\n    b::*,\n};\nlet d = 2 * 3;\n"), [1, 3]);
        assert_eq!(
            code("#[cfg(test)]\nmod tests {\n    use super::*;\n    a.unwrap();\n}\n"),
            [0_usize; 0]
        );
    }

    #[test]
    fn hollow_names_are_found_where_they_are_given() {
        assert_eq!(code("pub struct CacheManager;\nlet a: CacheManager = b;\n"), [1]);
        assert_eq!(code("enum Mode { A }\ntype Helper = u8;\n"), [2]);
    }
}
