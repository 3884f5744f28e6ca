//! How much of a file is holes, by its recipe.
//! Holds: each recipe chunk is read once, however often it comes up.

use super::walk::{checked, root};
use crate::error::{ChunksError, Result};
use crate::fingerprint::Secret;
use model::{ChunkName, Contents, Piece};
use std::collections::HashMap;
use store::StoreError;

/// What is known of a recipe chunk, by name, length and depth: the bytes of holes below it.
type Known = HashMap<(ChunkName, u64, u8), u64>;

/// Whether the contents say themselves how much of them is holes, and it is so. Who does not say
/// it is right. None: a recipe chunk is not at hand.
/// Errors: `BadRecipe`, `WrongBytes`, and what `fetch` gives.
pub fn counts_holes(
    secret: &Secret,
    contents: &Contents,
    mut fetch: impl FnMut(&ChunkName) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<Option<bool>> {
    let Some(said) = contents.holes else { return Ok(Some(true)) };
    let Some((piece, depth)) = root(contents)? else { return Ok(Some(said == 0)) };
    let found = below(secret, &piece, depth, &mut Known::new(), &mut fetch)?;
    Ok(found.map(|found| found == said))
}

/// Calls itself at most `DEPTH_MAX` deep.
fn below(
    secret: &Secret,
    piece: &Piece,
    depth: u8,
    known: &mut Known,
    fetch: &mut impl FnMut(&ChunkName) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<Option<u64>> {
    let (name, length) = match *piece {
        Piece::Zeros { length } => return Ok(Some(length)),
        Piece::Chunk { .. } if depth == 0 => return Ok(Some(0)),
        Piece::Chunk { name, length } => (name, length),
    };
    if let Some(found) = known.get(&(name, length, depth)) {
        return Ok(Some(*found));
    }
    let Some(bytes) = fetch(&name)? else { return Ok(None) };
    let mut holes = 0_u64;
    for piece in checked(secret, &name, length, depth, &bytes)?.pieces {
        let Some(found) = below(secret, &piece, depth - 1, known, fetch)? else { return Ok(None) };
        holes = holes
            .checked_add(found)
            .ok_or_else(|| ChunksError::BadRecipe(format!("{name} has more holes than bytes")))?;
    }
    known.insert((name, length, depth), holes);
    Ok(Some(holes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::build;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn piece() -> impl Strategy<Value = Piece> {
        let zeros = (1..1_000_000_u64).prop_map(|length| Piece::Zeros { length });
        let chunk = (0..200_u8, 1..65_536_u64)
            .prop_map(|(name, length)| Piece::Chunk { name: ChunkName([name; 24]), length });
        prop_oneof![1 => zeros, 4 => chunk]
    }

    proptest! {
        #[test]
        fn prop_holes_are_the_zeros_of_the_recipe_and_nothing_else_is_believed(
            pieces in proptest::collection::vec(piece(), 0..400), lie in 1..1000_u64,
        ) {
            let secret = Secret::new([7; 32]);
            let tree = build(&secret, pieces.clone());
            let zeros: u64 = pieces
                .iter()
                .filter(|piece| matches!(piece, Piece::Zeros { .. }))
                .map(Piece::length)
                .sum();
            prop_assert_eq!(tree.contents.holes.unwrap_or(0), zeros);
            let chunks: BTreeMap<_, _> = tree.chunks.iter().cloned().collect();
            let mut asked = Vec::new();
            let mut counts = |contents: &Contents| {
                counts_holes(&secret, contents, |name| {
                    asked.push(*name);
                    Ok(chunks.get(name).cloned())
                })
            };
            prop_assert_eq!(counts(&tree.contents).unwrap(), Some(true));
            let unsaid = Contents { holes: None, ..tree.contents };
            prop_assert_eq!(counts(&unsaid).unwrap(), Some(true));
            let lying = Contents { holes: Some(zeros + lie), ..tree.contents };
            prop_assert!(!matches!(counts(&lying), Ok(Some(true))));
            if zeros > 0 {
                let other = Contents { holes: Some(zeros - 1), ..tree.contents };
                prop_assert_eq!(counts(&other).unwrap(), Some(false));
                let missing = counts_holes(&secret, &tree.contents, |_| Ok(None)).unwrap();
                prop_assert_eq!(missing, None);
            }
        }
    }
}
