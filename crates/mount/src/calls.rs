//! Calls that are more than one call of the client's. Each is one try: it stops where the client
//! stops, and doing it again from the start is safe.

use crate::privileges::{
    Changer, drop_capability, drop_privileges, inherited, masked, without_privileges,
    without_setgid,
};
use client::{
    Allocate, Caller, Client, Done, Error, Found, Growing, Handle, Inode, Making, Need, OpenFlags,
    Opened, RenameFlag, Setting, Step, Stop, XattrFlag,
};
use fuse::RenameFlags;
use model::{ACL_ACCESS, FileId, Kind, Name};
use protocol::Upstream;
use store::Containers;

/// An open file that is closed again unless its handle reaches the kernel.
pub(crate) struct Held<U: Upstream, C: Containers> {
    client: Client<U, C>,
    opened: Option<Opened>,
}

impl<U: Upstream, C: Containers> Held<U, C> {
    pub(crate) fn new(client: &Client<U, C>, opened: Opened) -> Self {
        Held { client: client.clone(), opened: Some(opened) }
    }

    pub(crate) fn hand_over(mut self) -> Opened {
        self.opened.take().expect("only this takes it, and it ends here")
    }
}

impl<U: Upstream, C: Containers> Drop for Held<U, C> {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            self.client.release(opened.handle);
        }
    }
}

/// A file that the kernel is told of. Unless the answer goes out, it does not have it.
pub(crate) struct Seen<U: Upstream, C: Containers> {
    client: Client<U, C>,
    found: Option<Found>,
}

impl<U: Upstream, C: Containers> Seen<U, C> {
    /// Of what the client has noted already.
    pub(crate) fn noted(client: &Client<U, C>, found: Found) -> Self {
        Seen { client: client.clone(), found: Some(found) }
    }

    fn new(client: &Client<U, C>, found: Found) -> Self {
        client.tell(found.file);
        Seen::noted(client, found)
    }

    pub(crate) fn hand_over(mut self) -> Found {
        self.found.take().expect("only this takes it, and it ends here")
    }
}

impl<U: Upstream, C: Containers> Drop for Seen<U, C> {
    fn drop(&mut self) {
        if let Some(found) = self.found.take() {
            self.client.forgotten(found.file, 1);
        }
    }
}

/// A new file, open.
pub(crate) type Created<U, C> = (Seen<U, C>, Held<U, C>);

/// Looks a name up, and the two names that every directory has: the kernel asks for those when a
/// file is opened by handle.
pub(crate) fn lookup<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    directory: FileId,
    name: &LookedUp,
) -> Step<Option<Seen<U, C>>> {
    let itself = |file| client.attributes(file).map(|found| Some(Seen::new(client, found)));
    match name {
        LookedUp::Itself => itself(directory),
        LookedUp::Parent => itself(client.parent(directory)?),
        LookedUp::Entry(name) => {
            let found = client.lookup_known(directory, name)?;
            Ok(found.map(|found| Seen::noted(client, found)))
        }
    }
}

#[derive(Clone)]
pub(crate) enum LookedUp {
    Itself,
    Parent,
    Entry(Name),
}

pub(crate) fn make<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    caller: Caller,
    directory: FileId,
    name: &Name,
    (making, umask): (&Making, u16),
) -> Step<Done<Seen<U, C>>> {
    let making = as_inherited(client, directory, making, umask)?;
    let Done { value, wait } = client.make(caller, directory, name, &making)?;
    Ok(Done { value: Seen::new(client, value), wait })
}

pub(crate) fn link<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    caller: Caller,
    file: FileId,
    directory: FileId,
    name: &Name,
) -> Step<Done<Seen<U, C>>> {
    let Done { value, wait } = client.link(caller, file, directory, name)?;
    Ok(Done { value: Seen::new(client, value), wait })
}

pub(crate) fn create<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    caller: Caller,
    directory: FileId,
    name: &Name,
    (making, umask): (&Making, u16),
    flags: OpenFlags,
) -> Step<Done<Created<U, C>>> {
    let making = as_inherited(client, directory, making, umask)?;
    let Done { value: (found, opened), wait } =
        client.create(caller, directory, name, &making, flags)?;
    Ok(Done { value: (Seen::new(client, found), Held::new(client, opened)), wait })
}

pub(crate) fn as_inherited<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    directory: FileId,
    making: &Making,
    umask: u16,
) -> Step<Making> {
    let node = client.attributes(directory)?.node;
    let mode = masked(&node, making.kind, making.mode, umask);
    let (mode, gid) = inherited(&node, making.kind, mode, making.gid);
    Ok(Making { mode, gid, ..making.clone() })
}

pub(crate) fn open<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    by: Changer,
    file: FileId,
    (flags, inode): (OpenFlags, Inode),
) -> Step<Done<Held<U, C>>> {
    let dropped = match by.takes().filter(|_| flags.truncate) {
        Some(by) => {
            // An open that fails takes nothing.
            client.has_place_for(file)?;
            drop_privileges(client, by, file, None)?
        }
        None => None,
    };
    let Done { value, wait } = client.open_as(by.caller, file, flags, inode)?;
    Ok(Done { value: Held::new(client, value), wait: wait.or(dropped) })
}

/// Sets attributes. A change of owner takes privileges away whoever makes it, a change of size
/// as a write does. To set nothing is what chown(2) without an owner or a group comes to: it takes
/// them away as well, from who may change a mode.
pub(crate) fn set_attributes<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    by: Changer,
    file: FileId,
    handle: Option<Handle>,
    setting: &Setting,
) -> Step<Done<Found>> {
    let owner_changes = setting.uid.is_some() || setting.gid.is_some();
    let (caller, mut setting) = (by.caller, *setting);
    if let Some(by) = by.takes().filter(|_| setting.size.is_some()) {
        // A cut that fails takes nothing.
        let Done { wait, .. } = client.set_attributes(caller, file, handle, &setting)?;
        let dropped = drop_privileges(client, by, file, handle)?;
        return Ok(Done { value: client.attributes(file)?, wait: dropped.or(wait) });
    }
    if (owner_changes && setting.mode.is_none()) || setting == Setting::default() {
        let node = client.attributes(file)?.node;
        // Of what changes nothing else, the kernel has not asked whose file it is; and it asks for
        // it before a write, which takes them away itself.
        let may = owner_changes || [0, node.uid].contains(&caller.uid);
        // One update for both where it can be.
        setting.mode = without_privileges(&node, by).filter(|_| may);
    }
    client.set_attributes(caller, file, handle, &setting)
}

/// Sets the list by which access is decided, as a user who is in these groups too.
pub(crate) fn set_access_list<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    (caller, groups): (Caller, &[u32]),
    file: FileId,
    value: &[u8],
    flag: XattrFlag,
) -> Step<Done<()>> {
    let node = client.attributes(file)?.node;
    let mut dropped = None;
    if let Some(mode) = without_setgid(&node, caller, groups) {
        let setting = Setting { mode: Some(mode), ..Setting::default() };
        dropped = client.set_attributes(caller, file, None, &setting)?.wait;
    }
    let Done { value, wait } = client.set_xattr(caller, file, ACL_ACCESS, value, flag)?;
    Ok(Done { value, wait: wait.or(dropped) })
}

/// Done, it is to be answered when the kernel has dropped what it may have of the end of the file.
pub(crate) fn write<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    target: Target,
    offset: u64,
    bytes: &[u8],
) -> Step<Done<Option<Growing<U, C>>>> {
    let wait = target.before_writing(client)?;
    let growing = client.grows(target.handle, offset, bytes.len() as u64)?;
    client.write(target.handle, offset, bytes)?;
    client.is_written(target.file, target.handle);
    Ok(Done { value: growing, wait })
}

/// The same of what a program wrote to a mapping, which nobody would have any more if it were refused.
pub(crate) fn write_mapped<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    target: Target,
    offset: u64,
    bytes: &[u8],
) -> Step<Done<Option<Growing<U, C>>>> {
    match write(client, target, offset, bytes) {
        Err(Stop::Error(Error::TooManyOpen)) => Err(Stop::Need(Need::Descriptor)),
        outcome => outcome,
    }
}

/// An open file that is written to.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) file: FileId,
    pub(crate) handle: Handle,
    pub(crate) takes: Takes,
}

/// Which privileges of a program go when it is written to.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    /// The superuser's write leaves the mode, and the kernel sees to the rest.
    Nothing,
    /// The same of a write around the kernel's cache, of which it takes nothing away.
    Capability,
    All(Changer),
}

impl From<Option<Changer>> for Takes {
    fn from(by: Option<Changer>) -> Takes {
        by.map_or(Takes::Nothing, Takes::All)
    }
}

impl Target {
    fn before_writing<U: Upstream, C: Containers>(
        &self,
        client: &Client<U, C>,
    ) -> Step<Option<u64>> {
        match self.takes {
            Takes::All(by) => drop_privileges(client, by, self.file, Some(self.handle)),
            Takes::Capability => drop_capability(client, self.file),
            Takes::Nothing => Ok(None),
        }
    }
}

pub(crate) fn allocate<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    target: Target,
    offset: u64,
    length: u64,
    mode: Allocate,
) -> Step<Done<()>> {
    let wait = target.before_writing(client)?;
    client.allocate(target.handle, offset, length, mode)?;
    client.is_written(target.file, target.handle);
    Ok(Done { value: (), wait })
}

pub(crate) fn copy<U: Upstream, C: Containers>(
    client: &Client<U, C>,
    (from, from_offset): (Handle, u64),
    (target, offset): (Target, u64),
    length: u64,
) -> Step<Done<u64>> {
    let wait = target.before_writing(client)?;
    let value = client.copy(from, from_offset, target.handle, offset, length)?;
    client.is_written(target.file, target.handle);
    Ok(Done { value, wait })
}

/// What `renameat2` asks for. None: what only some file systems do.
pub(crate) fn rename_asked(flags: RenameFlags) -> Option<RenameFlag> {
    if flags.is_empty() {
        Some(RenameFlag::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Some(RenameFlag::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Some(RenameFlag::Exchange)
    } else if flags == RenameFlags::RENAME_WHITEOUT {
        Some(RenameFlag::Whiteout)
    } else if flags == RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_NOREPLACE {
        Some(RenameFlag::WhiteoutNoReplace)
    } else {
        None
    }
}

/// What `fallocate` asks for. None: what is not done here.
pub(crate) fn allocation_asked(mode: i32) -> Option<Allocate> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_WITHIN: i32 = ZERO | KEEP;
    match mode {
        0 => Some(Allocate::Extend),
        KEEP => Some(Allocate::Keep),
        PUNCH => Some(Allocate::Punch),
        ZERO_WITHIN => Some(Allocate::ZeroWithin),
        ZERO => Some(Allocate::Zero),
        _ => None,
    }
}

/// What is made of a file, directory, link or device, before the directory has its say.
pub(crate) fn making(caller: Caller, kind: Kind, mode: u16) -> Making {
    Making { kind, mode, uid: caller.uid, gid: caller.gid, target: None, rdev: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rename_takes_one_flag_or_a_whiteout_that_replaces_nothing() {
        let both = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE;
        let neither = RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_EXCHANGE;
        let free = RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_NOREPLACE;
        let asked = [
            RenameFlags::empty(),
            RenameFlags::RENAME_NOREPLACE,
            RenameFlags::RENAME_EXCHANGE,
            both,
            neither,
        ]
        .map(rename_asked);
        let (replace, keep, exchange) =
            (RenameFlag::Replace, RenameFlag::NoReplace, RenameFlag::Exchange);
        assert_eq!(asked, [Some(replace), Some(keep), Some(exchange), None, None]);
        let asked = [RenameFlags::RENAME_WHITEOUT, free].map(rename_asked);
        assert_eq!(asked, [Some(RenameFlag::Whiteout), Some(RenameFlag::WhiteoutNoReplace)]);
    }

    #[test]
    fn zeroing_sets_room_aside_and_is_no_hole() {
        let asked = [0, 1, 3, 16, 17, 2, 8, 32].map(allocation_asked);
        let wanted = [
            Some(Allocate::Extend),
            Some(Allocate::Keep),
            Some(Allocate::Punch),
            Some(Allocate::Zero),
            Some(Allocate::ZeroWithin),
            None,
            None,
            None,
        ];
        assert_eq!(asked, wanted);
    }
}
