//! What is pending, in words for people.

use crate::output::name;
use crate::units::{count, show_secs, show_size};
use client::{PendingFile, PendingLog, WaitsFor};
use std::fmt::Write;

/// All of it, a line for each file.
pub fn log(log: &PendingLog) -> String {
    if log.updates == 0 {
        return "nothing is pending: all is at the server\n".into();
    }
    let mut text = left(log);
    if let Some(why) = &log.held_back {
        let _ = write!(text, "; nothing leaves: {why}");
    }
    text.push('\n');
    for file in &log.files {
        text.push_str(&line(file, log));
    }
    if log.files_more > 0 {
        let _ = writeln!(text, "... and {} (--most shows more)", count(log.files_more, "file"));
    }
    text
}

/// How much is left, and how long that may take.
pub fn left(log: &PendingLog) -> String {
    let mut text =
        format!("{}, {} of contents", count(log.updates, "update"), show_size(log.bytes));
    if log.sent > 0 {
        let _ = write!(text, " ({} of it sent)", show_size(log.sent));
    }
    let before = log.upto.saturating_sub(log.bytes.saturating_sub(log.sent));
    if before > 0 {
        let _ = write!(text, ", {} go before it", show_size(before));
    }
    let Some(rate) = log.rate_up.filter(|rate| *rate > 0 && log.held_back.is_none()) else {
        return text;
    };
    if log.upto >= rate {
        // Most contents travel as less than they are; and something small may pass.
        let _ = write!(text, ", about {} at {}/s", show_secs(log.upto / rate), show_size(rate));
    }
    text
}

fn line(file: &PendingFile, log: &PendingLog) -> String {
    let size = if file.bytes > 0 { show_size(file.bytes) } else { String::new() };
    let path = match &file.path {
        Some(path) if path.is_empty() => "(the root)".into(),
        Some(path) => name(path).into_owned(),
        None => format!("(file {}, which has no name)", file.file),
    };
    let newest = file.newest.split_once(' ').map_or(file.newest.as_str(), |(_, what)| what);
    let newest = name(newest);
    let more = match file.updates {
        1 => String::new(),
        updates => format!(", {updates} updates"),
    };
    let way = match (file.on_its_way, file.sent) {
        (false, _) => String::new(),
        (true, 0) => ", on its way".into(),
        (true, sent) => format!(", on its way ({} of it sent)", show_size(sent)),
    };
    let waits = match &file.waits_for {
        WaitsFor::Turn if log.held_back.is_none() => ", next".into(),
        // It is said once of all.
        WaitsFor::HeldBack(why) if log.held_back.as_ref() != Some(why) => format!(", stays: {why}"),
        WaitsFor::Behind { path: Some(path), .. } => format!(", behind {}", name(path)),
        WaitsFor::Behind { file, path: None } => format!(", behind file {file}"),
        WaitsFor::Turn | WaitsFor::Answer | WaitsFor::HeldBack(_) => String::new(),
    };
    let age = show_secs(file.oldest_secs);
    format!("  {size:>10}  {age:>6}  {path}: {newest}{more}{way}{waits}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::HeldBack;

    fn file() -> PendingFile {
        PendingFile {
            file: 7,
            path: Some("notes/report.txt".into()),
            updates: 2,
            bytes: 2048,
            sent: 0,
            oldest_secs: 5,
            newest: "r3.9 contents of 2048 bytes stored".into(),
            on_its_way: true,
            waits_for: WaitsFor::Answer,
            upto: 2048,
        }
    }

    #[test]
    fn each_file_has_a_line_and_what_holds_all_back_is_said_once() {
        let mut pending = PendingLog {
            files: vec![file(), PendingFile { path: None, updates: 1, bytes: 0, ..file() }],
            files_more: 3,
            updates: 6,
            bytes: 2048,
            sent: 0,
            upto: 2048,
            held_back: None,
            rate_up: Some(1024),
        };
        let text = log(&pending);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "6 updates, 2.0 KiB of contents, about 2 s at 1.0 KiB/s");
        assert!(
            lines[1].ends_with(
                "notes/report.txt: contents of 2048 bytes stored, 2 updates, on its way"
            )
        );
        assert!(lines[2].contains("(file 7, which has no name)"), "{text}");
        assert!(lines[3].contains("and 3 files"), "{text}");
        (pending.sent, pending.upto) = (1024, 1024);
        pending.files[0].sent = 1024;
        let text = log(&pending);
        let lines: Vec<_> = text.lines().collect();
        let left = "6 updates, 2.0 KiB of contents (1.0 KiB of it sent), about 1 s at 1.0 KiB/s";
        assert_eq!(lines[0], left);
        assert!(lines[1].ends_with("on its way (1.0 KiB of it sent)"), "{text}");
        pending.upto = 4096;
        pending.files[1] = PendingFile {
            on_its_way: false,
            waits_for: WaitsFor::Behind { file: 7, path: Some("notes/report.txt".into()) },
            ..file()
        };
        let text = log(&pending);
        assert!(
            text.contains("of it sent), 3.0 KiB go before it, about 4 s at 1.0 KiB/s"),
            "{text}"
        );
        assert!(text.contains("2 updates, behind notes/report.txt\n"), "{text}");
        pending.files[1].waits_for = WaitsFor::HeldBack(HeldBack::Delay);
        let text = log(&pending);
        assert!(text.contains("stays: it is younger than --replay-delay\n"), "{text}");
        (pending.sent, pending.upto, pending.held_back) = (0, 2048, Some(HeldBack::Paused));
        let text = log(&pending);
        assert!(text.starts_with("6 updates, 2.0 KiB of contents; nothing leaves:"), "{text}");
        assert!(text.contains("farfs resume"), "{text}");
    }
}
