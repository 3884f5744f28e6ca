//! About how many bytes states take in a message, so that no message is longer than a link
//! carries.

use model::Node;
use protocol::{EntryState, NodeState};

/// Bytes of the states in one message. A link carries twice as much.
pub(crate) const STATES_BYTES_MAX: usize = 4 << 20;

/// A node without what varies.
const NODE_BYTES: usize = 160;
/// An entry without its name.
const ENTRY_BYTES: usize = 24;

pub(crate) fn of_node(node: &Node) -> usize {
    let xattrs = node.xattrs.iter().flatten();
    let xattrs: usize = xattrs.map(|(name, value)| name.len() + value.len()).sum();
    NODE_BYTES + xattrs + node.target.as_ref().map_or(0, |target| target.len())
}

pub(crate) fn of_node_state(state: &NodeState) -> usize {
    state.node.as_ref().map_or(NODE_BYTES, of_node)
}

pub(crate) fn of_entry_state(state: &EntryState) -> usize {
    ENTRY_BYTES + state.name.as_bytes().len()
}
