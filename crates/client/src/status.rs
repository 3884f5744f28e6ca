//! What people and programs are shown of a client.

use crate::client::Client;
use crate::damage::Lacking;
use crate::kin::{Assembly, Transfer};
use crate::presence::Presence;
use crate::reached::Reached;
use crate::types::{Error, Explanation, Step, WantedMode};
use model::{Change, Contents, FileId, Kind, Node, Stamp, Update};
use protocol::{
    CacheStatus, CancelledStatus, Class, ClassBytes, LinkQuality, LinkStatus, Mode, Objection,
    PassthroughStatus, Pending, PinsStatus, PrefetchStatus, Reach, Replayed, Status, Traffic,
    Upstream,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::Containers;

/// Changes of one file that are told of one by one.
const TOLD_MAX: usize = 1000;
/// Updates that are looked at at once.
const PAGE_UPDATES: usize = 1024;

#[derive(Default)]
pub(crate) struct Counters {
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub conflicts: AtomicU64,
    pub reached: Reached,
    /// Updates that were judged ahead of their turn.
    pub ahead: AtomicU64,
    pub cancelling: crate::moot::Cancelling,
    pub crowded: crate::places::Crowded,
    /// Calls of any kind, to tell an idle mount from one in use.
    pub calls: AtomicU64,
}

impl Counters {
    fn replayed(&self) -> Replayed {
        let home = self.reached.home.told(Reach::Home);
        Replayed {
            updates: home.updates,
            waited_ms: home.sum_us / 1_000,
            waited_most_ms: home.most_us / 1_000,
            ahead: self.ahead.load(Ordering::Relaxed),
        }
    }

    fn cancelled(&self) -> CancelledStatus {
        CancelledStatus {
            updates: self.cancelling.updates.load(Ordering::Relaxed),
            bytes: self.cancelling.bytes.load(Ordering::Relaxed),
        }
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// A snapshot of everything.
    pub fn status(&self) -> Status {
        let inner = &*self.inner;
        let (quality, traffic) = (inner.upstream.quality(), inner.upstream.traffic());
        let (mode, wanted, attached, (alone, paused, refused), trouble) = {
            let connection = self.connection();
            let trouble = connection.told_trouble();
            let refused = connection.up && connection.refusal().is_some();
            let others = (connection.alone, connection.paused, refused);
            (connection.mode, connection.wanted, connection.attached, others, trouble)
        };
        let now = inner.world.clock.moment();
        let (mode_why, mode_changes, estimate) = {
            let choice = &self.connection().choice;
            (choice.why(), choice.changes(), choice.estimate(now))
        };
        let (pending, missing_above) = (self.pending(), self.wanted_status());
        let (damage, (files, bytes), core) = (self.damage(), self.held_now(), self.core());
        Status {
            volume: inner.settings.volume.clone(),
            server: inner.settings.server.clone(),
            mountpoint: inner.settings.mountpoint.display().to_string(),
            state_directory: inner.settings.state_directory.display().to_string(),
            pid: std::process::id(),
            mode,
            mode_wanted: match wanted {
                WantedMode::Auto => "auto".into(),
                WantedMode::Fixed(mode) => name_of(mode).into(),
            },
            mode_why,
            mode_changes,
            alone,
            paused,
            budget: self.budget_status(),
            replay_delay: self.delay_status(),
            locks_shared: self.leases_locks(),
            read_only: core.meta.access == protocol::Access::ReadOnly,
            replica: core.meta.replica.map(|replica| replica.0),
            seen: core.meta.seen.0,
            link: LinkStatus { estimate, refused, ..link_status(&quality, attached, trouble) },
            cache: CacheStatus {
                files,
                bytes,
                bytes_max: inner.settings.cache_bytes_max,
                tables_bytes: inner.tables.taken().unwrap_or(0),
                hits: inner.counters.hits.load(Ordering::Relaxed),
                misses: inner.counters.misses.load(Ordering::Relaxed),
            },
            pending,
            replayed: inner.counters.replayed(),
            reached: inner.counters.reached.told(),
            cancelled: inner.counters.cancelled(),
            traffic: rows_of(&traffic),
            wire_bytes_sent: traffic.wire_sent,
            wire_bytes_received: traffic.wire_received,
            prefetch: self.prefetch(),
            passthrough: self.passthrough(),
            pins: self.pins_now(),
            misses: self.missed(),
            stale: self.stale_files(),
            conflicts: inner.counters.conflicts.load(Ordering::Relaxed),
            conflicts_listed: self.conflicts_listed(),
            damage,
            mended: inner.mended.status(),
            state_damage: inner.marred.places(),
            state_trouble: inner.marred.trouble(),
            log_put_anew: inner.journal.put_anew(),
            tables_put_anew: inner.tables.put_anew(),
            wanted: missing_above,
        }
    }

    // Each lets its lock go before the next is taken: within one expression of `status` all of them
    // would be had until its end.

    fn prefetch(&self) -> PrefetchStatus {
        self.ahead().status()
    }

    fn pins_now(&self) -> PinsStatus {
        self.pins().status()
    }

    fn missed(&self) -> u64 {
        self.misses().len()
    }

    fn conflicts_listed(&self) -> Option<u64> {
        self.connection().conflicts_listed
    }

    fn passthrough(&self) -> PassthroughStatus {
        let kernel = self.inner.kernel.get();
        PassthroughStatus {
            off: match kernel {
                Some(kernel) => kernel.takes_none(),
                None => Some("nothing is mounted".into()),
            },
            files: self.files().lent_len() as u64,
        }
    }

    fn pending(&self) -> Pending {
        let now = self.inner.world.clock.time();
        let (written, left_over) = {
            let files = self.files();
            (files.written() as u64, files.left_over().len() as u64)
        };
        let held_back = self.held_back().map(|why| why.to_string());
        let core = self.core();
        let oldest = core.log.pending_from(0, 1).ok();
        let oldest = oldest.and_then(|first| first.first().map(|update| update.at.secs));
        Pending {
            // What was closed and could not be stored yet is an update to come.
            updates: core.log.pending_len() as u64 + left_over,
            bytes: core.log.store_bytes(),
            oldest_secs: oldest.map(|at| u64::try_from(now.secs.saturating_sub(at)).unwrap_or(0)),
            open_for_writing: written - left_over,
            trouble: core.setback.clone().filter(|_| core.log.pending_len() > 0),
            held_back,
        }
    }

    /// Where a file's contents are, which version is shown, and why.
    pub fn explain(&self, file: FileId, path: &str) -> Step<Explanation> {
        let node = self.node(file)?;
        let (said, presence) = self.view(|tree| {
            let read = self.inner.tables.read()?;
            let newer = tree.held(file)?.map(|held| held.node);
            Ok((newer.unwrap_or(tree.said(file)?), Presence::load(&*read, file)?))
        })?;
        let (changes, pending) = self.changes_of(&node, file)?;
        let mode = self.connection().mode;
        let stored = |stamp: Stamp| (stamp != Stamp::default()).then(|| stamp.to_string());
        let version_at_origin = said.and_then(|node| stored(node.contents_stamp));
        self.note_if_lost(file);
        // Where that cannot be looked at, it was said.
        let lacking = self.unsent_lacking(file).ok().flatten();
        let here = presence
            .as_ref()
            .filter(|presence| presence.version == node.contents_stamp || presence.dirty.is_some());
        let here = here.filter(|_| lacking.is_none());
        let size = node.contents.size;
        let mut why: Vec<String> = whereabouts(here, lacking, size).into_iter().collect();
        why.push(match mode {
            Mode::Connected | Mode::Partial => {
                "The origin tells this client when it changes (callback).".into()
            }
            Mode::FetchOnly | Mode::Disconnected => {
                "There is no callback now: it may have changed elsewhere.".into()
            }
        });
        let policy = self.explain_policy(file, &mut why)?;
        if changes > 0 {
            why.push(format!("{changes} changes of it are not at the origin yet."));
        }
        why.extend(self.kin().transfer(file).map(tell));
        why.extend(self.explain_damage(file));
        if node.links == 0 {
            return Err(Error::Objection(Objection::NoEntry).into());
        }
        Ok(Explanation {
            path: path.into(),
            file: file.0,
            kind: format!("{:?}", node.kind).to_lowercase(),
            size: node.size(),
            version: stored(node.contents_stamp),
            policy,
            stale: self.stale_for(file).is_some(),
            version_at_origin,
            // Holes are nothing.
            bytes_here: here.map_or(lacking.map_or(0, |lacking| lacking.there), |presence| {
                match presence.dirty {
                    Some(_) => node.contents.data(),
                    None => presence.bytes().min(node.contents.data()),
                }
            }),
            reach: if changes == 0 { Reach::Home } else { Reach::Logged },
            pending,
            why,
        })
    }
}

impl<U: Upstream, C: Containers> Client<U, C> {
    /// How many pending changes there are of a file, of a directory with those of its names; and
    /// the first of them in words.
    fn changes_of(&self, node: &Node, file: FileId) -> Result<(usize, Vec<String>), Error> {
        let (mut changes, mut told) = (0, Vec::new());
        let mut tell = |update: &Update| {
            changes += 1;
            if told.len() < TOLD_MAX {
                told.push(describe(update));
            }
        };
        if node.kind != Kind::Directory {
            let core = self.core();
            let mut numbers: Vec<u64> = core.log.of_file(file).map(|(number, _)| number).collect();
            numbers.reverse();
            for number in numbers {
                core.log.get(number)?.iter().for_each(&mut tell);
            }
            return Ok((changes, told));
        }
        let mut from = 0;
        loop {
            // Nobody waits for all of the log to be read.
            let page = self.core().log.pending_from(from, PAGE_UPDATES)?;
            let Some(last) = page.last() else { return Ok((changes, told)) };
            from = last.stamp.number + 1;
            page.iter().filter(|update| update.touches().contains(&file)).for_each(&mut tell);
        }
    }
}

/// Bytes by class.
fn rows_of(traffic: &Traffic) -> Vec<ClassBytes> {
    Class::ALL
        .iter()
        .zip(traffic.sent.iter().zip(&traffic.received))
        .map(|(class, (sent, received))| ClassBytes {
            class: format!("{class:?}").to_lowercase(),
            sent: *sent,
            received: *received,
        })
        .collect()
}

fn link_status(quality: &LinkQuality, connected: bool, trouble: Option<String>) -> LinkStatus {
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    LinkStatus {
        connected,
        trouble,
        round_trip_ms: quality.round_trip.map(millis),
        round_trip_age_secs: quality.round_trip_age.map(|age| age.as_secs_f64()),
        round_trip_min_ms: quality.round_trip_min.map(millis),
        rate_up: quality.rate_up,
        rate_down: quality.rate_down,
        ..LinkStatus::default()
    }
}

/// How a version travelled.
fn tell(transfer: &Transfer) -> String {
    let way = if transfer.sent { "sent to" } else { "fetched from" };
    let mut text = format!("Version {} was last {way} the origin", transfer.version);
    if transfer.assembly != Assembly::default() {
        tell_assembly(transfer, &mut text);
    } else if let Some((file, version, codec)) = transfer.base {
        let codec = match chunks::delta::Codec::from_number(codec) {
            Some(codec) => format!("{codec:?}").to_lowercase(),
            None => format!("codec {codec}"),
        };
        text.push_str(&format!(
            ": {} bytes of it as a delta of {} bytes ({codec}) against version {version} of file {file}",
            transfer.coded, transfer.coded_bytes
        ));
    }
    let plain = transfer.plain;
    match (transfer.base, plain) {
        (Some(_), 0) => {}
        (Some(_), _) => text.push_str(&format!(", and {plain} bytes of it by themselves")),
        (None, 0) => text.push_str(": nothing but its recipe"),
        (None, _) => text.push_str(&format!(": {plain} bytes of it, before compression")),
    }
    text.push('.');
    if let Some(why) = transfer.left {
        text.push_str(&format!(" It was not put together from parts of other files: {why}."));
    }
    text
}

/// What a container was assembled of.
fn tell_assembly(transfer: &Transfer, text: &mut String) {
    let Assembly { files, bytes, within, containers } = &transfer.assembly;
    text.push_str(&format!(
        ": {} bytes of it assembled with {} bytes, as {bytes} bytes of what it holds were there: \
         {files} parts of it as contents of their own, {within} in other containers",
        transfer.coded, transfer.coded_bytes
    ));
    let named: Vec<String> = containers.iter().map(|file| format!("file {file}")).collect();
    if !named.is_empty() {
        text.push_str(&format!(" ({}", named.join(", ")));
        text.push(')');
    }
}

/// Where the contents of a file of this size are. `lacking`: they were to be here alone.
fn whereabouts(here: Option<&Presence>, lacking: Option<Lacking>, size: u64) -> Option<String> {
    if let Some(lacking) = lacking {
        return Some(told_of(lacking, size));
    }
    Some(match here {
        Some(presence) if presence.dirty.is_some() => {
            "It is being written to; what is written is stored when it is closed.".into()
        }
        Some(presence) if presence.is_whole() => {
            "All its contents are in the cache: reading needs no link.".into()
        }
        Some(presence) => {
            let bytes = presence.bytes();
            format!(
                "{bytes} of {size} bytes are in the cache; the rest is fetched when it is read."
            )
        }
        None if size > 0 => {
            "Its contents are at the origin and are fetched when it is read.".into()
        }
        None => return None,
    })
}

/// Of what was written here alone and is not here any more.
fn told_of(lacking: Lacking, size: u64) -> String {
    let (there, lost) = match lacking.there {
        0 => (
            "are not in the cache any more".into(),
            "they are lost, and nobody else is known to have them. Write it anew or remove it.",
        ),
        there => (
            format!("only the first {there} of {size} bytes of them are in the cache"),
            "the rest is lost, but for what the server has of it already.",
        ),
    };
    let unsure = "whether the server has taken them is known when there is a link.";
    let lost = if lacking.is_certain { lost } else { unsure };
    format!("Its contents were written here and not sent, and {there}: {lost}")
}

fn name_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Connected => "connected",
        Mode::Partial => "partial",
        Mode::FetchOnly => "fetch-only",
        Mode::Disconnected => "disconnected",
    }
}

fn stored(contents: &Contents) -> String {
    let (size, data) = (contents.size, contents.data());
    match size - data {
        0 => format!("contents of {size} bytes stored"),
        holes => format!("contents of {data} bytes stored, and {holes} bytes of holes"),
    }
}

pub(crate) fn describe(update: &Update) -> String {
    let what = match &update.change {
        Change::Make { name, .. } => format!("made as {name}"),
        Change::Link { name, .. } => format!("linked as {name}"),
        Change::Unlink { name, .. } => format!("name {name} removed"),
        Change::Rename { from_name, to_name, .. } => format!("renamed {from_name} to {to_name}"),
        Change::Store { contents, .. } => stored(contents),
        Change::SetAttributes { .. } => "attributes set".into(),
        Change::SetXattr { .. } => "extended attribute set".into(),
        Change::RemoveXattr { .. } => "extended attribute removed".into(),
    };
    format!("{} {what}", update.stamp)
}
