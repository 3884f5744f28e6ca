//! LBFS's rule: a chunk ends where the low bits of the Rabin fingerprint of its last 48 bytes
//! have a special value.
//! From: LBFS, "Dividing files into chunks".

use super::Sizes;

const WINDOW: usize = 48;

/// Irreducible over GF(2), of degree 53; bit i is the coefficient of x^i.
const POLYNOMIAL: u64 = 0x3f_021a_de9c_abe1;
const DEGREE: u32 = 53;

/// For each byte that overflows the degree: itself there, and what it is below.
static OVERFLOW: [u64; 256] = overflow();
/// For each byte: its part in the fingerprint when it is the oldest in the window.
static OLDEST: [u64; 256] = oldest();

pub(super) struct Rabin {
    sizes: Sizes,
    mask: u64,
    /// Bytes of the present chunk so far.
    length: usize,
    fingerprint: u64,
    /// The last bytes, in a ring.
    window: [u8; WINDOW],
    next: usize,
}

impl Rabin {
    pub(super) fn new(sizes: Sizes) -> Rabin {
        let mask = sizes.average as u64 - 1;
        Rabin { sizes, mask, length: 0, fingerprint: 0, window: [0; WINDOW], next: 0 }
    }

    pub(super) fn restart(&mut self) {
        self.length = 0;
        self.fingerprint = 0;
        self.window = [0; WINDOW];
        self.next = 0;
    }

    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let Sizes { least, most, .. } = self.sizes;
        // What is no longer in the window when the first end is allowed has no part in any.
        let blind = bytes.len().min((least - WINDOW).saturating_sub(self.length));
        let warm = bytes.len().min((least - 1).saturating_sub(self.length));
        let stop = bytes.len().min(most - self.length);
        for byte in &bytes[blind..warm] {
            self.roll(*byte);
        }
        for (at, byte) in bytes[warm..stop].iter().enumerate() {
            self.roll(*byte);
            // The special value has all bits set, so zeros, whose fingerprint is 0, do not end
            // a chunk.
            if self.fingerprint & self.mask == self.mask {
                self.restart();
                return Some(warm + at + 1);
            }
        }
        self.length += stop;
        if self.length == most {
            self.restart();
            return Some(stop);
        }
        None
    }

    fn roll(&mut self, byte: u8) {
        let oldest = std::mem::replace(&mut self.window[self.next], byte);
        self.next = if self.next + 1 == WINDOW { 0 } else { self.next + 1 };
        self.fingerprint = append(self.fingerprint ^ OLDEST[oldest as usize], byte);
    }
}

/// The fingerprint of what has this fingerprint, followed by `byte`.
const fn append(fingerprint: u64, byte: u8) -> u64 {
    let longer = fingerprint << 8 | byte as u64;
    longer ^ OVERFLOW[(longer >> DEGREE) as usize]
}

const fn overflow() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let above = (byte as u64) << DEGREE;
        table[byte] = above | remainder(above);
        byte += 1;
    }
    table
}

const fn oldest() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut shifted = byte as u64;
        let mut step = 1;
        while step < WINDOW {
            shifted = remainder(shifted << 8);
            step += 1;
        }
        table[byte] = shifted;
        byte += 1;
    }
    table
}

/// Of the division by the polynomial.
const fn remainder(mut of: u64) -> u64 {
    let mut bit = 64;
    while bit > DEGREE {
        bit -= 1;
        if of >> bit & 1 == 1 {
            of ^= POLYNOMIAL << (bit - DEGREE);
        }
    }
    of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(mut a: u64, mut b: u64) -> u64 {
        let mut product = 0;
        while b != 0 {
            if b & 1 == 1 {
                product ^= a;
            }
            a = remainder(a << 1);
            b >>= 1;
        }
        product
    }

    #[test]
    fn the_polynomial_is_irreducible() {
        // Of prime degree d, it is if x^(2^d) = x modulo it and it has no root in GF(2).
        let x = 2;
        let power = (0..DEGREE).fold(x, |power, _| times(power, power));
        assert_eq!(power, x);
        assert_eq!(POLYNOMIAL & 1, 1, "0 is a root");
        assert_eq!(POLYNOMIAL.count_ones() % 2, 1, "1 is a root");
        assert_eq!(POLYNOMIAL >> DEGREE, 1);
    }

    #[test]
    fn rolling_gives_the_fingerprint_of_the_window_alone() {
        let mut rabin = Rabin::new(super::super::sizes(0));
        let bytes: Vec<u8> = (0..1000u32).map(|i| ((i * i) >> 3) as u8).collect();
        for (at, byte) in bytes.iter().enumerate() {
            rabin.roll(*byte);
            let window = &bytes[(at + 1).saturating_sub(WINDOW)..=at];
            let alone = window.iter().fold(0, |sum, byte| remainder(sum << 8 | u64::from(*byte)));
            assert_eq!(rabin.fingerprint, alone);
        }
    }
}
