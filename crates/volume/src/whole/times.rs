//! Where a volume stood at which time, by the origin's clock: what says how old a version is.
//! Holds: marks are few, and one stays that is older than everything that is held by its age; of two
//! marks the later one has the later position, so that a clock that was set back ages nothing.

use super::error::Result;
use super::record::{decode, encode};
use super::{VolumeId, Whole, keys, table};
use model::{Seq, Time};
use store::{Read, Write};

/// Marks that are removed in one transaction at most.
const MARKS_MAX: usize = 1000;

/// Writes down where the volume stands now, unless it stood there at the last mark, or that has a
/// later time: then the clock was wrong, or is, and nothing is known of how old anything is.
pub fn mark_time(write: &mut dyn Write, volume: VolumeId, now: Time) -> Result<bool> {
    let position = Whole::now(&*write, volume).position()?;
    if last_mark(write, volume, i64::MAX)?.is_some_and(|seq| seq == position)
        || is_before_last_mark(write, volume, now)?
    {
        return Ok(false);
    }
    write.put(table::TIMES, &keys::time(volume, now.secs), &encode(&position))?;
    Ok(true)
}

/// The last position that was marked no later than `secs` after 1970; the start if none was, so
/// that nothing counts as old of which it is not known.
pub fn position_at(read: &dyn Read, volume: VolumeId, secs: i64) -> Result<Seq> {
    let position = Whole::now(read, volume).position()?;
    Ok(last_mark(read, volume, secs)?.map_or(Seq::START, |seq| seq.min(position)))
}

/// Whether a mark was made at a time that is still to come.
pub fn is_before_last_mark(read: &dyn Read, volume: VolumeId, now: Time) -> Result<bool> {
    let (from, to) = (keys::time(volume, now.secs.saturating_add(1)), volume.range().1);
    Ok(read.last(table::TIMES, &from, &to)?.is_some())
}

/// Marks before the last one that is not later than `secs` go.
pub fn forget_times(write: &mut dyn Write, volume: VolumeId, secs: i64) -> Result<()> {
    let from = volume.range().0;
    let until = keys::time(volume, secs.saturating_add(1));
    let Some((last, _)) = write.last(table::TIMES, &from, &until)? else { return Ok(()) };
    for (key, _) in write.scan(table::TIMES, &from, &last, MARKS_MAX)? {
        write.delete(table::TIMES, &key)?;
    }
    Ok(())
}

fn last_mark(read: &dyn Read, volume: VolumeId, secs: i64) -> Result<Option<Seq>> {
    let from = volume.range().0;
    let mut until = keys::time(volume, secs);
    until.push(0);
    let Some((_, value)) = read.last(table::TIMES, &from, &until)? else { return Ok(None) };
    let seq: Seq = decode(|| format!("a time of {volume}"), &value)?;
    Ok(Some(seq))
}

#[cfg(test)]
mod tests {
    use super::super::create;
    use super::*;
    use model::Node;
    use store::Tables;
    use store::memory::MemoryTables;

    #[test]
    fn a_position_is_as_old_as_the_last_mark_before_it_says() {
        let volume = VolumeId(3);
        let at = |secs| Time { secs, nanos: 0 };
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        create(&mut *write, volume, Node::root_directory(0, 0, at(0))).unwrap();
        assert_eq!(position_at(&*write, volume, 100).unwrap(), Seq::START);
        for (secs, seq) in [(-5, 0), (10, 4), (20, 9)] {
            let mut head = Whole::now(&*write, volume).head().unwrap();
            head.position = Seq(seq);
            write.put(table::HEAD, &keys::volume(volume), &encode(&head)).unwrap();
            assert!(mark_time(&mut *write, volume, at(secs)).unwrap());
            assert!(!mark_time(&mut *write, volume, at(secs + 1)).unwrap(), "it stands still");
        }
        let at = |write: &dyn Read, secs| position_at(write, volume, secs).unwrap().0;
        assert_eq!(
            [-6, -5, 9, 10, 19, 20, 99].map(|secs| at(&*write, secs)),
            [0, 0, 0, 4, 4, 9, 9]
        );
        forget_times(&mut *write, volume, 15).unwrap();
        assert_eq!([9, 10, 20].map(|secs| at(&*write, secs)), [0, 4, 9]);
        assert_eq!(write.scan(table::TIMES, &[], &[0xff; 20], 10).unwrap().len(), 2);
    }

    #[test]
    fn no_mark_is_made_while_the_clock_is_before_the_last_one() {
        let volume = VolumeId(3);
        let at = |secs| Time { secs, nanos: 0 };
        let tables = MemoryTables::default();
        let mut write = tables.write().unwrap();
        create(&mut *write, volume, Node::root_directory(0, 0, at(0))).unwrap();
        let marks = [(1_000, 4, true), (10, 9, false), (999, 9, false), (1_000, 9, true)];
        for (secs, seq, made) in marks {
            let mut head = Whole::now(&*write, volume).head().unwrap();
            head.position = Seq(seq);
            write.put(table::HEAD, &keys::volume(volume), &encode(&head)).unwrap();
            assert_eq!(mark_time(&mut *write, volume, at(secs)).unwrap(), made, "{secs}");
            assert_eq!(position_at(&*write, volume, 999).unwrap(), Seq::START, "{secs}");
        }
    }
}
