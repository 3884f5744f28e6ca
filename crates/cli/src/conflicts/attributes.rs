//! Conflicts about attributes: what each of the two set, and setting one of both.

use super::{Outcome, Place};
use crate::exit::{Exit, fail};
use crate::owner::user_name;
use anyhow::{Context, Result};
use model::ACL_ACCESS;
use protocol::past::{Attribute, ConflictInfo, Setting, Value};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

/// Of a value, so much is shown.
const SHOWN_BYTES_MAX: usize = 60;
/// The largest value of an extended attribute, as Linux has it.
const XATTR_BYTES_MAX: usize = 64 << 10;
const MODE_BITS: u32 = 0o7777;

/// Whose values are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Mine,
    Theirs,
}

impl Side {
    fn of(self, setting: &Setting) -> &Value {
        match self {
            Side::Mine => &setting.mine,
            Side::Theirs => &setting.theirs,
        }
    }
}

pub fn name(what: &Attribute) -> String {
    match what {
        Attribute::Mode => "mode".into(),
        Attribute::Owner => "owner".into(),
        Attribute::Group => "group".into(),
        Attribute::Xattr(name) if name.as_slice() == ACL_ACCESS => "access list".into(),
        Attribute::Xattr(name) => String::from_utf8_lossy(name).into_owned(),
    }
}

pub fn shown(what: &Attribute, value: &Value) -> String {
    match (what, value) {
        (_, Value::Absent) => "none".into(),
        (Attribute::Mode, Value::Number(mode)) => format!("{mode:04o}"),
        (Attribute::Owner, Value::Number(uid)) => user_name(*uid),
        (_, Value::Number(number)) => number.to_string(),
        (_, Value::Bytes(bytes)) => {
            let part = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
            let is_plain = |text: &&str| !text.contains(char::is_control);
            let text = str::from_utf8(part).ok().filter(is_plain);
            let hex = || part.iter().map(|byte| format!("{byte:02x}")).collect();
            let text = text.map_or_else(hex, |text| format!("{text:?}"));
            let more = bytes.len() > part.len();
            if more { format!("{text}... ({} bytes)", bytes.len()) } else { text }
        }
    }
}

/// A line for each attribute.
pub fn table(settings: &[Setting]) -> String {
    let line = |setting: &Setting| {
        let shown = |value| shown(&setting.what, value);
        let was = setting.was.as_ref().map_or("not known".into(), shown);
        let (theirs, mine) = (shown(&setting.theirs), shown(&setting.mine));
        format!("  {}: theirs {theirs}, mine {mine}, before {was}\n", name(&setting.what))
    };
    settings.iter().map(line).collect()
}

/// Sets what one side has set. `force`: also where it was changed since.
pub fn keep(place: &Place, conflict: &ConflictInfo, side: Side, force: bool) -> Result<Outcome> {
    let (path, settings) = about(place, conflict)?;
    place.settled_by(conflict, None, || {
        for setting in settings {
            let now = value(&path, &setting.what)?;
            if !force && now != setting.mine && now != setting.theirs {
                let (what, now) = (name(&setting.what), shown(&setting.what, &now));
                let (shown, number) = (path.display(), conflict.number);
                return Err(fail(
                    Exit::Failure,
                    format!(
                        "{what} of {shown} was set to {now} since: nothing was done; `--force` sets \
                         it all the same, `farfs conflicts keep-both {number}` leaves it as it is"
                    ),
                ));
            }
        }
        put(&path, settings, side)
    })
}

/// What one side has set is as it was before the conflict was seen to: the later holds.
pub fn put_back(place: &Place, conflict: &ConflictInfo) -> Result<()> {
    let (path, settings) = about(place, conflict)?;
    for setting in settings {
        // What was set otherwise since stays.
        if value(&path, &setting.what)? == setting.theirs {
            put(&path, std::slice::from_ref(setting), Side::Mine)?;
        }
    }
    Ok(())
}

fn about<'a>(place: &Place, conflict: &'a ConflictInfo) -> Result<(PathBuf, &'a [Setting])> {
    let gone = || {
        let number = conflict.number;
        let what = format!(
            "conflict {number}: the file is gone; `farfs conflicts keep-both {number}` takes it off \
             the list"
        );
        fail(Exit::NotFound, what)
    };
    let path = place.path(conflict.path.as_deref().ok_or_else(gone)?);
    Ok((path, conflict.settings.as_deref().unwrap_or_default()))
}

fn value(path: &Path, what: &Attribute) -> Result<Value> {
    let meta =
        || fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()));
    Ok(match what {
        Attribute::Mode => Value::Number(meta()?.mode() & MODE_BITS),
        Attribute::Owner => Value::Number(meta()?.uid()),
        Attribute::Group => Value::Number(meta()?.gid()),
        Attribute::Xattr(name) => {
            let mut value = vec![0; XATTR_BYTES_MAX];
            match rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]) {
                Ok(length) => {
                    value.truncate(length);
                    Value::Bytes(value.into())
                }
                Err(Errno::NODATA) => Value::Absent,
                Err(error) => {
                    let what = format!(
                        "cannot read {} of {}",
                        super::attributes::name(what),
                        path.display()
                    );
                    return Err(error).context(what);
                }
            }
        }
    })
}

/// Owners first, who take bits of the mode with them; then lists, which set the mode; the mode last.
fn put(path: &Path, settings: &[Setting], side: Side) -> Result<()> {
    let wanted = |what: &Attribute| {
        let found = settings.iter().find(|setting| setting.what == *what);
        found.and_then(|setting| match side.of(setting) {
            Value::Number(number) => Some(*number),
            Value::Absent | Value::Bytes(_) => None,
        })
    };
    let cannot = |what: &str| format!("cannot set the {what} of {}", path.display());
    let (uid, gid) = (wanted(&Attribute::Owner), wanted(&Attribute::Group));
    if uid.is_some() || gid.is_some() {
        lchown(path, uid, gid).with_context(|| cannot("owner"))?;
    }
    for setting in settings {
        let Attribute::Xattr(name) = &setting.what else { continue };
        let name = OsStr::from_bytes(name);
        let set = match side.of(setting) {
            Value::Bytes(value) => rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()),
            Value::Absent | Value::Number(_) => match rustix::fs::lremovexattr(path, name) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            },
        };
        set.with_context(|| cannot(&super::attributes::name(&setting.what)))?;
    }
    if let Some(mode) = wanted(&Attribute::Mode) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .with_context(|| cannot("mode"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_people_write_them() {
        let xattr = Attribute::Xattr(b"user.tag".to_vec().into());
        let bytes = |bytes: &[u8]| Value::Bytes(bytes.to_vec().into());
        assert_eq!(shown(&Attribute::Mode, &Value::Number(0o640)), "0640");
        assert_eq!(shown(&xattr, &Value::Absent), "none");
        assert_eq!(shown(&xattr, &bytes(b"green")), "\"green\"");
        assert_eq!(shown(&xattr, &bytes(&[0, 255])), "00ff");
        let long = shown(&xattr, &bytes(&[b'a'; 100]));
        assert!(long.ends_with("\"... (100 bytes)"), "{long}");
        assert_eq!(name(&Attribute::Xattr(ACL_ACCESS.to_vec().into())), "access list");
    }

    #[test]
    fn one_side_is_set_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, "").unwrap();
        let numbers = |what, mine, theirs| Setting {
            what,
            was: None,
            theirs: Value::Number(theirs),
            mine: Value::Number(mine),
        };
        let settings = [numbers(Attribute::Mode, 0o600, 0o640)];
        for side in [Side::Mine, Side::Theirs] {
            put(&path, &settings, side).unwrap();
            assert_eq!(value(&path, &Attribute::Mode).unwrap(), *side.of(&settings[0]));
        }
    }
}
