//! Entry points for a fuzzer, one for each decoder: arbitrary bytes in, no panic, and what was
//! accepted is what would have been written.

use crate::against::{pack_against, unpack_after, unpack_against, unpack_assembled};
use crate::cut::Cut;
use crate::delta::{self, Codec, Effort};
use crate::describe::describe_bytes;
use crate::fingerprint::Secret;
use crate::{index, inside, payload, recipe};
use model::{Contents, FileId, Root, Stamp};
use protocol::{Base, Cutter, Delta, Payload, Range, Sequel};

const KEY: [u8; 32] = [0x46; 32];

pub fn fuzz_recipe(bytes: &[u8]) {
    if let Ok(recipe) = recipe::decode(bytes) {
        assert_eq!(recipe::encode(recipe.depth, &recipe.pieces), bytes);
    }
}

/// A root and one recipe chunk, which is handed out for every name below.
pub fn fuzz_cover(bytes: &[u8]) {
    let [depth, size @ .., _] = bytes.first_chunk::<10>().unwrap_or(&[0; 10]);
    let chunk = bytes.get(10..).unwrap_or(&[]);
    let secret = Secret::new(KEY);
    let root = Root { name: secret.name(chunk), depth: *depth };
    let contents = Contents { size: u64::from_be_bytes(*size), root: Some(root), holes: None };
    let range = Range { offset: 0, length: u64::MAX };
    let covered = recipe::cover(&secret, &contents, range, 1000, |_| Ok(Some(chunk.to_vec())));
    if let Ok(cover) = covered {
        let end = cover.pieces.last().map_or(0, recipe::Placed::end);
        assert!(end == contents.size || cover.next.is_some());
    }
    let fetch = |_: &_| Ok(Some(chunk.to_vec()));
    let lacking = recipe::lacking(&secret, &contents, 1000, fetch, |_| Ok(false));
    assert!(lacking.map_or(true, |names| names.len() <= 1000));
}

/// Two bytes of chunk count, a byte of flags, lengths, and the rest as the bytes.
pub fn fuzz_payload(bytes: &[u8]) {
    const BYTES_MAX: usize = 1 << 16;
    let [count, flags, rest @ ..] = bytes else { return };
    let (lengths, rest) = rest.split_at(rest.len().min(usize::from(*count) * 4));
    let lengths = lengths.as_chunks().0.iter().map(|length| u32::from_be_bytes(*length)).collect();
    let payload = Payload { lengths, bytes: rest.to_vec().into(), plain: flags & 1 == 1 };
    if let Ok(chunks) = payload::unpack(&payload, BYTES_MAX) {
        assert!(chunks.iter().map(Vec::len).sum::<usize>() <= BYTES_MAX);
        assert_eq!(chunks.len(), payload.lengths.len());
    }
}

/// A codec and how many of the next bytes are the base; the rest is the delta.
pub fn fuzz_delta(bytes: &[u8]) {
    let [codec, base, high, low, rest @ ..] = bytes else { return };
    let Some(codec) = Codec::from_number(*codec % 4) else { return };
    let (base, delta) = rest.split_at(rest.len().min(usize::from(*base) * 8));
    let target_len = usize::from(u16::from_be_bytes([*high, *low]));
    if let Ok(target) = delta::decode(codec, base, delta, target_len) {
        assert_eq!(target.len(), target_len);
    }
}

/// The bytes as a base and a target, by a byte that says where one ends.
pub fn fuzz_delta_encode(bytes: &[u8]) {
    let [split, rest @ ..] = bytes else { return };
    let (base, target) = rest.split_at(rest.len() * usize::from(*split) / 256);
    if let Some(coded) = delta::encode(base, target) {
        let decoded = delta::decode(coded.codec, base, &coded.bytes, target.len());
        assert_eq!(decoded.expect("what was coded here can be decoded"), target);
    }
}

/// As a deflate stream, which comes back if it can be taken apart; and as plain bytes with what
/// makes a stream of them.
pub fn fuzz_deflate(bytes: &[u8]) {
    const PLAIN_MAX: usize = 1 << 18;
    if let Some(again) = delta::deflate_again(bytes, PLAIN_MAX) {
        assert_eq!(again, bytes[..again.len()]);
    }
    let [split, rest @ ..] = bytes else { return };
    let (corrections, plain) = rest.split_at(rest.len().min(usize::from(*split)));
    if let Some(made) = delta::deflate_from(plain, corrections, rest.len()) {
        assert_eq!(made.len(), rest.len());
    }
}

/// A byte of codec, two of the base's length, two of the target's, the base, and the rest as the
/// delta. What is made of the target comes back.
pub fn fuzz_against(bytes: &[u8]) {
    const BYTES_MAX: usize = 1 << 16;
    let [codec, b1, b0, t1, t0, rest @ ..] = bytes else { return };
    let secret = Secret::new(KEY);
    let (base, rest) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([*b1, *b0]))));
    let stretch = Range { offset: 0, length: base.len() as u64 };
    let of = Base { file: FileId(1), version: Stamp::default(), stretch };
    let lengths = vec![u32::from(u16::from_be_bytes([*t1, *t0])); 2];
    let delta = Delta { base: of, lengths, codec: *codec, bytes: rest.to_vec().into(), check: 0 };
    if let Ok(Some(chunks)) = unpack_against(&secret, &delta, base, BYTES_MAX) {
        assert!(chunks.iter().map(Vec::len).sum::<usize>() <= BYTES_MAX);
    }
    let Delta { lengths, codec, bytes, check, .. } = delta;
    let sequel = Sequel { lengths, codec, bytes, check };
    if let Ok(Some(chunks)) = unpack_after(&secret, &sequel, base, BYTES_MAX) {
        assert!(chunks.iter().map(Vec::len).sum::<usize>() <= BYTES_MAX);
    }
    if let Some(delta) = pack_against(&secret, (of, base), &[rest], Effort::Usual) {
        let made = unpack_against(&secret, &delta, base, rest.len());
        assert_eq!(made.expect("it makes sense"), Some(vec![rest.to_vec()]));
    }
}

/// Two bytes of the reference's length, two of the target's, the reference, and the rest as a delta
/// that is assembled; and the bytes as a container, of which every stretch comes back.
pub fn fuzz_assembled(bytes: &[u8]) {
    const BYTES_MAX: usize = 1 << 16;
    let secret = Secret::new(KEY);
    if let [r1, r0, t1, t0, rest @ ..] = bytes {
        let split = rest.len().min(usize::from(u16::from_be_bytes([*r1, *r0])));
        let (reference, rest) = rest.split_at(split);
        let stretch = Range { offset: 0, length: 0 };
        let base = Base { file: FileId(1), version: Stamp::default(), stretch };
        let lengths = vec![u32::from(u16::from_be_bytes([*t1, *t0]))];
        let delta = Delta { base, lengths, codec: 4, bytes: rest.to_vec().into(), check: 0 };
        if let Ok(parts) = delta::parts_of(rest) {
            assert!(parts.len() <= delta::PARTS_MAX);
        }
        if let Ok(Some(chunks)) = unpack_assembled(&secret, &delta, reference, BYTES_MAX) {
            assert!(chunks.iter().map(Vec::len).sum::<usize>() <= BYTES_MAX);
        }
    }
    let size = bytes.len() as u64;
    let mut read = |offset: u64, length: usize| {
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        Ok(rest[..rest.len().min(length)].to_vec())
    };
    let region = inside::region_of(size, 0);
    let looked = inside::look(&secret, Cutter::Gear, (size, region), &mut read);
    let Ok(Ok(found)) = looked else { return };
    for range in [0..size, size / 3..size - size / 3] {
        let Ok(Some(segment)) = found.segment(&range, &mut read) else { continue };
        let target = &bytes[range.start as usize..range.end as usize];
        let lengths = vec![target.len() as u32];
        let stretch = Range { offset: 0, length: 0 };
        let base = Base { file: FileId(1), version: Stamp::default(), stretch };
        let delta = segment.assemble(&secret, base, (target, lengths), &[]);
        if let Some(delta) = delta.filter(|_| !target.is_empty()) {
            let made = unpack_assembled(&secret, &delta, &[], target.len());
            assert_eq!(made.expect("it makes sense"), Some(vec![target.to_vec()]));
        }
    }
}

pub fn fuzz_index(bytes: &[u8]) {
    assert!(index::decode(bytes).len() <= index::PLACES_MAX);
    assert!(inside::index::decode(bytes).len() <= inside::index::PLACES_MAX);
}

/// A byte that says what stands around the rest, so that it is met by the reader of directories, of
/// streams and of tars; then what is found in it, and stretches of a stream.
pub fn fuzz_inside(bytes: &[u8]) {
    const REMEMBERED_MAX: usize = 1 << 24;
    let [kind, at, rest @ ..] = bytes else { return };
    let directory = rest.len() * usize::from(*at) / 256;
    let ends = |start: usize| {
        let length = (rest.len() - directory) as u32;
        let numbers = [length.to_le_bytes(), (start as u32).to_le_bytes()].concat();
        [b"PK\x05\x06\0\0\0\0\0\0\0\0", &numbers[..], &[0, 0]].concat()
    };
    let picture = |rest: &[u8]| {
        let (first, second) = rest.split_at(directory);
        let length = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes();
        let front = [b"\x89PNG\r\n\x1a\n", &(first.len() as u32 + 2).to_be_bytes()[..]].concat();
        let frame = [&[0; 4], &length(second)[..], b"IDAT"].concat();
        [&front, &b"IDAT\x78\x9c"[..], first, &frame, second, &[0; 4]].concat()
    };
    let file = match kind % 5 {
        0 => [b"\x1f\x8b\x08\0\0\0\0\0\0\x03", rest].concat(),
        1 => [b"PK\x03\x04", rest].concat(),
        2 => [b"PK\x03\x04", rest, &ends(directory + 4)].concat(),
        4 => picture(rest),
        _ => {
            let locator = (directory as u64 + 4).to_le_bytes();
            let locator = [b"PK\x06\x07\0\0\0\0", &locator[..], &[1, 0, 0, 0]].concat();
            [b"PK\x03\x04", rest, &locator, &ends(0)].concat()
        }
    };
    let (size, secret) = (file.len() as u64, Secret::new(KEY));
    let mut read = |offset: u64, length: usize| {
        let rest = usize::try_from(offset).ok().and_then(|from| file.get(from..));
        let rest = rest.unwrap_or_default();
        Ok(rest[..rest.len().min(length)].to_vec())
    };
    let region = inside::region_of(size, 0);
    let looked = inside::look(&secret, Cutter::Gear, (size, region), &mut read);
    if let Ok(Ok(found)) = looked {
        assert!(found.bytes() <= REMEMBERED_MAX);
        for (name, place) in inside::index::places((FileId(1), Stamp::default()), &found) {
            let stream = place.start..place.start.saturating_add(place.packed.max(1));
            let wanted = place.offset..place.plain_end();
            let mut room = 1 << 20;
            let plain = match place.packed {
                0 => read(place.start + place.offset, place.length as usize).map(|b| Some(vec![b])),
                _ => {
                    let wanted = std::slice::from_ref(&wanted);
                    inside::plain_of(stream, wanted, &mut room, &mut read)
                }
            };
            let plain = plain.expect("reading does not fail").filter(|plain| plain.len() == 1);
            if let Some(plain) = plain {
                assert!(secret.check(&name, &plain[0]).is_ok(), "it is where it was seen");
            }
        }
    }
    let wanted = [0..u64::from(*at) + 1, 3..9];
    let mut room = 1 << 16;
    let _ = inside::plain_of(0..size, &wanted, &mut room, &mut read);
}

/// The contents come back, and the two ways to push them agree.
pub fn fuzz_cut(bytes: &[u8]) {
    for cutter in [Cutter::Gear, Cutter::Rabin] {
        let mut joined = Vec::new();
        let mut cutting = crate::Cutting::new(cutter, bytes.len() as u64);
        let mut sink = |cut: Cut<'_>| match cut {
            Cut::Chunk(chunk) => joined.extend_from_slice(chunk),
            Cut::Zeros(length) => joined.resize(joined.len() + length as usize, 0),
        };
        for some in bytes.chunks(777) {
            cutting.push(some, &mut sink);
        }
        cutting.finish(&mut sink).expect("the size is that of the bytes pushed");
        assert_eq!(joined, bytes);
        let described = describe_bytes(&Secret::new(KEY), cutter, bytes);
        assert_eq!(described.tree.contents.size, bytes.len() as u64);
    }
}
