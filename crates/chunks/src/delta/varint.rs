//! Numbers in deltas: seven bits a byte, the lowest first, the top bit set in all but the last.
//! Holds: reading never goes beyond the bytes, and never takes more of them than a number needs.

use super::bad;
use crate::error::Result;

pub(super) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

pub(super) fn put_signed(bytes: &mut Vec<u8>, number: i64) {
    put(bytes, ((number << 1) ^ (number >> 63)) as u64);
}

/// Takes numbers off the front of bytes.
pub(super) struct Numbers<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Numbers<'a> {
    pub(super) fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or_else(|| bad("it ends too early"))?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(bad("a number is too large"))
    }

    /// A number that counts bytes or things, of which there are at most so many.
    pub(super) fn count(&mut self, most: usize) -> Result<usize> {
        usize::try_from(self.number()?)
            .ok()
            .filter(|count| *count <= most)
            .ok_or_else(|| bad(&format!("a count above {most}")))
    }

    pub(super) fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let (bytes, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| bad("it ends too early"))?;
        self.rest = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert!(Numbers { rest: &[0xff; 10] }.number().is_err());
        assert!(Numbers { rest: &[0x80] }.number().is_err());
        assert!(Numbers { rest: &[] }.number().is_err());
        assert!(Numbers { rest: &[9] }.count(8).is_err());
        assert!(Numbers { rest: &[9] }.bytes(2).is_err());
    }

    proptest! {
        #[test]
        fn prop_numbers_come_back(number in any::<u64>(), shift in 0..64u32, signed in any::<i64>()) {
            let mut bytes = Vec::new();
            put(&mut bytes, number >> shift);
            put_signed(&mut bytes, signed >> shift);
            let mut numbers = Numbers { rest: &bytes };
            prop_assert_eq!(numbers.number().unwrap(), number >> shift);
            prop_assert_eq!(numbers.signed().unwrap(), signed >> shift);
            prop_assert!(numbers.rest.is_empty());
        }
    }
}
