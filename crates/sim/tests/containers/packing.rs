//! Contents, and what packs them as zip, tar and gzip do.

use flate2::{Compress, Compression, Crc, FlushCompress};

/// Lines that no other number has, and that deflate to about a third.
pub fn text(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = Vec::with_capacity(length + 40);
    while text.len() < length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        text.extend(format!("{} of {}, ", (state >> 40) % 9973, (state >> 33) % 61).bytes());
    }
    text.truncate(length);
    text
}

pub fn noise(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

pub fn deflated(plain: &[u8], level: u32) -> Vec<u8> {
    let mut packed = Vec::with_capacity(plain.len() + 1000);
    let mut compress = Compress::new(Compression::new(level), false);
    compress.compress_vec(plain, &mut packed, FlushCompress::Finish).unwrap();
    packed
}

pub fn crc(plain: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(plain);
    crc.sum().to_le_bytes()
}

/// A zip of these files, as zip makes it.
pub fn zip(files: &[Vec<u8>]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (number, plain) in files.iter().enumerate() {
        let name = format!("some/member-{number}");
        let packed = deflated(plain, 6);
        let mut about = vec![20, 0, 0, 0, 8, 0, 0, 0x60, 0x21, 0x55];
        about.extend(crc(plain));
        about.extend((packed.len() as u32).to_le_bytes());
        about.extend((plain.len() as u32).to_le_bytes());
        about.extend((name.len() as u32).to_le_bytes());
        directory.extend([b"PK\x01\x02\x14\0", &about[..], &[0; 10]].concat());
        directory.extend((file.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        file.extend([b"PK\x03\x04", &about[..], name.as_bytes(), &packed].concat());
    }
    let (start, length) = (file.len() as u32, directory.len() as u32);
    file.extend(directory);
    file.extend([b"PK\x05\x06\0\0\0\0\0\0\0\0", &length.to_le_bytes()[..]].concat());
    file.extend([&start.to_le_bytes()[..], &[0, 0]].concat());
    file
}

pub fn tar(files: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (number, bytes) in files.iter().enumerate() {
        let mut head = vec![0; 512];
        let name = format!("tree/file-{number}");
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        head[156] = b'0';
        head[257..262].copy_from_slice(b"ustar");
        tar.extend([&head[..], bytes].concat());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

pub fn gzip(plain: &[u8]) -> Vec<u8> {
    let head = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";
    let length = (plain.len() as u32).to_le_bytes();
    [head, &deflated(plain, 6)[..], &crc(plain), &length].concat()
}

/// As many files, of so many bytes and more.
pub fn files(count: u64, bytes: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| text(number, bytes + 777 * number as usize)).collect()
}

/// A picture's file, as libpng makes it: the rows are one zlib stream in pieces of so many bytes.
pub fn png(rows: &[u8], piece: usize, about: &[u8]) -> Vec<u8> {
    let adler = rows.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    let check = (adler.1 << 16 | adler.0).to_be_bytes();
    let stream = [b"\x78\x9c", &deflated(rows, 6)[..], &check].concat();
    let chunk = |kind: &[u8], data: &[u8]| {
        let length = (data.len() as u32).to_be_bytes();
        let mut sum = crc(&[kind, data].concat());
        sum.reverse();
        [&length[..], kind, data, &sum].concat()
    };
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    file.extend([chunk(b"IHDR", &[0; 13]), chunk(b"tEXt", about)].concat());
    stream.chunks(piece).for_each(|data| file.extend(chunk(b"IDAT", data)));
    file.extend(chunk(b"IEND", b""));
    file
}

/// Rows of a picture of the screen: areas of one colour, and what is drawn on them, each with the
/// byte of its filter.
pub fn rows(number: u64, width: usize, height: usize) -> Vec<u8> {
    let drawn = noise(number, height * 24);
    let row = |at: usize| {
        let mut row = vec![(at / 37) as u8; width * 3 + 1];
        row[0] = 1;
        for (place, byte) in drawn[at * 24..(at + 1) * 24].iter().enumerate() {
            let start = (usize::from(*byte) * 13 + place * 97) % (width * 3 - 40);
            row[1 + start..1 + start + 30].fill(*byte);
        }
        row
    };
    (0..height).flat_map(row).collect()
}
