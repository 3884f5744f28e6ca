//! Bits of a deflate stream: the lowest of a byte first.
//! Holds: neither side goes beyond the bytes that it was given or allowed.

/// Takes bits off bytes.
#[derive(Clone)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    next: usize,
    held: u64,
    count: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> BitReader<'a> {
        BitReader { bytes, next: 0, held: 0, count: 0 }
    }

    fn fill(&mut self) {
        while self.count <= 56 && self.next < self.bytes.len() {
            self.held |= u64::from(self.bytes[self.next]) << self.count;
            self.next += 1;
            self.count += 8;
        }
    }

    /// The next 15 bits, zeros where there are none.
    pub(super) fn peek(&mut self) -> usize {
        if self.count < 15 {
            self.fill();
        }
        (self.held & 0x7fff) as usize
    }

    /// Up to 16 bits; none at the end.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        if self.count < count {
            self.fill();
        }
        self.count = self.count.checked_sub(count)?;
        let bits = self.held & ((1 << count) - 1);
        self.held >>= count;
        Some(bits as u32)
    }

    /// How many bits have been taken.
    pub(super) fn position(&self) -> usize {
        self.next * 8 - self.count as usize
    }

    /// Goes on at the next whole byte; none if bits that are passed over are not zeros.
    pub(super) fn align(&mut self) -> Option<()> {
        self.take(self.count % 8).filter(|bits| *bits == 0).map(drop)
    }

    /// Whole bytes, after `align`.
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let start = self.position() / 8;
        let bytes = self.bytes.get(start..start.checked_add(count)?)?;
        (self.next, self.held, self.count) = (start + count, 0, 0);
        Some(bytes)
    }
}

/// Puts bits into bytes, at most so many.
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    held: u64,
    count: u32,
    bytes_max: usize,
}

impl BitWriter {
    pub(super) fn new(bytes_max: usize) -> BitWriter {
        BitWriter { bytes: Vec::new(), held: 0, count: 0, bytes_max }
    }

    /// Up to 16 bits; none if there is no room.
    pub(super) fn put(&mut self, bits: u32, count: u32) -> Option<()> {
        self.held |= u64::from(bits) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.byte()?;
        }
        Some(())
    }

    fn byte(&mut self) -> Option<()> {
        if self.bytes.len() == self.bytes_max {
            return None;
        }
        self.bytes.push(self.held as u8);
        self.held >>= 8;
        self.count = self.count.saturating_sub(8);
        Some(())
    }

    pub(super) fn position(&self) -> usize {
        self.bytes.len() * 8 + self.count as usize
    }

    /// Zeros up to the next whole byte.
    pub(super) fn align(&mut self) -> Option<()> {
        if self.count > 0 { self.byte() } else { Some(()) }
    }

    /// Whole bytes, after `align`.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        (bytes.len() <= self.bytes_max - self.bytes.len())
            .then(|| self.bytes.extend_from_slice(bytes))
    }

    /// Bits that were taken from elsewhere.
    pub(super) fn copy(&mut self, from: &mut BitReader<'_>, count: usize) -> Option<()> {
        let mut left = count;
        while left > 0 {
            let some = left.min(8) as u32;
            self.put(from.take(some)?, some)?;
            left -= some as usize;
        }
        Some(())
    }

    /// The bytes, the last filled up with zeros.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        self.align()?;
        Some(self.bytes)
    }
}
