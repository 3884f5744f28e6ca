//! Which stretches of an ordinary file have their place on the disk already.
//! Holds: what is said to have one is written without taking any more of the disk, but for what the
//! file system keeps aside itself to note it. Where that cannot be told, nothing is said to have one.

use rustix::fs::fstatfs;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::fs::File;

/// File systems that write over what is there in its place, but for what files share.
const EXT: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;

/// `FS_IOC_FIEMAP`.
const FIEMAP: Opcode = opcode::read_write::<Question>(b'f', 11);
const LAST: u32 = 0x1;
/// Compressed, or among the file's attributes: what is written there goes elsewhere.
const ELSEWHERE: u32 = 0x8 | 0x100 | 0x200;
const UNWRITTEN: u32 = 0x800;
const SHARED: u32 = 0x2000;

const EXTENTS_MAX: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Question {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    extents_max: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

#[repr(C)]
struct Map {
    question: Question,
    extents: [Extent; EXTENTS_MAX],
}

/// Bytes of `from..to` for which the disk must find a place when they are written.
pub(super) fn lacking(file: &File, from: u64, to: u64) -> u64 {
    let Ok(disk) = fstatfs(file) else { return to.saturating_sub(from) };
    #[allow(clippy::unnecessary_cast, reason = "the type is another one on other machines")]
    let in_place = [EXT, XFS].contains(&(disk.f_type as i64));
    let (mut at, mut lacking) = (from, 0_u64);
    while at < to {
        let Some((extents, is_all)) = extents(file, at, to) else {
            return lacking.saturating_add(to - at);
        };
        let end = extents.last().map_or(to, |last| last.logical.saturating_add(last.length));
        // Each answer goes on behind the one before.
        let end = if is_all { to } else { end.clamp(at + 1, to) };
        lacking += uncovered(at, end, &extents, in_place);
        at = end;
    }
    lacking
}

/// The first extents from `from` on, and whether there are no more before `to`. None: the file
/// system does not say.
fn extents(file: &File, from: u64, to: u64) -> Option<(Vec<Extent>, bool)> {
    let question = Question {
        start: from,
        length: to - from,
        extents_max: EXTENTS_MAX as u32,
        ..Question::default()
    };
    let mut map = Map { question, extents: [Extent::default(); EXTENTS_MAX] };
    #[allow(unsafe_code, reason = "no library offers FS_IOC_FIEMAP")]
    // SAFETY: the call reads the question and writes the count and at most `extents_max` extents
    // behind it, all of which `map` has room for.
    unsafe { ioctl(file, Updater::<FIEMAP, Map>::new(&mut map)) }.ok()?;
    let count = (map.question.mapped as usize).min(EXTENTS_MAX);
    let extents = map.extents[..count].to_vec();
    let is_all = count < EXTENTS_MAX || extents.iter().any(|extent| extent.flags & LAST != 0);
    Some((extents, is_all))
}

fn uncovered(from: u64, to: u64, extents: &[Extent], in_place: bool) -> u64 {
    let stays = |extent: &&Extent| {
        let is_there = in_place || extent.flags & UNWRITTEN != 0;
        is_there && extent.flags & (ELSEWHERE | SHARED) == 0
    };
    let within = |extent: &Extent| {
        let end = extent.logical.saturating_add(extent.length).min(to);
        end.saturating_sub(extent.logical.max(from))
    };
    let covered: u64 = extents.iter().filter(stays).map(within).sum();
    (to - from).saturating_sub(covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u64, length: u64, flags: u32) -> Extent {
        Extent { logical, length, flags, ..Extent::default() }
    }

    #[test]
    fn what_is_shared_or_written_elsewhere_has_no_place_yet() {
        let extents = [
            extent(0, 10, 0),
            extent(10, 10, UNWRITTEN),
            extent(20, 10, SHARED),
            extent(40, 10, UNWRITTEN | SHARED),
            extent(50, 10, 0x8),
        ];
        assert_eq!(uncovered(0, 20, &extents, true), 0);
        assert_eq!(uncovered(5, 60, &extents, true), 40);
        assert_eq!(uncovered(0, 20, &extents, false), 10, "it is written anew each time");
        assert_eq!(uncovered(60, 70, &extents, true), 10);
    }

    #[test]
    fn the_words_are_the_kernels() {
        assert_eq!(FIEMAP, 0xc020_660b);
        assert_eq!((size_of::<Question>(), size_of::<Extent>()), (32, 56));
    }
}
