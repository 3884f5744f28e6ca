//! The Huffman codes of a deflate block: how one is read, how it is written, and which one zlib
//! makes of how often each symbol comes up, ties and all.
//! From: RFC 1951, 3.2; the ties are zlib's.

use super::bits::{BitReader, BitWriter};

pub(super) const LITERALS: usize = 286;
pub(super) const DISTANCES: usize = 30;
const LENGTH_CODES: usize = 19;
pub(super) const END_OF_BLOCK: usize = 256;

/// In which order the lengths of the codes for lengths stand in a block's head.
const ORDER: [usize; LENGTH_CODES] =
    [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// The bits of each symbol's code, 0 for symbols without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lengths {
    pub(super) literals: Vec<u8>,
    pub(super) distances: Vec<u8>,
}

impl Lengths {
    /// Those of a block that brings none.
    pub(super) fn fixed() -> Lengths {
        let literals = (0..288).map(|n| match n {
            0..144 => 8,
            144..256 => 9,
            256..280 => 7,
            _ => 8,
        });
        Lengths { literals: literals.collect(), distances: vec![5; 30] }
    }

    /// From a block's head.
    pub(super) fn read(bits: &mut BitReader<'_>) -> Option<Lengths> {
        let literals = bits.take(5)? as usize + 257;
        let distances = bits.take(5)? as usize + 1;
        let lengths = bits.take(4)? as usize + 4;
        if literals > LITERALS || distances > DISTANCES {
            return None;
        }
        let mut of_lengths = [0; LENGTH_CODES];
        for place in &ORDER[..lengths] {
            of_lengths[*place] = bits.take(3)? as u8;
        }
        let code = Decoder::new(&of_lengths)?;
        let mut all: Vec<u8> = Vec::with_capacity(literals + distances);
        while all.len() < literals + distances {
            let (length, times) = match code.symbol(bits)? {
                16 => (*all.last()?, bits.take(2)? + 3),
                17 => (0, bits.take(3)? + 3),
                18 => (0, bits.take(7)? + 11),
                length => (length as u8, 1),
            };
            all.resize(all.len() + times as usize, length);
        }
        if all.len() > literals + distances {
            return None;
        }
        let distances = all.split_off(literals);
        Some(Lengths { literals: all, distances })
    }

    /// What zlib makes for symbols that come up so often.
    pub(super) fn of(literals: &[u32; LITERALS], distances: &[u32; DISTANCES]) -> Lengths {
        Lengths { literals: code_lengths(literals, 15), distances: code_lengths(distances, 15) }
    }

    /// A block's head as zlib writes it.
    pub(super) fn write(&self, bits: &mut BitWriter) -> Option<()> {
        let mut runs = runs(&self.literals);
        runs.extend(self::runs(&self.distances));
        let mut often = [0; LENGTH_CODES];
        for (symbol, _) in &runs {
            often[*symbol] += 1;
        }
        let mut lengths = code_lengths(&often, 7);
        lengths.resize(LENGTH_CODES, 0);
        let named =
            ORDER.iter().rposition(|place| lengths[*place] != 0).map_or(4, |n| (n + 1).max(4));
        bits.put(self.literals.len() as u32 - 257, 5)?;
        bits.put(self.distances.len() as u32 - 1, 5)?;
        bits.put(named as u32 - 4, 4)?;
        for place in &ORDER[..named] {
            bits.put(u32::from(lengths[*place]), 3)?;
        }
        let code = codes(&lengths);
        for (symbol, times) in runs {
            bits.put(code[symbol], u32::from(lengths[symbol]))?;
            match symbol {
                16 => bits.put(times - 3, 2)?,
                17 => bits.put(times - 3, 3)?,
                18 => bits.put(times - 11, 7)?,
                _ => {}
            }
        }
        Some(())
    }
}

/// Lengths of codes as symbols, each with how many lengths it stands for.
fn runs(lengths: &[u8]) -> Vec<(usize, u32)> {
    let mut runs = Vec::new();
    for run in lengths.chunk_by(|a, b| a == b) {
        let length = run[0];
        let mut left = run.len() as u32;
        // The length itself comes once before it is said to be repeated.
        if length != 0 {
            runs.push((usize::from(length), 1));
            left -= 1;
        }
        while left > 0 {
            let (symbol, times) = match (length, left) {
                (0, 11..) => (18, left.min(138)),
                (0, 3..) => (17, left),
                (1.., 3..) => (16, left.min(6)),
                (_, _) => (usize::from(length), 1),
            };
            runs.push((symbol, times));
            left -= times;
        }
    }
    runs
}

/// The codes of symbols, as they stand in the stream.
pub(super) fn codes(lengths: &[u8]) -> Vec<u32> {
    let mut count = [0u32; 16];
    for length in lengths {
        count[usize::from(*length)] += 1;
    }
    count[0] = 0;
    let mut next = [0u32; 16];
    for length in 1..16 {
        next[length] = (next[length - 1] + count[length - 1]) << 1;
    }
    let code = |length: &u8| {
        let length = usize::from(*length);
        if length == 0 {
            return 0;
        }
        let code = next[length];
        next[length] += 1;
        (code << (32 - length)).reverse_bits()
    };
    lengths.iter().map(code).collect()
}

/// Finds symbols by their codes.
pub(super) struct Decoder {
    /// For 15 bits of the stream, the symbol that they begin with and the bits of its code.
    table: Vec<(u16, u8)>,
}

impl Decoder {
    /// None if there are more codes than bits can tell apart.
    pub(super) fn new(lengths: &[u8]) -> Option<Decoder> {
        let taken: usize = lengths.iter().filter(|n| **n > 0).map(|n| 1 << (15 - n)).sum();
        if taken > 1 << 15 {
            return None;
        }
        let mut table = vec![(0, 0); 1 << 15];
        for (symbol, (length, code)) in lengths.iter().zip(codes(lengths)).enumerate() {
            if *length > 0 {
                for place in (code as usize..1 << 15).step_by(1 << length) {
                    table[place] = (symbol as u16, *length);
                }
            }
        }
        Some(Decoder { table })
    }

    /// None at the end, and for bits that are no code.
    pub(super) fn symbol(&self, bits: &mut BitReader<'_>) -> Option<usize> {
        let (symbol, length) = self.table[bits.peek()];
        if length == 0 {
            return None;
        }
        bits.take(u32::from(length))?;
        Some(usize::from(symbol))
    }
}

/// A tree under construction: the first nodes are the symbols.
struct Nodes {
    often: Vec<u32>,
    depth: Vec<u8>,
    parent: Vec<usize>,
    /// A heap from 1 on, the rarest on top.
    heap: Vec<usize>,
}

impl Nodes {
    /// Of two that are equally rare, the one with less below it comes first, and of two with as
    /// much, the one that is met first.
    fn before(&self, one: usize, other: usize) -> bool {
        (self.often[one], self.depth[one]) <= (self.often[other], self.depth[other])
    }

    fn sink(&mut self, mut at: usize) {
        let node = self.heap[at];
        let last = self.heap.len() - 1;
        let mut child = 2 * at;
        while child <= last {
            if child < last && self.before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if self.before(node, self.heap[child]) {
                break;
            }
            self.heap[at] = self.heap[child];
            at = child;
            child = 2 * at;
        }
        self.heap[at] = node;
    }
}

/// The lengths of zlib's codes for symbols that come up so often, up to the last that has one.
fn code_lengths(often: &[u32], most: u8) -> Vec<u8> {
    let symbols = often.len();
    let mut nodes = Nodes {
        often: often.to_vec(),
        depth: vec![0; symbols],
        parent: vec![0; symbols],
        heap: vec![0],
    };
    nodes.heap.extend((0..symbols).filter(|symbol| often[*symbol] > 0));
    let mut last = nodes.heap.get(1..).and_then(<[_]>::last).copied();
    // There are always two codes.
    while nodes.heap.len() < 3 {
        let forced = match last {
            None => 0,
            Some(last) if last < 2 => last + 1,
            Some(_) => 0,
        };
        if last.is_none_or(|last| last < 2) {
            last = Some(forced);
        }
        nodes.heap.push(forced);
        nodes.often[forced] = 1;
    }
    let last = last.unwrap_or(0);
    for at in (1..=(nodes.heap.len() - 1) / 2).rev() {
        nodes.sink(at);
    }
    // Nodes from the most frequent, the root, down to the rarest.
    let mut order = Vec::new();
    while nodes.heap.len() > 2 {
        let one = nodes.heap.swap_remove(1);
        nodes.sink(1);
        let two = nodes.heap[1];
        order.extend([one, two]);
        let node = nodes.often.len();
        nodes.often.push(nodes.often[one] + nodes.often[two]);
        nodes.depth.push(nodes.depth[one].max(nodes.depth[two]) + 1);
        nodes.parent.push(0);
        (nodes.parent[one], nodes.parent[two]) = (node, node);
        nodes.heap[1] = node;
        nodes.sink(1);
    }
    order.push(nodes.heap[1]);
    order.reverse();
    let mut lengths = limited(&nodes.parent, &order, symbols, most);
    lengths.truncate(last + 1);
    lengths
}

/// Lengths by the depth in the tree, none more than `most`; `order` is from the root down.
fn limited(parent: &[usize], order: &[usize], symbols: usize, most: u8) -> Vec<u8> {
    let mut lengths = vec![0u8; parent.len()];
    let mut count = [0usize; 16];
    let mut beyond = 0i32;
    for node in &order[1..] {
        let mut length = lengths[parent[*node]] + 1;
        if length > most {
            (length, beyond) = (most, beyond + 1);
        }
        lengths[*node] = length;
        if *node < symbols {
            count[usize::from(length)] += 1;
        }
    }
    if beyond > 0 {
        let most = usize::from(most);
        while beyond > 0 {
            // A leaf moves down and takes one of those that are too deep as its brother.
            let above = (1..most).rev().find(|length| count[*length] > 0).unwrap_or(1);
            count[above] = count[above].saturating_sub(1);
            count[above + 1] += 2;
            count[most] = count[most].saturating_sub(1);
            beyond -= 2;
        }
        let mut leaves = order.iter().rev().filter(|node| **node < symbols);
        for length in (1..=most).rev() {
            for leaf in leaves.by_ref().take(count[length]) {
                lengths[*leaf] = length as u8;
            }
        }
    }
    lengths.truncate(symbols);
    lengths
}
