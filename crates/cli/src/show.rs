//! What is known of a mount, in words for people.

use crate::output;
use crate::state::begin_anew;
use crate::units::{self, count, show_secs, show_size};
use client::Explanation;
use protocol::{
    CacheStatus, CancelledStatus, ClassBytes, LinkStatus, Mode, ModeChange, PassthroughStatus,
    Pending, PrefetchStatus, Reach, Replayed, Status, WantedStatus,
};
use std::fmt::Write;

mod limits;
mod log;
mod misses;
mod pins;
mod policies;
mod reached;

pub use limits::limits;
pub use log::{left, log};
pub use misses::misses;
pub use pins::{pins, pins_too_large};
pub use policies::{policies, policy, stale};

/// A round trip that was measured longer ago is said to be old.
const STALE_SECS: f64 = 10.0;
/// Fewer of a thousand are lost anywhere.
const LOSS_TOLD: f64 = 0.001;

pub fn status(status: &Status) -> String {
    let mut text = format!("{}: {} at {}\n", status.mountpoint, status.volume, status.server);
    let mut line = |name: &str, what: &str| {
        let _ = writeln!(text, "  {name:<9} {what}");
    };
    line("mode", &mode(status));
    if let Some(change) = status.mode_changes.last() {
        line("changed", &mode_change(change));
    }
    line("link", &link(&status.link));
    line(
        "locks",
        match status.locks_shared {
            true => "hold among all connected mounts of the volume",
            false => "hold among the programs of this mount",
        },
    );
    line("cache", &cache(&status.cache));
    line("kernel", &passthrough(&status.passthrough));
    line("pending", &pending(&status.pending));
    if status.replayed.updates > 0 {
        line("replayed", &replayed(&status.replayed));
    }
    if let Some(told) = reached::in_short(&status.reached) {
        line("seen", &told);
    }
    line("traffic", &traffic(&status.traffic));
    if status.prefetch.files > 0 {
        line("ahead", &ahead(&status.prefetch));
    }
    if status.cancelled.updates > 0 {
        let CancelledStatus { updates, bytes } = status.cancelled;
        let what = format!(
            "{} that no longer mattered, {} of contents",
            count(updates, "update"),
            show_size(bytes)
        );
        line("not sent", &what);
    }
    if status.pins.pins > 0 {
        line("pinned", &pins::in_short(&status.pins));
    }
    if status.misses > 0 {
        let files = count(status.misses, "file");
        line("missed", &format!("{files} (farfs misses)"));
    }
    if status.stale > 0 {
        let files = count(status.stale, "file");
        line("stale", &format!("{files} out of date by policy (farfs policy --stale)"));
    }
    if let Some(limited) = limits::in_short(status) {
        line("limits", &limited);
    }
    line("wire", &up_and_down(status.wire_bytes_sent, status.wire_bytes_received));
    if let Some(listed) = status.conflicts_listed.filter(|listed| *listed > 0) {
        line("conflicts", &format!("{listed} in the volume (farfs conflicts)"));
    } else if status.conflicts_listed.is_none() && status.conflicts > 0 {
        line("conflicts", &format!("{} kept aside since the mount", status.conflicts));
    }
    status.state_trouble.iter().for_each(|why| line("disk", &state_trouble(why)));
    put_anew(status).iter().for_each(|(name, what)| line(name, what));
    let damaged = status.damage.iter().map(ToString::to_string);
    damaged.chain(state_damage(status)).for_each(|what| line("damaged", &what));
    status.mended.last.iter().for_each(|last| line("mended", &mended(&status.mended, last)));
    if status.wanted.missing > 0 || status.wanted.given > 0 {
        line("wanted", &wanted(&status.wanted));
    }
    line("state", &format!("{} (process {})", status.state_directory, status.pid));
    text
}

fn mended(mended: &protocol::MendedStatus, last: &str) -> String {
    let bytes = show_size(mended.bytes);
    let times = match mended.times {
        1 => format!("in {last}"),
        times => format!("in {times} places, the last in {last}"),
    };
    format!(
        "{bytes} of the cache were not as the server has them, {times}; they are mended. If \
         that comes again, this disk is failing"
    )
}

/// What was put there anew, how often, and below which line that is shown.
fn put_anew(status: &Status) -> Vec<(&'static str, String)> {
    let what = [("log", "/log", status.log_put_anew), ("tables", "", status.tables_put_anew)];
    let what = what.into_iter().filter(|(_, _, times)| *times > 0);
    let said = what.map(|(name, below, times)| {
        let said = format!(
            "was written anew {}, and nothing is lost: another program has removed or changed files in \
             {}{below}. Nothing but farfs is to touch that directory",
            count(times, "time"),
            status.state_directory
        );
        (name, said)
    });
    said.collect()
}

fn state_trouble(trouble: &str) -> String {
    format!(
        "fails: {trouble}. Most calls end with an error. Nothing that was synced is lost: see to the \
         disk, then unmount and mount again"
    )
}

/// What is wrong with the state directory, and what can be done about it.
pub fn state_damage(status: &Status) -> Vec<String> {
    let mut told = status.state_damage.clone();
    if !told.is_empty() {
        let state = &status.state_directory;
        let anew = begin_anew(state);
        told.push(match status.pending.updates {
            0 => format!(
                "some files cannot be read for that. Nothing waits to be sent: unmount, then {anew}. \
                 {state} can go when that works"
            ),
            _ => format!(
                "some files cannot be read for that. `farfs salvage {state} OUT` copies out what was \
                 changed here and not yet sent (unmount first); then {anew}"
            ),
        });
    }
    told
}

/// How long what is at the server now was on its way.
fn replayed(replayed: &Replayed) -> String {
    let mean = replayed.waited_ms as f64 / replayed.updates.max(1) as f64 / 1000.0;
    let most = replayed.waited_most_ms as f64 / 1000.0;
    let updates = count(replayed.updates, "update");
    let mut text = format!(
        "{updates} since the mount, {mean:.1} s in the log on average, {most:.1} s at most"
    );
    if replayed.ahead > 0 {
        text.push_str(&format!("; {} went ahead of something large", replayed.ahead));
    }
    text
}

/// Whether the kernel reads cached files itself.
fn passthrough(status: &PassthroughStatus) -> String {
    match &status.off {
        Some(why) => format!("reads no file by itself: {why}"),
        None => format!("reads large cached files by itself: {} now", count(status.files, "file")),
    }
}

fn name_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Connected => "connected",
        Mode::Partial => "partial",
        Mode::FetchOnly => "fetch-only",
        Mode::Disconnected => "disconnected",
    }
}

pub fn mode(status: &Status) -> String {
    let mode = name_of(status.mode);
    let chosen = match status.mode_wanted.as_str() {
        // A mount of before this was told.
        _ if status.mode_why.is_empty() => String::new(),
        wanted if wanted == "auto" || wanted == mode => format!(" ({})", status.mode_why),
        wanted => format!(" ({}; {wanted} is set)", status.mode_why),
    };
    let read_only = if status.read_only { ", read-only" } else { "" };
    let paused = if status.paused { ", paused" } else { "" };
    format!("{mode}{chosen}{paused}{read_only}")
}

/// The mode, and how it came to be, the newest last.
pub fn mode_with_changes(status: &Status) -> String {
    let mut text = mode(status);
    for change in &status.mode_changes {
        let _ = write!(text, "\n  {}", mode_change(change));
    }
    text
}

fn mode_change(change: &ModeChange) -> String {
    let ModeChange { at_secs, from, to, why } = change;
    let at = units::show_time(model::Time { secs: *at_secs, nanos: 0 });
    format!("{at}  {} after {}: {why}", name_of(*to), name_of(*from))
}

fn link(link: &LinkStatus) -> String {
    if !link.connected {
        let why = link.trouble.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let what = if link.refused { "up, but of no use" } else { "down" };
        return format!("{what}{why}");
    }
    let mut text = String::from("up");
    if let Some(delay) = link.round_trip_ms {
        let _ = write!(text, ", round trip {delay:.0} ms");
    }
    if let Some(least) = link.round_trip_min_ms {
        let _ = write!(text, " (least {least:.0} ms)");
    }
    // What was measured just now needs no word.
    if let Some(age) = link.round_trip_age_secs.filter(|age| *age >= STALE_SECS) {
        let _ = write!(text, " measured {} ago", show_secs(age as u64));
    }
    if let Some(loss) = link.estimate.loss.filter(|loss| *loss >= LOSS_TOLD) {
        let _ = write!(text, ", {:.1} % of packets lost", loss * 100.0);
    }
    for (rate, way) in [(link.rate_up, "up"), (link.rate_down, "down")] {
        if let Some(rate) = rate {
            // What was used lately, which may be far less than what the link could do.
            let _ = write!(text, ", lately {}/s {way}", show_size(rate));
        }
    }
    text
}

fn cache(cache: &CacheStatus) -> String {
    let calls = cache.hits + cache.misses;
    // A share of calls is below 100 by construction.
    let share = (cache.hits * 100).checked_div(calls);
    let answered =
        share.map_or(String::new(), |share| format!("; answered {share} % of {calls} calls"));
    let tables = match cache.tables_bytes {
        0 => String::new(),
        bytes => format!(", tables {}", show_size(bytes)),
    };
    format!(
        "{}, {} of {}{tables}{answered}",
        count(cache.files, "file"),
        show_size(cache.bytes),
        show_size(cache.bytes_max)
    )
}

pub fn pending(pending: &Pending) -> String {
    // What is written to such a file is on its way only when it is closed or synced.
    let written = (pending.open_for_writing > 0).then(|| {
        let verb = if pending.open_for_writing == 1 { "is" } else { "are" };
        format!("{} {verb} open and written to", count(pending.open_for_writing, "file"))
    });
    if pending.updates == 0 {
        return match written {
            Some(written) => format!("{written}; otherwise all is at the server"),
            None => "nothing: all is at the server".into(),
        };
    }
    let mut text =
        format!("{}, {} of contents", count(pending.updates, "update"), show_size(pending.bytes));
    if let Some(oldest) = pending.oldest_secs {
        let _ = write!(text, ", the oldest for {}", show_secs(oldest));
    }
    if let Some(trouble) = &pending.trouble {
        let _ = write!(text, "; not taken so far: {trouble}");
    } else if let Some(why) = &pending.held_back {
        let _ = write!(text, "; held back: {why}");
    }
    if let Some(written) = written {
        let _ = write!(text, "; {written}");
    }
    text
}

fn traffic(classes: &[ClassBytes]) -> String {
    let used = classes.iter().filter(|class| class.sent + class.received > 0);
    let texts: Vec<_> = used
        .map(|class| format!("{} {}", class.class, up_and_down(class.sent, class.received)))
        .collect();
    if texts.is_empty() { String::from("none yet") } else { texts.join("; ") }
}

fn ahead(prefetch: &PrefetchStatus) -> String {
    let (bytes, unused) = (show_size(prefetch.bytes), show_size(prefetch.unused_bytes));
    format!(
        "{} fetched before they were opened, {bytes}; {unused} not read so far",
        count(prefetch.files, "file")
    )
}

fn wanted(wanted: &WantedStatus) -> String {
    let given = match wanted.given {
        0 => "none of them was found here so far".to_owned(),
        given => format!("{} given back from here", count(given, "chunk")),
    };
    if wanted.missing == 0 {
        return format!("nothing is missing at the server any more; {given}");
    }
    let mut text = format!("{} missing at the server", count(wanted.missing, "chunk"));
    if !wanted.files.is_empty() {
        let more = if wanted.more { ", and others" } else { "" };
        let _ = write!(text, " (of {}{more})", wanted.files.join(", "));
    }
    format!("{text}; {given}")
}

fn up_and_down(sent: u64, received: u64) -> String {
    format!("{} sent, {} received", show_size(sent), show_size(received))
}

pub fn explanation(explained: &Explanation) -> String {
    let Explanation { path, kind, version, .. } = explained;
    // The bytes of a directory tell nobody anything.
    let bytes = match kind.as_str() {
        "directory" => String::new(),
        _ => {
            let (size, here) = (show_size(explained.size), show_size(explained.bytes_here));
            format!(" of {size}, {here} here")
        }
    };
    let version = match version {
        Some(version) => format!("version {version}"),
        None => "as it was when the volume was made".to_owned(),
    };
    let path = output::name(path);
    let mut text = format!("{path}: {kind}{bytes}, {version}\n");
    if let Some(version) = &explained.version_at_origin {
        let _ = writeln!(text, "  at the server: version {version}");
    }
    let reach = match explained.reach {
        Reach::Logged => "on this machine alone",
        Reach::Safe => "safe on another machine",
        Reach::Visible => "seen by all who are connected",
        Reach::Home => "at the server",
    };
    let _ = writeln!(text, "  its latest change is {reach}");
    if explained.policy != "strict" {
        let _ = writeln!(text, "  policy: {} (farfs policy)", explained.policy);
    }
    for sentence in &explained.why {
        let _ = writeln!(text, "  {sentence}");
    }
    for update in &explained.pending {
        let _ = writeln!(text, "  waits to be sent: {update}");
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use protocol::Damage;

    pub fn example() -> Status {
        Status {
            volume: "main".into(),
            server: "host:7440".into(),
            mountpoint: "/mnt".into(),
            state_directory: "/state".into(),
            pid: 7,
            mode: Mode::Partial,
            mode_wanted: "auto".into(),
            mode_why: "the link is poor: far away, round trip 60 ms".into(),
            mode_changes: Vec::new(),
            alone: false,
            locks_shared: false,
            paused: false,
            budget: protocol::BudgetStatus::default(),
            replay_delay: protocol::DelayStatus::default(),
            read_only: false,
            replica: Some(3),
            seen: 9,
            link: LinkStatus {
                connected: true,
                round_trip_ms: Some(82.4),
                round_trip_min_ms: Some(60.0),
                rate_up: Some(43_500),
                ..LinkStatus::default()
            },
            cache: CacheStatus {
                files: 1,
                bytes: 2_048,
                bytes_max: 1 << 30,
                tables_bytes: 3 << 20,
                hits: 3,
                misses: 1,
            },
            pending: Pending {
                updates: 2,
                bytes: 512,
                oldest_secs: Some(130),
                open_for_writing: 1,
                trouble: None,
                held_back: None,
            },
            traffic: vec![ClassBytes { class: "replay".into(), sent: 10, received: 2 }],
            wire_bytes_sent: 100,
            wire_bytes_received: 50,
            prefetch: PrefetchStatus::default(),
            passthrough: PassthroughStatus { off: None, files: 1 },
            replayed: Replayed::default(),
            reached: vec![reached::tests::example()],
            cancelled: protocol::CancelledStatus::default(),
            conflicts: 0,
            conflicts_listed: None,
            damage: Vec::new(),
            mended: protocol::MendedStatus::default(),
            state_damage: Vec::new(),
            state_trouble: None,
            log_put_anew: 0,
            tables_put_anew: 0,
            wanted: WantedStatus::default(),
            pins: protocol::PinsStatus::default(),
            misses: 0,
            stale: 2,
        }
    }

    #[test]
    fn a_mode_is_told_with_why_and_with_what_came_before() {
        let why = "there is no link".to_owned();
        let (from, to) = (Mode::Connected, Mode::Disconnected);
        let change = ModeChange { at_secs: 86_461, from, to, why: why.clone() };
        let gone = Status {
            mode: Mode::Disconnected,
            mode_why: why,
            mode_changes: vec![change],
            ..example()
        };
        assert_eq!(
            mode_with_changes(&gone),
            "disconnected (there is no link)\n  \
             1970-01-02 00:01:01 UTC  disconnected after connected: there is no link"
        );
        let told = "  changed   1970-01-02 00:01:01 UTC  disconnected after connected: ";
        assert!(status(&gone).contains(told));
        let partial = Status { mode_wanted: "partial".into(), ..gone };
        assert_eq!(mode(&partial), "disconnected (there is no link; partial is set)");
    }

    #[test]
    fn what_was_replayed_is_told_with_how_long_it_waited() {
        let replayed = Replayed { updates: 4, waited_ms: 6_000, waited_most_ms: 4_200, ahead: 3 };
        let text = status(&Status { replayed, ..example() });
        let line = "replayed  4 updates since the mount, 1.5 s in the log on average, 4.2 s at most; \
             3 went ahead of something large";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_status_reads_like_sentences() {
        let expected = "\
/mnt: main at host:7440
  mode      partial (the link is poor: far away, round trip 60 ms)
  link      up, round trip 82 ms (least 60 ms), lately 42.5 KiB/s up
  locks     hold among the programs of this mount
  cache     1 file, 2.0 KiB of 1.0 GiB, tables 3.0 MiB; answered 75 % of 4 calls
  kernel    reads large cached files by itself: 1 file now
  pending   2 updates, 512 bytes of contents, the oldest for 2 min; 1 file is open and written to
  traffic   replay 10 bytes sent, 2 bytes received
  stale     2 files out of date by policy (farfs policy --stale)
  wire      100 bytes sent, 50 bytes received
  state     /state (process 7)
";
        assert_eq!(status(&example()), expected);
    }

    #[test]
    fn damage_is_shown_with_the_file_and_what_became_of_it() {
        let of = |path: Option<&str>, stored_bytes| Damage {
            unsent: false,
            file: 7,
            path: path.map(Into::into),
            version: "3.9".into(),
            at_secs: 0,
            stored_bytes,
            zeros: 0,
            told: true,
        };
        let damage = vec![of(Some("a/b"), Some(300)), of(None, None)];
        let said = status(&Status { damage, ..example() });
        let expected = "
  damaged   the cache's copy of a/b did not hold what was written (version 3.9); what was there, \
                        300 bytes, was stored and sent in its place
  damaged   the cache's copy of file 7 is gone: what was written (version 3.9) is lost, and the \
                        file is as the server has it
";
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn what_the_server_has_lost_is_said_with_its_files() {
        let said = |missing, given, files: &[&str], more| {
            let files = files.iter().map(|file| (*file).to_owned()).collect();
            wanted(&WantedStatus { missing, given, files, more })
        };
        assert_eq!(
            said(12, 0, &["docs/a", "file 0.9"], true),
            "12 chunks missing at the server (of docs/a, file 0.9, and others); none of them was \
             found here so far"
        );
        assert_eq!(
            said(1, 5, &[], false),
            "1 chunk missing at the server; 5 chunks given back from here"
        );
        assert_eq!(
            said(0, 1, &[], false),
            "nothing is missing at the server any more; 1 chunk given back from here"
        );
        assert!(!status(&example()).contains("wanted"));
    }

    #[test]
    fn what_nobody_stored_has_no_version() {
        let explained = |version: Option<&str>| {
            explanation(&Explanation {
                path: "/mnt".into(),
                file: 1,
                kind: "directory".into(),
                size: 4096,
                version: version.map(Into::into),
                version_at_origin: None,
                bytes_here: 0,
                reach: Reach::Home,
                pending: Vec::new(),
                policy: "strict".into(),
                stale: false,
                why: Vec::new(),
            })
        };
        let said = explained(None);
        assert!(
            said.starts_with("/mnt: directory, as it was when the volume was made\n"),
            "{said}"
        );
        assert!(explained(Some("r3.7")).starts_with("/mnt: directory, version r3.7\n"));
    }

    #[test]
    fn a_file_that_is_written_to_is_not_called_nothing() {
        let said = |open_for_writing| pending(&Pending { open_for_writing, ..Pending::default() });
        assert_eq!(said(0), "nothing: all is at the server");
        assert_eq!(said(1), "1 file is open and written to; otherwise all is at the server");
        assert_eq!(said(2), "2 files are open and written to; otherwise all is at the server");
    }

    #[test]
    fn what_the_server_did_not_take_is_said_with_the_reason() {
        let trouble = Some("no space left at the origin".into());
        let said = pending(&Pending { updates: 1, trouble, ..Pending::default() });
        let expected =
            "1 update, 0 bytes of contents; not taken so far: no space left at the origin";
        assert_eq!(said, expected);
    }

    #[test]
    fn an_old_round_trip_is_said_to_be_old() {
        let measured = |ago| {
            let (trip, age) = (Some(60.0), Some(ago));
            link(&LinkStatus {
                connected: true,
                round_trip_ms: trip,
                round_trip_age_secs: age,
                ..LinkStatus::default()
            })
        };
        assert_eq!(measured(1.5), "up, round trip 60 ms");
        assert_eq!(measured(240.0), "up, round trip 60 ms measured 4 min ago");
    }

    #[test]
    fn a_link_that_is_down_says_why() {
        let trouble = Some("no route".into());
        assert_eq!(link(&LinkStatus { trouble, ..LinkStatus::default() }), "down: no route");
        assert_eq!(cache(&CacheStatus::default()), "0 files, 0 bytes of 0 bytes");
    }
}
