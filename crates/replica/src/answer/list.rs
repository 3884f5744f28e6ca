//! Directories, and single nodes and names.
//! Holds: a row that cannot be read costs what it says alone. An entry whose node is such a row is told of
//! as a name without its node, and whoever asks for that node gets the error.

use super::{Shows, states};
use crate::damage::{Damage, is_of_a_row};
use crate::error::{ReplicaError, Result};
use crate::weight;
use model::{FileId, Kind, Name, Node, Seq, View};
use protocol::{Listed, Listing, NodeState, Refusal, States};
use std::collections::{BTreeMap, VecDeque};
use volume::whole::{self, Touched, Whole};

/// Entries in one listing, whatever is asked for.
const ENTRIES_MAX: usize = 10_000;
/// Bytes of one listing, about, as it is encoded.
const BYTES_MAX: usize = 1 << 20;
/// Nodes and names that are inspected in one request.
const INSPECTED_MAX: usize = 20_000;

/// What a client asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub directory: FileId,
    pub after: Option<Name>,
    pub entries_max: usize,
    pub deep: bool,
    pub also: Vec<FileId>,
}

/// A directory, and those below it as far as there is room. `told`: of what damage the log has told,
/// and the volume's name.
pub(crate) fn list(
    (view, at): (&Whole<'_>, Seq),
    told: (&Damage, &str),
    wanted: &Wanted,
) -> Result<Result<Shows<Listing>, Refusal>> {
    match view.node(wanted.directory)? {
        None => return Ok(Err(Refusal::NoFile(wanted.directory))),
        Some(node) if node.kind != Kind::Directory => {
            return Ok(Err(Refusal::NotADirectory(wanted.directory)));
        }
        Some(_) => {}
    }
    let mut making = Making {
        view,
        at,
        told,
        entries_left: wanted.entries_max.clamp(1, ENTRIES_MAX),
        bytes_left: BYTES_MAX,
        directories: Vec::new(),
        nodes: BTreeMap::new(),
        below: VecDeque::new(),
    };
    making.first(wanted)?;
    making.below.extend(wanted.also.iter().take(ENTRIES_MAX));
    while wanted.deep && making.directories[0].complete {
        let Some(directory) = making.below.pop_front() else { break };
        if !making.whole(directory)? {
            break;
        }
    }
    let files = making.nodes.keys().copied().collect();
    let nodes = making.nodes.into_values().collect();
    let answer = Listing { as_of: at, directories: making.directories, nodes };
    Ok(Ok(Shows { answer, files }))
}

struct Making<'a> {
    view: &'a Whole<'a>,
    at: Seq,
    told: (&'a Damage, &'a str),
    entries_left: usize,
    bytes_left: usize,
    directories: Vec<Listed>,
    nodes: BTreeMap<FileId, NodeState>,
    /// Directories that were named and are not listed yet.
    below: VecDeque<FileId>,
}

/// Entries with their nodes, none twice. None: what is said of it is damaged.
type Named = Vec<(Name, FileId, Option<Node>)>;

impl Making<'_> {
    /// The directory asked for, as far as there is room, and one entry in any case.
    fn first(&mut self, wanted: &Wanted) -> Result<()> {
        let after = wanted.after.as_ref();
        let page = self.view.entries(wanted.directory, after, self.entries_left)?;
        let mut complete = page.complete;
        let mut named = self.with_nodes(page.entries)?;
        let mut bytes = 0;
        let fitting = named.iter().position(|(name, _, node)| {
            bytes += bytes_of(name, node.as_ref());
            bytes > self.bytes_left
        });
        if let Some(fitting) = fitting {
            named.truncate(fitting.max(1));
            complete = false;
        }
        if let Some(node) = self.view.node(wanted.directory)? {
            self.add_node(wanted.directory, node);
        }
        self.add(wanted.directory, named, complete);
        Ok(())
    }

    /// A directory below, if all of it fits. One that cannot be read is left out: who asks for it alone
    /// gets the error.
    fn whole(&mut self, directory: FileId) -> Result<bool> {
        match self.whole_or_none(directory) {
            Err(ReplicaError::Tree(error)) if is_of_a_row(&error) => {
                self.left_out(&error);
                Ok(true)
            }
            outcome => outcome,
        }
    }

    fn left_out(&self, error: &whole::Error) {
        let (damage, volume) = self.told;
        damage.left_out(volume, error);
    }

    fn whole_or_none(&mut self, directory: FileId) -> Result<bool> {
        let Some(node) = self.view.node(directory)?.filter(|node| node.kind == Kind::Directory)
        else {
            return Ok(true);
        };
        let page = self.view.entries(directory, None, self.entries_left)?;
        // An empty one takes room too, so that their number is bounded.
        if !page.complete || self.entries_left == 0 {
            return Ok(false);
        }
        let named = self.with_nodes(page.entries)?;
        let bytes: usize = named.iter().map(|(name, _, node)| bytes_of(name, node.as_ref())).sum();
        if bytes > self.bytes_left {
            return Ok(false);
        }
        self.add_node(directory, node);
        self.add(directory, named, true);
        Ok(true)
    }

    fn with_nodes(&self, entries: Vec<(Name, FileId)>) -> Result<Named> {
        let mut named = Vec::with_capacity(entries.len());
        for (name, file) in entries {
            let node = self.view.node(file).and_then(|node| {
                node.ok_or_else(|| whole::Error::Damaged {
                    place: format!("node {file} of {}", self.view.volume()),
                    what: format!("it is not there, and {name} names it"),
                })
            });
            let node = match node {
                Ok(node) => Some(node),
                Err(error) if is_of_a_row(&error) => {
                    self.left_out(&error);
                    None
                }
                Err(error) => return Err(error.into()),
            };
            named.push((name, file, node));
        }
        Ok(named)
    }

    fn add(&mut self, directory: FileId, named: Named, complete: bool) {
        self.entries_left = self.entries_left.saturating_sub(named.len().max(1));
        let mut entries = Vec::with_capacity(named.len());
        for (name, file, node) in named {
            self.bytes_left = self.bytes_left.saturating_sub(bytes_of(&name, node.as_ref()));
            if let Some(node) = node {
                if node.kind == Kind::Directory {
                    self.below.push_back(file);
                }
                self.add_node(file, node);
            }
            entries.push((name, file));
        }
        self.directories.push(Listed { directory, entries, complete });
    }

    fn add_node(&mut self, file: FileId, mut node: Node) {
        // Only who opens the file needs it.
        node.contents.root = None;
        self.nodes.insert(file, NodeState { file, seq: self.at, node: Some(node) });
    }
}

fn bytes_of(name: &Name, node: Option<&Node>) -> usize {
    name.as_bytes().len() + node.map_or(0, weight::of_node)
}

/// Nodes and names one by one.
pub(crate) fn inspect(
    view: &Whole<'_>,
    at: Seq,
    nodes: &[FileId],
    entries: &[(FileId, Name)],
) -> Result<Result<Shows<States>, Refusal>> {
    if nodes.len() + entries.len() > INSPECTED_MAX {
        let what = format!("more than {INSPECTED_MAX} nodes and names to inspect");
        return Ok(Err(Refusal::Malformed(what)));
    }
    let touched = Touched {
        nodes: nodes.iter().copied().collect(),
        entries: entries.iter().cloned().collect(),
    };
    let answer = states(view, &touched, at)?;
    if super::weigh(&answer) > weight::STATES_BYTES_MAX {
        let what = "more attributes than one answer holds; inspect fewer at once";
        return Ok(Err(Refusal::Malformed(what.into())));
    }
    let directories = touched.entries.iter().map(|(directory, _)| *directory);
    let files = touched.nodes.iter().copied().chain(directories).collect();
    Ok(Ok(Shows { answer, files }))
}
