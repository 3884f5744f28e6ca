//! How the partial tree changes: by what is done here, and by what the replica above says.

use super::decoded;
use super::held::{self, Hold};
use super::rows::{self, DirectoryRow, EntryRow, LocalEntry, LocalNode, NodeRow, UpEntry, UpNode};
use super::set_back::note_told;
use super::{DIRECTORIES, ENTRIES, Missing, NODES, SCAN_ROWS_MAX, Touched};
use model::{Contents, Effects, FileId, Growths, Kind, Name, Node, Seq, Stamp, Time};
use protocol::{Listed, Listing, NodeState, States};
use std::collections::{BTreeMap, BTreeSet};
use store::{Read, Write};

/// Shows the effects of the pending update `number`.
pub fn apply_local(
    write: &mut dyn Write,
    number: u64,
    effects: &Effects,
    epoch: u32,
) -> Result<(), Missing> {
    for (file, node) in &effects.nodes {
        let mut row = node_row(write, *file)?;
        let is_new = row.up.is_none() && row.local.is_none();
        row.local = Some(LocalNode { number, node: node.clone() });
        write.put(NODES, &rows::node_key(*file), &decoded::encode(*file, &row))?;
        // A directory that was made here has no entries but those made here.
        if is_new && node.as_ref().is_some_and(|node| node.kind == Kind::Directory) {
            write.put(DIRECTORIES, &rows::node_key(*file), &DirectoryRow { epoch }.encode())?;
        }
    }
    for ((directory, name), file) in &effects.entries {
        let key = rows::entry_key(*directory, name);
        let mut row = entry_row(write, &key)?;
        row.local = Some(LocalEntry { number, file: *file });
        write.put(ENTRIES, &key, &row.encode())?;
    }
    Ok(())
}

/// The update `number` is pending no more: where it was the last to touch something, what the
/// replica above says shows again.
pub fn forget_local(write: &mut dyn Write, number: u64, touched: &Touched) -> Result<(), Missing> {
    for file in &touched.nodes {
        let mut row = node_row(write, *file)?;
        if row.local.as_ref().is_some_and(|local| local.number <= number) {
            row.local = None;
            put_node(write, *file, &row)?;
        }
    }
    for (directory, name) in &touched.entries {
        let key = rows::entry_key(*directory, name);
        let mut row = entry_row(write, &key)?;
        if row.local.is_some_and(|local| local.number <= number) {
            row.local = None;
            put_entry(write, &key, &row)?;
        }
    }
    Ok(())
}

/// Nothing shows any more that pending updates did to this file, and to names in it.
pub fn forget_local_of(write: &mut dyn Write, file: FileId) -> Result<(), Missing> {
    forget_local(write, u64::MAX, &Touched { nodes: vec![file], entries: Vec::new() })?;
    let (mut from, to) = rows::entry_range(file);
    loop {
        let page = write.scan(ENTRIES, &from, &to, SCAN_ROWS_MAX)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        from = rows::after(last);
        for (key, value) in &page {
            let mut row = EntryRow::decode(value)?;
            if row.local.take().is_some() {
                put_entry(write, key, &row)?;
            }
        }
    }
}

/// Nothing shows any more that an update did which is not pending: where one was the last to touch
/// something, what the replica above says shows again. Gives back what that was.
pub fn forget_gone(
    write: &mut dyn Write,
    is_pending: impl Fn(u64) -> bool,
) -> Result<Touched, Missing> {
    let mut gone = Touched::default();
    let mut from = Vec::new();
    loop {
        let page = write.scan(NODES, &from, rows::ALL_ENTRIES, SCAN_ROWS_MAX)?;
        let Some((last, _)) = page.last() else { break };
        from = rows::after(last);
        for (key, value) in &page {
            let mut row = NodeRow::decode(value)?;
            if row.local.as_ref().is_some_and(|local| !is_pending(local.number)) {
                let file = rows::entry_directory(key)?;
                row.local = None;
                put_node(write, file, &row)?;
                gone.nodes.push(file);
            }
        }
    }
    from.clear();
    loop {
        let page = write.scan(ENTRIES, &from, rows::ALL_ENTRIES, SCAN_ROWS_MAX)?;
        let Some((last, _)) = page.last() else { return Ok(gone) };
        from = rows::after(last);
        for (key, value) in &page {
            let mut row = EntryRow::decode(value)?;
            if row.local.is_some_and(|local| !is_pending(local.number)) {
                row.local = None;
                put_entry(write, key, &row)?;
                gone.entries.push((rows::entry_directory(key)?, rows::entry_name(key)?));
            }
        }
    }
}

/// A pending store that never leaves: the file expects what the store expected, or shows what the last `other`
/// pending one stored of it, if that was made of another version. `last` is the last other pending update that
/// touched the file.
pub fn patch_cancelled_store(
    write: &mut dyn Write,
    file: FileId,
    (expects, other): (Stamp, Option<(Stamp, Contents, Time)>),
    last: Option<u64>,
) -> Result<(), Missing> {
    let mut row = node_row(write, file)?;
    match (last, &mut row.local) {
        (Some(last), Some(local)) => {
            local.number = last;
            if let Some(node) = &mut local.node {
                match other.filter(|(stamp, ..)| *stamp != expects) {
                    Some(shown) => (node.contents_stamp, node.contents, node.mtime) = shown,
                    None => node.contents_stamp = expects,
                }
            }
        }
        _ => row.local = None,
    }
    put_node(write, file, &row)
}

/// Of what was touched: where one of these updates was the last to touch something, and does not any
/// more, it shows as before, by the last one that still does; where none does, what the replica above
/// says shows again. Gives back the nodes of which that is so.
pub fn show_by_others(
    write: &mut dyn Write,
    touched: &Touched,
    numbers: &BTreeSet<u64>,
    last_of_nodes: &BTreeMap<FileId, u64>,
    last_of_entries: &BTreeMap<(FileId, Name), u64>,
) -> Result<Vec<FileId>, Missing> {
    let mut shown_anew = Vec::new();
    for file in &touched.nodes {
        let mut row = node_row(write, *file)?;
        let Some(local) = row.local.as_mut().filter(|local| numbers.contains(&local.number)) else {
            continue;
        };
        match last_of_nodes.get(file) {
            Some(last) => local.number = *last,
            None => {
                row.local = None;
                shown_anew.push(*file);
            }
        }
        put_node(write, *file, &row)?;
    }
    for entry in &touched.entries {
        let key = rows::entry_key(entry.0, &entry.1);
        let mut row = entry_row(write, &key)?;
        let Some(local) = row.local.as_mut().filter(|local| numbers.contains(&local.number)) else {
            continue;
        };
        match last_of_entries.get(entry) {
            Some(last) => local.number = *last,
            None => row.local = None,
        }
        put_entry(write, &key, &row)?;
    }
    Ok(shown_anew)
}

/// By which pending updates change what a file counts for.
pub fn pending_growths(read: &dyn Read, file: FileId) -> Result<Growths, Missing> {
    let Some(bytes) = read.get(NODES, &rows::node_key(file))? else {
        return Ok(Growths::default());
    };
    let row = decoded::row(file, bytes)?;
    let Some(local) = &row.local else { return Ok(Growths::default()) };
    let said = row.up.as_ref().and_then(|up| up.node.as_ref());
    Ok(Growths::between(said, local.node.as_ref()))
}

/// Whether a file has no other names than some of these, by what the replica above said last.
pub fn has_no_name_but(
    read: &dyn Read,
    file: FileId,
    names: &BTreeSet<(FileId, Name)>,
) -> Result<bool, Missing> {
    let Some(bytes) = read.get(NODES, &rows::node_key(file))? else { return Ok(true) };
    let row = decoded::row(file, bytes)?;
    let Some(node) = row.up.as_ref().and_then(|up| up.node.as_ref()) else { return Ok(true) };
    let mut found = 0;
    for (directory, name) in names {
        let bytes = read.get(ENTRIES, &rows::entry_key(*directory, name))?;
        let said = bytes.map(|bytes| EntryRow::decode(&bytes)).transpose()?.and_then(|row| row.up);
        found += u32::from(said.is_some_and(|up| up.file == Some(file)));
    }
    Ok(found >= node.links)
}

/// Takes in what the replica above says. Gives back what changed by it.
pub fn take_states(
    write: &mut dyn Write,
    states: &States,
    epoch: u32,
) -> Result<Vec<Changed>, Missing> {
    take_states_but(write, states, epoch, &Hold::default())
}

/// The same; some of it is not to show yet.
pub fn take_states_but(
    write: &mut dyn Write,
    states: &States,
    epoch: u32,
    hold: &Hold,
) -> Result<Vec<Changed>, Missing> {
    let mut changed = Vec::new();
    let nodes = states.nodes.iter().map(|state| state.seq);
    let entries = states.entries.iter().map(|state| state.seq);
    if let Some(upto) = nodes.chain(entries).max() {
        note_told(write, upto)?;
    }
    for state in &states.nodes {
        changed.extend(take_node(write, state, epoch, hold.nodes.contains(&state.file))?);
    }
    for state in &states.entries {
        let key = rows::entry_key(state.directory, &state.name);
        let said = UpEntry { seq: state.seq, epoch, file: state.file };
        if hold.entries.contains(&(state.directory, state.name.clone()))
            && held::hold_entry(write, &key, said)?
        {
            continue;
        }
        let mut row = entry_row(write, &key)?;
        if row.held.or(row.up).is_some_and(|up| up.seq > state.seq) {
            continue;
        }
        if row.up.map(|up| up.file) != Some(state.file) {
            changed.push(Changed::Entry(state.directory, state.name.clone()));
        }
        (row.up, row.held) = (Some(said), None);
        put_entry(write, &key, &row)?;
    }
    Ok(changed)
}

/// Something that the kernel may have cached and that is not so any more.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    Node { file: FileId, contents: bool },
    Entry(FileId, Name),
}

/// Takes in directories with all that they name. `after` is where the first of them goes on.
pub fn take_listing(
    write: &mut dyn Write,
    listing: &Listing,
    after: Option<&Name>,
    epoch: u32,
) -> Result<Vec<Changed>, Missing> {
    take_listing_but(write, listing, after, epoch, &Hold::default())
}

/// The same; some of it is not to show yet.
pub fn take_listing_but(
    write: &mut dyn Write,
    listing: &Listing,
    after: Option<&Name>,
    epoch: u32,
    hold: &Hold,
) -> Result<Vec<Changed>, Missing> {
    let mut changed = Vec::new();
    note_told(write, listing.as_of)?;
    for state in &listing.nodes {
        changed.extend(take_node(write, state, epoch, hold.nodes.contains(&state.file))?);
    }
    for (position, listed) in listing.directories.iter().enumerate() {
        let after = if position == 0 { after } else { None };
        let told = (listing.as_of, epoch);
        take_directory(write, listed, told, after, hold, &mut changed)?;
    }
    Ok(changed)
}

fn take_directory(
    write: &mut dyn Write,
    listed: &Listed,
    (as_of, epoch): (Seq, u32),
    after: Option<&Name>,
    hold: &Hold,
    changed: &mut Vec<Changed>,
) -> Result<(), Missing> {
    let directory = listed.directory;
    let (start, end) = rows::entry_range(directory);
    let from = after.map_or(start, |name| rows::after(&rows::entry_key(directory, name)));
    let to = match listed.entries.last() {
        Some((last, _)) if !listed.complete => rows::after(&rows::entry_key(directory, last)),
        _ => end,
    };
    // Names that were there and are not listed are gone.
    let mut at = from;
    loop {
        let page = write.scan(ENTRIES, &at, &to, SCAN_ROWS_MAX)?;
        let Some((last, _)) = page.last() else { break };
        at = rows::after(last);
        for (key, value) in &page {
            let mut row = EntryRow::decode(value)?;
            let Some(up) = row.up else { continue };
            let name = rows::entry_name(key)?;
            let is_listed = listed.entries.binary_search_by(|entry| entry.0.cmp(&name)).is_ok();
            let last = row.held.unwrap_or(up);
            if last.seq <= as_of && up.file.is_some() && !is_listed {
                (row.up, row.held) = (Some(UpEntry { seq: as_of, epoch, file: None }), None);
                put_entry(write, key, &row)?;
                changed.push(Changed::Entry(directory, name));
            }
        }
    }
    for (name, file) in &listed.entries {
        let key = rows::entry_key(directory, name);
        let said = UpEntry { seq: as_of, epoch, file: Some(*file) };
        if hold.entries.contains(&(directory, name.clone())) && held::hold_entry(write, &key, said)?
        {
            continue;
        }
        let mut row = entry_row(write, &key)?;
        if row.held.or(row.up).is_some_and(|up| up.seq > as_of) {
            continue;
        }
        if row.up.is_some_and(|up| up.file != Some(*file)) {
            changed.push(Changed::Entry(directory, name.clone()));
        }
        (row.up, row.held) = (Some(said), None);
        put_entry(write, &key, &row)?;
    }
    if listed.complete {
        write.put(DIRECTORIES, &rows::node_key(directory), &DirectoryRow { epoch }.encode())?;
    }
    Ok(())
}

fn take_node(
    write: &mut dyn Write,
    state: &NodeState,
    epoch: u32,
    hold: bool,
) -> Result<Option<Changed>, Missing> {
    let mut row = node_row(write, state.file)?;
    if !held::is_news(&row, state.seq) {
        return Ok(None);
    }
    if hold && held::hold_node(&mut row, state, epoch) {
        put_node(write, state.file, &row)?;
        return Ok(None);
    }
    let mut node = state.node.clone();
    let mut change = None;
    if let Some(up) = &row.up {
        let contents = versions_differ(up.node.as_ref(), node.as_ref());
        keep_root(up.node.as_ref(), node.as_mut());
        if up.node != node {
            change = Some(Changed::Node { file: state.file, contents });
        }
    }
    if node.is_none() {
        write.delete(DIRECTORIES, &rows::node_key(state.file))?;
    }
    (row.up, row.held) = (Some(UpNode { seq: state.seq, epoch, node }), None);
    // One that was noted over another time shows no more.
    let atime = row.shown().map(|node| node.atime);
    row.accessed = row.accessed.filter(|accessed| Some(accessed.over) == atime);
    put_node(write, state.file, &row)?;
    Ok(change)
}

pub(super) fn versions_differ(old: Option<&Node>, new: Option<&Node>) -> bool {
    old.map(|node| node.contents_stamp) != new.map(|node| node.contents_stamp)
}

/// Listings leave out where the recipe begins; what is known of the same version stays known.
pub(super) fn keep_root(old: Option<&Node>, new: Option<&mut Node>) {
    if let (Some(old), Some(new)) = (old, new)
        && old.contents_stamp == new.contents_stamp
        && new.contents.root.is_none()
    {
        new.contents.root = old.contents.root;
    }
}

pub(super) fn node_row(write: &dyn Write, file: FileId) -> Result<NodeRow, Missing> {
    match write.get(NODES, &rows::node_key(file))? {
        Some(bytes) => Ok(decoded::row_to_change(file, &bytes)?),
        None => Ok(NodeRow::default()),
    }
}

pub(super) fn entry_row(write: &dyn Write, key: &[u8]) -> Result<EntryRow, Missing> {
    match write.get(ENTRIES, key)? {
        Some(bytes) => Ok(EntryRow::decode(&bytes)?),
        None => Ok(EntryRow::default()),
    }
}

pub(super) fn put_node(write: &mut dyn Write, file: FileId, row: &NodeRow) -> Result<(), Missing> {
    if row.up.is_none() && row.local.is_none() {
        return Ok(write.delete(NODES, &rows::node_key(file))?);
    }
    Ok(write.put(NODES, &rows::node_key(file), &row.encode())?)
}

pub(super) fn put_entry(write: &mut dyn Write, key: &[u8], row: &EntryRow) -> Result<(), Missing> {
    if row.up.is_none() && row.local.is_none() {
        return Ok(write.delete(ENTRIES, key)?);
    }
    Ok(write.put(ENTRIES, key, &row.encode())?)
}
