//! Names of the reference: what leads where.

use super::{Node, Reference, Step, TOP};
use crate::operation::{Fault, Outcome, Path};
use client::RenameFlag;
use model::{Kind, Name};

impl Reference {
    /// The file that a path leads to.
    pub(super) fn find(&self, path: &Path) -> Step<u64> {
        path.0.iter().try_fold(TOP, |at, name| {
            let node = self.node(at)?;
            if node.kind != Kind::Directory {
                return Err(Fault::NotADirectory);
            }
            node.entries.get(name).copied().ok_or(Fault::NoEntry)
        })
    }

    pub(super) fn directory(&self, path: &Path) -> Step<u64> {
        let file = self.find(path)?;
        match self.node(file)?.kind {
            Kind::Directory => Ok(file),
            _ => Err(Fault::NotADirectory),
        }
    }

    /// The directory of a path's last name, and that name.
    fn place(&self, path: &Path) -> Step<(u64, Name)> {
        let (above, name) = path.split().ok_or(Fault::Invalid)?;
        Ok((self.directory(&above)?, name.clone()))
    }

    fn entry(&self, directory: u64, name: &Name) -> Step<Option<u64>> {
        Ok(self.node(directory)?.entries.get(name).copied())
    }

    /// What a name of a directory is from now on.
    fn enter(&mut self, directory: u64, name: &Name, file: Option<u64>) -> Step<()> {
        let node = self.node_mut(directory)?;
        node.mtime = None;
        match file {
            Some(file) => node.entries.insert(name.clone(), file),
            None => node.entries.remove(name),
        };
        Ok(())
    }

    pub(super) fn make(
        &mut self,
        path: &Path,
        kind: Kind,
        mode: u16,
        target: Option<Vec<u8>>,
    ) -> Step<u64> {
        let (parent, name) = self.place(path)?;
        if self.entry(parent, &name)?.is_some() {
            return Err(Fault::Exists);
        }
        self.last += 1;
        self.nodes.insert(self.last, Node::new(kind, mode, target, parent));
        self.enter(parent, &name, Some(self.last))?;
        Ok(self.last)
    }

    pub(super) fn link(&mut self, side: usize, from: &Path, to: &Path) -> Step<Outcome> {
        let file = self.find(from)?;
        self.link_file(side, file, to)
    }

    pub(super) fn link_file(&mut self, side: usize, file: u64, to: &Path) -> Step<Outcome> {
        let (parent, name) = self.place(to)?;
        if self.entry(parent, &name)?.is_some() {
            return Err(Fault::Exists);
        }
        if self.node(file)?.kind == Kind::Directory {
            return Err(Fault::IsADirectory);
        }
        self.node_mut(file)?.links += 1;
        self.enter(parent, &name, Some(file))?;
        Ok(Outcome::Shown(self.shown(side, file)?))
    }

    pub(super) fn unlink(&mut self, path: &Path, directory: bool) -> Step<()> {
        let (parent, name) = self.place(path)?;
        let file = self.entry(parent, &name)?.ok_or(Fault::NoEntry)?;
        let node = self.node(file)?;
        match (directory, node.kind == Kind::Directory) {
            (true, false) => return Err(Fault::NotADirectory),
            (false, true) => return Err(Fault::IsADirectory),
            (true, true) if !node.entries.is_empty() => return Err(Fault::NotEmpty),
            _ => {}
        }
        self.enter(parent, &name, None)?;
        self.drop_name(file)
    }

    /// One name less; with the last one the file goes, and stays with whoever has it open.
    fn drop_name(&mut self, file: u64) -> Step<()> {
        let node = self.node_mut(file)?;
        node.links = node.links.saturating_sub(1);
        if node.links == 0 || node.kind == Kind::Directory {
            let mut node = self.nodes.remove(&file).ok_or(Fault::NoEntry)?;
            node.links = 0;
            for side in &mut self.sides {
                side.keep(file, &node);
            }
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, flag: RenameFlag) -> Step<()> {
        let (from, from_name) = self.place(from)?;
        let (to, to_name) = self.place(to)?;
        let file = self.entry(from, &from_name)?.ok_or(Fault::NoEntry)?;
        let over = self.entry(to, &to_name)?;
        if flag == RenameFlag::NoReplace && over.is_some() {
            return Err(Fault::Exists);
        }
        if over == Some(file) {
            return Ok(());
        }
        let is_directory = self.node(file)?.kind == Kind::Directory;
        if is_directory {
            self.not_below(to, file)?;
        }
        if let Some(over) = over {
            let replaced = self.node(over)?;
            match (is_directory, replaced.kind == Kind::Directory) {
                (true, false) => return Err(Fault::NotADirectory),
                (false, true) => return Err(Fault::IsADirectory),
                (true, true) if !replaced.entries.is_empty() => return Err(Fault::NotEmpty),
                _ => {}
            }
        }
        self.enter(from, &from_name, None)?;
        self.enter(to, &to_name, Some(file))?;
        if is_directory {
            self.node_mut(file)?.parent = to;
        }
        over.map_or(Ok(()), |over| self.drop_name(over))
    }

    pub(super) fn exchange(&mut self, from: &Path, to: &Path) -> Step<()> {
        let (from, from_name) = self.place(from)?;
        let (to, to_name) = self.place(to)?;
        let one = self.entry(from, &from_name)?.ok_or(Fault::NoEntry)?;
        let other = self.entry(to, &to_name)?.ok_or(Fault::NoEntry)?;
        for (file, place) in [(one, to), (other, from)] {
            if self.node(file)?.kind == Kind::Directory {
                self.not_below(place, file)?;
            }
        }
        self.enter(from, &from_name, Some(other))?;
        self.enter(to, &to_name, Some(one))?;
        for (file, place) in [(other, from), (one, to)] {
            let node = self.node_mut(file)?;
            if node.kind == Kind::Directory {
                node.parent = place;
            }
        }
        Ok(())
    }

    fn not_below(&self, place: u64, directory: u64) -> Step<()> {
        let mut above = place;
        while above != TOP {
            if above == directory {
                return Err(Fault::Cycle);
            }
            above = self.node(above)?.parent;
        }
        if directory == TOP { Err(Fault::Cycle) } else { Ok(()) }
    }

    pub(super) fn list(&self, side: usize, path: &Path) -> Step<Outcome> {
        let directory = self.directory(path)?;
        let entries = self.node(directory)?.entries.iter();
        let names = entries.map(|(name, file)| Ok((name.clone(), self.shown(side, *file)?)));
        Ok(Outcome::Names(names.collect::<Step<_>>()?))
    }
}
