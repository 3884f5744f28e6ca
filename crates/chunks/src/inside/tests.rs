mod pictures;

use super::*;
use crate::describe::describe_bytes;
use crate::{delta, unpack_assembled};
use flate2::{Compress, Compression, FlushCompress};
use model::{FileId, Stamp};
use proptest::prelude::*;
use protocol::{Base, Delta};

/// Of a member of a zip, without a name.
const MEMBER_HEAD_BYTES: usize = 30;

fn secret() -> Secret {
    Secret::new([7; 32])
}

fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Lines that deflate to about a third.
pub(super) fn text(seed: u32, length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 40);
    for pair in noise(seed, length).chunks(3) {
        let number = pair.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        text.extend(format!("{} and {}, ", number % 977, number % 61).bytes());
        if text.len() >= length {
            break;
        }
    }
    text.truncate(length);
    text
}

fn deflated(plain: &[u8], level: u32) -> Vec<u8> {
    let mut packed = Vec::with_capacity(plain.len() + 1000);
    let mut compress = Compress::new(Compression::new(level), false);
    compress.compress_vec(plain, &mut packed, FlushCompress::Finish).unwrap();
    packed
}

/// A zip with a directory; members of level 0 are stored.
fn zip(members: &[(Vec<u8>, u32)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (number, (plain, level)) in members.iter().enumerate() {
        let name = format!("member-{number}");
        let packed = if *level == 0 { plain.clone() } else { deflated(plain, *level) };
        let mut about = vec![20, 0, 0, 0, if *level == 0 { 0 } else { 8 }, 0, 0, 0, 0x21, 0];
        about.extend(&blake3::hash(plain).as_bytes()[..4]);
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

/// The same zip with every number where zip64 has those that do not fit.
fn zip64(members: &[(Vec<u8>, u32)]) -> Vec<u8> {
    let file = zip(members);
    let end = file.len() - 22;
    let number =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let start = number(&file, end + 16) as usize;
    let (mut directory, mut rest) = (Vec::new(), &file[start..end]);
    while !rest.is_empty() {
        let name = usize::from(u16::from_le_bytes([rest[28], rest[29]]));
        let mut entry = rest[..46 + name].to_vec();
        let numbers = [24, 20, 42].map(|at| u64::from(number(rest, at)));
        [20, 24, 42].into_iter().for_each(|at: usize| entry[at..at + 4].fill(0xff));
        // Something else in front of what is looked for.
        let fields =
            [&[0x55, 0x54, 1, 0, 9, 1, 0, 24, 0][..], &numbers.map(u64::to_le_bytes).concat()];
        entry[30] = 33;
        directory.extend([entry, fields.concat()].concat());
        rest = &rest[46 + name..];
    }
    let at = (start + directory.len()) as u64;
    let mut large = [b"PK\x06\x06", &[0; 36][..]].concat();
    large.extend([(directory.len() as u64).to_le_bytes(), (start as u64).to_le_bytes()].concat());
    let locator = [b"PK\x06\x07\0\0\0\0", &at.to_le_bytes()[..], &[1, 0, 0, 0]].concat();
    let short = [b"PK\x05\x06", &[0xff; 16][..], &[0, 0]].concat();
    [file[..start].to_vec(), directory, large, locator, short].concat()
}

fn tar(files: &[Vec<u8>]) -> Vec<u8> {
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

pub(super) fn gzip(plain: &[u8], level: u32) -> Vec<u8> {
    let head = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0";
    [head, &deflated(plain, level)[..], &noise(1, 4), &(plain.len() as u32).to_le_bytes()].concat()
}

fn reader(file: &[u8]) -> impl FnMut(u64, usize) -> Result<Vec<u8>> + '_ {
    |offset, length| {
        let from = usize::try_from(offset).unwrap().min(file.len());
        Ok(file[from..from.saturating_add(length).min(file.len())].to_vec())
    }
}

pub(super) fn look_at(file: &[u8]) -> std::result::Result<Inside, Left> {
    let size = file.len() as u64;
    let region = region_of(size, 0);
    look(&secret(), Cutter::Gear, (size, region), &mut reader(file)).unwrap()
}

fn named(file: FileId) -> Base {
    let stretch = protocol::Range { offset: 0, length: 0 };
    Base { file, version: Stamp::default(), stretch }
}

/// Assembles a stretch for a receiver that has what `has` says; what comes out, with the delta.
fn assembled(
    file: &[u8],
    inside: &Inside,
    range: std::ops::Range<usize>,
    has: impl Fn(&Held) -> bool,
) -> Option<Delta> {
    let stretch = range.start as u64..range.end as u64;
    let segment = inside.segment(&stretch, &mut reader(file)).unwrap()?;
    let mut parts: Vec<(delta::Part, &[u8])> = Vec::new();
    let mut done = 0;
    for held in &segment.held {
        if held.at.start >= done && held.is_whole() && has(held) {
            let bytes = &segment.bytes()[held.at.clone()];
            parts.push((delta::Part::Contents(held.contents), bytes));
            done = held.at.end;
        }
    }
    let target = &file[range];
    let lengths = target.chunks(5000).map(|some| some.len() as u32).collect();
    let delta = segment.assemble(&secret(), named(FileId(1)), (target, lengths), &parts)?;
    assert_eq!(made(&delta, &parts).concat(), target);
    Some(delta)
}

fn made(delta: &Delta, parts: &[(delta::Part, &[u8])]) -> Vec<Vec<u8>> {
    let wanted = delta::parts_of(&delta.bytes).unwrap();
    assert_eq!(wanted, parts.iter().map(|(part, _)| *part).collect::<Vec<_>>());
    let reference: Vec<u8> = parts.iter().flat_map(|(_, bytes)| *bytes).copied().collect();
    unpack_assembled(&secret(), delta, &reference, 8 << 20).unwrap().expect("it comes out")
}

fn names_of(plain: &[u8]) -> (Contents, Vec<Placed>) {
    let described = describe_bytes(&secret(), Cutter::Gear, plain);
    (described.tree.contents, described.pieces)
}

#[test]
fn members_bear_the_names_of_the_same_files() {
    let files = [text(1, 40_000), noise(2, 9_000), text(3, 300), vec![0; 100_000], Vec::new()];
    let zipped = zip(&files.clone().map(|file| (file, 6)));
    let packed = gzip(&tar(&files), 6);
    let stored = zip(&files.clone().map(|file| (file, 0)));
    let large = zip64(&files.clone().map(|file| (file, 6)));
    for container in [zipped, packed, stored, large] {
        let inside = look_at(&container).unwrap();
        let members = inside.streams.iter().flat_map(|stream| &stream.members);
        let found: Vec<_> =
            members.map(|member| (member.contents, member.pieces.clone())).collect();
        let expected: Vec<_> =
            files.iter().map(|file| names_of(file)).filter(|(c, _)| c.size > 0).collect();
        let found: Vec<_> = found.into_iter().filter(|(c, _)| c.size > 0).collect();
        assert_eq!(found, expected);
    }
    // What is no tar is one member.
    let inside = look_at(&gzip(&files[0], 9)).unwrap();
    assert_eq!(inside.streams[0].members[0].contents, names_of(&files[0]).0);
}

#[test]
fn an_archive_of_what_the_receiver_has_takes_little() {
    let files: Vec<Vec<u8>> = (0..40).map(|n| text(n, 3_000 + 2_000 * n as usize)).collect();
    let zipped = zip(&files.iter().map(|file| (file.clone(), 6)).collect::<Vec<_>>());
    let packed = gzip(&tar(&files), 6);
    for (container, each) in [(zipped, 120), (packed, 80)] {
        let inside = look_at(&container).unwrap();
        let delta = assembled(&container, &inside, 0..container.len(), |held| held.is_member);
        let bytes = delta.unwrap().bytes.len();
        assert!(bytes < each * files.len(), "{bytes} bytes for {}", container.len());
    }
}

#[test]
fn stretches_of_a_long_stream_are_made_without_what_is_before() {
    let files: Vec<Vec<u8>> = (0..60).map(|n| text(n, 60_000)).collect();
    let container = gzip(&tar(&files), 6);
    let inside = look_at(&container).unwrap();
    let (mut all, step) = (0, 200_000);
    for from in (0..container.len()).step_by(step) {
        let to = (from + step).min(container.len());
        let delta = assembled(&container, &inside, from..to, |_| true).unwrap();
        all += delta.bytes.len();
    }
    assert!(container.len() > 4 * step, "{} bytes", container.len());
    assert!(all < container.len() / 15, "{all} bytes for {}", container.len());
}

#[test]
fn a_stream_is_read_in_pieces_from_checkpoints() {
    let files: Vec<Vec<u8>> = (0..12).map(|n| noise(n, 400_000)).collect();
    let container = gzip(&tar(&files), 1);
    let inside = look_at(&container).unwrap();
    assert!(inside.streams[0].checkpoints.len() > 2, "{}", container.len());
    let range = 3_000_000..3_200_000;
    let near = inside.members_near(&(range.start as u64..range.end as u64)).len();
    assert!((1..8).contains(&near), "{near}");
    assembled(&container, &inside, range, |_| true).unwrap();
}

#[test]
fn stretches_of_what_is_packed_are_found_again() {
    let plain = text(1, 300_000);
    let container = gzip(&plain, 6);
    let stream = look_at(&container).unwrap().streams[0].clone();
    let find = |wanted: &[Range<u64>], room: &mut u64| {
        plain_of(stream.start..stream.end(), wanted, room, &mut reader(&container)).unwrap()
    };
    let found = find(&[0..10, 5..200_000, 100_000..100_001, 299_990..300_000], &mut (1 << 20));
    let found = found.unwrap();
    assert_eq!(found[0], plain[..10]);
    assert_eq!(found[1], plain[5..200_000]);
    assert_eq!(found[2], plain[100_000..100_001]);
    assert_eq!(found[3], plain[299_990..]);
    let beyond = 299_990..300_001;
    assert_eq!(find(std::slice::from_ref(&beyond), &mut (1 << 20)), None, "beyond the end");
    let mut room = 100_000;
    assert_eq!(find(std::slice::from_ref(&(0..200_000)), &mut room), None, "too much");
    assert_eq!(room, 0);
    let mut short = reader(&container);
    let none = plain_of(3..900, std::slice::from_ref(&(0..10)), &mut (1 << 20), &mut short);
    assert_eq!(none.unwrap(), None, "no stream");
}

/// What is known of a container, and what was read at once for that, at most.
fn bounded(file: &[u8]) -> (std::result::Result<Inside, Left>, usize) {
    let (size, mut most) = (file.len() as u64, 0);
    let mut all = reader(file);
    let mut read = |offset: u64, length: usize| {
        most = most.max(length);
        all(offset, length)
    };
    let looked = look(&secret(), Cutter::Gear, (size, region_of(size, 0)), &mut read).unwrap();
    (looked, most)
}

#[test]
fn what_unpacks_to_far_more_takes_no_more_memory() {
    let zeros = vec![0; 20 << 20];
    let bomb = gzip(&zeros, 9);
    let (looked, most) = bounded(&bomb);
    let inside = looked.unwrap();
    assert!(inside.streams[0].plain == 20 << 20 && most <= 4 << 20, "{most}");
    assert!(inside.bytes() < 1 << 20, "{} bytes are remembered", inside.bytes());
    // No stretch of it is unpacked that does not fit.
    let range = 0..bomb.len() as u64;
    assert!(inside.segment(&range, &mut reader(&bomb)).unwrap().is_none_or(|segment| {
        segment.bytes().len() <= delta::INNER_BYTES_MAX && segment.runs() == 0
    }));
    let mut room = 1 << 20;
    let stream = inside.streams[0].start..inside.streams[0].end();
    let far = (15 << 20)..(15 << 20) + 10;
    let found = plain_of(stream, std::slice::from_ref(&far), &mut room, &mut reader(&bomb));
    assert_eq!((found.unwrap(), room), (None, 0));
}

#[test]
fn a_directory_that_says_more_than_there_is_takes_no_more_memory() {
    let mut container = zip(&[(text(1, 5000), 6), (text(2, 5000), 6)]);
    let end = container.len() - 22;
    for (at, number) in [(12, u32::MAX), (16, u32::MAX), (12, 1 << 30), (16, end as u32)] {
        let before = container[end + at..end + at + 4].to_vec();
        container[end + at..end + at + 4].copy_from_slice(&number.to_le_bytes());
        let (looked, most) = bounded(&container);
        assert!(most <= 16 << 20, "{most}");
        if let Ok(inside) = looked {
            assembled(&container, &inside, 0..container.len(), |_| true);
        }
        container[end + at..end + at + 4].copy_from_slice(&before);
    }
}

/// Each of very many entries says that all of the file is its member, from another byte on or from
/// the same, and no stream begins there.
#[test]
fn members_that_are_one_and_no_stream_are_not_read_each_time() {
    const ENTRIES: u32 = 10_000;
    for step in [0, 1] {
        // A stored block whose length is wrong: what is behind it is read before that shows.
        let mut file = vec![0; MEMBER_HEAD_BYTES];
        file[..4].copy_from_slice(b"PK\x03\x04");
        file.resize(2 << 20, 0x06);
        let member = file.len() as u32 - MEMBER_HEAD_BYTES as u32 - ENTRIES;
        let mut directory = Vec::new();
        for number in 0..ENTRIES {
            let mut entry = [&b"PK\x01\x02"[..], &[0; 42]].concat();
            entry[10] = 8;
            entry[20..24].copy_from_slice(&member.to_le_bytes());
            entry[24..28].copy_from_slice(&member.to_le_bytes());
            entry[42..46].copy_from_slice(&(number * step).to_le_bytes());
            file[(number * step) as usize..][..4].copy_from_slice(b"PK\x03\x04");
            directory.extend(entry);
        }
        let start = file.len() as u32;
        file.extend(&directory);
        file.extend(
            [b"PK\x05\x06\0\0\0\0\0\0\0\0", &(directory.len() as u32).to_le_bytes()[..]].concat(),
        );
        file.extend([&start.to_le_bytes()[..], &[0, 0]].concat());
        let (mut read, size) = (0u64, file.len() as u64);
        let mut counted = |offset: u64, length: usize| {
            let found = reader(&file)(offset, length)?;
            read += found.len() as u64;
            Ok(found)
        };
        let found = look(&secret(), Cutter::Gear, (size, 0..size), &mut counted).unwrap();
        assert!(found.is_err(), "{found:?}");
        assert!(read < 5 * size + READ_MORE, "{read} bytes were read of {size}");
    }
}

#[test]
fn what_is_packed_within_what_is_packed_is_a_member_as_it_is() {
    let document = zip(&[(text(1, 30_000), 6), (noise(2, 20_000), 0)]);
    let files = [document.clone(), text(3, 9_000)];
    for container in [gzip(&tar(&files), 6), zip(&files.map(|file| (file, 6)))] {
        let inside = look_at(&container).unwrap();
        let members = inside.streams.iter().flat_map(|stream| &stream.members);
        let found: Vec<_> = members.map(|member| member.contents).collect();
        assert!(found.contains(&names_of(&document).0), "{found:?}");
        let delta = assembled(&container, &inside, 0..container.len(), |held| held.is_member);
        let bytes = delta.unwrap().bytes.len();
        assert!(bytes < 800, "{bytes} bytes of {}", container.len());
    }
}

#[test]
fn what_is_no_container_has_nothing_inside() {
    assert_eq!(look_at(&text(1, 5000)), Err(Left::Unknown));
    assert_eq!(look_at(b""), Err(Left::Unknown));
    let torn = &gzip(&text(1, 50_000), 6)[..9_000];
    assert_eq!(look_at(torn), Err(Left::Damaged));
    assert_eq!(look_at(b"PK\x03\x04"), Err(Left::Unknown));
}

#[test]
fn members_that_are_encrypted_or_odd_are_counted() {
    let mut container = zip(&[(text(1, 5000), 6), (text(2, 5000), 6), (text(3, 5000), 6)]);
    let entry = |container: &[u8], n| {
        let starts = container.windows(4).enumerate().filter(|(_, w)| *w == b"PK\x01\x02");
        starts.map(|(at, _)| at).nth(n).unwrap()
    };
    let (first, third) = (entry(&container, 0), entry(&container, 2));
    container[first + 8] |= 1;
    container[third + 10] = 14;
    let inside = look_at(&container).unwrap();
    assert_eq!((inside.encrypted, inside.odd, inside.members()), (1, 1, 1));
    assembled(&container, &inside, 0..container.len(), |_| true).unwrap();
}

#[test]
fn nonsense_is_refused() {
    let container = gzip(&text(1, 50_000), 6);
    let inside = look_at(&container).unwrap();
    let delta = assembled(&container, &inside, 0..container.len(), |_| false).unwrap();
    for length in 0..delta.bytes.len().min(200) {
        let bytes = delta.bytes[..length].to_vec().into();
        let torn = Delta { bytes, ..delta.clone() };
        assert_eq!(unpack_assembled(&secret(), &torn, &[], 1 << 20).unwrap(), None);
    }
    assert_eq!(unpack_assembled(&secret(), &delta, b"x", 1 << 20).unwrap(), None, "other parts");
    // Parts of more bytes than anybody takes.
    let many = [&[2, 1][..], &[1, 1, 1, 0, 0xff, 0xff, 0xff, 0x7f].repeat(2)].concat();
    assert!(delta::parts_of(&many).is_err());
    assert!(delta::parts_of(&[0xff, 0xff, 0xff, 1]).is_err());
    assert!(delta::parts_of(&[1, 9]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn prop_any_mixture_of_members_and_stretches_comes_back(
        sizes in prop::collection::vec((0..3u8, 0..30_000usize, 0..=9u32), 0..8),
        as_tar in any::<bool>(),
        (from, to) in any::<(prop::sample::Index, prop::sample::Index)>(),
        mask in any::<u64>(),
    ) {
        let files: Vec<(Vec<u8>, u32)> = sizes.iter().zip(0u32..).map(|((kind, size, level), n)| {
            let bytes = match kind { 0 => noise(n, *size), 1 => vec![0; *size], _ => text(n, *size) };
            (bytes, *level)
        }).collect();
        let container = match as_tar {
            true => gzip(&tar(&files.iter().map(|(file, _)| file.clone()).collect::<Vec<_>>()), 1 + (mask % 9) as u32),
            false => zip(&files),
        };
        if let Ok(inside) = look_at(&container) {
            let (from, to) = (from.index(container.len()), to.index(container.len()));
            let (from, to) = (from.min(to), from.max(to) + 1);
            let has = |held: &Held| mask >> (held.at.start % 64) & 1 == 1;
            assembled(&container, &inside, from..to, has);
        }
    }

    #[test]
    fn prop_damaged_containers_and_deltas_do_not_panic(
        at in any::<prop::sample::Index>(), flip in 1..=255u8,
        (as_tar, large) in any::<(bool, bool)>(),
    ) {
        let files = [text(1, 3_000), noise(2, 500)];
        let mut container = match (as_tar, large) {
            (true, _) => gzip(&tar(&files), 6),
            (false, false) => zip(&files.map(|file| (file, 6))),
            (false, true) => zip64(&files.map(|file| (file, 6))),
        };
        let inside = look_at(&container).unwrap();
        let mut delta = assembled(&container, &inside, 0..container.len(), |_| false).unwrap();
        let place = at.index(delta.bytes.len());
        let mut bytes = delta.bytes.to_vec();
        bytes[place] ^= flip;
        delta.bytes = bytes.into();
        if let Ok(Some(chunks)) = unpack_assembled(&secret(), &delta, &[], 1 << 20) {
            prop_assert_eq!(chunks.concat(), container.clone());
        }
        let place = at.index(container.len());
        container[place] ^= flip;
        for (kind, skip) in [(0, 10), (1, 4), (2, 4), (3, 4)] {
            crate::fuzz_inside(&[&[kind, flip], &container[skip..]].concat());
        }
        let (looked, most) = bounded(&container);
        prop_assert!(most <= 16 << 20);
        if let Ok(inside) = looked {
            prop_assert!(inside.members() <= 4 && inside.bytes() < 1 << 20);
            assembled(&container, &inside, 0..container.len(), |_| true);
        }
    }

    #[test]
    fn prop_arbitrary_bytes_do_not_panic(
        kind in 0..4usize, tail in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let start = [&b"PK\x03\x04"[..], b"\x1f\x8b\x08\0", b"%PDF-stream\n\x78\x9c", b""];
        let file = [start[kind], &tail].concat();
        let _ = look_at(&file);
        crate::fuzz_assembled(&tail);
        crate::fuzz_inside(&tail);
    }
}
