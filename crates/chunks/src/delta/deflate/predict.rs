//! What zlib would say next of plain bytes, given all that was said before. A wrong guess costs a
//! correction and nothing else.
//! Holds: a guess follows from the plain bytes, the manner and the tokens before it alone, so that
//! both sides guess the same; the work has a bound that follows from the plain bytes' length.
//! From: zlib's deflate_fast and deflate_slow, told by the tokens that really came.

use super::blocks::{MATCH_MAX, MATCH_MIN, Token};

const WINDOW: usize = 1 << 15;
/// zlib leaves room before what it would have to look at next.
const DISTANCE_MAX: usize = WINDOW - MATCH_MAX - MATCH_MIN - 1;
/// A match of three bytes that is farther away costs more than three literals.
const TOO_FAR: usize = 4096;
/// Filtered pictures have many short matches by chance.
const FILTERED_MAX: usize = 5;

/// Candidates that may be looked at for each plain byte, in all.
const LABOUR_PER_BYTE: usize = 64;
const LABOUR_FREE: usize = 1 << 16;

pub(super) const LEVELS: std::ops::RangeInclusive<u8> = 1..=9;

/// The settings of a compressor of zlib's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    /// 1 to 9.
    pub(super) level: u8,
    /// Whether the table of beginnings has 16 bits instead of 15.
    pub(super) wide: bool,
    pub(super) filtered: bool,
}

impl Manner {
    pub(super) fn number(self) -> u8 {
        self.level | u8::from(self.wide) << 4 | u8::from(self.filtered) << 5
    }

    pub(super) fn from_number(number: u8) -> Option<Manner> {
        let level = number & 0xf;
        let known = number < 1 << 6 && LEVELS.contains(&level);
        known.then_some(Manner {
            level,
            wide: number & 1 << 4 != 0,
            filtered: number & 1 << 5 != 0,
        })
    }

    fn search(self) -> Search {
        let [good, lazy, nice, chain] = match self.level {
            1 => [4, 4, 8, 4],
            2 => [4, 5, 16, 8],
            3 => [4, 6, 32, 32],
            4 => [4, 4, 16, 16],
            5 => [8, 16, 32, 32],
            6 => [8, 16, 128, 128],
            7 => [8, 32, 128, 256],
            8 => [32, 128, 258, 1024],
            _ => [32, 258, 258, 4096],
        };
        Search { good, lazy, nice, chain, patient: self.level >= 4 }
    }
}

struct Search {
    /// A match at hand that is as long shortens the search for a better one.
    good: usize,
    /// Longer ones are taken without looking at the next byte; or, without patience, longer ones
    /// are not remembered byte by byte.
    lazy: usize,
    /// One as long ends the search.
    nice: usize,
    /// Candidates for one search.
    chain: usize,
    /// Whether the next byte is tried before a match is taken.
    patient: bool,
}

#[derive(Clone, Copy)]
struct Match {
    length: usize,
    distance: usize,
}

pub(super) struct Predictor<'a> {
    plain: &'a [u8],
    at: usize,
    search: Search,
    filtered: bool,
    shift: u32,
    mask: usize,
    /// The last place of each beginning; the very first byte is never found, as in zlib.
    heads: Vec<u32>,
    /// The place before each, by its last 15 bits.
    before: Vec<u32>,
    /// Places before this one are in the tables, except those that zlib leaves out.
    remembered: usize,
    /// The match at `at` that was found while the byte before was looked at.
    found: Option<Match>,
    labour: usize,
}

impl<'a> Predictor<'a> {
    pub(super) fn new(plain: &'a [u8], manner: Manner) -> Predictor<'a> {
        let bits = if manner.wide { 16 } else { 15 };
        Predictor {
            plain,
            at: 0,
            search: manner.search(),
            filtered: manner.filtered,
            shift: if manner.wide { 6 } else { 5 },
            mask: (1 << bits) - 1,
            heads: vec![0; 1 << bits],
            before: vec![0; WINDOW],
            remembered: 0,
            found: None,
            labour: LABOUR_FREE.saturating_add(plain.len().saturating_mul(LABOUR_PER_BYTE)),
        }
    }

    /// For what comes behind the first `dictionary` of the plain bytes, which were said before.
    pub(super) fn behind(dictionary: usize, plain: &'a [u8], manner: Manner) -> Predictor<'a> {
        let mut predictor = Predictor::new(plain, manner);
        if dictionary > 0 {
            predictor.remember(dictionary - 1);
            predictor.at = dictionary;
        }
        predictor
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// What comes next, as far as can be guessed. There must be bytes left.
    pub(super) fn guess(&mut self) -> Token {
        let here = match self.found {
            Some(found) => Some(found),
            None => self.longest(self.at, MATCH_MIN - 1, self.search.chain),
        };
        let Some(here) = here else { return Token::Literal };
        if self.search.patient && here.length < self.search.lazy {
            let good = here.length >= self.search.good;
            let chain = if good { self.search.chain >> 2 } else { self.search.chain };
            self.found = self.longest(self.at + 1, here.length, chain);
            if self.found.is_some() {
                return Token::Literal;
            }
        }
        Token::Match { length: here.length as u16, distance: here.distance as u16 }
    }

    /// What came next; none if it goes beyond the bytes.
    pub(super) fn accept(&mut self, token: Token, guessed: Token) -> Option<()> {
        let length = token.length();
        let end = self.at.checked_add(length).filter(|end| *end <= self.plain.len())?;
        // A match that was found for the next byte is of use only there.
        if token != Token::Literal || guessed != token {
            self.found = None;
        }
        if !self.search.patient && length > self.search.lazy {
            self.remember(self.at);
            self.remembered = self.remembered.max(end);
        } else {
            self.remember(end - 1);
        }
        self.at = end;
        Some(())
    }

    /// Bytes that came without tokens.
    pub(super) fn pass(&mut self, length: usize) -> Option<()> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.plain.len())?;
        self.found = None;
        if end > self.at {
            self.remember(end - 1);
        }
        self.at = end;
        Some(())
    }

    /// Puts the places up to this one into the tables.
    fn remember(&mut self, last: usize) {
        while self.remembered <= last {
            let place = self.remembered;
            self.remembered += 1;
            if let Some([a, b, c]) = self.plain.get(place..place + MATCH_MIN) {
                let hash = usize::from(*a) << (2 * self.shift)
                    ^ usize::from(*b) << self.shift
                    ^ usize::from(*c);
                let head = &mut self.heads[hash & self.mask];
                self.before[place % WINDOW] = *head;
                *head = place as u32;
            }
        }
    }

    /// The longest match for the bytes at `place` that is longer than `least`.
    fn longest(&mut self, place: usize, least: usize, chain: usize) -> Option<Match> {
        let left = self.plain.len().checked_sub(place).filter(|left| *left >= MATCH_MIN)?;
        if place < self.remembered && place + 1 != self.remembered {
            return None;
        }
        self.remember(place);
        let most = left.min(MATCH_MAX);
        let nice = self.search.nice.min(left);
        let wanted = &self.plain[place..place + most];
        let mut best: Option<Match> = None;
        let mut longest = least;
        let mut candidate = self.before[place % WINDOW] as usize;
        let limit = place.saturating_sub(DISTANCE_MAX);
        // The newest may be exactly as far away as the limit, those before it may not.
        if candidate == 0 || candidate >= place || candidate < limit || longest >= most {
            return None;
        }
        for _ in 0..chain {
            self.labour = self.labour.checked_sub(1)?;
            let there = &self.plain[candidate..candidate + most];
            if there[longest] == wanted[longest] && there[0] == wanted[0] {
                let length = alike(there, wanted);
                self.labour = self.labour.saturating_sub(length / 8);
                if length > longest {
                    best = Some(Match { length, distance: place - candidate });
                    longest = length;
                    if length >= nice || length == most {
                        break;
                    }
                }
            }
            let next = self.before[candidate % WINDOW] as usize;
            if next >= candidate || next <= limit {
                break;
            }
            candidate = next;
        }
        best.filter(|best| !self.too_little(*best))
    }

    fn too_little(&self, found: Match) -> bool {
        let far = found.length == MATCH_MIN && found.distance > TOO_FAR;
        self.search.patient && (far || self.filtered && found.length <= FILTERED_MAX)
    }
}

/// How many bytes two stretches of one length have in common at the front.
fn alike(one: &[u8], other: &[u8]) -> usize {
    let words = |bytes: &[u8], at: usize| bytes[at..].first_chunk().map(|w| u64::from_le_bytes(*w));
    let mut at = 0;
    while let (Some(a), Some(b)) = (words(one, at), words(other, at)) {
        if a != b {
            return at + (a ^ b).trailing_zeros() as usize / 8;
        }
        at += size_of::<u64>();
    }
    at + one[at..].iter().zip(&other[at..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn bytes_in_common_are_counted_wherever_the_first_other_one_is() {
        for length in 0..40 {
            let one = vec![7; length];
            assert_eq!(alike(&one, &one), length);
            for at in 0..length {
                let mut other = one.clone();
                other[at] = 8;
                assert_eq!(alike(&one, &other), at, "of {length}");
            }
        }
    }
}
