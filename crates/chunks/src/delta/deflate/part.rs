//! Blocks of a stream, one after another: all of it, or some without what is before them.

use super::blocks::Blocks;
use super::predict::{Manner, Predictor};

/// Blocks of a stream, one after another.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    /// From the byte in which the first of them begins.
    pub(crate) packed: &'a [u8],
    /// So many bits of that byte belong to what is before.
    pub(crate) bit: u32,
    /// Their plain bytes, and before them those of the stream that they may refer to.
    pub(crate) plain: &'a [u8],
    /// So many of the plain bytes are before them.
    pub(crate) dictionary: usize,
    /// How many they are; none: all up to the end.
    pub(crate) blocks: Option<usize>,
}

impl<'a> Part<'a> {
    pub(super) fn whole(packed: &'a [u8], plain: &'a [u8]) -> Part<'a> {
        Part { packed, bit: 0, plain, dictionary: 0, blocks: None }
    }

    pub(super) fn stream(&self) -> Option<Blocks<'a>> {
        let before = self.plain.get(..self.dictionary)?;
        Blocks::at(self.packed, self.bit, before.to_vec(), self.plain.len())
    }

    pub(super) fn predictor(&self, manner: Manner) -> Predictor<'a> {
        Predictor::behind(self.dictionary, self.plain, manner)
    }
}

/// How blocks that are made begin and end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Plain bytes that are before them.
    pub(crate) dictionary: usize,
    /// So many bits of the first byte are what is before, and these they are.
    pub(crate) bit: u32,
    pub(crate) bits: u8,
    /// The last of them is the last of the stream.
    pub(crate) last: bool,
}
