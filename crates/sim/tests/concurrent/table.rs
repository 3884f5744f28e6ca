//! The table of concurrent changes, as docs/SEMANTICS.md has it.

use std::collections::BTreeSet;

const DOC: &str = include_str!("../../../../docs/SEMANTICS.md");
const HEADING: &str = "### Every pair of concurrent changes";

/// The kinds of changes, by the words for them.
pub const KINDS: [&str; 17] = [
    "make", "mkdir", "symlink", "ln", "rm", "rmdir", "mv", "mv-over", "swap", "write", "cut",
    "chmod", "chown", "touch", "tag", "untag", "acl",
];

/// One change, by its words.
pub type Step = Vec<String>;

/// One row: what two do after the same, without seeing each other, and what comes of it.
pub struct Row {
    pub name: String,
    pub before: Vec<Step>,
    /// What each of the two does, in several ways of which the same comes.
    pub ways: [Vec<Vec<Step>>; 2],
    /// Where the one comes first to the origin, and where the other does.
    pub outcomes: [String; 2],
}

pub fn rows() -> Vec<Row> {
    let (_, section) = DOC.split_once(HEADING).expect("the document has the table");
    let section = section.split("\n## ").next().expect("it begins with something");
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let rows: Vec<Row> = lines.map(row).collect();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), rows.len(), "two rows have one name");
    rows
}

fn row(line: &str) -> Row {
    let cells: Vec<String> =
        line.trim_matches('|').split('|').map(|cell| cell.replace('`', "").trim().into()).collect();
    let [name, before, one, other, one_first, other_first] = &cells[..] else {
        panic!("six cells: {line}")
    };
    Row {
        name: name.clone(),
        before: steps(before),
        ways: [one, other].map(|cell| cell.split(" or ").map(steps).collect()),
        outcomes: [one_first.clone(), other_first.clone()],
    }
}

fn steps(text: &str) -> Vec<Step> {
    let steps = text.split("; ").filter(|step| !step.is_empty() && *step != "nothing");
    let steps = steps.map(|step| step.split_whitespace().map(str::to_owned).collect::<Step>());
    steps.inspect(|step| assert!(KINDS.contains(&step[0].as_str()), "{text}")).collect()
}

/// The pairs of kinds that rows have, in both orders.
pub fn pairs(rows: &[Row]) -> BTreeSet<(String, String)> {
    let mut pairs = BTreeSet::new();
    for row in rows {
        let kinds = |way: usize| {
            row.ways[way].iter().flatten().map(|step| step[0].clone()).collect::<BTreeSet<_>>()
        };
        for one in kinds(0) {
            for other in kinds(1) {
                pairs.insert((one.clone(), other.clone()));
                pairs.insert((other, one.clone()));
            }
        }
    }
    pairs
}
