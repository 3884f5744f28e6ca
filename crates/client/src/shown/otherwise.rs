//! What shows otherwise when what was done here has been judged: the verdicts bring what others have
//! changed of the same files and names, and news of that come too late to tell of it.

use super::Error;
use model::{FileId, Name, Node, View};
use protocol::States;
use store::Read;
use volume::partial::{Changed, Missing, Tree};

/// What shows of some files and names.
pub(crate) struct Showing {
    nodes: Vec<(FileId, Option<Node>)>,
    entries: Vec<(FileId, Name, Option<FileId>)>,
}

impl Showing {
    /// Of all that the replica above says something of.
    pub fn of(read: &dyn Read, states: &States) -> Result<Showing, Error> {
        let everything = 0;
        let tree = Tree::new(read, everything);
        let nodes =
            states.nodes.iter().map(|state| Ok((state.file, known(tree.node(state.file))?)));
        let entries = states.entries.iter().map(|state| {
            let found = known(tree.entry(state.directory, &state.name))?;
            Ok((state.directory, state.name.clone(), found))
        });
        Ok(Showing {
            nodes: nodes.collect::<Result<_, Error>>()?,
            entries: entries.collect::<Result<_, Error>>()?,
        })
    }

    /// What the kernel may have of it that is not so in `now`.
    pub fn otherwise(self, now: &Showing) -> Vec<Changed> {
        let nodes = self.nodes.into_iter().zip(&now.nodes);
        let nodes = nodes.filter_map(|((file, before), (_, after))| {
            let (before, after) = (before?, after.as_ref()?);
            let contents = before.contents_stamp != after.contents_stamp;
            (contents || told_of(&before) != told_of(after))
                .then_some(Changed::Node { file, contents })
        });
        let entries = self.entries.into_iter().zip(&now.entries);
        let entries = entries.filter(|((.., before), (.., after))| before != after);
        let entries = entries.map(|((directory, name, _), _)| Changed::Entry(directory, name));
        nodes.chain(entries).collect()
    }
}

/// What is not known here nobody was told.
fn known<T>(found: Result<Option<T>, Missing>) -> Result<Option<T>, Error> {
    match found {
        Err(Missing::Store(error)) => Err(Error::Failed(error.to_string())),
        Err(_) => Ok(None),
        Ok(found) => Ok(found),
    }
}

/// What of a node the kernel is told: by which updates it is so makes no difference to it.
fn told_of(node: &Node) -> Node {
    let stamp = model::Stamp::default();
    Node { contents_stamp: stamp, attributes_stamp: stamp, ..node.clone() }
}
