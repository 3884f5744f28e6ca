//! Whether a quota has room for an update.
//! Holds: what frees is always done; what somebody waits for is within the quotas; what was
//! accepted already, when its writer knew of room, is taken all the same, and listed.

use super::conflict::{Clash, Conflict};
use super::settings::named;
use crate::error::Result;
use model::{Allowance, Change, Effects, Growths, Quota, Seq, Time, Update};
use volume::whole::{Committer, Whole};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    There,
    /// Beyond the quota, and taken.
    Overrun,
    Not,
    /// What would be lost if it were refused waits at its writer.
    NotYet,
}

/// What there is of the quota, all that the transaction has done included.
pub(crate) fn allowance(committer: &Committer<'_>, quota: &Quota, taken: u64) -> Result<Allowance> {
    let (used, users) = committer.usage(quota.users().iter().map(|user| user.uid))?;
    let users = (!users.is_empty()).then_some(users);
    Ok(Allowance { quota: quota.clone(), used, users, upto: committer.position(), taken })
}

/// Whether these effects take more than the quota allows.
pub(crate) fn exceeds(committer: &Committer<'_>, quota: &Quota, effects: &Effects) -> Result<bool> {
    let growths = committer.growths(effects)?;
    if !growths.grows() {
        return Ok(false);
    }
    let allowance = allowance(committer, quota, 0)?;
    Ok(allowance.is_exceeded_by(&Growths::default(), &growths))
}

/// What is told of an update that was taken beyond a quota.
pub(super) fn overrun(view: &Whole<'_>, update: &Update) -> Result<Conflict> {
    let named = |file| named(view, file);
    let (file, (directory, name)) = match &update.change {
        Change::Make { parent, name, file, .. } | Change::Link { parent, name, file } => {
            (*file, (*parent, name.clone()))
        }
        Change::Unlink { parent, name, file, .. } => (*file, (*parent, name.clone())),
        Change::Rename { to, to_name, file, .. } => (*file, (*to, to_name.clone())),
        Change::Store { file, .. }
        | Change::SetAttributes { file, .. }
        | Change::SetXattr { file, .. }
        | Change::RemoveXattr { file, .. } => (*file, named(*file)?),
    };
    Ok(Conflict {
        clash: Clash::Overrun,
        update: update.stamp,
        found: None,
        base: None,
        file,
        directory,
        name,
        aside: None,
        device: String::new(),
        at: Time::default(),
        seq: None::<Seq>,
        settings: None,
        claim: None,
        base_file: None,
    })
}
