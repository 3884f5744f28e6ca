use super::*;
use crate::ChunksError;
use crate::delta::tests::{noise, words};
use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

/// A raw deflate stream, as zlib makes it.
fn deflated(plain: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(plain.len() + 1000);
    let mut compress = Compress::new(Compression::new(6), false);
    compress.compress_vec(plain, &mut packed, FlushCompress::Finish).unwrap();
    packed
}

/// A zip file with the heads and the directory that matter here.
fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, plain) in members {
        let packed = deflated(plain);
        let mut about = vec![20, 0, 0, 0, 8, 0, 0, 0, 0x21, 0];
        let check = blake3::hash(plain);
        about.extend_from_slice(&check.as_bytes()[..4]);
        about.extend((packed.len() as u32).to_le_bytes());
        about.extend((plain.len() as u32).to_le_bytes());
        about.extend((name.len() as u32).to_le_bytes());
        directory.extend([b"PK\x01\x02\x14\0", &about[..], name.as_bytes()].concat());
        file.extend([b"PK\x03\x04", &about[..], name.as_bytes(), &packed].concat());
    }
    file.extend(directory);
    file
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let head = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0";
    [head, &deflated(plain)[..], &noise(1, 4), &(plain.len() as u32).to_le_bytes()].concat()
}

/// A picture whose data are in pieces of so many bytes.
fn png(plain: &[u8], piece: usize) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\x02IHDRxx1234".to_vec();
    let data = [b"\x78\x9c", &deflated(plain)[..], b"adlr"].concat();
    for some in data.chunks(piece) {
        file.extend((some.len() as u32).to_be_bytes());
        file.extend([b"IDAT", some, &blake3::hash(some).as_bytes()[..4]].concat());
    }
    file.extend(b"\0\0\0\0IEND1234");
    file
}

fn edited(plain: &[u8]) -> Vec<u8> {
    let middle = plain.len() / 2;
    [&plain[..middle], b" a few words that are new ", &plain[middle..]].concat()
}

/// Bytes of the delta that is made, which must come back.
fn check(base: &[u8], target: &[u8]) -> usize {
    let bytes = encode(base, target).expect("there is something to unpack");
    assert_eq!(decode(base, &bytes, target.len()).unwrap(), target);
    bytes.len()
}

#[test]
fn a_document_with_a_change_in_one_member_takes_little() {
    let (text, picture) = (words(400_000), noise(5, 300_000));
    let styles = words(20_000);
    let members = |text| {
        zip(&[("[Content_Types].xml", &styles), ("word/document.xml", text), ("a.png", &picture)])
    };
    let (old, new) = (members(&text[..]), members(&edited(&text)));
    let bytes = check(&old, &new);
    assert!(bytes < 1000, "{bytes} bytes for {}", new.len());
    let plain = prefix::encode(&old, &new).unwrap();
    assert!(bytes < plain.len() / 10, "{} bytes as it is", plain.len());
}

#[test]
fn members_of_a_gzip_file_are_unpacked_each() {
    let (one, two) = (words(100_000), words(50_000));
    let old = [gzip(&one), gzip(&two)].concat();
    let new = [gzip(&edited(&one)), gzip(&edited(&two))].concat();
    assert!(check(&old, &new) < 1000);
}

#[test]
fn a_picture_whose_data_are_in_pieces_comes_back() {
    let plain = words(300_000);
    for piece in [1000, 8192, 1 << 20] {
        let (old, new) = (png(&plain, piece), png(&edited(&plain), piece));
        let bytes = check(&old, &new);
        // The checksums of the pieces are new.
        assert!(bytes < 1000 + new.len() / piece * 10, "{bytes} bytes");
    }
}

#[test]
fn streams_of_a_pdf_are_found() {
    let text = words(200_000);
    let pdf = |text: &[u8]| {
        let stream = [b"%PDF-1.4\n<<>>stream\r\n\x78\x9c", &deflated(text)[..]].concat();
        [&stream[..], b"1234\nendstream\n<<>>stream\nplain words\nendstream"].concat()
    };
    assert!(check(&pdf(&text), &pdf(&edited(&text))) < 1000);
}

#[test]
fn what_cannot_be_packed_again_is_left_packed() {
    let old = gzip(&words(5000));
    // Ones in the bits behind the end of a stream: no compressor sets them.
    let spoilt = |length| {
        let mut new = gzip(&words(length));
        let end = new.len() - 8;
        new[end - 1] |= 0x80;
        new
    };
    let new = (5000..5100).map(spoilt).find(|new| streams(new).is_empty());
    let new = new.expect("not every stream ends with a whole byte");
    assert_eq!(encode(&old, &new), None);
}

#[test]
fn what_is_no_container_is_not_unpacked() {
    assert_eq!(encode(&words(5000), &words(5000)), None);
    assert_eq!(encode(&gzip(&words(5000)), b"PK\x03\x04"), None);
    // The same member on both sides stays packed.
    let one = gzip(&words(5000));
    assert_eq!(encode(&one, &[&one[..], b"more"].concat()), None);
}

#[test]
fn nonsense_is_refused() {
    let base = gzip(&words(5000));
    let said = |said: &[u8], inner: &[u8], inner_len: u8| {
        let packed = prefix::encode(&[], said).unwrap();
        let inner = prefix::encode(&base, inner).unwrap();
        let head = [said.len() as u8, packed.len() as u8];
        [&head[..], &packed, &[1, inner_len], &inner].concat()
    };
    // Nothing unpacked: the inner bytes are the target.
    assert_eq!(decode(&base, &said(&[0, 0], b"hello", 5), 5).unwrap(), b"hello");
    let nonsense = [
        said(&[0, 0], b"hello", 6),
        said(&[1, 5, 1, 0, 9], b"hello", 5),
        said(&[1, 5, 1, 0xff, 0x7f, 9], b"hello", 5),
        said(&[0, 1, 1, 2, 1, 9, 0], b"hello", 5),
        said(&[0, 1, 9, 2, 1, 9, 0], b"hello", 5),
        said(&[0, 1], b"hello", 5),
        vec![],
    ];
    for bytes in nonsense {
        assert!(matches!(decode(&base, &bytes, 5), Err(ChunksError::BadDelta(_))), "{bytes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn prop_damaged_deltas_do_not_panic(at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let text = words(3000);
        let (old, new) = (gzip(&text), gzip(&edited(&text)));
        let mut bytes = encode(&old, &new).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(made) = decode(&old, &bytes, new.len()) {
            prop_assert_eq!(made.len(), new.len());
        }
    }

    #[test]
    fn prop_what_looks_like_a_container_comes_back(
        kind in 0..4usize, tail in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let text = words(500);
        let start = [&b"PK\x03\x04"[..], b"\x1f\x8b\x08\0", b"\x89PNG\r\n\x1a\n", b"%PDF-stream\n"];
        let target = [start[kind], &tail, &gzip(&text), &zip(&[("a", &text)])].concat();
        let base = [&target[..20], &tail].concat();
        if let Some(bytes) = encode(&base, &target) {
            prop_assert_eq!(decode(&base, &bytes, target.len()).unwrap(), target);
        }
    }
}
