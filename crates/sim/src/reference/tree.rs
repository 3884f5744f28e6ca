//! The reference as a tree to compare with, and what a power cut leaves open of it.

use super::{Reference, TOP};
use crate::operation::Path;
use crate::tree::{Leaf, Tree};
use model::Kind;
use std::collections::BTreeSet;

impl Reference {
    /// Everything that has a name, as it is stored.
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        self.collect(&Path(Vec::new()), TOP, &mut tree);
        tree
    }

    fn collect(&self, path: &Path, file: u64, tree: &mut Tree) {
        // No side: what is written and not stored does not count.
        let (Ok(shown), Ok(node)) = (self.shown(usize::MAX, file), self.node(file)) else { return };
        let leaf = Leaf {
            shown,
            target: node.target.clone(),
            xattrs: node.xattrs.clone(),
            contents: (node.kind == Kind::File && !node.torn).then(|| node.contents.clone()),
            node: None,
        };
        tree.0.insert(path.clone(), leaf);
        for (name, file) in &node.entries {
            self.collect(&path.join(&Path(vec![name.clone()])), *file, tree);
        }
    }

    /// Files that the side has written to and not stored.
    pub fn being_written(&self, side: usize) -> BTreeSet<u64> {
        let written = self.nodes.keys().filter(|file| self.sides[side].written(**file).is_some());
        written.copied().collect()
    }

    /// Nobody can tell what these files hold until it is read.
    pub fn tear(&mut self, files: &BTreeSet<u64>) {
        for file in files {
            if let Some(node) = self.nodes.get_mut(file) {
                node.torn = true;
                node.mtime = None;
            }
        }
    }

    /// What was torn holds what was found.
    pub fn adopt(&mut self, found: &Tree) {
        for (path, leaf) in &found.0 {
            let Ok(file) = self.find(path) else { continue };
            let Some(node) = self.nodes.get_mut(&file).filter(|node| node.torn) else { continue };
            if let Some(contents) = &leaf.contents {
                node.contents = contents.clone();
                node.torn = false;
            }
        }
    }
}
