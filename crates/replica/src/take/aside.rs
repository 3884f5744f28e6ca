//! Where what comes second is kept: a name beside the first that says whose it is and when.

use crate::error::Result;
use model::{FileId, Kind, NAME_BYTES_MAX, Name, Stamp, Time, View};
use volume::whole::Whole;

/// Names that are tried before one is made that nothing else can have.
const TRIES_MAX: u32 = 100;
/// What follows the last dot counts as an extension up to so many bytes.
const EXTENSION_BYTES_MAX: usize = 16;
/// The deepest a removed directory is followed upwards.
const DEPTH_MAX: usize = 4096;
const SECS_PER_DAY: i64 = 86_400;

/// Whose it is, and when they made it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark<'a> {
    pub device: &'a str,
    pub at: Time,
    pub stamp: Stamp,
}

/// A name beside `name` that nothing bears.
pub(super) fn free_name(
    view: &Whole<'_>,
    directory: FileId,
    name: &Name,
    mark: Mark<'_>,
) -> Result<Name> {
    for attempt in 1..=TRIES_MAX {
        let suffix = if attempt == 1 { String::new() } else { format!(" {attempt}") };
        let candidate = marked(name, &format!("{}{suffix}", words(mark)));
        if view.entry(directory, &candidate)?.is_none() {
            return Ok(candidate);
        }
    }
    // The stamp is this update's alone.
    Ok(marked(name, &format!("conflict {}", mark.stamp)))
}

/// A name beside `name`, the `attempt`th, for what is kept outside of a volume's own tables.
pub(crate) fn kept_name(name: &Name, of: &str, at: Time, attempt: u32) -> Name {
    let suffix = if attempt == 0 { String::new() } else { format!(" {attempt}") };
    let mark = Mark { device: of, at, stamp: Stamp::default() };
    marked(name, &format!("{}{suffix}", words(mark)))
}

/// Of what never had one. Without a dot, which would make an extension of the counter.
pub(super) fn unnamed(file: FileId) -> Name {
    let name = format!("file {}-{}", file.replica().0, file.counter());
    Name::new(name).expect("an id has no '/' and no NUL, and is short")
}

fn words(mark: Mark<'_>) -> String {
    format!("conflict of {} {}", mark.device, date(mark.at))
}

/// `notes (words).txt`, with as much of the name as 255 bytes leave room for.
fn marked(name: &Name, words: &str) -> Name {
    let (stem, extension) = split(name.as_bytes());
    let middle = format!(" ({words})");
    let room = NAME_BYTES_MAX.saturating_sub(middle.len() + extension.len()).max(1);
    let marked = [cut(stem, room), middle.as_bytes(), extension].concat();
    Name::new(marked).expect("parts of a name and a mark without '/' and NUL, cut to 255 bytes")
}

/// What stands before the extension, and the extension with its dot.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 && name.len() - dot <= EXTENSION_BYTES_MAX => name.split_at(dot),
        _ => (name, &[]),
    }
}

/// At most `room` bytes, without half a letter at the end.
fn cut(stem: &[u8], room: usize) -> &[u8] {
    if stem.len() <= room {
        return stem;
    }
    match std::str::from_utf8(stem) {
        Ok(text) => &stem[..text.floor_char_boundary(room)],
        Err(_) => &stem[..room],
    }
}

/// `2026-11-21 12.30.05`, UTC.
fn date(at: Time) -> String {
    let secs = at.secs.rem_euclid(SECS_PER_DAY);
    let (year, month, day) = at.date();
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}.{minute:02}.{second:02}")
}

/// The directory itself, or the nearest above where it was that is still there.
pub(super) fn nearest(view: &Whole<'_>, mut directory: FileId) -> Result<FileId> {
    for _ in 0..DEPTH_MAX {
        let Some(version) = view.node_version(directory)? else { break };
        match (version.node, version.was) {
            (Some(node), _) if node.kind == Kind::Directory => return Ok(directory),
            (None, Some((above, _))) => directory = above,
            _ => break,
        }
    }
    Ok(FileId::ROOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: Time = Time { secs: 1_795_264_205, nanos: 0 };

    fn name(bytes: &[u8]) -> Name {
        Name::new(bytes).unwrap()
    }

    fn marked_by(name_bytes: &[u8]) -> String {
        let mark = Mark { device: "ada", at: AT, stamp: Stamp::default() };
        marked(&name(name_bytes), &words(mark)).to_string()
    }

    #[test]
    fn a_mark_says_whose_and_when_and_keeps_the_extension() {
        assert_eq!(marked_by(b"notes.txt"), "notes (conflict of ada 2026-11-21 12.30.05).txt");
        assert_eq!(marked_by(b"Makefile"), "Makefile (conflict of ada 2026-11-21 12.30.05)");
        assert_eq!(marked_by(b".bashrc"), ".bashrc (conflict of ada 2026-11-21 12.30.05)");
        assert_eq!(
            marked_by(b"v. a long remark of mine"),
            "v. a long remark of mine (conflict of ada 2026-11-21 12.30.05)"
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let day = |secs| date(Time { secs, nanos: 0 });
        assert_eq!(day(0), "1970-01-01 00.00.00");
        assert_eq!(day(951_782_400), "2000-02-29 00.00.00");
        assert_eq!(day(951_868_800), "2000-03-01 00.00.00");
        assert_eq!(day(4_107_542_399), "2100-02-28 23.59.59");
        assert_eq!(day(4_107_542_400), "2100-03-01 00.00.00");
        assert_eq!(day(-1), "1969-12-31 23.59.59");
    }

    proptest! {
        #[test]
        fn prop_a_marked_name_is_a_name(
            stem in prop::collection::vec(1u8..=255, 1..=255),
            device in "[^/\0]{0,20}",
            secs in any::<i64>(),
        ) {
            let stem: Vec<u8> = stem.into_iter().filter(|byte| *byte != b'/').collect();
            if let Ok(name) = Name::new(stem) {
                let mark = Mark { device: &device, at: Time { secs, nanos: 0 }, stamp: Stamp::default() };
                let marked = marked(&name, &words(mark));
                prop_assert!(marked.as_bytes().len() <= NAME_BYTES_MAX);
            }
        }
    }
}
