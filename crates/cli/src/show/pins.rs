//! What is pinned, in words.

use crate::output::name;
use crate::units::{count, show_secs, show_size};
use client::{PinShown, PinsReport};
use protocol::PinsStatus;
use std::fmt::Write;

pub fn pins(report: &PinsReport) -> String {
    if report.pins.is_empty() {
        return "Nothing is pinned.\n".into();
    }
    let mut text = String::new();
    for pin in &report.pins {
        let _ = writeln!(text, "{}", line(pin));
    }
    for file in &report.lacking {
        let (lacking, size) = (show_size(file.lacking_bytes), show_size(file.size));
        let _ = writeln!(text, "  missing   {}: {lacking} of {size}", name(&file.path));
    }
    let shown = report.lacking.len() as u64;
    if shown > 0 && report.lacking_more > 0 {
        let _ = writeln!(text, "  missing   {} more", count(report.lacking_more, "file"));
    }
    if report.lacking_bytes > 0 {
        let lacking = show_size(report.lacking_bytes);
        let _ = match report.lasts_secs {
            Some(secs) => writeln!(
                text,
                "{lacking} to fetch: about {} at the rate of the link",
                show_secs(secs)
            ),
            None => writeln!(text, "{lacking} to fetch; nothing is known of the link's rate"),
        };
    }
    if let Some(warning) = pins_too_large(report) {
        let _ = writeln!(text, "{warning}");
    }
    text
}

/// What a status says.
pub fn in_short(pins: &PinsStatus) -> String {
    let full = if pins.full { ", and the cache has no room for all of it" } else { "" };
    format!("{}{full} (farfs pins)", count(pins.pins, "pin"))
}

fn line(pin: &PinShown) -> String {
    let path = match pin.path.as_deref() {
        Some("") => "the whole volume".into(),
        Some(path) => name(path).into_owned(),
        None => format!("file {}, which has no name that is known here", pin.file),
    };
    let mut line = format!("{path}{}: ", if pin.recursive { ", and all below" } else { "" });
    if pin.removed {
        line.push_str("removed; pinned again when there is one of the same name (farfs unpin)");
        return line;
    }
    let _ = write!(line, "{}, {}", count(pin.files, "file"), show_size(pin.bytes));
    let _ = match pin.lacking_files {
        0 if pin.unknown == 0 => write!(line, ", all here"),
        0 => Ok(()),
        files => {
            write!(line, ", not here {} of {}", show_size(pin.lacking_bytes), count(files, "file"))
        }
    };
    if pin.unknown > 0 {
        let _ = write!(line, ", and what is in {} is not known here yet", of(pin.unknown));
    }
    if pin.priority > 0 {
        let _ = write!(line, " (priority {})", pin.priority);
    }
    line
}

fn of(directories: u64) -> String {
    match directories {
        1 => "one directory".into(),
        many => format!("{many} directories"),
    }
}

/// Where what is pinned does not fit into the cache.
pub fn pins_too_large(report: &PinsReport) -> Option<String> {
    let has = show_size(report.cache_bytes_max);
    if report.bytes > report.cache_bytes_max {
        let wants = show_size(report.bytes);
        return Some(format!(
            "what is pinned does not fit: {wants}, and the cache may have {has}; mount with a larger \
             --cache-size, or unpin something"
        ));
    }
    report.full.then(|| {
        format!(
            "the cache of {has} has no room for what is missing: what is pinned, open or not sent \
             yet takes it up"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Lacking;

    fn pin() -> PinShown {
        PinShown {
            path: Some("docs".into()),
            recursive: true,
            files: 3,
            bytes: 2048,
            ..PinShown::default()
        }
    }

    #[test]
    fn what_is_pinned_reads_like_sentences() {
        let report = PinsReport { pins: vec![pin()], bytes: 2048, ..PinsReport::default() };
        let report = PinsReport { cache_bytes_max: 1 << 20, ..report };
        assert_eq!(pins(&report), "docs, and all below: 3 files, 2.0 KiB, all here\n");
        assert_eq!(pins(&PinsReport::default()), "Nothing is pinned.\n");
        let lacking = Lacking { file: 9, path: "docs/a".into(), size: 1024, lacking_bytes: 512 };
        let lacks = PinShown { lacking_files: 2, lacking_bytes: 600, priority: 4, ..pin() };
        let report = PinsReport {
            pins: vec![lacks],
            lacking: vec![lacking],
            lacking_more: 1,
            lacking_bytes: 600,
            lasts_secs: Some(60),
            ..report
        };
        let expected = "\
docs, and all below: 3 files, 2.0 KiB, not here 600 bytes of 2 files (priority 4)
  missing   docs/a: 512 bytes of 1.0 KiB
  missing   1 file more
600 bytes to fetch: about 60 s at the rate of the link
";
        assert_eq!(pins(&report), expected);
    }

    #[test]
    fn pins_that_do_not_fit_are_said_to() {
        let report = PinsReport { bytes: 2048, cache_bytes_max: 1024, ..PinsReport::default() };
        let said = pins_too_large(&report).unwrap();
        assert!(said.contains("2.0 KiB") && said.contains("--cache-size"), "{said}");
        let fits = PinsReport { bytes: 1024, ..report };
        assert_eq!(pins_too_large(&fits), None);
        assert!(pins_too_large(&PinsReport { full: true, ..fits }).is_some());
    }
}
