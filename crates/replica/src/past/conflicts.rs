//! The conflicts of a volume, as who sees to them wants to know of them.
//! From: DESIGN, "Conflicts".

use crate::error::Result;
use crate::origin::Inner;
use crate::take::{self, Conflict, conflicts_after};
use crate::volumes::Volume;
use model::{FileId, Name, Seq, Stamp, View};
use protocol::past::{
    CONFLICTS_TOLD_MAX, ConflictInfo, Conflicts, Found, NotFound, PATH_NAMES_MAX, Setting, Value,
};
use store::Durability;
use volume::whole::Whole;

/// Values of attributes in one answer, about.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Versions of a file among which the base is looked for.
const VERSIONS_MAX: usize = 10_000;

pub(super) fn list(
    inner: &Inner,
    volume: &Volume,
    after: u64,
    conflicts_max: u32,
) -> Result<Found> {
    let read = inner.tables.read()?;
    let view = Whole::now(&*read, volume.id);
    let wanted = conflicts_max.clamp(1, CONFLICTS_TOLD_MAX) as usize;
    let mut found = conflicts_after(&*read, volume.id, after, wanted + 1)?;
    let mut bytes = 0;
    let fits = found.iter().take(wanted).take_while(|(_, conflict)| {
        let before = bytes;
        bytes += bytes_of(conflict);
        before == 0 || bytes <= ANSWER_BYTES_MAX
    });
    let told = fits.count();
    let more = found.len() > told;
    found.truncate(told);
    let conflicts = found.into_iter().map(|(number, conflict)| info(&view, number, conflict));
    Ok(Found::Conflicts(Conflicts { conflicts: conflicts.collect::<Result<_>>()?, more }))
}

/// Of two who see to a conflict at the same time one is told that it is gone.
pub(super) fn settle(inner: &Inner, volume: &Volume, number: u64) -> Result<Found> {
    let _turn = volume.turn();
    let mut write = inner.tables.write()?;
    if !take::settle(&mut *write, volume.id, number)? {
        return Ok(Found::Not(NotFound::NoConflict(number)));
    }
    write.commit(Durability::Now)?;
    Ok(Found::Settled(number))
}

/// About, and of values of attributes alone: all else is small.
fn bytes_of(conflict: &Conflict) -> usize {
    let bytes = |value: &Value| match value {
        Value::Bytes(bytes) => bytes.len(),
        Value::Absent | Value::Number(_) => 0,
    };
    let of = |setting: &Setting| {
        setting.was.as_ref().map_or(0, bytes) + bytes(&setting.theirs) + bytes(&setting.mine)
    };
    conflict.settings.iter().flatten().map(of).sum::<usize>().max(1)
}

fn info(view: &Whole<'_>, number: u64, conflict: Conflict) -> Result<ConflictInfo> {
    let path = path_of(view, &conflict)?;
    let aside = match &conflict.aside {
        Some((file, _, _)) => names_of(view, *file)?,
        None => None,
    };
    let base_since = match conflict.base {
        Some(base) if conflict.settings.is_none() => since(view, conflict.file, base)?,
        _ => None,
    };
    let Conflict { clash, device, at, update, found, base, settings, .. } = conflict;
    Ok(ConflictInfo {
        number,
        clash,
        path,
        aside,
        device,
        at,
        update,
        found,
        base,
        base_since,
        settings,
    })
}

/// Where what has the name is, or was to be; of attributes, the file itself.
fn path_of(view: &Whole<'_>, conflict: &Conflict) -> Result<Option<Vec<Name>>> {
    if conflict.settings.is_some() {
        return names_of(view, conflict.file);
    }
    let path = names_of(view, conflict.directory)?;
    Ok(path.map(|path| path.into_iter().chain([conflict.name.clone()]).collect()))
}

/// The names that lead to a file now, one way. None: it has none any more.
fn names_of(view: &Whole<'_>, file: FileId) -> Result<Option<Vec<Name>>> {
    let (mut names, mut at) = (Vec::new(), file);
    while at != FileId::ROOT {
        if view.node(at)?.is_none() || names.len() >= PATH_NAMES_MAX {
            return Ok(None);
        }
        let Some((above, name)) = view.names(at, 1)?.into_iter().next() else { return Ok(None) };
        names.push(name);
        at = above;
    }
    names.reverse();
    Ok(Some(names))
}

/// From which position on a file had the contents of a stamp.
fn since(view: &Whole<'_>, file: FileId, contents: Stamp) -> Result<Option<Seq>> {
    let mut before = Seq(u64::MAX);
    for _ in 0..VERSIONS_MAX {
        let Some(version) = view.node_version_before(file, before)? else { return Ok(None) };
        if version.node.is_some_and(|node| node.contents_stamp == contents) {
            return Ok(Some(version.seq));
        }
        before = version.seq;
    }
    Ok(None)
}
