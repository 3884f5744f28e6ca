//! A writer of zip archives, as office programs save them: names, deflated contents, a directory.
//! Never: zip64, encryption, files that are not in memory.

use anyhow::{Context, Result};
use flate2::{Compression, Crc, write::DeflateEncoder};
use std::io::Write;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
/// 2.0: what deflate needs.
const VERSION: u16 = 20;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// When an entry was made, in the form of the format: two seconds are the least difference.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub date: u16,
    pub time: u16,
}

impl Stamp {
    /// A second of the first day of 2026.
    pub fn of(second: u32) -> Self {
        let (hours, minutes, seconds) = (second / 3600 % 24, second / 60 % 60, second % 60);
        let date = ((2026 - 1980) << 9) | (1 << 5) | 1;
        Self { date, time: ((hours << 11) | (minutes << 5) | (seconds / 2)) as u16 }
    }
}

/// An archive of named contents, in their order.
pub fn pack(entries: &[(&str, &[u8])], stamp: Stamp) -> Result<Vec<u8>> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, contents) in entries {
        let at = size(archive.len())?;
        let mut crc = Crc::new();
        crc.update(contents);
        let packed = deflate(contents)?;
        // As packers do: what gets no smaller is stored.
        let (method, body) = match packed.len() < contents.len() {
            true => (DEFLATED, packed.as_slice()),
            false => (STORED, *contents),
        };
        let mut head = Vec::new();
        let shorts = [VERSION, 0, method, stamp.time, stamp.date];
        head.extend(shorts.iter().flat_map(|short| short.to_le_bytes()));
        for word in [crc.sum(), size(body.len())?, size(contents.len())?] {
            head.extend(word.to_le_bytes());
        }
        head.extend(u16::try_from(name.len()).context("a name is short")?.to_le_bytes());
        head.extend(0u16.to_le_bytes());
        archive.extend(LOCAL.to_le_bytes());
        archive.extend(&head);
        archive.extend(name.as_bytes());
        archive.extend(body);
        directory.extend(CENTRAL.to_le_bytes());
        directory.extend(VERSION.to_le_bytes());
        directory.extend(&head);
        // Comment, disk, attributes within and without.
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let count = u16::try_from(entries.len()).context("too many entries")?;
    let end = [size(directory.len())?, size(archive.len())?];
    archive.extend(directory);
    archive.extend(END.to_le_bytes());
    archive.extend([0, 0, count, count].iter().flat_map(|short| short.to_le_bytes()));
    archive.extend(end.iter().flat_map(|word| word.to_le_bytes()));
    archive.extend(0u16.to_le_bytes());
    Ok(archive)
}

fn size(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).context("larger than a zip archive can be")
}

fn deflate(contents: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(contents).context("cannot compress")?;
    encoder.finish().context("cannot compress")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
        bytes[at..at + N].try_into().unwrap()
    }

    /// Reads an archive from its end, as programs do.
    fn unpack(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let end = archive.len() - 22;
        assert_eq!(u32::from_le_bytes(at(archive, end)), END);
        let entries = u16::from_le_bytes(at(archive, end + 10));
        let mut entry = u32::from_le_bytes(at(archive, end + 16)) as usize;
        let mut found = Vec::new();
        for _ in 0..entries {
            assert_eq!(u32::from_le_bytes(at(archive, entry)), CENTRAL);
            let word = |field: usize| u32::from_le_bytes(at(archive, entry + field)) as usize;
            let name_len = u16::from_le_bytes(at(archive, entry + 28)) as usize;
            let name = &archive[entry + 46..entry + 46 + name_len];
            let local = word(42);
            assert_eq!(u32::from_le_bytes(at(archive, local)), LOCAL);
            assert_eq!(archive[local + 4..local + 30], archive[entry + 6..entry + 32]);
            let body = &archive[local + 30 + name_len..][..word(20)];
            let mut contents = Vec::new();
            match u16::from_le_bytes(at(archive, entry + 10)) {
                STORED => contents.extend(body),
                _ => {
                    _ = flate2::read::DeflateDecoder::new(body).read_to_end(&mut contents).unwrap()
                }
            }
            let mut crc = Crc::new();
            crc.update(&contents);
            assert_eq!((crc.sum() as usize, contents.len()), (word(16), word(24)));
            found.push((String::from_utf8(name.to_vec()).unwrap(), contents));
            entry += 46 + name_len;
        }
        assert_eq!(entry, end);
        found
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let text = b"the same again and again, ".repeat(100);
        let noise: Vec<u8> = (0..200u8).map(|byte| byte.wrapping_mul(151)).collect();
        let archive = pack(&[("a/text.xml", &text), ("b.png", &noise)], Stamp::of(61)).unwrap();
        assert!(archive.len() < text.len());
        let expected = vec![("a/text.xml".into(), text), ("b.png".into(), noise)];
        assert_eq!(unpack(&archive), expected);
    }

    #[test]
    fn the_same_is_packed_the_same_and_its_stamp_is_in_it() {
        let pack = |second| pack(&[("x", b"contents")], Stamp::of(second)).unwrap();
        assert_eq!(pack(10), pack(10));
        assert_ne!(pack(10), pack(20));
        assert_eq!(pack(10).len(), pack(20).len());
    }
}
