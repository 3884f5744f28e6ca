//! The bytes of one file, in memory.
//! Never: gives bytes that nobody wrote: what lies between is zeros.

use fuse::Errno;

#[derive(Debug, Default)]
pub struct Contents(Vec<u8>);

impl Contents {
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// As many as there are, up to `size`.
    pub fn read(&self, offset: u64, size: u32) -> &[u8] {
        let length = self.0.len();
        let from = usize::try_from(offset).map_or(length, |offset| offset.min(length));
        let to = usize::try_from(size).map_or(length, |size| from.saturating_add(size).min(length));
        &self.0[from..to]
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let from = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
        let to = from.checked_add(bytes.len()).ok_or(Errno::EFBIG)?;
        self.room(to)?;
        if from > self.0.len() {
            self.0.resize(from, 0);
        }
        // What is appended is not filled with zeros before.
        let over = bytes.len().min(self.0.len() - from);
        self.0[from..from + over].copy_from_slice(&bytes[..over]);
        self.0.extend_from_slice(&bytes[over..]);
        Ok(())
    }

    /// Shorter or longer.
    pub fn cut(&mut self, size: u64) -> Result<(), Errno> {
        let size = usize::try_from(size).map_err(|_| Errno::EFBIG)?;
        self.room(size)?;
        self.0.resize(size, 0);
        Ok(())
    }

    fn room(&mut self, size: usize) -> Result<(), Errno> {
        let more = size.saturating_sub(self.0.len());
        self.0.try_reserve(more).map_err(|_| Errno::ENOSPC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_is_zeros_and_there_is_nothing_behind_the_end() {
        let mut contents = Contents::default();
        contents.write(2, b"abc").unwrap();
        contents.write(4, b"de").unwrap();
        assert_eq!(contents.read(0, 100), b"\0\0abde");
        assert_eq!(contents.read(3, 2), b"bd");
        assert_eq!(contents.read(6, 2), b"");
        assert_eq!(contents.read(u64::MAX, u32::MAX), b"");
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let mut contents = Contents::default();
        contents.write(0, b"abc").unwrap();
        contents.cut(1).unwrap();
        contents.cut(3).unwrap();
        assert_eq!((contents.bytes(), contents.read(0, 3)), (3, &b"a\0\0"[..]));
    }

    #[test]
    fn a_length_that_no_memory_has_is_refused() {
        let mut contents = Contents::default();
        assert!(contents.cut(u64::MAX).is_err());
        assert!(contents.write(u64::MAX, b"a").is_err());
        assert_eq!(contents.bytes(), 0);
    }
}
