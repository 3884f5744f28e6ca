//! Sizes and times as people write and read them.

use serde::Deserialize;
use std::str::FromStr;
use std::time::Duration;

/// Bytes, as an option or a configuration file says them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub u64);

/// A time, as an option or a configuration file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Patience(pub Duration);

impl FromStr for Size {
    type Err = BadUnit;
    fn from_str(text: &str) -> Result<Size, BadUnit> {
        size(text).map(Size)
    }
}

impl FromStr for Patience {
    type Err = BadUnit;
    fn from_str(text: &str) -> Result<Patience, BadUnit> {
        duration(text).map(Patience)
    }
}

impl TryFrom<String> for Size {
    type Error = BadUnit;
    fn try_from(text: String) -> Result<Size, BadUnit> {
        text.parse()
    }
}

impl TryFrom<String> for Patience {
    type Error = BadUnit;
    fn try_from(text: String) -> Result<Patience, BadUnit> {
        text.parse()
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not {what}")]
pub struct BadUnit {
    text: String,
    what: &'static str,
}

const A_SIZE: &str = "a size such as 500M, 10G or 2T (powers of 1024)";
const A_TIME: &str = "a time such as 500ms, 30s, 5m, 1h or 7d";
const STEP: u64 = 1024;

/// Bytes: a number and K, M, G or T, each a power of 1024.
pub fn size(text: &str) -> Result<u64, BadUnit> {
    let bad = || BadUnit { text: text.into(), what: A_SIZE };
    let (number, unit) = split(text.trim()).ok_or_else(bad)?;
    let unit = unit.to_ascii_uppercase();
    let unit = unit.trim_end_matches("IB").trim_end_matches('B');
    let power = ["", "K", "M", "G", "T"].iter().position(|u| *u == unit).ok_or_else(bad)?;
    let factor = STEP.pow(u32::try_from(power).map_err(|_| bad())?);
    number.checked_mul(factor).ok_or_else(bad)
}

/// A number and ms, s, m, h or d; without a unit, seconds.
pub fn duration(text: &str) -> Result<Duration, BadUnit> {
    let bad = || BadUnit { text: text.into(), what: A_TIME };
    let (number, unit) = split(text.trim()).ok_or_else(bad)?;
    let ms_each = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(bad()),
    };
    number.checked_mul(ms_each).map(Duration::from_millis).ok_or_else(bad)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

pub fn show_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < STEP as f64 {
            break;
        }
        value /= STEP as f64;
        unit = next;
    }
    if unit == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {unit}") }
}

pub fn show_secs(secs: u64) -> String {
    match secs {
        0..=119 => format!("{secs} s"),
        120..=7_199 => format!("{} min", secs / 60),
        7_200..=172_799 => format!("{} h", secs / 3_600),
        _ => format!("{} days", secs / 86_400),
    }
}

/// In UTC, to the second.
pub fn show_time(time: model::Time) -> String {
    let secs = time.secs.rem_euclid(86_400);
    let (year, month, day) = time.date();
    let (hour, minute) = (secs / 3_600, secs / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", secs % 60)
}

/// Year, month and day of a number of days after 1 January 1970.
fn date(days: i64) -> Option<(i64, i64, i64)> {
    let time = model::Time { secs: days.checked_mul(86_400)?, nanos: 0 };
    let (year, month, day) = time.date();
    Some((year, month.into(), day.into()))
}

/// A time in UTC: `2026-11-20`, and after a `T` or a blank hours, minutes, and seconds if wanted.
/// A day alone is its beginning.
pub fn time(text: &str) -> Option<model::Time> {
    let text = text.trim_end_matches('Z');
    let (day, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, by: char| -> Option<Vec<i64>> {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        text.split(by).map(|part| digits(part).then(|| part.parse().ok())?).collect()
    };
    let [year, month, day] = numbers(day, '-')?[..] else { return None };
    let (hour, minute, second) = match numbers(clock, ':')?[..] {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let is_day = (1970..=9999).contains(&year) && (1..=12).contains(&month);
    if !is_day || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // The day that has these numbers, found among those about where it must be.
    let about = (year - 1970) * 365 + (month - 1) * 28 + day - 1;
    let days = (about..about + 2100).find(|days| date(*days) == Some((year, month, day)))?;
    let secs = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(model::Time { secs, nanos: 0 })
}

/// One thing, or many: "1 update", "2 updates".
pub fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(size("10G"), Ok(10 << 30));
        assert_eq!(size("512 KiB"), Ok(512 << 10));
        assert_eq!(size("7mb"), Ok(7 << 20));
        assert_eq!(size("42"), Ok(42));
        for bad in ["", "G", "-1G", "1.5G", "10X", "99999999999999T"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        for bad in ["", "s", "1 day", "99999999999999999999"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        let shown = |secs| show_time(model::Time { secs, nanos: 0 });
        assert_eq!(shown(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(shown(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(shown(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(shown(-1), "1969-12-31 23:59:59 UTC");
    }

    #[test]
    fn times_are_read_as_they_are_shown() {
        let secs = |text: &str| time(text).map(|time| time.secs);
        assert_eq!(secs("1970-01-01"), Some(0));
        assert_eq!(secs("2000-02-29"), Some(951_782_400));
        assert_eq!(secs("2100-02-28T23:59:59Z"), Some(4_107_542_399));
        assert_eq!(secs("2026-11-20 10:00"), Some(1_795_168_800));
        for each in (0..40_000).step_by(37) {
            let shown = show_time(model::Time { secs: each * 86_400 + 61, nanos: 0 });
            assert_eq!(secs(shown.trim_end_matches(" UTC")), Some(each * 86_400 + 61), "{shown}");
        }
        for bad in
            ["", "weekly", "2026-13-01", "2026-02-30", "2026-11-20T24:00", "1-2-3T", "-1-1-1"]
        {
            assert_eq!(secs(bad), None, "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_with_one_decimal() {
        assert_eq!(show_size(0), "0 bytes");
        assert_eq!(show_size(1_536), "1.5 KiB");
        assert_eq!(show_size(3 << 30), "3.0 GiB");
        assert_eq!(count(1, "update"), "1 update");
        assert_eq!(count(0, "update"), "0 updates");
    }
}
