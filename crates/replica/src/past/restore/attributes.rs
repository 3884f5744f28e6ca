//! By what the attributes of a file become those of then, as far as who asks may set them.

use crate::past::rights::{is_lost, may_set, settable};
use minicbor::bytes::ByteVec;
use model::{AttributeChange, Change, FileId, Node};
use protocol::past::By;

/// `stored`: the contents became those of then just before.
pub(super) fn of_xattrs(
    by: &By,
    file: FileId,
    (then, present): (&Node, &Node),
    stored: bool,
) -> Vec<Change> {
    let (wanted, found) =
        (then.xattrs.clone().unwrap_or_default(), present.xattrs.clone().unwrap_or_default());
    let goes = |name: &ByteVec| match may_set(by, name) {
        true => !wanted.contains_key(name),
        false => stored && is_lost(by, name),
    };
    let comes = |name: &ByteVec, value| may_set(by, name) && found.get(name) != Some(value);
    let gone = found.keys().filter(|name| goes(name)).cloned();
    let gone = gone.map(|name| Change::RemoveXattr { file, name, expects: None });
    let come = wanted.iter().filter(|(name, value)| comes(name, value));
    let come = come.map(|(name, value)| {
        let (name, value) = (name.clone(), value.clone());
        Change::SetXattr { file, name, value, expects: None }
    });
    gone.chain(come).collect()
}

/// None: they are so already.
pub(super) fn of_looks(
    by: &By,
    file: FileId,
    (then, present): (&Node, &Node),
    stored: bool,
) -> Option<Change> {
    let looks = |node: &Node| (node.gid, node.mode);
    // What is there already, nobody gets by this; but a write takes away what it would.
    let (gid, mode) = match looks(present) == looks(then) && !stored {
        true => looks(then),
        false => settable(by, then, present.gid),
    };
    let wanted = (gid, mode, then.uid, then.mtime);
    if wanted == (present.gid, present.mode, present.uid, present.mtime) {
        return None;
    }
    let set = AttributeChange {
        mode: Some(mode),
        uid: Some(then.uid),
        gid: Some(gid),
        atime: None,
        mtime: Some(then.mtime),
    };
    Some(Change::SetAttributes { file, expects: present.attributes_stamp, set })
}
