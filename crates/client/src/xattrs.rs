//! Extended attributes.
//! Holds: an update of one names the stamp of the attributes that it was made upon.

use crate::client::{Client, stop};
use crate::types::{Caller, Done, Error, Step, Stop, XattrFlag};
use model::{
    ACL_ACCESS, ACL_DEFAULT, Acl, CAPABILITY, Change, Effects, FileId, Node, Update, View,
};
use protocol::{Objection, Upstream};
use store::Containers;
use volume::partial::Tree;

/// The largest value, as Linux has it.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The origin would refuse them when nobody waits any more.
pub(crate) fn fit(update: &Update, effects: &Effects) -> Step<()> {
    let is_set = matches!(update.change, Change::SetXattr { .. });
    match is_set && effects.nodes.values().flatten().any(Node::has_too_many_xattrs) {
        true => Err(Objection::NoSpace.into()),
        false => Ok(()),
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// The value of an extended attribute.
    pub fn xattr(&self, file: FileId, name: &[u8]) -> Step<Vec<u8>> {
        let xattrs = self.node(file)?.xattrs.unwrap_or_default();
        let value = xattrs.get(&minicbor::bytes::ByteVec::from(name.to_vec()));
        value.map(|value| value.to_vec()).ok_or(Objection::NoAttribute.into())
    }

    /// The names of all extended attributes.
    pub fn xattrs(&self, file: FileId) -> Step<Vec<Vec<u8>>> {
        let xattrs = self.node(file)?.xattrs.unwrap_or_default();
        Ok(xattrs.into_keys().map(Vec::from).collect())
    }

    pub fn set_xattr(
        &self,
        caller: Caller,
        file: FileId,
        name: &[u8],
        value: &[u8],
        flag: XattrFlag,
    ) -> Step<Done<()>> {
        if value.len() > XATTR_BYTES_MAX {
            return Err(Error::AttributeTooLarge.into());
        }
        if [ACL_ACCESS, ACL_DEFAULT].contains(&name) && Acl::read(value).is_none() {
            return Err(Objection::Invalid.into());
        }
        if name == CAPABILITY {
            self.is_written_where_it_is_seen(file)?;
        }
        match (flag, self.xattr(file, name)) {
            (XattrFlag::Create, Ok(_)) => return Err(Error::AttributeExists.into()),
            (_, Err(Stop::Need(need))) => return Err(Stop::Need(need)),
            (XattrFlag::Replace, Err(error)) => return Err(error),
            _ => {}
        }
        let (name, value) = (name.to_vec().into(), value.to_vec().into());
        let change = Change::SetXattr { file, name, value, expects: None };
        self.change_xattr(caller, file, &change)
    }

    pub fn remove_xattr(&self, caller: Caller, file: FileId, name: &[u8]) -> Step<Done<()>> {
        let change = Change::RemoveXattr { file, name: name.to_vec().into(), expects: None };
        self.change_xattr(caller, file, &change)
    }

    fn change_xattr(&self, caller: Caller, file: FileId, change: &Change) -> Step<Done<()>> {
        if self.change_nameless(caller.uid, file, change)? {
            return Ok(Done { value: (), wait: None });
        }
        let as_seen = |tree: &Tree<'_>| -> Step<Change> {
            let mut change = change.clone();
            if let Change::SetXattr { expects, .. } | Change::RemoveXattr { expects, .. } =
                &mut change
            {
                let node = tree.node(file).map_err(stop)?;
                *expects = node.map(|node| node.attributes_stamp);
            }
            Ok(change)
        };
        let done = self.change(caller.uid, |tree, _| as_seen(tree), |_, _| Ok(()))?;
        Ok(Done { value: (), wait: done.wait })
    }
}
