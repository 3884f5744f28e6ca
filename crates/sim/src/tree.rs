//! A whole tree as it was found somewhere, and how two of them differ.

use crate::contents::describe;
use crate::operation::{Path, Shown};
use model::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

mod walk;

pub use walk::{of_client, of_origin};

/// Differences that are told; one is enough to fail.
const DIFFERENCES_MAX: usize = 12;

/// What is found under one name.
#[derive(Clone, Debug)]
pub struct Leaf {
    pub shown: Shown,
    pub target: Option<Vec<u8>>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Of an ordinary file; none if nobody can tell.
    pub contents: Option<Arc<Vec<u8>>>,
    /// All that is known of it, where that may be compared.
    pub node: Option<Node>,
}

/// Leaves by path; the top has the empty path.
#[derive(Clone, Debug, Default)]
pub struct Tree(pub BTreeMap<Path, Leaf>);

impl Tree {
    /// The part below `base`, which becomes the top.
    pub fn below(&self, base: &Path) -> Tree {
        let inside = self.0.iter().filter_map(|(path, leaf)| {
            let rest = path.0.strip_prefix(base.0.as_slice())?;
            Some((Path(rest.to_vec()), leaf.clone()))
        });
        Tree(inside.collect())
    }

    /// What is different, in words; empty if both are the same as far as both tell.
    pub fn differences(&self, here: &str, other: &Tree, there: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut pairs: BTreeMap<u64, u64> = BTreeMap::new();
        for (path, leaf) in &self.0 {
            match other.0.get(path) {
                None => found.push(format!("{path} is at {here} and not at {there}")),
                Some(twin) => {
                    compare(leaf, twin, |what, one, two| {
                        found.push(format!("{path}: {what} at {here} {one}, at {there} {two}"));
                    });
                    let paired = pairs.entry(leaf.shown.file).or_insert(twin.shown.file);
                    if *paired != twin.shown.file {
                        found.push(format!("{path}: the same file as another at {here} alone"));
                    }
                }
            }
        }
        let missing = other.0.keys().filter(|path| !self.0.contains_key(path));
        found.extend(missing.map(|path| format!("{path} is at {there} and not at {here}")));
        found.truncate(DIFFERENCES_MAX);
        found
    }
}

fn compare(one: &Leaf, two: &Leaf, mut differs: impl FnMut(&str, String, String)) {
    let (a, b) = (&one.shown, &two.shown);
    let mut check = |what: &str, one: String, two: String| {
        if one != two {
            differs(what, one, two);
        }
    };
    check("kind", format!("{:?}", a.kind), format!("{:?}", b.kind));
    check("mode", format!("{:o}", a.mode), format!("{:o}", b.mode));
    check("owner", format!("{}:{}", a.uid, a.gid), format!("{}:{}", b.uid, b.gid));
    check("links", a.links.to_string(), b.links.to_string());
    if let (Some(a), Some(b)) = (a.mtime, b.mtime) {
        check("mtime", format!("{a:?}"), format!("{b:?}"));
    }
    check("target", format!("{:?}", one.target), format!("{:?}", two.target));
    check("xattrs", format!("{:?}", one.xattrs), format!("{:?}", two.xattrs));
    // Torn contents have no size that could be compared.
    let torn = a.kind == model::Kind::File && (one.contents.is_none() || two.contents.is_none());
    if !torn {
        check("size", a.size.to_string(), b.size.to_string());
    }
    if let (Some(a), Some(b)) = (&one.contents, &two.contents)
        && a != b
    {
        check("contents", describe(a), describe(b));
    }
    if let (Some(a), Some(b)) = (&one.node, &two.node) {
        check("node", format!("{a:?}"), format!("{b:?}"));
    }
}
