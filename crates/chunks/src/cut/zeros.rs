//! Long stretches of zeros, which no chunk stands for. A sparse file costs nothing where it is
//! empty, and a file that was filled with zeros has the same recipe.

use std::ops::Range;

/// A stretch of so many zeros, or more, stands alone.
pub const ZEROS_BYTES_MIN: usize = 64 << 10;

/// As many zeros as can turn out to be data.
pub(super) static SOME: [u8; ZEROS_BYTES_MIN] = [0; ZEROS_BYTES_MIN];

/// How many zeros the bytes begin with.
pub(super) fn prefix(bytes: &[u8]) -> usize {
    // By words, because a disk image can be gigabytes of this.
    const STEP: usize = 64;
    let whole =
        bytes.chunks_exact(STEP).take_while(|step| step.iter().fold(0, |or, b| or | b) == 0);
    let skipped = whole.count() * STEP;
    let rest = &bytes[skipped..];
    skipped + rest.iter().position(|byte| *byte != 0).unwrap_or(rest.len())
}

/// The first stretch of zeros that is long enough to stand alone, or that reaches the end of the
/// bytes and may go on after it. Empty, at the end, if there is none. The byte before `bytes`, if
/// any, must not be a zero that matters.
pub(super) fn next_stretch(bytes: &[u8]) -> Range<usize> {
    let mut from = 0usize;
    // A stretch that is long enough and begins in the next ZEROS_BYTES_MIN bytes covers the last
    // of them, so the others need no look.
    while let Some(probe) = from.checked_add(ZEROS_BYTES_MIN - 1).filter(|at| *at < bytes.len()) {
        if bytes[probe] != 0 {
            from = probe + 1;
            continue;
        }
        let start = after_last_data(bytes, from, probe);
        let end = probe + prefix(&bytes[probe..]);
        if end - start >= ZEROS_BYTES_MIN || end == bytes.len() {
            return start..end;
        }
        from = end;
    }
    after_last_data(bytes, from, bytes.len())..bytes.len()
}

/// Where the zeros that end at `to` begin, not before `from`.
fn after_last_data(bytes: &[u8], from: usize, to: usize) -> usize {
    bytes[from..to].iter().rposition(|byte| *byte != 0).map_or(from, |at| from + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_zeros(length: usize, zeros: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![1; length];
        bytes[zeros].fill(0);
        bytes
    }

    #[test]
    fn a_long_stretch_is_found_wherever_it_begins() {
        for start in [0, 1, 63, 65_535, 65_536, 65_537, 100_000] {
            let zeros = start..start + ZEROS_BYTES_MIN;
            assert_eq!(next_stretch(&with_zeros(200_000, zeros.clone())), zeros);
        }
    }

    #[test]
    fn a_stretch_that_is_one_short_is_data() {
        for start in [0, 1, 65_535, 65_536, 100_000] {
            let bytes = with_zeros(200_000, start..start + ZEROS_BYTES_MIN - 1);
            assert_eq!(next_stretch(&bytes), 200_000..200_000);
        }
    }

    #[test]
    fn zeros_at_the_end_are_found_however_few() {
        assert_eq!(next_stretch(&with_zeros(200_000, 199_999..200_000)), 199_999..200_000);
        assert_eq!(next_stretch(&with_zeros(10, 3..10)), 3..10);
        assert_eq!(next_stretch(&[]), 0..0);
    }

    #[test]
    fn zeros_are_counted_up_to_the_first_other_byte() {
        for length in [0, 1, 63, 64, 65, 1000] {
            let mut bytes = vec![0; length];
            assert_eq!(prefix(&bytes), length);
            bytes.push(9);
            bytes.push(0);
            assert_eq!(prefix(&bytes), length);
        }
    }
}
