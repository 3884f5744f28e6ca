//! The members of a stream's plain bytes: the files of a tar, or all of it.
//! Holds: a head that makes no sense ends the tar; what is behind it is nobody's member.

use super::places::{Method, Spot};
use super::{Describing, Member};
use crate::fingerprint::Secret;
use protocol::Cutter;

const RECORD: usize = 512;

/// The plain bytes of a stream as they come.
pub(super) struct Members<'s> {
    secret: &'s Secret,
    cutter: Cutter,
    at: u64,
    state: State,
    found: Vec<Member>,
    names: usize,
}

/// ```text
///   First --(a tar)--> Head <-> Body
///     |                  |
///     +--(none)--> Whole +--(nonsense)--> Over
/// ```
enum State {
    /// What it is shows in the first record.
    First(Vec<u8>),
    Head(Vec<u8>),
    /// Bytes that are left of an entry, and of what fills its last record.
    Body {
        left: u64,
        filling: u64,
        member: Option<Describing>,
    },
    Whole(Describing),
    Over,
}

impl<'s> Members<'s> {
    pub(super) fn new(secret: &'s Secret, cutter: Cutter, spot: &Spot) -> Members<'s> {
        let state = match spot.method {
            Method::Gzip => State::First(Vec::new()),
            Method::Stored => State::Whole(Describing::new(secret, cutter, 0, spot.packed)),
            Method::Deflated => State::Whole(Describing::new(secret, cutter, 0, spot.plain)),
        };
        Members { secret, cutter, at: 0, state, found: Vec::new(), names: 0 }
    }

    /// Names so far, about.
    pub(super) fn names(&self) -> usize {
        let open = match &self.state {
            State::Body { member: Some(open), .. } | State::Whole(open) => open.names,
            _ => 0,
        };
        self.names + open
    }

    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.take(bytes);
            self.at += taken as u64;
            bytes = &bytes[taken..];
        }
    }

    /// Takes some bytes off the front, one at least.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let state = std::mem::replace(&mut self.state, State::Over);
        match state {
            State::First(mut head) => {
                let taken = fill(&mut head, bytes);
                self.state = match head.len() {
                    RECORD if is_tar(&head) => self.entry(&head, taken),
                    RECORD => self.whole(&head),
                    _ => State::First(head),
                };
                taken
            }
            State::Head(mut head) => {
                let taken = fill(&mut head, bytes);
                self.state = match head.len() {
                    RECORD => self.entry(&head, taken),
                    _ => State::Head(head),
                };
                taken
            }
            State::Body { left, filling, mut member } => {
                let taken = bytes.len().min(usize::try_from(left + filling).unwrap_or(usize::MAX));
                let body = taken.min(usize::try_from(left).unwrap_or(usize::MAX));
                if let Some(member) = &mut member {
                    member.push(&bytes[..body]);
                }
                let left = left - body as u64;
                let filling = filling - (taken - body) as u64;
                if left == 0 {
                    self.keep(member.take());
                }
                self.state = match left + filling {
                    0 => State::Head(Vec::new()),
                    _ => State::Body { left, filling, member },
                };
                taken
            }
            State::Whole(mut member) => {
                member.push(bytes);
                self.state = State::Whole(member);
                bytes.len()
            }
            State::Over => bytes.len(),
        }
    }

    fn keep(&mut self, member: Option<Describing>) {
        if let Some(member) = member.and_then(Describing::finish) {
            self.names += 1 + member.pieces.len();
            self.found.push(member);
        }
    }

    fn whole(&self, head: &[u8]) -> State {
        let mut member = Describing::new(self.secret, self.cutter, 0, None);
        member.push(head);
        State::Whole(member)
    }

    /// What a head begins, of which the last `taken` bytes came just now.
    fn entry(&self, head: &[u8], taken: usize) -> State {
        let Some(size) = size_of_entry(head).filter(|_| is_tar(head)) else { return State::Over };
        let behind = self.at + taken as u64;
        let filling = size.next_multiple_of(RECORD as u64) - size;
        let is_file = matches!(head[156], b'0' | 0 | b'7') && size > 0;
        let member = is_file.then(|| Describing::new(self.secret, self.cutter, behind, Some(size)));
        match size {
            0 => State::Head(Vec::new()),
            left => State::Body { left, filling, member },
        }
    }

    pub(super) fn finish(mut self) -> Vec<Member> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Whole(member) => self.keep(Some(member)),
            // Shorter than a record: it is no tar.
            State::First(head) if !head.is_empty() => {
                if let State::Whole(member) = self.whole(&head) {
                    self.keep(Some(member));
                }
            }
            _ => {}
        }
        self.found
    }
}

/// Fills a record up; says how many bytes that took.
fn fill(head: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let taken = bytes.len().min(RECORD - head.len());
    head.extend_from_slice(&bytes[..taken]);
    taken
}

fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

/// Eleven octal digits, or a number in base 256; none where it is neither, or beyond any file.
fn size_of_entry(head: &[u8]) -> Option<u64> {
    let field = head.get(124..136)?;
    let size = if field[0] & 0x80 != 0 {
        u64::from_be_bytes(*field.last_chunk()?)
    } else {
        let digits = field.iter().copied().skip_while(|byte| *byte == b' ');
        let digits = digits.take_while(|byte| !matches!(byte, 0 | b' '));
        digits.into_iter().try_fold(0u64, |size, byte| {
            matches!(byte, b'0'..=b'7').then(|| size << 3 | u64::from(byte - b'0'))
        })?
    };
    (size < 1 << 62).then_some(size)
}
