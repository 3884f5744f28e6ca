//! A file's contents as a recipe: cut, named and built into a tree in one pass.

mod again;
mod part;

use crate::cut::{Cut, Cutting};
use crate::error::ChunksError;
use crate::fingerprint::Secret;
use crate::recipe::{Builder, Placed, Tree};
use crate::sketch::Looking;
use model::{ChunkName, Piece};
use protocol::Cutter;

pub use again::describe_again;
pub use part::{Lacks, PartOf, Short, describe_part};

/// A file, cut and named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub tree: Tree,
    /// All of the file, in order; of one that has more than fit into memory the first of them.
    pub pieces: Vec<Placed>,
    /// By these a file that is like it can be found; none of a large one, which is like another if
    /// they share chunks.
    pub features: Vec<ChunkName>,
}

/// What the reader finds at an offset of the file.
pub enum Found {
    /// So many bytes were put at the beginning of the buffer. None at all: the file ends here.
    Bytes(usize),
    /// So many zeros, which need not be read.
    Hole(u64),
}

/// Larger files have no features.
const FEATURES_BYTES_MAX: u64 = 1 << 20;

/// Pieces that do not fit are given away so many at a time.
const BEYOND_PIECES: usize = 4096;

/// Bytes that are asked for at once.
const READ_BYTES: usize = 256 << 10;

/// Describes a file of `size` bytes, which `read` reads: offset and buffer in, what is found there
/// out. Errors: `SizeChanged`, and what `read` gives.
pub fn describe<E: From<ChunksError>>(
    secret: &Secret,
    cutter: Cutter,
    size: u64,
    read: impl FnMut(u64, &mut [u8]) -> Result<Found, E>,
) -> Result<Described, E> {
    describe_on(Growing::new(secret, cutter), size, usize::MAX, read, |_| Ok(()))
}

/// The same where a part of it has been cut and named, and of a file that may have more pieces than
/// fit into memory: of the pieces only the first `pieces_max` are kept, and the others go to
/// `beyond`, in order.
pub fn describe_on<E: From<ChunksError>>(
    mut growing: Growing,
    size: u64,
    pieces_max: usize,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<Found, E>,
    mut beyond: impl FnMut(&[Placed]) -> Result<(), E>,
) -> Result<Described, E> {
    let left = size.saturating_sub(growing.pushed);
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(left).unwrap_or(READ_BYTES))];
    while growing.pushed < size {
        let left = size - growing.pushed;
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(buffer.len()));
        match read(growing.pushed, &mut buffer[..wanted])? {
            Found::Bytes(0) | Found::Hole(0) => break,
            Found::Bytes(found) => growing.push(&buffer[..found.min(wanted)], |_, _| ()),
            Found::Hole(zeros) => growing.push_zeros(zeros.min(left)),
        }
        if growing.naming.pieces.len() >= pieces_max.saturating_add(BEYOND_PIECES) {
            beyond(&growing.naming.pieces.split_off(pieces_max))?;
        }
    }
    if growing.pushed != size {
        return Err(ChunksError::SizeChanged { stated: size, found: growing.pushed }.into());
    }
    let mut described = growing.finish();
    if described.pieces.len() > pieces_max {
        beyond(&described.pieces.split_off(pieces_max))?;
    }
    Ok(described)
}

/// Describes contents that are in memory.
pub fn describe_bytes(secret: &Secret, cutter: Cutter, bytes: &[u8]) -> Described {
    let mut growing = Growing::new(secret, cutter);
    growing.push(bytes, |_, _| ());
    growing.finish()
}

/// A file that is cut and named while it grows.
pub struct Growing {
    naming: Naming,
    cutting: Cutting,
    /// None: it is larger than what has features.
    looking: Option<Looking>,
    pushed: u64,
}

impl Growing {
    pub fn new(secret: &Secret, cutter: Cutter) -> Growing {
        let (naming, cutting) = (Naming::new(secret), Cutting::growing(cutter));
        Growing { naming, cutting, looking: Some(Looking::default()), pushed: 0 }
    }

    /// The same for who wants no features: of a small file they take longer than all the rest.
    pub fn without_features(secret: &Secret, cutter: Cutter) -> Growing {
        Growing { looking: None, ..Growing::new(secret, cutter) }
    }

    /// Bytes that have been pushed.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The pieces that are complete: whatever comes, the file has them.
    pub fn pieces(&self) -> &[Placed] {
        &self.naming.pieces
    }

    /// The next bytes. `made` gets the name and the bytes of each chunk that is complete with them.
    pub fn push(&mut self, bytes: &[u8], mut made: impl FnMut(&ChunkName, &[u8])) {
        self.go_on(bytes.len() as u64);
        if let Some(looking) = &mut self.looking {
            looking.push(bytes);
        }
        let naming = &mut self.naming;
        self.cutting.push(bytes, &mut |cut| {
            naming.take(cut);
            if let (Some(Piece::Chunk { name, .. }), Cut::Chunk(bytes)) = (naming.last(), cut) {
                made(&name, bytes);
            }
        });
    }

    /// The next bytes are so many zeros.
    pub fn push_zeros(&mut self, zeros: u64) {
        self.go_on(zeros);
        if let Some(looking) = &mut self.looking {
            looking.push_zeros(zeros);
        }
        self.cutting.push_zeros(zeros);
    }

    /// The file ends here.
    pub fn finish(self) -> Described {
        let Growing { mut naming, cutting, looking, .. } = self;
        cutting.finish(&mut |cut| naming.take(cut)).expect("no size was stated");
        let features = looking.map(|looking| looking.finish(&naming.secret)).unwrap_or_default();
        naming.finish(features)
    }

    fn go_on(&mut self, bytes: u64) {
        self.pushed = self.pushed.saturating_add(bytes);
        if self.pushed > FEATURES_BYTES_MAX {
            self.looking = None;
        }
    }
}

pub(crate) struct Naming {
    secret: Secret,
    builder: Builder,
    pieces: Vec<Placed>,
    offset: u64,
}

impl Described {
    /// Whether the pieces are all of the file.
    pub fn has_all_pieces(&self) -> bool {
        self.pieces.last().map_or(0, Placed::end) == self.tree.contents.size
    }
}

impl Naming {
    pub(crate) fn new(secret: &Secret) -> Naming {
        let (secret, builder) = (secret.clone(), Builder::new(secret));
        Naming { secret, builder, pieces: Vec::new(), offset: 0 }
    }

    pub(crate) fn take(&mut self, cut: Cut<'_>) {
        let piece = match cut {
            Cut::Chunk(bytes) => {
                Piece::Chunk { name: self.secret.name(bytes), length: bytes.len() as u64 }
            }
            Cut::Zeros(length) => Piece::Zeros { length },
        };
        self.keep(piece);
    }

    fn last(&self) -> Option<Piece> {
        self.pieces.last().map(|placed| placed.piece)
    }

    /// A piece that is as it was.
    fn keep(&mut self, piece: Piece) {
        self.builder.push(piece);
        self.pieces.push(Placed { offset: self.offset, piece });
        self.offset += piece.length();
    }

    pub(crate) fn finish(self, features: Vec<ChunkName>) -> Described {
        Described { tree: self.builder.finish(), pieces: self.pieces, features }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(seed: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let key: [u8; 32] = std::array::from_fn(|at| seed.to_le_bytes()[at % 8]);
        blake3::Hasher::new_keyed(&key).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn stretches() -> impl Strategy<Value = Vec<u8>> {
        let stretch = prop_oneof![
            (any::<u64>(), 0..900_000usize).prop_map(|(seed, length)| noise(seed, length)),
            (0..150_000usize).prop_map(|length| vec![0; length]),
            (65_530..65_545usize).prop_map(|length| vec![0; length]),
        ];
        prop::collection::vec(stretch, 0..5).prop_map(|stretches| stretches.concat())
    }

    #[test]
    fn of_pieces_that_do_not_fit_none_is_kept_and_none_is_left_out() {
        let bytes = noise(1, 2_000_000);
        let secret = Secret::new([7; 32]);
        let whole = describe_bytes(&secret, Cutter::Gear, &bytes);
        for most in [0, 1, 50, 100_000] {
            let (growing, size) = (Growing::new(&secret, Cutter::Gear), bytes.len() as u64);
            let (mut beyond, mut longest) = (Vec::new(), 0);
            let read = |offset: u64, buffer: &mut [u8]| {
                let rest = &bytes[usize::try_from(offset).expect("it is in memory")..];
                let found = rest.len().min(buffer.len());
                buffer[..found].copy_from_slice(&rest[..found]);
                Ok::<_, ChunksError>(Found::Bytes(found))
            };
            let described = describe_on(growing, size, most, read, |pieces| {
                longest = longest.max(pieces.len());
                beyond.extend_from_slice(pieces);
                Ok(())
            });
            let described = described.expect("it fits");
            assert!(described.pieces.len() <= most);
            assert!(longest < BEYOND_PIECES + READ_BYTES / 1024, "{longest} at once");
            assert_eq!(described.has_all_pieces(), beyond.is_empty());
            assert_eq!([&described.pieces[..], &beyond].concat(), whole.pieces);
            assert_eq!(described.tree, whole.tree);
        }
    }

    #[test]
    fn without_features_the_file_is_cut_and_named_alike() {
        let (secret, bytes) = (Secret::new([7; 32]), noise(3, 50_000));
        let mut growing = Growing::without_features(&secret, Cutter::Gear);
        growing.push(&bytes, |_, _| ());
        let (bare, whole) = (growing.finish(), describe_bytes(&secret, Cutter::Gear, &bytes));
        assert_eq!((&bare.tree, &bare.pieces), (&whole.tree, &whole.pieces));
        assert!(bare.features.is_empty() && !whole.features.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn prop_what_is_complete_stays_whatever_comes_after_it(
            bytes in stretches(),
            steps in prop::collection::vec(1..400_000usize, 1..5),
            rabin in any::<bool>(),
        ) {
            let cutter = if rabin { Cutter::Rabin } else { Cutter::Gear };
            let secret = Secret::new([7; 32]);
            let whole = describe(&secret, cutter, bytes.len() as u64, |offset, buffer| {
                let rest = &bytes[usize::try_from(offset).expect("it is in memory")..];
                let found = rest.len().min(buffer.len());
                buffer[..found].copy_from_slice(&rest[..found]);
                Ok::<_, ChunksError>(Found::Bytes(found))
            }).expect("it fits");
            let mut growing = Growing::new(&secret, cutter);
            let (mut rest, mut made) = (&bytes[..], 0);
            for step in steps.iter().cycle() {
                let (some, later) = rest.split_at((*step).min(rest.len()));
                growing.push(some, |name, bytes| {
                    assert_eq!(*name, secret.name(bytes));
                    made += 1;
                });
                rest = later;
                let here = growing.pieces();
                prop_assert_eq!(here, &whole.pieces[..here.len()]);
                let chunks = |placed: &&Placed| matches!(placed.piece, Piece::Chunk { .. });
                prop_assert_eq!(made, here.iter().filter(chunks).count());
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(growing.pushed(), bytes.len() as u64);
            prop_assert_eq!(growing.finish(), whole);
        }
    }
}
