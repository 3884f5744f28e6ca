//! Who makes updates of a volume, and how far each has come.
//! Holds: the last number taken from a writer is written in the transaction of that update, so a
//! batch that is sent again is recognised.
//! From: DESIGN, "Updates": each exactly once.

use super::error::{Error, Result};
use super::record::{decode, encode};
use super::{Committer, Whole, keys, table};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};
use model::{ReplicaId, Seq, Stamp};
use protocol::Verdict;

/// The most stretches of a writer's numbers whose knowledge is kept apart.
pub const KNOWN_MAX: usize = 64;
/// Rows that are read at once.
const ROWS_MAX: usize = 4096;
/// Verdicts that are retired in one transaction at most.
const RETIRED_MAX: usize = 10_000;

/// A writer: one replica id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Writer {
    /// The device that the id was given to.
    #[n(0)]
    pub device: ByteVec,
    /// The number of the last update taken.
    #[n(1)]
    pub taken: u64,
    /// Verdicts up to this number have arrived at the writer and are not kept.
    #[n(2)]
    pub settled: u64,
    /// What the writer had seen when it made updates that are not yet taken, oldest first.
    #[n(3)]
    pub known: Vec<Known>,
    /// The last life by which the writer attached, as it says. None: it did not say.
    #[n(4)]
    pub life: Option<u64>,
}

/// Updates up to a number were made without knowing of anything after a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Known {
    #[n(0)]
    pub made: u64,
    #[n(1)]
    pub seen: Seq,
}

impl Writer {
    pub fn new(device: &[u8]) -> Writer {
        Writer {
            device: device.to_vec().into(),
            taken: 0,
            settled: 0,
            known: Vec::new(),
            life: None,
        }
    }

    /// The writer has attached, has made updates up to `made` and has seen `seen`.
    pub fn attached(&mut self, made: u64, seen: Seq) {
        let taken = self.taken;
        self.known.retain(|known| known.made > taken);
        let last = self.known.last().map_or(taken, |known| known.made);
        if made > last {
            self.known.push(Known { made, seen });
        }
        // To take a younger stretch for an older one errs towards seeing a conflict.
        if self.known.len() > KNOWN_MAX {
            let first = self.known.remove(0);
            if let Some(second) = self.known.first_mut() {
                second.seen = second.seen.min(first.seen);
            }
        }
    }

    /// What the writer had surely seen when it made the update of that number; none if it was
    /// made since the writer attached.
    pub fn had_seen(&self, number: u64) -> Option<Seq> {
        self.known.iter().find(|known| number <= known.made).map(|known| known.seen)
    }
}

impl Whole<'_> {
    pub fn writer(&self, replica: ReplicaId) -> Result<Option<Writer>> {
        let key = keys::writer(self.volume, replica);
        let Some(bytes) = self.read.get(table::WRITERS, &key)? else { return Ok(None) };
        decode(|| format!("writer {replica} of {}", self.volume), &bytes).map(Some)
    }

    /// What became of an update; none if it was not taken, or its verdict is not kept any more.
    pub fn verdict(&self, stamp: Stamp) -> Result<Option<Verdict>> {
        let key = keys::verdict(self.volume, stamp);
        let Some(bytes) = self.read.get(table::VERDICTS, &key)? else { return Ok(None) };
        decode(|| format!("verdict on {stamp} of {}", self.volume), &bytes).map(Some)
    }

    /// The numbers of the updates that were taken ahead of their turn, which has not come, in order.
    pub fn taken_ahead(&self, replica: ReplicaId, writer: &Writer) -> Result<Vec<u64>> {
        let key = |number: u64| keys::verdict(self.volume, Stamp::new(replica, number));
        let (mut from, end) = (key(writer.taken.saturating_add(1)), key(u64::MAX));
        let mut numbers = Vec::new();
        loop {
            let rows = self.read.scan(table::VERDICTS, &from, &end, ROWS_MAX)?;
            numbers.extend(rows.iter().filter_map(|(key, _)| keys::number_at_end(key)));
            let Some((last, _)) = rows.last().filter(|_| rows.len() == ROWS_MAX) else { break };
            from.clone_from(last);
            from.push(0);
        }
        Ok(numbers)
    }
}

impl Committer<'_> {
    pub fn put_writer(&mut self, replica: ReplicaId, writer: &Writer) -> Result<()> {
        let key = keys::writer(self.volume(), replica);
        self.write().put(table::WRITERS, &key, &encode(writer)).map_err(Error::from)
    }

    pub fn put_verdict(&mut self, stamp: Stamp, verdict: &Verdict) -> Result<()> {
        let key = keys::verdict(self.volume(), stamp);
        self.write().put(table::VERDICTS, &key, &encode(verdict)).map_err(Error::from)
    }

    /// Verdicts up to `settled` go. What is more than one transaction's worth goes with the next.
    pub fn settle(&mut self, replica: ReplicaId, writer: &mut Writer, settled: u64) -> Result<()> {
        let settled = settled.min(writer.taken);
        if settled <= writer.settled {
            return Ok(());
        }
        let upto = settled.min(writer.settled.saturating_add(RETIRED_MAX as u64));
        for number in writer.settled + 1..=upto {
            let key = keys::verdict(self.volume(), Stamp::new(replica, number));
            self.write().delete(table::VERDICTS, &key)?;
        }
        writer.settled = upto;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_writers_and_verdicts_is_pinned() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let known = vec![Known { made: 3, seen: Seq(4) }];
        let writer =
            Writer { device: vec![0xde; 2].into(), taken: 2, settled: 1, known, life: None };
        let name = model::Name::new(*b"n").unwrap();
        let aside =
            Verdict::KeptAside { seq: Seq(5), directory: model::FileId(1), name, merged: None };
        let golden = [hex(encode(&writer)), hex(encode(&aside))].join("\n");
        expect_test::expect![[r#"
            0177b0ac708442dede020181820304
            017bedf00b8201830501416e"#]]
        .assert_eq(&golden);
        let read: Writer = decode(|| "golden".into(), &encode(&writer)).unwrap();
        assert_eq!(read, writer);
    }

    #[test]
    fn what_was_made_before_an_earlier_attach_keeps_the_older_knowledge() {
        let mut writer = Writer::new(b"d");
        writer.attached(10, Seq(5));
        writer.attached(10, Seq(7));
        writer.attached(12, Seq(9));
        assert_eq!(writer.had_seen(10), Some(Seq(5)));
        assert_eq!(writer.had_seen(11), Some(Seq(9)));
        assert_eq!(writer.had_seen(13), None);
        writer.taken = 10;
        writer.attached(12, Seq(20));
        assert_eq!(writer.known, [Known { made: 12, seen: Seq(9) }]);
    }

    #[test]
    fn too_many_stretches_are_joined_towards_less_knowledge() {
        let mut writer = Writer::new(b"d");
        for n in 1..=KNOWN_MAX as u64 + 5 {
            writer.attached(n, Seq(n));
        }
        assert_eq!(writer.known.len(), KNOWN_MAX);
        assert_eq!(writer.had_seen(6), Some(Seq(1)));
    }
}
