//! What is told of conflicts, for people and for programs.

use super::attributes::Side;
use super::ways::{self, Kind};
use super::{Place, attributes, path_of};
use crate::units;
use model::{Name, Time};
use protocol::past::{Clash, ConflictInfo, Setting};
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

fn what(clash: Clash) -> &'static str {
    match clash {
        Clash::Contents => "stored contents over newer ones: both are kept",
        Clash::Removed => "stored into a file that had been removed: it is back",
        Clash::Name => "used a name that was taken: both are kept",
        Clash::Directory => "made something in a directory that was gone: it is kept",
        Clash::Merged => "made a directory that was there: they are one",
        Clash::Replaced => "removed or replaced what had been changed: it stays",
        Clash::Overrun => "wrote while others used up the quota: it is kept",
        Clash::Cycle => "moved a directory into itself: it stays where it was",
        Clash::NotDone => "changed names in a way that was not possible any more: it is not done",
        Clash::Attributes => "set what another had set otherwise: the later holds",
    }
}

/// For people, in one line.
pub fn line(conflict: &ConflictInfo) -> String {
    let ConflictInfo { number, clash, device, at, .. } = conflict;
    let path = conflict.path.as_deref().map_or("(its directory is gone)".into(), path_of);
    let at = units::show_time(*at);
    let aside = conflict.aside.as_deref().map(|names| format!("; see {:?}", path_of(names)));
    let settings = conflict.settings.as_deref().map(|settings| {
        let names: Vec<String> = settings.iter().map(|one| attributes::name(&one.what)).collect();
        format!(" ({})", names.join(", "))
    });
    let more = aside.or(settings).unwrap_or_default();
    format!("{number}  {at}  {path:?}  {device} {}{more}", what(*clash))
}

/// For programs.
#[derive(Serialize)]
pub struct Listed {
    number: u64,
    kind: String,
    path: Option<String>,
    aside: Option<String>,
    device: String,
    at_secs: i64,
    update: String,
    met: Option<String>,
    base: Option<String>,
    base_version: Option<String>,
    base_bytes: Option<u64>,
    base_mtime_secs: Option<i64>,
    /// Whoever is seeing to it.
    claimed_by: Option<String>,
    settings: Option<Vec<SettingListed>>,
}

#[derive(Serialize)]
struct SettingListed {
    what: String,
    was: Option<String>,
    theirs: String,
    mine: String,
}

impl SettingListed {
    fn of(setting: &Setting) -> SettingListed {
        let shown = |value| attributes::shown(&setting.what, value);
        SettingListed {
            what: attributes::name(&setting.what),
            was: setting.was.as_ref().map(shown),
            theirs: shown(&setting.theirs),
            mine: shown(&setting.mine),
        }
    }
}

impl Listed {
    pub fn of(conflict: &ConflictInfo) -> Listed {
        Listed {
            number: conflict.number,
            kind: format!("{:?}", conflict.clash).to_lowercase(),
            path: conflict.path.as_deref().map(path_of),
            aside: conflict.aside.as_deref().map(path_of),
            device: conflict.device.clone(),
            at_secs: conflict.at.secs,
            update: conflict.update.to_string(),
            met: conflict.found.map(|stamp| stamp.to_string()),
            base: conflict.base.map(|stamp| stamp.to_string()),
            base_version: conflict.base_since.map(|seq| format!("v{}", seq.0)),
            base_bytes: conflict.base_looks.as_ref().map(|looks| looks.size),
            base_mtime_secs: conflict.base_looks.as_ref().map(|looks| looks.mtime.secs),
            claimed_by: conflict.claimed_by.clone(),
            settings: conflict
                .settings
                .as_deref()
                .map(|settings| settings.iter().map(SettingListed::of).collect()),
        }
    }
}

/// Both sides, and what can be done.
pub fn shown(place: &Place, conflict: &ConflictInfo) -> String {
    let mut told = format!("{}\n", line(conflict));
    if let Some(device) = &conflict.claimed_by {
        told.push_str(&format!("  {device} is seeing to it just now\n"));
    }
    match &conflict.settings {
        Some(settings) => told.push_str(&attributes::table(settings)),
        None => told.push_str(&sides(place, conflict)),
    }
    let (theirs, mine) = place.there(conflict);
    let offer = ways::offer(conflict, &ways::ways(conflict, theirs, mine));
    told.push_str(&format!("  to see to it: {offer}\n"));
    told
}

fn sides(place: &Place, conflict: &ConflictInfo) -> String {
    let side = |names: Option<&[Name]>| match names {
        None => "not there any more".to_owned(),
        Some(names) => {
            let path = place.path(names);
            match fs::symlink_metadata(&path) {
                Ok(meta) => {
                    let at = Time { secs: meta.mtime(), nanos: 0 };
                    format!("{}, {}", path.display(), size_and_time(meta.len(), at))
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    format!("{}, not there any more", path.display())
                }
                Err(error) => format!("{}, which cannot be looked at: {error}", path.display()),
            }
        }
    };
    let base = match (conflict.base_since, conflict.path.as_deref()) {
        (Some(since), Some(path)) => {
            let looks = conflict.base_looks.as_ref();
            let looks = looks.map(|looks| format!(", {}", size_and_time(looks.size, looks.mtime)));
            format!("{}@v{}{}", place.path(path).display(), since.0, looks.unwrap_or_default())
        }
        _ => "none, or not kept".into(),
    };
    let (bearer, beside) = (side(conflict.path.as_deref()), side(conflict.aside.as_deref()));
    labelled(conflict, &bearer, &beside, &base)
}

/// Whose is what. `bearer`: what has the name; `beside`: what lies beside it.
fn labelled(conflict: &ConflictInfo, bearer: &str, beside: &str, base: &str) -> String {
    let device = &conflict.device;
    match ways::kind(conflict) {
        Kind::Removal(Side::Theirs) => {
            format!("  theirs  {bearer}\n  mine    removed it (of {device})\n  base    {base}\n")
        }
        Kind::Removal(Side::Mine) => {
            format!("  theirs  removed it\n  mine    {bearer} (of {device})\n  base    {base}\n")
        }
        Kind::One if conflict.clash == Clash::Merged => format!("  both    {bearer}\n"),
        Kind::One => format!("  mine    {bearer} (of {device})\n"),
        Kind::NotDone => {
            format!("  theirs  {bearer}\n  mine    not done (of {device})\n")
        }
        Kind::HasTheName => {
            format!(
                "  theirs  among the versions\n  mine    {bearer} (of {device})\n  base    {base}\n"
            )
        }
        Kind::Attributes | Kind::NoDirectory | Kind::NothingBeside | Kind::Beside => {
            format!("  theirs  {bearer}\n  mine    {beside} (of {device})\n  base    {base}\n")
        }
    }
}

fn size_and_time(bytes: u64, at: Time) -> String {
    format!("{}, {}", units::show_size(bytes), units::show_time(at))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use protocol::past::{Attribute, Value};

    pub fn conflict() -> ConflictInfo {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let stamp = |number| model::Stamp::new(model::ReplicaId(3), number);
        ConflictInfo {
            number: 4,
            clash: Clash::Contents,
            path: Some(vec![name("docs"), name("notes")]),
            aside: Some(vec![name("docs"), name("notes (conflict)")]),
            device: "laptop".into(),
            at: Time { secs: 951_782_399, nanos: 0 },
            update: stamp(7),
            found: Some(stamp(6)),
            base: None,
            base_since: None,
            settings: None,
            base_looks: None,
            claimed_by: None,
            now: Some(stamp(6)),
        }
    }

    #[test]
    fn a_conflict_is_told_in_one_line() {
        let expected = "4  2000-02-28 23:59:59 UTC  \"docs/notes\"  laptop stored contents over \
                        newer ones: both are kept; see \"docs/notes (conflict)\"";
        assert_eq!(line(&conflict()), expected);
        let gone = ConflictInfo { path: None, aside: None, ..conflict() };
        assert!(line(&gone).contains("its directory is gone"), "{}", line(&gone));
        let (theirs, mine) = (Value::Number(0o600), Value::Number(0o640));
        let setting = Setting { what: Attribute::Mode, was: None, theirs, mine };
        let set = ConflictInfo {
            clash: Clash::Attributes,
            aside: None,
            settings: Some(vec![setting]),
            ..conflict()
        };
        assert!(line(&set).ends_with("otherwise: the later holds (mode)"), "{}", line(&set));
    }

    #[test]
    fn of_contents_and_a_removal_the_contents_are_whose_they_are() {
        let told = |clash, aside| {
            let told = ConflictInfo { clash, aside, ..conflict() };
            labelled(&told, "NAME", "BESIDE", "none")
        };
        let beside = conflict().aside;
        for (clash, aside, theirs, mine) in [
            (Clash::Removed, None, "removed it", "NAME"),
            (Clash::Replaced, None, "NAME", "removed it"),
            (Clash::Removed, beside.clone(), "NAME", "BESIDE"),
            (Clash::Contents, beside.clone(), "NAME", "BESIDE"),
            (Clash::NotDone, None, "NAME", "not done"),
        ] {
            let text = told(clash, aside);
            let expected = format!("  theirs  {theirs}\n  mine    {mine} (of laptop)\n");
            assert!(text.starts_with(&expected), "{text}");
        }
        let text = told(Clash::Contents, conflict().path);
        assert!(text.starts_with("  theirs  among the versions\n  mine    NAME (of laptop)\n"));
        assert_eq!(told(Clash::Merged, beside), "  both    NAME\n");
        assert_eq!(told(Clash::Overrun, None), "  mine    NAME (of laptop)\n");
    }
}
