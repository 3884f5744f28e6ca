//! Pictures whose stream stands in many pieces.

use super::*;

/// Rows of a picture: mostly like the one above, with a filter's byte in front.
fn rows(seed: u32) -> Vec<u8> {
    text(seed, 400_000).chunks(999).flat_map(|row| [&[1], row].concat()).collect()
}

/// A picture's file; its checksums are nonsense, as nobody here believes them.
fn png(plain: &[u8], level: u32, piece: usize, about: &[u8]) -> Vec<u8> {
    let packed = [b"\x78\x9c", &deflated(plain, level)[..], &noise(9, 4)].concat();
    let chunk = |kind: &[u8], data: &[u8]| {
        let length = (data.len() as u32).to_be_bytes();
        [&length[..], kind, data, &noise(data.len() as u32, 4)].concat()
    };
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    file.extend([chunk(b"IHDR", &[7; 13]), chunk(b"tEXt", about)].concat());
    packed.chunks(piece).for_each(|data| file.extend(chunk(b"IDAT", data)));
    file.extend(chunk(b"IEND", b""));
    file
}

#[test]
fn a_pictures_rows_bear_the_same_names_however_they_are_packed() {
    let plain = rows(1);
    let expected = names_of(&plain);
    for (level, piece) in [(6, 8192), (6, 1 << 30), (9, 65_536), (1, 3)] {
        let plain = if piece == 3 { &plain[..9000] } else { &plain[..] };
        let file = png(plain, level, piece, b"by nobody");
        let inside = look_at(&file).unwrap();
        let [stream] = &inside.streams[..] else { panic!("one stream") };
        let [member] = &stream.members[..] else { panic!("one member") };
        if piece > 3 {
            assert_eq!((member.contents, member.pieces.clone()), expected);
            assert_eq!(stream.end(), file.len() as u64 - 4 - 4 - 12);
        } else {
            assert_eq!(member.contents, names_of(plain).0);
        }
    }
}

#[test]
fn a_picture_of_which_the_rows_are_there_takes_little() {
    let file = png(&rows(2), 6, 8192, b"");
    let inside = look_at(&file).unwrap();
    let delta = assembled(&file, &inside, 0..file.len(), |held| !held.is_member).unwrap();
    let (most, frames) = (400, file.len() / 8192);
    let most = most + 8 * frames + 31 * inside.streams[0].members[0].pieces.len();
    assert!(delta.bytes.len() < most, "{} of {}: over {most}", delta.bytes.len(), file.len());
}

#[test]
fn an_edited_picture_has_most_rows_of_the_one_before() {
    let (old, mut new) = (rows(3), rows(3));
    new[200_000..203_000].copy_from_slice(&noise(4, 3000));
    let of = |file: &[u8]| look_at(file).unwrap().streams[0].members[0].clone();
    let known = of(&png(&old, 6, 8192, b""));
    let known: HashSet<_> = chunks_of(&known).map(|(_, name, _)| name).collect();
    let file = png(&new, 6, 16_384, b"edited");
    let inside = look_at(&file).unwrap();
    let has = |held: &Held| {
        !held.is_member && held.contents.root.is_some_and(|root| known.contains(&root.name))
    };
    let delta = assembled(&file, &inside, 0..file.len(), has).unwrap();
    assert!(delta.bytes.len() < file.len() / 4, "{} of {}", delta.bytes.len(), file.len());
}

#[test]
fn stretches_of_a_picture_begin_and_end_anywhere() {
    let file = png(&rows(5)[..150_000], 6, 700, b"");
    let inside = look_at(&file).unwrap();
    let start = inside.streams[0].start as usize;
    let frame = start + 698;
    let far = frame + 50 * 712;
    for by in 0..16 {
        for range in [frame - 2 + by..far, start..far - 2 + by, far - 2 + by..file.len()] {
            assembled(&file, &inside, range, |_| false).unwrap();
        }
    }
}

#[test]
fn stretches_of_a_pictures_rows_are_found_again() {
    let plain = rows(6);
    let file = png(&plain, 6, 8192, b"");
    let inside = look_at(&file).unwrap();
    let version = (FileId(1), Stamp::default());
    let mut found = 0;
    for (name, place) in index::places(version, &inside) {
        let stream = place.start..place.start + place.packed;
        let wanted = place.offset..place.plain_end();
        let wanted = std::slice::from_ref(&wanted);
        let mut room = 1 << 24;
        let bytes = plain_of(stream, wanted, &mut room, &mut reader(&file)).unwrap().unwrap();
        assert!(secret().check(&name, &bytes[0]).is_ok());
        found += 1;
    }
    assert!(found > 10, "{found} chunks");
}

#[test]
fn pieces_that_say_too_much_are_no_harm() {
    let file = png(&text(7, 20_000), 6, 500, b"");
    let heads: Vec<_> = (0..file.len() - 4).filter(|at| &file[*at..][..4] == b"IDAT").collect();
    for at in heads {
        for length in [[0; 4], [0, 0, 0, 1], [0, 0, 2, 0], [255; 4]] {
            let mut file = file.clone();
            file[at - 4..at].copy_from_slice(&length);
            let Ok(inside) = look_at(&file) else { continue };
            let all = 0..file.len();
            assembled(&file, &inside, all, |_| false).expect("what it found comes back");
        }
    }
    assert!(look_at(&file[..300]).is_err());
}

proptest! {
    #[test]
    fn prop_damaged_pictures_come_back_or_stay_as_they_are(
        piece in 1usize..3000,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ends in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
    ) {
        let mut file = png(&text(8, 15_000), 6, piece, b"about");
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        let (from, to) = (ends.0.index(file.len()), ends.1.index(file.len()));
        if let Ok(inside) = look_at(&file) {
            let range = from.min(to)..from.max(to) + 1;
            prop_assert!(assembled(&file, &inside, range, |_| false).is_some());
        }
    }
}
