//! Numbers that look like chance and follow from a seed.

/// Of so many seeds one is about large files.
const LARGE_EVERY: u64 = 6;

pub struct Chance {
    state: u64,
    /// Large files, of which the kernel may read and write some by itself, are there too.
    pub large: bool,
}

impl Chance {
    pub fn new(seed: u64) -> Chance {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut chance = Chance { state, large: seed % LARGE_EVERY == LARGE_EVERY - 1 };
        // Seeds that are close to each other begin alike.
        (0..4).for_each(|_| _ = chance.next());
        chance
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// True so many times of a hundred.
    pub fn percent(&mut self, of_a_hundred: usize) -> bool {
        self.below(100) < of_a_hundred
    }
}
