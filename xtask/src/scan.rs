//! Just enough of Rust's grammar for the rules: where code ends and comments and literals begin,
//! which lines are tests, and how long each function is.
//! Holds: the masked code has as many lines as the text, and every character keeps its place.

/// A source file, taken apart once for all rules.
#[derive(Debug)]
pub struct Source {
    /// The text with comments and the insides of literals turned into spaces.
    pub code: String,
    /// For each line, whether it belongs to a test.
    pub test: Vec<bool>,
}

/// One function: its name, the line on which it starts (from 1) and how many lines it has.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

impl Source {
    pub fn of(path: &str, text: &str) -> Source {
        let code = mask(text);
        let lines = code.lines().count();
        let test = if is_test_file(path) || code.contains("#![cfg(test)]") {
            vec![true; lines]
        } else {
            test_lines(&code, lines)
        };
        Source { code, test }
    }

    /// Lines of code with their numbers from 1, tests left out.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .lines()
            .enumerate()
            .filter(|(index, _)| !self.test[*index])
            .map(|(index, line)| (index + 1, line))
    }

    /// Functions outside tests.
    pub fn functions(&self) -> Vec<Function> {
        let bytes = self.code.as_bytes();
        let mut found = Vec::new();
        for at in words(&self.code, "fn") {
            let Some(name) = name_after(&self.code, at + 2) else { continue };
            let Some(open) = body_after(bytes, at) else { continue };
            let close = closing(bytes, open);
            let line = line_of(bytes, at);
            if !self.test[line - 1] {
                found.push(Function { name, line, lines: line_of(bytes, close) - line + 1 });
            }
        }
        found
    }
}

/// Whether a file holds nothing but tests.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn test_lines(code: &str, lines: usize) -> Vec<bool> {
    let mut test = vec![false; lines];
    let bytes = code.as_bytes();
    for mark in ["#[cfg(test)]", "#[cfg(all(test", "#[test]", "#[tokio::test"] {
        for (at, _) in code.match_indices(mark) {
            let from = line_of(bytes, at);
            let end = match body_after(bytes, at + mark.len()) {
                Some(open) => line_of(bytes, closing(bytes, open)),
                None => from,
            };
            for flag in &mut test[from - 1..end] {
                *flag = true;
            }
        }
    }
    test
}

/// The brace that opens the body of the item at `from`; none if the item ends in a semicolon.
fn body_after(bytes: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in bytes.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth <= 0 => return Some(at),
            b';' if depth <= 0 => return None,
            _ => {}
        }
    }
    None
}

/// The brace that closes the one at `open`, or the end of the text.
fn closing(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0_i32;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len().saturating_sub(1)
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where `word` stands in `code` as a whole word.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = at.checked_sub(1).is_none_or(|before| !is_word(bytes[before]));
        let after = bytes.get(at + word.len()).is_none_or(|after| !is_word(*after));
        before && after
    })
}

fn name_after(code: &str, at: usize) -> Option<String> {
    let rest = code[at..].trim_start();
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// What the reader of a source file is inside of.
enum Inside {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hashes: usize },
}

/// Turns comments and the insides of literals into spaces; line breaks stay.
pub fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut inside = Inside::Code;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        // How many bytes this step takes, and whether they stay as they are.
        let (step, keep) = match &mut inside {
            Inside::Code => {
                let (step, keep, next) = step_in_code(bytes, at);
                inside = next;
                (step, keep)
            }
            Inside::LineComment => {
                if rest[0] == b'\n' {
                    inside = Inside::Code;
                }
                (1, false)
            }
            Inside::BlockComment { depth } => {
                if rest.starts_with(b"/*") {
                    *depth += 1;
                    (2, false)
                } else if rest.starts_with(b"*/") {
                    *depth -= 1;
                    if *depth == 0 {
                        inside = Inside::Code;
                    }
                    (2, false)
                } else {
                    (1, false)
                }
            }
            Inside::Text => match rest[0] {
                b'\\' => (2, false),
                b'"' => {
                    inside = Inside::Code;
                    (1, true)
                }
                _ => (1, false),
            },
            Inside::RawText { hashes } => {
                let end = 1 + *hashes;
                let closes = rest[0] == b'"'
                    && rest.len() >= end
                    && rest[1..end].iter().all(|byte| *byte == b'#');
                if closes {
                    inside = Inside::Code;
                    (end, true)
                } else {
                    (1, false)
                }
            }
        };
        for byte in &bytes[at..bytes.len().min(at + step)] {
            out.push(if keep || *byte == b'\n' { *byte } else { b' ' });
        }
        at += step;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// One step through code: how many bytes, whether they stay, and what comes next.
fn step_in_code(bytes: &[u8], at: usize) -> (usize, bool, Inside) {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return (2, false, Inside::LineComment);
    }
    if rest.starts_with(b"/*") {
        return (2, false, Inside::BlockComment { depth: 1 });
    }
    if rest[0] == b'"' {
        return (1, true, Inside::Text);
    }
    let starts_word = at == 0 || !is_word(bytes[at - 1]);
    if starts_word && let Some((length, hashes)) = raw_text(rest) {
        return (length, true, Inside::RawText { hashes });
    }
    if rest[0] == b'\''
        && let Some(length) = character(rest)
    {
        return (length, false, Inside::Code);
    }
    (1, true, Inside::Code)
}

/// The length of the opening of a raw string (`r"`, `br##"`, `cr#"`) and its number of hashes.
fn raw_text(rest: &[u8]) -> Option<(usize, usize)> {
    let prefix = match rest {
        [b'r', ..] => 1,
        [b'b' | b'c', b'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    (rest.get(prefix + hashes) == Some(&b'"')).then_some((prefix + hashes + 1, hashes))
}

/// The length of a character literal; none if the quote begins a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        // The escaped character itself may be a quote.
        let close = rest.iter().skip(3).take(10).position(|byte| *byte == b'\'')?;
        return Some(close + 4);
    }
    // One character of up to four bytes, then the closing quote.
    let text = std::str::from_utf8(&rest[1..rest.len().min(5)])
        .or_else(|error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]))
        .ok()?;
    let first = text.chars().next()?;
    let close = 1 + first.len_utf8();
    (rest.get(close) == Some(&b'\'')).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_masked_and_keep_their_place() {
        let text =
            "let a = \"x // y\"; // end\nlet b = r#\"q\"q\"#;\nlet c = '\"'; let d = '\\'';\n";
        let code = mask(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(!code.contains("//") && !code.contains('x') && !code.contains("end"));
        assert!(code.contains("let b = r#\"   \"#;"));
        assert!(code.contains("let c =    ; let d ="));
    }

    #[test]
    fn a_lifetime_is_no_character_and_a_nested_comment_ends_where_it_ends() {
        assert_eq!(mask("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(mask("/* a /* b */ c */ d"), "                  d");
        assert_eq!(mask("let e = 'é'; ok"), "let e =     ; ok");
    }

    #[test]
    fn a_string_that_never_ends_does_not_end_the_reader() {
        assert_eq!(mask("let a = \"abc\\"), "let a = \"    ");
        assert_eq!(mask("'"), "'");
        assert_eq!(mask("r#\"abc"), "r#\"   ");
    }

    #[test]
    fn functions_are_measured_and_those_of_tests_left_out() {
        let text = "fn short() {}\n\nimpl X {\n    fn long<const N: usize>(a: [u8; 4])\n    where\n        \
                    A: B,\n    {\n        inner();\n    }\n}\n\ntrait T {\n    fn none();\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn helper() {\n    }\n}\n";
        let source = Source::of("crates/x/src/y.rs", text);
        let found = source.functions();
        assert_eq!(
            found,
            [
                Function { name: "short".into(), line: 1, lines: 1 },
                Function { name: "long".into(), line: 4, lines: 6 },
            ]
        );
    }

    #[test]
    fn a_test_module_in_its_own_file_marks_one_line_alone() {
        let source = Source::of("crates/x/src/lib.rs", "#[cfg(test)]\nmod tests;\nfn f() {}\n");
        assert_eq!(source.test, [true, false, false]);
        let source = Source::of("crates/x/src/y/tests.rs", "fn f() {}\n");
        assert_eq!(source.test, [true]);
    }

    #[test]
    fn words_are_found_whole() {
        assert_eq!(words("fn fnord fn", "fn").collect::<Vec<_>>(), [0, 9]);
    }
}
