//! What was missed, in words.

use crate::output::name;
use crate::units::{count, show_secs, show_size};
use client::MissShown;
use std::fmt::Write;

pub fn misses(misses: &[MissShown]) -> String {
    if misses.is_empty() {
        return "Nothing was missed.\n".into();
    }
    let mut text = String::new();
    for miss in misses {
        let file = format!("file {}", miss.file);
        let _ = write!(text, "{}: ", name(miss.path.as_deref().unwrap_or(&file)));
        let _ = match miss.lacking_bytes {
            0 => write!(text, "here by now"),
            lacking => write!(text, "not here {} of {}", show_size(lacking), show_size(miss.size)),
        };
        if let Some(secs) = miss.lasts_secs.filter(|_| miss.lacking_bytes > 0) {
            let _ = write!(text, ", about {} to fetch", show_secs(secs));
        }
        let (times, ago) = (count(miss.times, "time"), show_secs(miss.age_secs));
        let _ = write!(text, "; wanted {times}, {ago} ago");
        if let Some(program) = &miss.program {
            let _ = write!(text, ", by {program}");
        }
        let _ = match (miss.coming, miss.asks_secs) {
            (true, _) => write!(text, "; it is on its way"),
            (false, Some(secs)) => {
                write!(text, "; would have taken {}: farfs misses --fetch", show_secs(secs))
            }
            (false, None) => Ok(()),
        };
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_is_told_a_line_each() {
        let miss = MissShown {
            file: 7,
            path: Some("docs/a".into()),
            size: 2048,
            lacking_bytes: 1024,
            lasts_secs: Some(3),
            age_secs: 60,
            times: 2,
            program: None,
            asks_secs: None,
            coming: false,
        };
        let asks = MissShown { program: Some("less".into()), asks_secs: Some(40), ..miss.clone() };
        let coming = MissShown { coming: true, ..asks.clone() };
        let here = MissShown { path: None, lacking_bytes: 0, times: 1, ..miss.clone() };
        let expected = "\
docs/a: not here 1.0 KiB of 2.0 KiB, about 3 s to fetch; wanted 2 times, 60 s ago
file 7: here by now; wanted 1 time, 60 s ago
docs/a: not here 1.0 KiB of 2.0 KiB, about 3 s to fetch; wanted 2 times, 60 s ago, by less; would \
                        have taken 40 s: farfs misses --fetch
docs/a: not here 1.0 KiB of 2.0 KiB, about 3 s to fetch; wanted 2 times, 60 s ago, by less; it is \
                        on its way
";
        assert_eq!(misses(&[miss, here, asks, coming]), expected);
        assert_eq!(misses(&[]), "Nothing was missed.\n");
    }
}
