//! Finding out, in the background, what is inside the containers that were stored: the log says
//! which these are.
//! Holds: one region of one container is looked at at a time, rows are written a few at a time, and
//! each piece makes way for requests; how far it has come is noted, and what a crash takes of that
//! is looked at again. The index has a bound.
//!
//! ```text
//!   log ──stores──→ waiting ──a region──→ places ──some rows──→ index
//! ```

use super::with_index;
use crate::error::Result;
use crate::origin::{Inner, Origin};
use crate::parts::Version;
use crate::row;
use crate::volumes::{Volume, locked};
use chunks::Look;
use chunks::delta::is_packed;
use chunks::inside::index::{Place, places};
use chunks::inside::order::{self, Order};
use chunks::inside::{self, Left, region_of};
use minicbor::{Decode, Encode};
use model::{Change, ChunkName, Contents, FileId, Seq, Stamp, View};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{Durability, StoreError, Write};
use tokio::sync::Notify;
use tracing::warn;
use volume::whole::{VolumeId, Whole, encode};

pub(crate) const INSIDE: &str = "origin-inside";

/// Updates that are read from the log in one piece.
const RECORDS_MAX: usize = 256;
/// Rows in one transaction.
const ROWS_MAX: usize = 500;
/// Rows of a volume's index: the oldest make room for what is seen beyond that.
const INDEX_ROWS_MAX: u64 = 1 << 20;
/// Smaller files travel for less than it takes to name what they hold.
const CONTAINER_BYTES_MIN: u64 = 512;
/// By so many bytes a container is known.
const KIND_BYTES: usize = 16;
/// Several stores together are looked at together.
const SETTLE: Duration = Duration::from_secs(1);
/// After each piece of work so many times its length pass without any.
const REST: u32 = 2;
const REST_MAX: Duration = Duration::from_secs(2);
/// After a failure.
const PAUSE: Duration = Duration::from_secs(60);

/// How far a volume has been looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
struct UptoRow {
    #[n(0)]
    upto: Seq,
    /// Rows of the index, about.
    #[n(1)]
    rows: u64,
}

/// Somebody has stored something.
#[derive(Default)]
pub(crate) struct Noticed(Notify);

impl Noticed {
    pub fn stored(&self) {
        self.0.notify_one();
    }
}

/// How far one has come, and what of that is on the disk.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    now: UptoRow,
    saved: UptoRow,
    order: Order,
}

/// A container that waits to be looked at, from an offset on.
struct Waiting {
    of: (FileId, Stamp),
    contents: Contents,
    offset: u64,
}

/// A volume while it is looked at.
struct Gathering {
    inner: Arc<Inner>,
    volume: Arc<Volume>,
    progress: Progress,
    waiting: VecDeque<Waiting>,
    places: Vec<(ChunkName, Place)>,
    /// The order of the rows is not known, and they are to be gathered anew.
    clearing: bool,
    /// Old places are forgotten, from this name on, with so many rows left so far.
    sweeping: Option<(Option<ChunkName>, u64)>,
}

impl Origin {
    /// Works for as long as it is polled.
    pub(crate) async fn look_inside(&self) {
        let inner = &self.0;
        let clock = &inner.world.clock;
        let mut known = BTreeMap::new();
        let mut swept = clock.moment();
        loop {
            let now = clock.moment();
            let sweeps = now.since(swept) >= inner.limits.collect_every;
            if sweeps {
                swept = now;
            }
            let volumes = locked(&inner.volumes).clone();
            known.retain(|id, _| volumes.contains_key(id));
            let mut again = None;
            for volume in volumes.into_values() {
                if let Err(error) = self.look_inside_volume(&volume, &mut known, sweeps).await {
                    warn!(volume = volume.name, %error, "containers could not be looked into");
                    again = Some(PAUSE);
                }
            }
            let noticed = inner.noticed.0.notified();
            match again {
                Some(pause) => {
                    clock.within(pause, noticed).await;
                }
                None => noticed.await,
            }
            clock.sleep(SETTLE).await;
        }
    }

    async fn look_inside_volume(
        &self,
        volume: &Arc<Volume>,
        known: &mut BTreeMap<VolumeId, Progress>,
        sweeps: bool,
    ) -> Result<()> {
        let inner = &self.0;
        let clock = &inner.world.clock;
        let progress = match known.get(&volume.id) {
            Some(progress) => *progress,
            None => Progress::load(inner, volume.id)?,
        };
        let unordered = progress.now.rows > 0 && progress.order.rows() == 0;
        let progress = if unordered { Progress::default() } else { progress };
        let mut gathering = Gathering {
            inner: inner.clone(),
            volume: volume.clone(),
            progress,
            waiting: VecDeque::new(),
            places: Vec::new(),
            clearing: unordered,
            sweeping: sweeps.then_some((None, 0)),
        };
        loop {
            self.until_quiet().await;
            let begun = clock.moment();
            let work = move || {
                let more = gathering.turn();
                (gathering, more)
            };
            let Ok((back, more)) = inner.limits.blocking.run(work).await else { return Ok(()) };
            gathering = back;
            if volume.is_removed() {
                return Ok(());
            }
            if !more? {
                known.insert(volume.id, gathering.progress);
                return Ok(());
            }
            let took = clock.moment().since(begun);
            clock.sleep(took.saturating_mul(REST).min(REST_MAX)).await;
        }
    }
}

impl Progress {
    fn load(inner: &Inner, volume: VolumeId) -> Result<Progress> {
        let read = inner.tables.read()?;
        let row = row::get::<UptoRow>(&*read, INSIDE, &volume.0.to_be_bytes());
        let saved = row.unwrap_or_else(|error| {
            warn!(%error, "it is not known which containers were looked into: all are, once more");
            None
        });
        let saved = saved.unwrap_or_default();
        let order = with_index(volume, |index| Order::load(index, &*read))?;
        Ok(Progress { now: saved, saved, order })
    }
}

impl Gathering {
    /// A piece of work. False: there is nothing more to do.
    fn turn(&mut self) -> Result<bool> {
        if self.clearing {
            self.clear()?;
        } else if let Some((from, left)) = self.sweeping.take() {
            self.sweep(from, left)?;
        } else if !self.places.is_empty() {
            self.write_some()?;
        } else if let Some(waiting) = self.waiting.pop_front() {
            self.look(&waiting);
        } else {
            // All that was read of the log so far has been looked at.
            self.save()?;
            return self.read_log();
        }
        Ok(true)
    }

    fn clear(&mut self) -> Result<()> {
        let id = self.volume.id;
        let mut write = self.inner.tables.write()?;
        self.clearing = clear_rows(&mut *write, id, ROWS_MAX)?;
        if !self.clearing {
            write.delete(INSIDE, &id.0.to_be_bytes())?;
        }
        Ok(write.commit(Durability::Later)?)
    }

    fn sweep(&mut self, from: Option<ChunkName>, left: u64) -> Result<()> {
        let id = self.volume.id;
        let mut write = self.inner.tables.write()?;
        // Nothing is committed while the transaction lasts, so this is what it began with.
        let read = self.inner.tables.read()?;
        let mut failed = None;
        let alive = |file, version| match Whole::now(&*read, id).contents(file, version) {
            Ok(found) => found.is_some(),
            Err(error) => {
                failed = Some(error);
                true
            }
        };
        let look = Look { from, rows_max: ROWS_MAX, most: None };
        let swept = with_index(id, |index| index.sweep(&mut *write, look, alive))?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        write.commit(Durability::Later)?;
        let left = left + swept.left as u64;
        match swept.next {
            Some(next) => self.sweeping = Some((Some(next), left)),
            None => self.progress.now.rows = left,
        }
        Ok(())
    }

    fn write_some(&mut self) -> Result<()> {
        let from = self.places.len().saturating_sub(ROWS_MAX);
        let mut write = self.inner.tables.write()?;
        let (mut fresh, mut order) = (0, self.progress.order);
        let gone = with_index(self.volume.id, |index| {
            for (name, place) in &self.places[from..] {
                if index.note(&mut *write, name, *place)? {
                    order.add(index, &mut *write, name)?;
                    fresh += 1;
                }
            }
            order.make_room(index, &mut *write, INDEX_ROWS_MAX)
        })?;
        write.commit(Durability::Later)?;
        self.places.truncate(from);
        self.progress.order = order;
        self.progress.now.rows = (self.progress.now.rows + fresh).saturating_sub(gone);
        Ok(())
    }

    /// Looks at a region of a container; the rest of it waits behind the others.
    fn look(&mut self, waiting: &Waiting) {
        let Waiting { of, contents, offset } = *waiting;
        let region = region_of(contents.size, offset);
        let (end, size) = (region.end, contents.size);
        let version = Version { inner: &self.inner, volume: &self.volume, contents };
        let mut read = |from: u64, length: usize| version.read(from, length);
        let Volume { secret, cutter, .. } = &*self.volume;
        match inside::look(secret, *cutter, (size, region), &mut read) {
            Ok(looked) => {
                if let Ok(inside) = &looked {
                    self.places = places(of, inside).collect();
                }
                if end < size && !matches!(looked, Err(Left::Unknown)) {
                    self.waiting.push_back(Waiting { of, contents, offset: end });
                }
            }
            Err(error) => warn!(file = %of.0, %error, "a container could not be read"),
        }
    }

    /// What was stored next. False: nothing has been.
    fn read_log(&mut self) -> Result<bool> {
        let read = self.inner.tables.read()?;
        let view = Whole::now(&*read, self.volume.id);
        let records = view.log(self.progress.now.upto, RECORDS_MAX)?;
        let Some(last) = records.last().map(|record| record.seq) else { return Ok(false) };
        for record in records {
            if !matches!(record.update.change, Change::Store { .. }) {
                continue;
            }
            for file in record.nodes {
                let of = (file, record.update.stamp);
                // What was replaced since is not worth it.
                let Some(node) = view.node(file)? else { continue };
                let contents = node.contents;
                let worth = contents.size >= CONTAINER_BYTES_MIN && node.contents_stamp == of.1;
                if worth && self.is_container(contents) {
                    self.waiting.push_back(Waiting { of, contents, offset: 0 });
                }
            }
        }
        self.progress.now.upto = last;
        Ok(true)
    }

    /// What cannot be read is as good as none.
    fn is_container(&self, contents: Contents) -> bool {
        let version = Version { inner: &self.inner, volume: &self.volume, contents };
        version.read(0, KIND_BYTES).is_ok_and(|bytes| is_packed(&bytes))
    }

    /// Where next to nothing was found, it is as quickly found again.
    fn save(&mut self) -> Result<()> {
        let Progress { now, saved, .. } = self.progress;
        let far = now.upto.0.saturating_sub(saved.upto.0) >= RECORDS_MAX as u64;
        if now.rows == saved.rows && !far {
            return Ok(());
        }
        let mut write = self.inner.tables.write()?;
        write.put(INSIDE, &self.volume.id.0.to_be_bytes(), &encode(&now))?;
        write.commit(Durability::Later)?;
        self.progress.saved = now;
        Ok(())
    }
}

/// Removes rows of a volume's index, at most so many of each kind. False: none was left.
pub(super) fn clear_rows(write: &mut dyn Write, volume: VolumeId, rows_max: usize) -> Result<bool> {
    Ok(with_index(volume, |index| {
        let some = index.clear(write, rows_max)? > 0;
        Ok::<_, StoreError>(order::clear(index, write, rows_max)? || some)
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_a_row_is_pinned() {
        let row = encode(&UptoRow { upto: Seq(1), rows: 2 });
        let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
        expect_test::expect!["01b12cf3a3820102"].assert_eq(&hex);
    }
}
