//! The contents of several files in one answer, as one stream.
//! Holds: what cannot be given of one file does not keep the others back; the first file is always
//! answered, so that whoever asks gets on; an answer fits in a message.
//! From: beyond LBFS, which reads one file at a time.

use super::contents::{cover, found, is_all_chunks, pieces_of, version_of};
use crate::deltas::{BASES_BYTES_MAX, delta_of, sequel_of};
use crate::error::Result;
use crate::origin::Inner;
use crate::volumes::Volume;
use chunks::Squeeze;
use chunks::delta::Effort;
use chunks::payload::PAYLOAD_CHUNKS_MAX;
use minicbor::bytes::ByteVec;
use model::{Contents, FileId, Piece, Stamp};
use protocol::{
    GATHERED_FILES_MAX, Gathered, PAYLOAD_BYTES_MAX, Portion, Range, Refusal, Sought, Wish,
};
use volume::whole::Whole;

/// Stretches and pieces that are looked for in one answer, beyond those of the last file: zeros are
/// no bytes in it, and may be as many as whoever wrote them likes.
const LOOKS_MAX: usize = 40_000;

/// What is asked for.
pub(crate) struct GatherWanted {
    pub files: Vec<Wish>,
    pub bytes_max: u64,
    pub sought: Sought,
    pub held: Vec<(FileId, Stamp)>,
    pub squeeze: Squeeze,
}

/// The first of the files, as many as there is room for.
pub(crate) fn gather(
    inner: &Inner,
    volume: &Volume,
    wanted: &GatherWanted,
) -> Result<Result<Gathered, Refusal>> {
    let GatherWanted { files, bytes_max, sought, held, squeeze } = wanted;
    if files.len() > GATHERED_FILES_MAX {
        let what = format!("{} files at once, of {GATHERED_FILES_MAX}", files.len());
        return Ok(Err(Refusal::Malformed(what)));
    }
    let tables = inner.tables.read()?;
    let view = Whole::now(&*tables, volume.id);
    let room = usize::try_from(*bytes_max).unwrap_or(usize::MAX).min(PAYLOAD_BYTES_MAX);
    let mut gathering = Gathering { room, portions: Vec::new(), plain: Vec::new() };
    let mut bases_left = BASES_BYTES_MAX;
    let mut looks_left = LOOKS_MAX;
    for wish in files {
        if looks_left == 0 {
            break;
        }
        bases_left = bases_left.saturating_sub(wish.base.map_or(0, |base| base.stretch.length));
        let wish = Wish { base: wish.base.filter(|_| bases_left > 0), ..wish.clone() };
        let given = match version_of(&view, wish.file, Some(wish.version))? {
            Ok((version, contents)) => {
                let given = give(inner, volume, (&wish, *sought), contents, &mut looks_left);
                inner.wanting(volume, (wish.file, version), &contents, given)
            }
            Err(_) => Ok(Given::Nothing),
        };
        let given = given.unwrap_or_else(|error| {
            tracing::debug!(file = %wish.file, %error, "left out of what is given together");
            Given::Nothing
        });
        if !gathering.take(given) {
            break;
        }
    }
    let plain: Vec<&[u8]> = gathering.plain.iter().map(Vec::as_slice).collect();
    let sequel = sequel_of(inner, volume, held, &plain)?;
    let alone: &[&[u8]] = if sequel.is_some() { &[] } else { &plain };
    let payload = chunks::pack_for(alone, *squeeze);
    Ok(Ok(Gathered { portions: gathering.portions, payload, sequel }))
}

/// What there is of one file.
enum Given {
    Portion(Portion, usize),
    Chunks(Contents, Vec<Vec<u8>>),
    Nothing,
}

fn give(
    inner: &Inner,
    volume: &Volume,
    (wish, sought): (&Wish, Sought),
    contents: Contents,
    looks_left: &mut usize,
) -> Result<Given> {
    let mut looked = |looks: usize| *looks_left = looks_left.saturating_sub(looks);
    looked(wish.ranges.as_ref().map_or(1, Vec::len));
    if contents.size > PAYLOAD_BYTES_MAX as u64 {
        return Ok(Given::Nothing);
    }
    let pieces = match (&wish.ranges, sought) {
        (Some(ranges), Sought::Contents) => {
            match pieces_of(inner, volume, wish.file, &contents, ranges)? {
                Ok(pieces) => {
                    looked(pieces.len());
                    pieces
                }
                Err(_) => {
                    looked(PAYLOAD_CHUNKS_MAX);
                    return Ok(Given::Nothing);
                }
            }
        }
        _ => {
            let whole = Range { offset: 0, length: contents.size };
            let cover = cover(inner, volume, &contents, whole)?;
            looked(cover.pieces.len());
            if sought == Sought::Recipes {
                let bytes = cover.recipe.iter().map(|recipe: &ByteVec| recipe.len()).sum();
                return Ok(Given::Portion(
                    Portion::Recipe { contents, recipe: cover.recipe },
                    bytes,
                ));
            }
            cover.pieces.iter().map(|placed| placed.piece).collect::<Vec<Piece>>()
        }
    };
    if !is_all_chunks(&pieces) || pieces.len() > PAYLOAD_CHUNKS_MAX {
        return Ok(Given::Nothing);
    }
    let chunks = found(inner, volume, &pieces)?;
    Ok(match delta_of(inner, volume, wish.base, &chunks, Effort::Usual)? {
        Some(delta) => {
            let bytes = delta.bytes.len();
            Given::Portion(Portion::Delta { contents, delta }, bytes)
        }
        None => Given::Chunks(contents, chunks),
    })
}

struct Gathering {
    room: usize,
    portions: Vec<Portion>,
    plain: Vec<Vec<u8>>,
}

impl Gathering {
    /// False: there is no room for it, nor for more.
    fn take(&mut self, given: Given) -> bool {
        let bytes = match &given {
            Given::Portion(_, bytes) => *bytes,
            Given::Chunks(_, chunks) => chunks.iter().map(Vec::len).sum(),
            Given::Nothing => 0,
        };
        let chunks = if let Given::Chunks(_, chunks) = &given { chunks.len() } else { 0 };
        let first = self.portions.is_empty();
        if !first && (bytes > self.room || self.plain.len() + chunks > PAYLOAD_CHUNKS_MAX) {
            return false;
        }
        self.room = self.room.saturating_sub(bytes);
        self.portions.push(match given {
            Given::Portion(portion, _) => portion,
            Given::Chunks(contents, found) => {
                self.plain.extend(found);
                let chunks = u32::try_from(chunks).expect("a payload has few enough");
                Portion::Plain { contents, chunks }
            }
            Given::Nothing => Portion::Nothing,
        });
        true
    }
}
