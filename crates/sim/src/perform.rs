//! Carries out operations on a client, as the mount does for the kernel.

use crate::fault::fault;
use crate::machine::SimClient;
use crate::operation::{Fault, Operation, Outcome, Path, SLOTS, Shown};
use crate::reference::{GID, UID};
use client::{Caller, Done, Found, Handle, Making, OpenFlags, SetTime, Setting, Step, complete};
use deed::Noted;
use model::{FileId, Kind, Name, Node, Stamp, Time};

mod alter;
mod deed;
mod names;
mod unborn;

pub use deed::{Deed, Known, Place};

const CALLER: Caller = Caller { uid: UID, gid: GID };
/// Bytes of one read, less than most files have.
const READ_BYTES: usize = 48 << 10;
/// Pages of one listing.
const PAGES_MAX: usize = 10_000;

/// The programs of one client: what they have open, and the directory that they work in.
#[derive(Default)]
pub struct Programs {
    slots: [Option<Opened>; SLOTS],
    pub base: Option<Path>,
    noted: Noted,
}

#[derive(Clone, Copy)]
struct Opened {
    handle: Handle,
    file: FileId,
    flags: OpenFlags,
    /// Of the contents that were opened.
    seen: Option<Stamp>,
}

impl Programs {
    /// Programs whose paths begin at `base`.
    pub fn at(base: Path) -> Programs {
        Programs { base: Some(base), ..Programs::default() }
    }

    /// The machine is dead, and all programs with it.
    pub fn forget(&mut self) {
        self.slots = [None; SLOTS];
    }

    pub fn open_slots(&self) -> Vec<usize> {
        (0..SLOTS).filter(|slot| self.slots[*slot].is_some()).collect()
    }

    /// The file that a slot has open.
    pub fn file(&self, slot: usize) -> Option<FileId> {
        self.slots.get(slot).copied().flatten().map(|opened| opened.file)
    }

    /// The contents that a slot was opened upon.
    pub fn seen(&self, slot: usize) -> Option<Stamp> {
        self.slots.get(slot).copied().flatten()?.seen
    }

    pub async fn perform(&mut self, client: &SimClient, operation: &Operation) -> Outcome {
        self.noted.begin();
        self.attempt(client, operation).await.unwrap_or_else(Outcome::Failed)
    }

    /// One after the other. Panics if one fails: the scene cannot be set up then.
    pub async fn perform_all(
        &mut self,
        client: &SimClient,
        operations: impl IntoIterator<Item = Operation>,
    ) {
        for operation in operations {
            let outcome = self.perform(client, &operation).await;
            assert!(!matches!(outcome, Outcome::Failed(_)), "{operation}: {outcome}");
        }
    }

    async fn attempt(
        &mut self,
        client: &SimClient,
        operation: &Operation,
    ) -> Result<Outcome, Fault> {
        use Operation as O;
        match operation {
            O::Create { path, mode, slot } => self.create(client, path, *mode, *slot).await,
            O::CreateUnborn { directory, mode, slot } => {
                self.create_unborn(client, directory, *mode, *slot).await
            }
            O::Open { path, slot, flags } => self.open(client, path, *slot, *flags).await,
            O::Write { .. }
            | O::Append { .. }
            | O::Truncate { .. }
            | O::Allocate { .. }
            | O::Copy { .. } => self.alter(client, operation).await,
            O::Read { .. } | O::SeekData { .. } | O::StatOpen { .. } => {
                self.look(client, operation).await
            }
            O::Flush { slot } => {
                let handle = self.opened(*slot)?.handle;
                settle(client, |client| client.flush(CALLER, handle)).await?;
                Ok(Outcome::Done)
            }
            O::Sync { slot } => self.sync(client, *slot).await,
            O::Close { slot } => self.close(client, *slot).await,
            O::Fetch { path } => {
                let file = self.ordinary(client, path).await?.file;
                self.noted.fetches(file);
                Ok(Outcome::Bytes(read_all(client, file).await?))
            }
            O::Totals => {
                complete(client, |client| client.totals()).await.map_err(fault)?;
                Ok(Outcome::Done)
            }
            O::Make { .. }
            | O::Link { .. }
            | O::Bear { .. }
            | O::Unlink { .. }
            | O::RemoveDirectory { .. }
            | O::Rename { .. } => self.change_names(client, operation).await,
            O::SetMode { path, mode } => {
                let setting = Setting { mode: Some(*mode), ..Setting::default() };
                self.set(client, path, setting).await
            }
            O::SetOwner { path, uid, gid } => {
                let setting = Setting { uid: Some(*uid), gid: Some(*gid), ..Setting::default() };
                self.set(client, path, setting).await
            }
            O::SetTime { path, secs } => {
                let time = SetTime::At(Time { secs: *secs, nanos: 0 });
                let setting = Setting { mtime: Some(time), ..Setting::default() };
                self.set(client, path, setting).await
            }
            O::Cut { path, size } => {
                let file = self.ordinary(client, path).await?.file;
                let setting = Setting { size: Some(*size), ..Setting::default() };
                settle(client, |client| client.set_attributes(CALLER, file, None, &setting))
                    .await?;
                Ok(Outcome::Done)
            }
            _ => self.ask(client, operation).await,
        }
    }

    async fn ask(&self, client: &SimClient, operation: &Operation) -> Result<Outcome, Fault> {
        use Operation as O;
        match operation {
            O::Stat { path } => {
                let found = self.find(client, path).await?;
                // The kernel asks again for what it shows.
                let found = complete(client, |client| client.attributes(found.file)).await;
                Ok(outcome(&found.map_err(fault)?))
            }
            O::List { path, page } => {
                let directory = self.directory(client, path).await?;
                let mut names: Vec<_> = list_all(client, directory, *page)
                    .await?
                    .into_iter()
                    .map(|(name, found)| (name, shown(found.file, &found.node)))
                    .collect();
                names.sort_by(|one, other| one.0.cmp(&other.0));
                Ok(Outcome::Names(names))
            }
            O::ReadLink { path } => {
                let file = self.find(client, path).await?.file;
                complete(client, |client| client.read_link(file))
                    .await
                    .map(Outcome::Bytes)
                    .map_err(fault)
            }
            O::Parent { path } => {
                let file = self.directory(client, path).await?;
                let parent = complete(client, |client| client.parent(file)).await;
                parent.map(|parent| Outcome::File(parent.0)).map_err(fault)
            }
            O::SetXattr { path, name, value, flag } => {
                let file = self.find(client, path).await?.file;
                settle(client, |client| client.set_xattr(CALLER, file, name, value, *flag)).await?;
                Ok(Outcome::Done)
            }
            O::RemoveXattr { path, name } => {
                let file = self.find(client, path).await?.file;
                settle(client, |client| client.remove_xattr(CALLER, file, name)).await?;
                Ok(Outcome::Done)
            }
            O::Xattr { path, name } => {
                let file = self.find(client, path).await?.file;
                let value = complete(client, |client| client.xattr(file, name)).await;
                value.map(Outcome::Bytes).map_err(fault)
            }
            O::Xattrs { path } => {
                let file = self.find(client, path).await?.file;
                let mut keys =
                    complete(client, |client| client.xattrs(file)).await.map_err(fault)?;
                keys.sort();
                Ok(Outcome::Keys(keys))
            }
            _ => Err(Fault::Other(format!("{operation} is not a question"))),
        }
    }

    async fn create(
        &mut self,
        client: &SimClient,
        path: &Path,
        mode: u16,
        slot: usize,
    ) -> Result<Outcome, Fault> {
        self.free(slot)?;
        let (parent, name) = self.place(client, path).await?;
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let making = making(Kind::File, mode);
        let created =
            complete(client, |client| client.create(CALLER, parent, &name, &making, flags));
        let Done { value: (found, opened), wait } = created.await.map_err(fault)?;
        if let Err(refused) = settled(client, wait).await {
            client.release(opened.handle);
            return Err(refused);
        }
        self.slots[slot] =
            Some(Opened { handle: opened.handle, file: found.file, flags, seen: None });
        Ok(outcome(&found))
    }

    async fn open(
        &mut self,
        client: &SimClient,
        path: &Path,
        slot: usize,
        flags: OpenFlags,
    ) -> Result<Outcome, Fault> {
        self.free(slot)?;
        let file = self.ordinary(client, path).await?.file;
        let mut seen = None;
        let opened = settle(client, |client| {
            let done = client.open_file(CALLER, file, flags)?;
            seen = deed::contents_of(client, file);
            Ok(done)
        });
        let handle = opened.await?.handle;
        self.slots[slot] = Some(Opened { handle, file, flags, seen });
        Ok(Outcome::Done)
    }

    async fn look(&self, client: &SimClient, operation: &Operation) -> Result<Outcome, Fault> {
        use Operation as O;
        match operation {
            O::Read { slot, offset, length } => {
                let opened = self.opened(*slot)?;
                if !opened.flags.read {
                    return Err(Fault::BadHandle);
                }
                complete(client, |client| client.read(opened.handle, *offset, *length))
                    .await
                    .map(Outcome::Bytes)
                    .map_err(fault)
            }
            O::SeekData { slot, offset } => {
                let handle = self.opened(*slot)?.handle;
                complete(client, |client| client.seek(handle, *offset, false))
                    .await
                    .map(Outcome::Place)
                    .map_err(fault)
            }
            O::StatOpen { slot } => {
                let file = self.opened(*slot)?.file;
                let found = complete(client, |client| client.attributes(file)).await;
                Ok(outcome(&found.map_err(fault)?))
            }
            _ => Err(Fault::Other(format!("{operation} looks at nothing"))),
        }
    }

    async fn sync(&self, client: &SimClient, slot: usize) -> Result<Outcome, Fault> {
        let Opened { handle, file, .. } = self.opened(slot)?;
        let synced = settle(client, |client| {
            let done = client.sync(CALLER, handle)?;
            self.noted.stored(client, file);
            Ok(done)
        });
        synced.await?;
        Ok(Outcome::Done)
    }

    async fn close(&mut self, client: &SimClient, slot: usize) -> Result<Outcome, Fault> {
        let Opened { handle, file, .. } = self.opened(slot)?;
        let flushed = settle(client, |client| {
            let done = client.flush(CALLER, handle)?;
            self.noted.stored(client, file);
            Ok(done)
        });
        let flushed = flushed.await;
        client.release(handle);
        self.slots[slot] = None;
        flushed.map(|()| Outcome::Done)
    }

    fn free(&self, slot: usize) -> Result<(), Fault> {
        // The program has no room for another open file.
        if self.slots[slot].is_some() { Err(Fault::BadHandle) } else { Ok(()) }
    }

    fn opened(&self, slot: usize) -> Result<Opened, Fault> {
        self.slots.get(slot).copied().flatten().ok_or(Fault::BadHandle)
    }

    fn writable(&self, slot: usize) -> Result<Opened, Fault> {
        self.opened(slot)
            .and_then(|opened| if opened.flags.write { Ok(opened) } else { Err(Fault::BadHandle) })
    }

    async fn find(&self, client: &SimClient, path: &Path) -> Result<Found, Fault> {
        let top = complete(client, |client| client.attributes(FileId::ROOT));
        let mut found = top.await.map_err(fault)?;
        let base = self.base.iter().flat_map(|base| &base.0);
        for name in base.chain(&path.0) {
            if found.node.kind != Kind::Directory {
                return Err(Fault::NotADirectory);
            }
            let directory = found.file;
            let next = complete(client, |client| client.lookup(directory, name)).await;
            found = next.map_err(fault)?.ok_or(Fault::NoEntry)?;
        }
        Ok(found)
    }

    async fn directory(&self, client: &SimClient, path: &Path) -> Result<FileId, Fault> {
        let found = self.find(client, path).await?;
        match found.node.kind {
            Kind::Directory => Ok(found.file),
            _ => Err(Fault::NotADirectory),
        }
    }

    async fn ordinary(&self, client: &SimClient, path: &Path) -> Result<Found, Fault> {
        let found = self.find(client, path).await?;
        match found.node.kind {
            Kind::File => Ok(found),
            Kind::Directory => Err(Fault::IsADirectory),
            _ => Err(Fault::Invalid),
        }
    }

    async fn place(&self, client: &SimClient, path: &Path) -> Result<(FileId, Name), Fault> {
        let (above, name) = path.split().ok_or(Fault::Invalid)?;
        Ok((self.directory(client, &above).await?, name.clone()))
    }
}

/// Everything that a file holds, through a handle of its own.
pub async fn read_all(client: &SimClient, file: FileId) -> Result<Vec<u8>, Fault> {
    let flags = OpenFlags { read: true, ..OpenFlags::default() };
    let opened = settle(client, |client| client.open_file(CALLER, file, flags)).await?;
    let outcome = read_open(client, opened.handle).await;
    let flushed = settle(client, |client| client.flush(CALLER, opened.handle)).await;
    client.release(opened.handle);
    flushed.and(outcome)
}

async fn read_open(client: &SimClient, handle: Handle) -> Result<Vec<u8>, Fault> {
    let mut contents = Vec::new();
    loop {
        let offset = contents.len() as u64;
        let bytes = complete(client, |client| client.read(handle, offset, READ_BYTES)).await;
        let bytes = bytes.map_err(fault)?;
        contents.extend_from_slice(&bytes);
        if bytes.len() < READ_BYTES {
            return Ok(contents);
        }
    }
}

/// All entries of a directory, read page by page.
pub async fn list_all(
    client: &SimClient,
    directory: FileId,
    page: usize,
) -> Result<Vec<(Name, Found)>, Fault> {
    let mut entries = Vec::new();
    let mut cookie = 0;
    for _ in 0..PAGES_MAX {
        let read = complete(client, |client| client.list(directory, cookie, page)).await;
        let read = read.map_err(fault)?;
        if read.is_empty() {
            return Ok(entries);
        }
        for entry in read {
            if entry.cookie <= cookie || entry.cookie >> 63 != 0 {
                return Err(Fault::Other(format!("cookie {} after {cookie}", entry.cookie)));
            }
            cookie = entry.cookie;
            let untold = |file| Fault::Other(format!("nobody can tell what {file} is"));
            entries.push((entry.name, entry.found.map_err(untold)?));
        }
    }
    Err(Fault::Other(format!("{directory} has no end")))
}

/// Tries until it is done, and waits for the verdict if there is one to wait for.
async fn settle<T>(
    client: &SimClient,
    attempt: impl FnMut(&SimClient) -> Step<Done<T>>,
) -> Result<T, Fault> {
    let done = complete(client, attempt).await.map_err(fault)?;
    settled(client, done.wait).await?;
    Ok(done.value)
}

async fn settled(client: &SimClient, wait: Option<u64>) -> Result<(), Fault> {
    let Some(number) = wait else { return Ok(()) };
    client.settled(number).await.map_err(|error| match fault(error) {
        lost if lost.is_of_link() => Fault::NoVerdict,
        fault => fault,
    })
}

fn making(kind: Kind, mode: u16) -> Making {
    Making { kind, mode, uid: UID, gid: GID, target: None, rdev: None }
}

fn outcome(found: &Found) -> Outcome {
    Outcome::Shown(shown(found.file, &found.node))
}

pub fn shown(file: FileId, node: &Node) -> Shown {
    Shown {
        file: file.0,
        kind: node.kind,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        links: node.links,
        size: node.size(),
        mtime: Some(node.mtime),
    }
}
