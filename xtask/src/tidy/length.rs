//! Files and functions stay short enough to be one idea.
//! Holds: what is over a limit stands in the ratchet with its size, and the ratchet only shrinks.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::finding::Finding;
use crate::scan::Source;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// One file or function with its size. A function's key is `path::name`.
#[derive(Debug, PartialEq, Eq)]
pub struct Size {
    kind: Kind,
    key: String,
    file: String,
    line: usize,
    lines: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Function,
}

impl Kind {
    fn lines_max(self) -> usize {
        match self {
            Kind::File => FILE_LINES_MAX,
            Kind::Function => FUNCTION_LINES_MAX,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Function => "function",
        }
    }
}

/// What may be longer, for now.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratchet {
    #[serde(default)]
    files: BTreeMap<String, usize>,
    #[serde(default)]
    functions: BTreeMap<String, usize>,
}

/// The sizes of a file and of its functions, tests left out.
pub fn measure(path: &str, source: &Source) -> Vec<Size> {
    let lines = source.test.iter().filter(|test| !**test).count();
    let file =
        Size { kind: Kind::File, key: path.to_owned(), file: path.to_owned(), line: 0, lines };
    let functions = source.functions().into_iter().map(|function| Size {
        kind: Kind::Function,
        key: format!("{path}::{}", function.name),
        file: path.to_owned(),
        line: function.line,
        lines: function.lines,
    });
    std::iter::once(file).chain(functions).collect()
}

/// Holds the sizes against the limits and the ratchet, and the ratchet against the sizes.
pub fn check(sizes: &[Size], ratchet_file: &str, ratchet_text: &str) -> Vec<Finding> {
    let ratchet: Ratchet = match toml::from_str(ratchet_text) {
        Ok(ratchet) => ratchet,
        Err(error) => {
            let what = format!("cannot be read: {}", error.message());
            return vec![Finding::new(ratchet_file, 0, what, "[files] and [functions] = lines")];
        }
    };
    let mut findings = Vec::new();
    for (kind, listed) in [(Kind::File, &ratchet.files), (Kind::Function, &ratchet.functions)] {
        let longest = longest(sizes, kind);
        for size in longest.values().filter(|size| size.lines > kind.lines_max()) {
            let allowed = listed.get(&size.key).copied().unwrap_or(kind.lines_max());
            if size.lines > allowed {
                let what = format!(
                    "the {} has {} lines, and {allowed} are allowed",
                    kind.name(),
                    size.lines
                );
                findings.push(Finding::new(&size.file, size.line, what, "find the missing idea"));
            }
        }
        for (key, allowed) in listed {
            let now = longest.get(key.as_str()).map_or(0, |size| size.lines);
            if now <= kind.lines_max() {
                let what = format!("`{key}` is no longer over the limit");
                findings.push(Finding::new(ratchet_file, 0, what, "take the entry out"));
            } else if now < *allowed {
                let what = format!("`{key}` has shrunk from {allowed} to {now} lines");
                findings.push(Finding::new(ratchet_file, 0, what, format!("write {now}")));
            }
        }
    }
    findings
}

/// Of things with one name in one file, the longest counts.
fn longest(sizes: &[Size], kind: Kind) -> BTreeMap<&str, &Size> {
    let mut longest: BTreeMap<&str, &Size> = BTreeMap::new();
    for size in sizes.iter().filter(|size| size.kind == kind) {
        let held = longest.entry(&size.key).or_insert(size);
        if held.lines < size.lines {
            *held = size;
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/x/src/y.rs";

    fn findings(function_lines: usize, ratchet: &str) -> Vec<String> {
        let text = format!("fn f() {{\n{}}}\n", "    a();\n".repeat(function_lines - 2));
        let sizes = measure(PATH, &Source::of(PATH, &text));
        check(&sizes, "xtask/ratchet.toml", ratchet).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn a_function_at_the_limit_passes_and_one_over_it_is_found() {
        assert_eq!(findings(70, ""), [""; 0]);
        assert_eq!(findings(71, ""), ["the function has 71 lines, and 70 are allowed"]);
    }

    #[test]
    fn the_ratchet_allows_what_it_lists_and_no_line_more() {
        let ratchet = "[functions]\n\"crates/x/src/y.rs::f\" = 90\n";
        assert_eq!(findings(90, ratchet), [""; 0]);
        assert_eq!(findings(91, ratchet), ["the function has 91 lines, and 90 are allowed"]);
    }

    #[test]
    fn the_ratchet_only_shrinks() {
        let ratchet = "[functions]\n\"crates/x/src/y.rs::f\" = 90\n";
        assert_eq!(
            findings(80, ratchet),
            ["`crates/x/src/y.rs::f` has shrunk from 90 to 80 lines"]
        );
        let gone = ["`crates/x/src/y.rs::f` is no longer over the limit"];
        assert_eq!(findings(70, ratchet), gone);
    }

    #[test]
    fn tests_do_not_count_towards_a_file() {
        let text = format!(
            "{}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "const A: u8 = 0;\n".repeat(500),
            "    const A: u8 = 0;\n".repeat(500)
        );
        let sizes = measure(PATH, &Source::of(PATH, &text));
        assert_eq!(sizes[0].lines, 500);
        assert!(check(&sizes, "r", "").is_empty());
    }

    #[test]
    fn a_ratchet_that_cannot_be_read_is_a_finding() {
        assert_eq!(check(&[], "r", "[other]\n").len(), 1);
    }
}
