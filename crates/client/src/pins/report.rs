//! What is pinned, how much of it is here, and how long the rest will take.
//! Never: asks the replica above: what is not known here is told as that.

use super::keep::lacks;
use super::{Pin, seconds};
use crate::client::{Client, error_of};
use crate::failures::of_missing;
use crate::following::{Followed, Of, Whereabouts, whereabouts};
use crate::presence::Presence;
use crate::types::Error;
use model::{FileId, Kind, View};
use protocol::Upstream;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use store::{Containers, Read};
use volume::partial::Tree;

/// Everything that is pinned of one mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PinsReport {
    /// The highest priority first.
    pub pins: Vec<PinShown>,
    /// Files of which something is not here, as many as were asked for.
    pub lacking: Vec<Lacking>,
    /// How many of those are left out.
    pub lacking_more: u64,
    /// All that is pinned, each pin by itself.
    pub bytes: u64,
    pub lacking_bytes: u64,
    /// Directories of which it is not known here what is in them.
    pub unknown: u64,
    /// Bytes that the cache may have.
    pub cache_bytes_max: u64,
    /// The cache has no room for what lacks.
    pub full: bool,
    /// How long it takes to fetch what lacks, at the measured rate. None: nothing is known of the
    /// link.
    pub lasts_secs: Option<u64>,
}

/// One pin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PinShown {
    pub file: u64,
    /// From the root of the volume. None: it has no name, or none that is known here.
    pub path: Option<String>,
    pub priority: u32,
    pub recursive: bool,
    /// For how long it has been pinned.
    pub age_secs: u64,
    pub files: u64,
    pub bytes: u64,
    pub lacking_files: u64,
    pub lacking_bytes: u64,
    pub unknown: u64,
    /// The file is gone: the pin waits for one of the same name.
    #[serde(default)]
    pub removed: bool,
}

/// A pinned file that is not all here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lacking {
    pub file: u64,
    /// From the root of the volume.
    pub path: String,
    pub size: u64,
    pub lacking_bytes: u64,
}

/// How long bytes take at a rate in bytes a second. None: no rate is known.
pub(crate) fn lasts(bytes: u64, rate: Option<u64>, round_trip: Option<Duration>) -> Option<u64> {
    if bytes == 0 {
        return Some(0);
    }
    let rate = rate.filter(|rate| *rate > 0)?;
    let trip = round_trip.unwrap_or_default().as_secs();
    Some(bytes.div_ceil(rate).saturating_add(trip))
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// What is pinned, with at most so many files that lack something. Reads the tables, as long as
    /// it takes to walk all that is pinned.
    pub fn pins_report(&self, lacking_max: usize) -> Result<PinsReport, Error> {
        self.follow_names()?;
        let (mut all, full) = {
            let pins = self.pins();
            let all: Vec<_> = pins.pins.iter().map(|(file, pin)| (*file, pin.clone())).collect();
            (all, pins.full)
        };
        all.sort_by_key(|(file, pin)| (std::cmp::Reverse(pin.priority), pin.since, *file));
        let now = seconds(self.inner.world.clock.time());
        let read = self.inner.tables.read().map_err(error_of)?;
        let row = |(file, pin): &(FileId, Pin)| Followed {
            of: Of::Pins,
            file: *file,
            place: pin.place.clone(),
        };
        let rows: Vec<Followed> = all.iter().map(row).collect();
        let found = whereabouts(&Tree::new(&*read, 0), &rows)?;
        let cache_bytes_max = self.inner.settings.cache_bytes_max;
        let mut report = PinsReport { full, cache_bytes_max, ..PinsReport::default() };
        for ((file, pin), Whereabouts { path, removed }) in all.into_iter().zip(found) {
            let mut shown = PinShown {
                file: file.0,
                path: path.clone(),
                priority: pin.priority,
                recursive: pin.recursive,
                age_secs: u64::try_from(now.saturating_sub(pin.since)).unwrap_or(0),
                removed,
                ..PinShown::default()
            };
            let top = (file, path.unwrap_or_default());
            measure(&*read, top, &mut shown, &mut report.lacking, lacking_max)?;
            report.bytes += shown.bytes;
            report.lacking_bytes += shown.lacking_bytes;
            report.unknown += shown.unknown;
            report.lacking_more += shown.lacking_files;
            report.pins.push(shown);
        }
        report.lacking_more -= report.lacking.len() as u64;
        let link = self.link_remembered();
        report.lasts_secs = lasts(report.lacking_bytes, link.likely_down(), link.round_trip);
        Ok(report)
    }
}

/// Walks what is known of one pin.
fn measure(
    read: &dyn Read,
    top: (FileId, String),
    shown: &mut PinShown,
    lacking: &mut Vec<Lacking>,
    lacking_max: usize,
) -> Result<(), Error> {
    let tree = Tree::new(read, 0);
    let mut coming = vec![top.clone()];
    while let Some((file, path)) = coming.pop() {
        let Ok(node) = tree.node(file) else {
            shown.unknown += 1;
            continue;
        };
        let Some(node) = node else { continue };
        if node.kind == Kind::Directory {
            if file != top.0 && !shown.recursive {
                continue;
            }
            if !tree.is_complete(file).map_err(of_missing)? {
                shown.unknown += 1;
                continue;
            }
            if shown.recursive {
                let below = |name: String| match path.is_empty() {
                    true => name,
                    false => format!("{path}/{name}"),
                };
                tree.each_entry(file, |name, file| {
                    coming.push((file, below(name.to_string())));
                    Ok(())
                })
                .map_err(of_missing)?;
            }
            continue;
        }
        let row = Presence::load(read, file).map_err(error_of)?;
        let lacking_bytes = lacks(&node, row.as_ref());
        shown.files += 1;
        shown.bytes += node.contents.data();
        if lacking_bytes > 0 {
            shown.lacking_files += 1;
            shown.lacking_bytes += lacking_bytes;
            if lacking.len() < lacking_max {
                let size = node.contents.size;
                lacking.push(Lacking { file: file.0, path, size, lacking_bytes });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_by_the_rate_and_unknown_without_one() {
        let trip = Some(Duration::from_secs(2));
        assert_eq!(lasts(0, None, None), Some(0));
        assert_eq!(lasts(10, None, trip), None);
        assert_eq!(lasts(10, Some(0), trip), None);
        assert_eq!(lasts(1_001, Some(100), trip), Some(13));
    }
}
