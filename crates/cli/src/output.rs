//! What people and programs are told. A reader that has had enough (`farfs status | head`) is no error.
//! Holds: nothing ends, or is left undone, because a remark cannot be written; nothing that a file is called, or holds, reaches a terminal as an order to it.

use anyhow::{Context, Result};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// For people. What a terminal would obey is shown as Rust writes it, but for ends of lines and tabs.
pub fn text(text: &str) -> Result<()> {
    as_it_is(&in_lines(text))
}

fn as_it_is(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

pub fn line(line: &str) -> Result<()> {
    text(&format!("{line}\n"))
}

/// A remark on standard error, which may be full, closed, or read by nobody.
pub fn tell(remark: impl Display) {
    let line = format!("farfs: {}\n", in_lines(&remark.to_string()));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// For programs.
pub fn json(value: &impl Serialize) -> Result<()> {
    as_it_is(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// A name or a path for people: on one line, whatever is in it.
pub fn name(name: &str) -> Cow<'_, str> {
    without(name, |c| c.is_control() || turns(c) || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// As `name`, of a text that has lines.
pub fn in_lines(text: &str) -> Cow<'_, str> {
    without(text, |c| c.is_control() && !matches!(c, '\n' | '\t') || turns(c))
}

/// What changes the direction of what is beside it, so that a name is read as another one.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn without(text: &str, is_order: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_order) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match is_order(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_on_one_line_and_orders_a_terminal_nothing() {
        assert_eq!(name("ärger 'x' 日本"), "ärger 'x' 日本");
        assert_eq!(
            name("e\u{1b}[31mred\nfake: made\t\u{9b}"),
            r"e\u{1b}[31mred\nfake: made\t\u{9b}"
        );
        assert_eq!(name("a\u{202e}fdp.exe"), r"a\u{202e}fdp.exe");
        for c in "\u{200e}\u{200f}\u{202a}\u{2066}\u{2069}\u{2028}\u{2029}".chars() {
            assert_eq!(name(&c.to_string()), c.escape_unicode().to_string());
        }
        assert_eq!(name("שלום"), "שלום");
        assert_eq!(in_lines("a\tb\nc"), "a\tb\nc");
        assert_eq!(in_lines("a\u{2067}\n"), "a\\u{2067}\n");
        assert_eq!(in_lines("a\r\u{7}\n"), "a\\r\\u{7}\n");
    }
}
