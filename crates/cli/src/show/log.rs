//! What is pending, in words for people.

use crate::units::{count, show_secs, show_size};
use client::{PendingFile, PendingLog};
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
        text.push_str(&line(file));
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
    let left = log.bytes.saturating_sub(log.sent);
    let secs = log.rate_up.filter(|rate| *rate > 0).map(|rate| left / rate);
    if let Some(secs) = secs.filter(|secs| *secs > 0 && log.held_back.is_none()) {
        // Most contents travel as less than they are.
        let _ = write!(text, ", at most about {} of the link", show_secs(secs));
    }
    text
}

fn line(file: &PendingFile) -> String {
    let size = if file.bytes > 0 { show_size(file.bytes) } else { String::new() };
    let path = match &file.path {
        Some(path) if path.is_empty() => "(the root)".into(),
        Some(path) => path.clone(),
        None => format!("(file {}, which has no name)", file.file),
    };
    let newest = file.newest.split_once(' ').map_or(file.newest.as_str(), |(_, what)| what);
    let more = match file.updates {
        1 => String::new(),
        updates => format!(", {updates} updates"),
    };
    let way = match (file.on_its_way, file.sent) {
        (false, _) => String::new(),
        (true, 0) => ", on its way".into(),
        (true, sent) => format!(", on its way ({} of it sent)", show_size(sent)),
    };
    let age = show_secs(file.oldest_secs);
    format!("  {size:>10}  {age:>6}  {path}: {newest}{more}{way}\n")
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
            held_back: None,
            rate_up: Some(1024),
        };
        let text = log(&pending);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "6 updates, 2.0 KiB of contents, at most about 2 s of the link");
        assert!(
            lines[1].ends_with(
                "notes/report.txt: contents of 2048 bytes stored, 2 updates, on its way"
            )
        );
        assert!(lines[2].contains("(file 7, which has no name)"), "{text}");
        assert!(lines[3].contains("and 3 files"), "{text}");
        pending.sent = 1024;
        pending.files[0].sent = 1024;
        let text = log(&pending);
        let lines: Vec<_> = text.lines().collect();
        let left =
            "6 updates, 2.0 KiB of contents (1.0 KiB of it sent), at most about 1 s of the link";
        assert_eq!(lines[0], left);
        assert!(lines[1].ends_with("on its way (1.0 KiB of it sent)"), "{text}");
        (pending.sent, pending.held_back) = (0, Some(HeldBack::Paused));
        let text = log(&pending);
        assert!(text.starts_with("6 updates, 2.0 KiB of contents; nothing leaves:"), "{text}");
        assert!(text.contains("farfs resume"), "{text}");
    }
}
