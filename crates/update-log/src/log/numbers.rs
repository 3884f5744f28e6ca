//! A set of numbers that mostly follow each other, in a bit for each.

use std::collections::BTreeMap;

const WORDS: usize = 64;
const BLOCK: u64 = WORDS as u64 * 64;

#[derive(Default)]
pub struct Numbers {
    /// By number, in blocks of as many; none is empty.
    blocks: BTreeMap<u64, Box<Block>>,
    len: usize,
}

struct Block {
    words: [u64; WORDS],
    len: usize,
}

impl Block {
    /// The first number of the block that is not below `at`.
    fn next(&self, at: u64) -> Option<u64> {
        let (word, bit) = place(at);
        let first = self.words[word] & (u64::MAX << bit);
        let rest = self.words.iter().enumerate().skip(word + 1).map(|(word, bits)| (word, *bits));
        let mut words = std::iter::once((word, first)).chain(rest);
        let (word, bits) = words.find(|(_, bits)| *bits != 0)?;
        Some(word as u64 * 64 + u64::from(bits.trailing_zeros()))
    }
}

/// Word and bit of a number in its block.
fn place(number: u64) -> (usize, u32) {
    let at = number % BLOCK;
    ((at / 64) as usize, (at % 64) as u32)
}

impl Numbers {
    /// False: it was there.
    pub fn insert(&mut self, number: u64) -> bool {
        let empty = || Box::new(Block { words: [0; WORDS], len: 0 });
        let block = self.blocks.entry(number / BLOCK).or_insert_with(empty);
        let (word, bit) = place(number);
        let is_new = block.words[word] & (1 << bit) == 0;
        block.words[word] |= 1 << bit;
        block.len += usize::from(is_new);
        self.len += usize::from(is_new);
        is_new
    }

    /// False: it was not there.
    pub fn remove(&mut self, number: u64) -> bool {
        if !self.contains(number) {
            return false;
        }
        if let Some(block) = self.blocks.get_mut(&(number / BLOCK)) {
            let (word, bit) = place(number);
            block.words[word] &= !(1 << bit);
            block.len -= 1;
            if block.len == 0 {
                self.blocks.remove(&(number / BLOCK));
            }
        }
        self.len -= 1;
        true
    }

    pub fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        let block = self.blocks.get(&(number / BLOCK));
        block.is_some_and(|block| block.words[word] & (1 << bit) != 0)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn first(&self) -> Option<u64> {
        self.next(0)
    }

    /// The first that is not below `from`.
    pub fn next(&self, from: u64) -> Option<u64> {
        let at = from / BLOCK;
        let here = self.blocks.get(&at).and_then(|block| block.next(from));
        if let Some(here) = here {
            return Some(at * BLOCK + here);
        }
        let (at, block) = self.blocks.range(at.checked_add(1)?..).next()?;
        Some(at * BLOCK + block.next(0)?)
    }

    /// From `from` on, in order.
    pub fn from(&self, from: u64) -> impl Iterator<Item = u64> {
        let mut at = Some(from);
        std::iter::from_fn(move || {
            let number = self.next(at?)?;
            at = number.checked_add(1);
            Some(number)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn prop_it_is_a_set(
            calls in prop::collection::vec((any::<bool>(), 0..3 * BLOCK), 1..200),
            asked in 0..4 * BLOCK,
        ) {
            let (mut numbers, mut naive) = (Numbers::default(), BTreeSet::new());
            for (insert, number) in calls {
                // Close together, as they are, and at the edges of words and blocks.
                let number = if number % 3 == 0 { number / 64 * 64 } else { number };
                match insert {
                    true => prop_assert_eq!(numbers.insert(number), naive.insert(number)),
                    false => prop_assert_eq!(numbers.remove(number), naive.remove(&number)),
                }
                prop_assert_eq!(numbers.contains(number), naive.contains(&number));
            }
            prop_assert_eq!(numbers.len(), naive.len());
            prop_assert_eq!(numbers.first(), naive.first().copied());
            let from: Vec<u64> = numbers.from(asked).collect();
            let wanted: Vec<u64> = naive.range(asked..).copied().collect();
            prop_assert_eq!(from, wanted);
            naive.iter().for_each(|number| { numbers.remove(*number); });
            prop_assert!(numbers.blocks.is_empty());
        }
    }

    #[test]
    fn the_last_number_of_all_is_one() {
        let mut numbers = Numbers::default();
        numbers.insert(u64::MAX);
        assert_eq!(numbers.from(7).collect::<Vec<_>>(), [u64::MAX]);
    }
}
