//! Files of the reference that never had a name.

use super::super::{Node, Reference, Step};
use super::{Side, Slot, Version};
use crate::operation::{Outcome, Path};
use model::Kind;
use std::sync::Arc;

impl Side {
    /// A file without a name is open for reading and writing.
    fn keep_unborn(&mut self, slot: usize, version: Version) {
        self.last += 1;
        self.versions.insert(self.last, version);
        self.slots[slot] =
            Some(Slot { version: self.last, read: true, write: true, append: false });
    }

    /// It has a name now.
    fn is_born(&mut self, slot: usize) {
        let number = self.slots[slot].map(|slot| slot.version);
        if let Some(version) = number.and_then(|number| self.versions.get_mut(&number))
            && version.unborn
        {
            (version.unborn, version.gone, version.written) = (false, None, false);
            version.number = 1;
        }
    }
}

impl Version {
    fn unborn(file: u64, node: Node) -> Version {
        Version {
            file,
            number: 0,
            contents: Arc::default(),
            written: false,
            only_cut: false,
            mtime: None,
            gone: Some(node),
            unborn: true,
        }
    }

    /// The file with a name, if it has none yet.
    fn born(&self) -> Option<Node> {
        let node = self.gone.as_ref().filter(|_| self.unborn)?;
        Some(Node { contents: self.contents.clone(), version: 1, ..node.clone() })
    }
}

impl Reference {
    pub(in super::super) fn create_unborn(
        &mut self,
        side: usize,
        directory: &Path,
        mode: u16,
        slot: usize,
    ) -> Step<Outcome> {
        self.free(side, slot)?;
        let parent = self.directory(directory)?;
        self.last += 1;
        let node = Node { links: 0, ..Node::new(Kind::File, mode, None, parent) };
        self.sides[side].keep_unborn(slot, Version::unborn(self.last, node));
        self.stat_open(side, slot)
    }

    /// With its first name a file is there for everybody, as it is.
    pub(in super::super) fn bear(&mut self, side: usize, slot: usize, to: &Path) -> Step<Outcome> {
        let version = self.version(side, slot)?;
        let file = version.file;
        let before = self.clone();
        if let Some(node) = version.born() {
            self.nodes.insert(file, node);
        }
        let outcome = self.link_file(side, file, to);
        match outcome {
            Ok(_) => self.sides[side].is_born(slot),
            Err(_) => *self = before,
        }
        outcome
    }
}
